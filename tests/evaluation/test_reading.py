"""Task files: official layouts with their traps, unusable rows named, nothing dropped silently."""

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluation_cases import THREE, pair_of, tsv, write, write_glue
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.errors import CorruptError, InputError, ProjectError, UsageError
from electra_cli.evaluation import hub
from electra_cli.evaluation.builtin_tasks import choose
from electra_cli.evaluation.own_tasks import own_task
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.sources import TaskData, load_task, load_test, load_texts
from electra_cli.evaluation.tasks import GLUE, SCORED_IN_GLUE
from electra_cli.settings import OwnTask

ALL = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


def rte(folder: Path, rows: str, **place: object) -> TaskData:
    """RTE whose dev file is good and whose training file is `rows` behind the header."""
    header = "index\tsentence1\tsentence2\tlabel\n"
    write(folder / "RTE/train.tsv", header + rows)
    write(folder / "RTE/dev.tsv", header + "0\ta\tb\tentailment\n")
    return load_task(GLUE["rte"], Place(folder=folder, **place))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALL)
def test_case_K27_every_task_loads_from_its_official_layout(glue: Path, name: str) -> None:
    data = load_task(GLUE[name], Place(folder=glue))
    assert len(data.train) == 48
    assert [len(examples) for examples in data.dev.values()] == ([24, 24] if name == "mnli" else [24])
    assert data.train.target_N is not None
    assert not data.train.skipped
    num_labels = {"mnli": 3, "stsb": 0}.get(name, 2)
    assert len(data.task.classes) == num_labels
    if num_labels:
        assert set(data.train.target_N) == set(range(num_labels))


@pytest.mark.parametrize("name", [*ALL, "ax"])
def test_case_K27_test_files_load_without_labels(glue: Path, name: str) -> None:
    for examples in load_test(GLUE[name], Place(folder=glue)).values():
        assert len(examples) == 6
        assert examples.target_N is None
        assert examples.indices == tuple("012345")


def test_case_K27_quotation_marks_an_empty_question_and_a_byte_order_mark_survive(glue: Path) -> None:
    mrpc = load_task(GLUE["mrpc"], Place(folder=glue)).train
    assert mrpc.texts[0] == '"the cat is a cat'
    assert mrpc.pairs is not None and not mrpc.pairs[0].endswith("\r")
    qqp = load_task(GLUE["qqp"], Place(folder=glue)).train
    assert qqp.pairs is not None and qqp.pairs[0] == ""


def test_case_E02_the_text_of_sst2_is_found_by_its_header(glue: Path) -> None:
    (examples,) = load_test(GLUE["sst2"], Place(folder=glue)).values()
    assert examples.texts[0].startswith("the film is bad")


def test_case_E06_rows_without_a_gold_label_are_skipped_and_counted(tmp_path: Path) -> None:
    data = rte(tmp_path, "0\ta\tb\t-\n1\ta\tb\tentailment\n2\ta\tb\t-1\n")
    assert len(data.train) == 1
    assert data.train.skipped == {"no gold label": 2}


def test_case_E06_null_and_mixed_labels_of_own_tasks_are_skipped_and_counted(tmp_path: Path) -> None:
    labels = ["positive", None, "mixed", "negative"]
    rows = [json.dumps({"text": "a", "gold": label}) for label in labels]
    write(tmp_path / "train.jsonl", "\n".join(rows))
    task = OwnTask(
        name="dyna",
        train="train.jsonl",
        dev="train.jsonl",
        label="gold",
        labels=["negative", "neutral", "positive"],
    )
    data = load_task(own_task(task, tmp_path.joinpath), Place(folder=tmp_path))
    assert len(data.train) == 2
    assert data.train.skipped == {"no gold label": 2}


@pytest.mark.parametrize("label", ["-1", "-"])
def test_case_E07_a_split_without_labels_is_never_scored(tmp_path: Path, label: str) -> None:
    header = "index\tsentence1\tsentence2\tlabel\n"
    write(tmp_path / "WNLI/train.tsv", header + "0\ta\tb\t1\n")
    write(tmp_path / "WNLI/dev.tsv", header + f"0\ta\tb\t{label}\n1\ta\tb\t{label}\n")
    with pytest.raises(InputError, match="none of its 2 rows has a label"):
        load_task(GLUE["wnli"], Place(folder=tmp_path))


