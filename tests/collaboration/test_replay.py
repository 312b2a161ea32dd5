"""The published run comes out of its recordings, by the command that the documentation names."""

import re
import shlex
from pathlib import Path

import pytest
from collaboration_cases import read_results, write
from conftest import RunElectra

from electra_cli.errors import InputError, UsageError
from electra_cli.pipeline_replay import ReplayRequest, replay
from electra_cli.project import load_project
from electra_cli.project import project_from_settings as with_settings
from electra_cli.settings import ProjectSettings
from electra_cli.settings_collaborate import Collaborate

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "collaborate.md"

SCORES = {
    "4o-mini": 0.7952,
    "4o": 0.8014,
    "base": 0.7929,
    "large": 0.8236,
    "mini + base label": 0.8274,
    "mini + large label": 0.8349,
    "mini fine-tuned": 0.8677,
    "4o fine-tuned": 0.8683,
}
CASCADES = {
    "base 10 % → 4o-mini": (0.8102, 0.0910),
    "base 20 % → 4o-mini": (0.8215, 0.1885),
    "base 20 % → 4o": (0.8236, 0.1885),
    "base 30 % → 4o-mini": (0.8239, 0.2899),
    "base 30 % → 4o": (0.8276, 0.2899),
    "large 20 % → 4o-mini": (0.8434, None),
    "large 10 % → 4o": (0.8392, None),
}


def documented_command() -> list[str]:
    blocks = re.findall(
        r"```console\n\$ (electra collaborate --replay .*?)```", PAGE.read_text("utf-8"), re.S
    )
    assert len(blocks) == 1
    return shlex.split(blocks[0].replace("\\\n", " "))[1:]


def test_the_documented_command_prints_the_published_figures(
    tmp_path: Path, data_folder: Path, electra: RunElectra
) -> None:
    (tmp_path / "sentiment").symlink_to(data_folder / "sentiment")
    # A key or an endpoint would be of no use: nothing is asked.
    printed = electra(*documented_command(), cwd=tmp_path, env={"HTTPS_PROXY": "http://127.0.0.1:9"}).stdout
    rows = {line.split("  ")[0].strip(): line for line in printed.splitlines()}
    for name, score in SCORES.items():
        assert f"  {score:.4f}  " in rows[name] + "  ", rows[name]
    for name, (score, share) in CASCADES.items():
        assert f"  {score:.4f}  " in rows[name], rows[name]
        assert share is None or f"  {share:.4f}  " in rows[name], rows[name]
    results = read_results(tmp_path / "replay")
    pair = {(one["first"], one["second"]): one for one in results["comparisons"]}  # type: ignore[attr-defined]
    one = pair["mini + base label", "base 20 % → 4o-mini"]
    assert -one["difference"] == pytest.approx(-0.0059, abs=5e-5)
    # The interval, from another bootstrap.
    assert [-one["interval"][1], -one["interval"][0]] == pytest.approx([-0.0126, 0.0013], abs=1e-3)
    assert 0.05 < one["mcnemar"]["p_value"] < 0.5
    assert pair["4o-mini", "mini + base label"]["mcnemar"]["p_value"] < 1e-3
    sources = results["strategies"]["4o-mini"]["sources"]  # type: ignore[index]
    assert sources.keys() == {"dynasent_r1", "dynasent_r2", "sst_local"}


def test_a_hint_is_followed_as_the_recordings_say(tmp_path: Path, data_folder: Path) -> None:
    """On 960 of the 1,469 rows where 4o-mini alone and ELECTRA-Base disagree, the hint wins."""
    project = with_settings(ProjectSettings(collaborate=Collaborate(resamples=1)), tmp_path)
    folder = data_folder / "sentiment" / "llm-recordings"
    request = ReplayRequest(
        file=folder / "predictions.csv.gz",
        columns=("r1:B3-G4OM",),
        encoder_columns=("r1:EB:p",),
        validation=(f"{folder / 'val-electra.csv.gz'}:EB:p",),
        compare=("r1:E3-G4OM-EBFT",),
        out=tmp_path / "out",
    )
    hinted = replay(project, request).results.strategies[2]
    assert hinted.followed is not None
    assert (hinted.followed.rows, hinted.followed.with_encoder) == (1469, 960)


RECORDED = "gold,llm,p\n0,0,0.9 0.1\n1,1,0.6 0.4\n1,0,0.2 0.8\n0,0,0.3 0.7\n"


def request(folder: Path, text: str = RECORDED, **values: object) -> ReplayRequest:
    file = write(folder / "recorded.csv", text)
    usual: dict[str, object] = {
        "file": file,
        "columns": ("llm",),
        "encoder_columns": ("e=p",),
        "validation": (f"{file}:p",),
        "out": folder / "out",
        "quantiles": (0.5,),
    }
    return ReplayRequest(**(usual | values))  # type: ignore[arg-type]


def test_a_small_replay_by_hand(tmp_path: Path) -> None:
    """Confidences .9 .6 .8 .7, median .75: the second and the fourth row are asked; then all are right."""
    report = replay(load_project(None, ["collaborate.resamples=10"], cwd=tmp_path), request(tmp_path))
    figures = [(one.outcome.name, one.outcome.num_calls, one.macro_f1) for one in report.results.strategies]
    assert figures == [("e", 0, 0.5), ("llm", 4, pytest.approx(11 / 15)), ("e 50 % → llm", 2, 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECORDED.replace("0.9 0.1", "0.9 0.2"), "no distribution"),
        (RECORDED.replace("0.9 0.1", "nan 0.1"), "no distribution"),
        (RECORDED.replace("0.9 0.1", "0.9"), "1 probabilities; there are 2 classes"),
        (RECORDED.replace("0.9 0.1", "0.9 x"), "no number"),
        (RECORDED.replace("1,1,", "1,2,"), "different label sets"),
        (RECORDED.replace("llm", "model"), "has no column 'llm'"),
        ("gold,llm,p\n", "holds no row"),
        ("gold,llm,p\n0,0\n", "unusable row"),
    ],
)
def test_a_recording_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay(load_project(None, [], cwd=tmp_path), request(tmp_path, text))


def test_data_of_other_rows_are_refused_with_the_row(tmp_path: Path) -> None:
    project = load_project(None, [], cwd=tmp_path)
    for labels, message in (("no yes yes yes", "row 3"), ("no yes yes", "3")):
        lines = "text,label\n" + "".join(f"t,{label}\n" for label in labels.split())
        data = write(tmp_path / "data.csv", lines)
        with pytest.raises(InputError, match=message):
            replay(project, request(tmp_path, data=data))


@pytest.mark.parametrize(
    "values",
    [
        {"columns": ()},
        {"encoder_columns": (), "validation": ()},
        {"validation": ("recorded.csv:p", "recorded.csv:p")},
        {"compare": ("llm",)},
        {"compare": ("e=llm",)},
        {"reference": "best"},
    ],
)
def test_columns_that_make_no_replay_are_refused(tmp_path: Path, values: dict[str, object]) -> None:
    """One of its kinds is missing, or two strategies would bear one name."""
    with pytest.raises(UsageError):
        replay(load_project(None, [], cwd=tmp_path), request(tmp_path, **values))