def test_case_E07_a_test_file_named_dev_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "QQP/train.tsv", "id\tquestion1\tquestion2\tis_duplicate\n0\ta\tb\t1\n")
    write(tmp_path / "QQP/dev.tsv", "id\tquestion1\tquestion2\n0\ta\tb\n")
    with pytest.raises(InputError, match="no column 'is_duplicate' or 'label'"):
        load_task(GLUE["qqp"], Place(folder=tmp_path))


def test_case_I09_unusable_rows_are_named_by_line_and_counted(tmp_path: Path) -> None:
    rows = "0\ta\tb\tentailment\n" + "1\ta\tb\n" * 3 + "2\ta\tb\tmaybe\n" + "3\ta\tb\tentailment\tx\n" * 3
    with pytest.raises(InputError) as caught:
        rte(tmp_path, rows)
    text = caught.value.message
    assert "7 unusable rows" in text
    assert "line 3: 3 columns instead of 4 columns" in text
    assert "line 6: unknown label 'maybe'" in text
    assert "… and 2 more" in text
    assert caught.value.line == 3
    assert "--skip-bad" in caught.value.hint


def test_case_I09_skip_bad_leaves_rows_out_and_lists_them(tmp_path: Path) -> None:
    data = rte(tmp_path, "0\ta\tb\tentailment\n1\ta\n2\ta\tb\t\n", skip_bad=True)
    assert len(data.train) == 1
    assert [(row.line, row.reason) for row in data.train.bad_rows] == [
        (3, "2 columns instead of 4 columns"),
        (4, "the label is empty"),
    ]


def test_case_I09_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    write(tmp_path / "rte/train.tsv", "Label\tsentence2\tnotes\tsentence1\nentailment\tb\tx\ta\n")
    write(tmp_path / "rte/dev.tsv", "label\tsentence2\tsentence1\nnot_entailment\tb\ta\n")
    data = load_task(GLUE["rte"], Place(folder=tmp_path))
    assert (data.train.texts, data.train.pairs) == (("a",), ("b",))


def test_case_I09_a_missing_header_is_an_error_that_shows_the_first_line(tmp_path: Path) -> None:
    write(tmp_path / "RTE/train.tsv", "0\tone\ttwo\tentailment\n")
    write(tmp_path / "RTE/dev.tsv", "0\tone\ttwo\tentailment\n")
    with pytest.raises(InputError, match=r"no column 'sentence1'.* and 'sentence2'.*'one'"):
        load_task(GLUE["rte"], Place(folder=tmp_path))


def test_case_I09_a_field_may_be_longer_than_the_csv_module_likes_and_hold_nul(tmp_path: Path) -> None:
    long = "x" * 200_000
    data = rte(tmp_path, f"0\t{long}\tb\0c\tentailment\n")
    assert data.train.texts[0] == long
    assert data.train.pairs == ("b\0c",)


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        ("5.001", "outside 0 … 5"),
        ("-0.1", "outside 0 … 5"),
        ("nan", "not finite"),
        ("", "empty"),
        ("good", "no number"),
    ],
)
def test_case_I09_scores_are_checked(tmp_path: Path, score: str, reason: str) -> None:
    for split in ("train", "dev"):
        write(tmp_path / f"STS-B/{split}.tsv", tsv(["sentence1", "sentence2", "score"], ["a", "b", score]))
    with pytest.raises(InputError, match=reason):
        load_task(GLUE["stsb"], Place(folder=tmp_path))


def test_an_invalid_byte_and_a_cut_archive_are_damage(tmp_path: Path) -> None:
    write(tmp_path / "RTE/train.tsv", "")
    (tmp_path / "RTE/train.tsv").write_bytes(b"sentence1\tsentence2\tlabel\na\t\xff\tentailment\n")
    write(tmp_path / "RTE/dev.tsv", "sentence1\tsentence2\tlabel\na\tb\tentailment\n")
    with pytest.raises(CorruptError, match="byte 2 of line 2"):
        load_task(GLUE["rte"], Place(folder=tmp_path))
    packed = gzip.compress(b"sentence1\tsentence2\tlabel\n" + b"a\tb\tentailment\n" * 999)
    (tmp_path / "RTE/train.tsv").unlink()
    (tmp_path / "RTE/train.tsv.gz").write_bytes(packed[:-20])
    with pytest.raises(CorruptError, match="cut short"):
        load_task(GLUE["rte"], Place(folder=tmp_path))


FIELD = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=6))
def test_case_P31_every_row_comes_out_as_it_went_in(rows: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = "".join(f"{n}\t{a}\t{b}\tentailment\n" for n, (a, b) in enumerate(rows))
        train = rte(folder, text).train
    assert train.texts == tuple(a for a, _ in rows)
    assert train.pairs == tuple(b for _, b in rows)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "parts", "tsv.gz"])
def test_the_kind_of_file_does_not_change_the_content(tmp_path: Path, kind: str) -> None:
    rows = [(f'a "{n}" , x', f"b\u2028{n}", THREE[n % 3]) for n in range(7)]
    plain = tsv(["sentence1", "sentence2", "gold_label"], *(list(row) for row in rows))
    for name in ("train", "dev_matched", "dev_mismatched"):
        write(tmp_path / f"plain/MNLI/{name}.tsv", plain)
        stem = name.replace("dev", "validation")
        folder = tmp_path / "other/mnli"
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "tsv.gz":
            (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(plain.encode()))
        elif kind == "csv":
            buffer = io.StringIO()
            csv.writer(buffer).writerows([("premise", "hypothesis", "label"), *rows])
            write(folder / f"{stem}.csv", buffer.getvalue())
        elif kind == "jsonl":
            lines = [json.dumps({"premise": a, "hypothesis": b, "label": c}) for a, b, c in rows]
            write(folder / f"{stem}.jsonl", "\n".join(lines))
        else:
            # The Hub numbers its classes.
            table = pa.table(
                {
                    "premise": [row[0] for row in rows],
                    "hypothesis": [row[1] for row in rows],
                    "label": [THREE.index(row[2]) for row in rows],
                    "idx": list(range(7)),
                }
            )
            if kind == "parquet":
                pq.write_table(table, folder / f"{stem}.parquet")
            else:
                pq.write_table(table.slice(0, 3), folder / f"{stem}-00000-of-00002.parquet")
                pq.write_table(table.slice(3), folder / f"{stem}-00001-of-00002.parquet")
    ours = load_task(GLUE["mnli"], Place(folder=tmp_path / "plain"))
    theirs = load_task(GLUE["mnli"], Place(folder=tmp_path / "other"))
    assert ours.sha256 == theirs.sha256
    assert set(theirs.dev) == {"mnli-m", "mnli-mm"}


def test_json_rows_that_are_unusable_are_named(tmp_path: Path) -> None:
    lines = ['{"text": "a", "label": "x"}', "{", "[1]", '{"text": 3, "label": "x"}', '{"label": "x"}']
    write(tmp_path / "t.jsonl", "\n".join([*lines, '{"text": "\\ud800", "label": "y"}']))
    task = own_task(OwnTask(name="own", train="t.jsonl", dev="t.jsonl", labels=["x", "y"]), tmp_path.joinpath)
    with pytest.raises(InputError, match="5 unusable rows") as caught:
        load_task(task, Place(folder=tmp_path))
    for expected in ("line 2: not JSON", "line 3: not a JSON object", "line 4: field 'text' is no text"):
        assert expected in caught.value.message


def test_a_folder_that_lacks_a_file_says_which_and_what_it_holds(tmp_path: Path) -> None:
    write(tmp_path / "QNLI/dev.tsv", "question\tsentence\tlabel\na\tb\tentailment\n")
    with pytest.raises(InputError, match=r"QNLI: no train file .*holds dev\.tsv"):
        load_task(GLUE["qnli"], Place(folder=tmp_path))


def test_without_files_and_network_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"MNLI is not on this machine, and the network is off") as caught:
        load_task(GLUE["mnli"], Place(folder=tmp_path / "data/glue"))
    assert "hf download nyu-mll/glue" in caught.value.hint


def test_a_hub_out_of_reach_is_noticed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    # Nothing listens on the discard port.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.why_offline.cache_clear()
    try:
        with pytest.raises(
            InputError, match=r"RTE is not on this machine, and 127\.0\.0\.1 cannot be reached"
        ):
            load_task(GLUE["rte"], Place(folder=tmp_path))
        # What the library reads when it is imported: no more attempts.
        assert os.environ["HF_HUB_OFFLINE"] == "1"
    finally:
        hub.why_offline.cache_clear()


def test_the_hub_gives_the_content_of_the_official_files(
    tmp_path: Path, glue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    official = load_task(GLUE["mnli"], Place(folder=glue))
    asked: list[tuple[str, str, str]] = []

    def from_cache(name: str, config: str, split: str) -> object:
        asked.append((name, config, split))
        names = {
            "train": "train",
            "validation_matched": "dev_matched",
            "validation_mismatched": "dev_mismatched",
        }
        table = load_texts(GLUE["mnli"], glue / f"MNLI/{names[split]}.tsv", skip_bad=False)
        labels = [pair_of(number, THREE)[2] for number in range(len(table))]
        return datasets.Dataset.from_dict(
            {
                "premise": list(table.texts),
                "hypothesis": list(table.pairs or ()),
                "label": [THREE.index(label) for label in labels],
                "idx": list(range(len(table))),
            }
        )

    monkeypatch.setattr(hub, "why_offline", lambda: "")
    monkeypatch.setattr(datasets, "load_dataset", from_cache)
    data = load_task(GLUE["mnli"], Place(folder=tmp_path / "nothing"))
    assert data.sha256 == official.sha256
    assert data.source == "nyu-mll/glue mnli"
    assert set(asked) == {
        ("nyu-mll/glue", "mnli", split) for split in ("train", "validation_matched", "validation_mismatched")
    }


def test_own_classes_come_from_the_training_file(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "text,label\na,red\nb,blue\n")
    task = own_task(OwnTask(name="own", train="t.csv", dev="t.csv"), tmp_path.joinpath)
    assert load_task(task, Place(folder=tmp_path)).task.classes == ("blue", "red")


def test_an_own_test_file_is_scored_only_with_labels(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "text,label\na,red\nb,blue\n")
    write(tmp_path / "bare.csv", "text\na\n")
    write(tmp_path / "withheld.csv", "text,label\na,-1\n")
    for test, names in (("t.csv", {"own", "own-test"}), ("bare.csv", {"own"}), ("withheld.csv", {"own"})):
        task = own_task(OwnTask(name="own", train="t.csv", dev="t.csv", test=test), tmp_path.joinpath)
        assert set(load_task(task, Place(folder=tmp_path)).dev) == names


def test_a_regression_task_with_classes_is_a_project_error(tmp_path: Path) -> None:
    settings = OwnTask(name="own", train="t.csv", dev="t.csv", metric="spearman", labels=["a", "b"])
    with pytest.raises(ProjectError, match="labels must be empty"):
        own_task(settings, tmp_path.joinpath)


def test_tasks_are_chosen_by_any_usual_spelling_and_unknown_ones_get_a_suggestion() -> None:
    assert [task.name for task in choose(["SST-2", "mnli-mm", "sts_b", "MNLI"], [])] == [
        "sst2",
        "mnli",
        "stsb",
    ]
    with pytest.raises(UsageError) as caught:
        choose(["mnly"], [])
    assert "did you mean mnli?" in caught.value.hint


def test_the_glue_score_is_the_mean_of_the_eight_known_results() -> None:
    names = [name for task in ALL[:-1] for name in GLUE[task].dev_names]
    assert set(SCORED_IN_GLUE) == set(names) - {"mnli-mm"}


def test_texts_to_answer_need_no_labels(tmp_path: Path) -> None:
    write(tmp_path / "new.tsv", "sentence1\tsentence2\nc\td\n")
    assert load_texts(GLUE["rte"], tmp_path / "new.tsv", skip_bad=False).texts == ("c",)


REAL = {
    "cola": (8551, 1043),
    "sst2": (67_349, 872),
    "mrpc": (3576, 500),
    "stsb": (5749, 1500),
    "wnli": (635, 71),
}


@pytest.mark.parametrize("name", REAL)
def test_the_real_files_give_every_row(data_folder: Path, name: str) -> None:
    data = load_task(GLUE[name], Place(folder=data_folder / "glue"))
    assert (len(data.train), *(len(examples) for examples in data.dev.values())) == REAL[name]
    assert not data.train.skipped


def test_the_real_test_files_give_every_row(data_folder: Path) -> None:
    folder = data_folder / "glue"
    assert len(load_texts(GLUE["sst2"], folder / "SST-2/test-labeled.tsv", skip_bad=False)) == 1821
    assert len(load_texts(GLUE["qnli"], folder / "QNLI/dev.tsv.gz", skip_bad=False)) == 5463
    assert len(load_texts(GLUE["mrpc"], folder / "MRPC/msr-para-test.tsv.gz", skip_bad=False)) == 1725
    assert len(load_texts(GLUE["stsb"], folder / "STS-B/sts-test.csv.gz", skip_bad=False)) == 1379
