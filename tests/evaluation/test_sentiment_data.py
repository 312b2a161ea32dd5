"""Three-way sentiment: merged sets, their sources, the published numbers, and an encoder that learns it."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from evaluation_cases import make_project, request, write, write_model

from electra_cli.commands._boundary import run as run_boundary
from electra_cli.errors import CorruptError, InputError
from electra_cli.evaluation import glue, hub, task_runs
from electra_cli.evaluation.answers_file import read_answers, write_answers
from electra_cli.evaluation.builtin_tasks import choose
from electra_cli.evaluation.encoding import encode
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.finetune import read
from electra_cli.evaluation.glue import evaluate
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.predict import labels_of, predict
from electra_cli.evaluation.saved import load_fine_tuned
from electra_cli.evaluation.scores import macro_f1
from electra_cli.evaluation.sentiment import SENTIMENT, SST, published_order
from electra_cli.evaluation.sources import load_task, load_texts
from electra_cli.main import app
from electra_cli.progress import Silent

CLASSES = ("negative", "neutral", "positive")


def text_of(number: int) -> str:
    return f"the film {number} is {('bad', 'a film', 'good')[number % 3]}"


def merged_csv(numbers: range, source: str = "dynasent_r1") -> str:
    rows = "".join(f'"{text_of(n)}",{CLASSES[n % 3]},{source},train\n' for n in numbers)
    return "sentence,label,source,split\n" + rows


def write_merged(folder: Path, num_train: int = 30, num_dev: int = 12) -> Path:
    write(folder / "train_all.csv", merged_csv(range(num_train)))
    write(folder / "val_all.csv", merged_csv(range(100, 100 + num_dev)))
    write(folder / "test_all.csv", merged_csv(range(200, 200 + num_dev), SST))
    return folder


def write_sources(folder: Path) -> Path:
    """Small files in the layouts of DynaSent and the Treebank, rows without a majority among them."""
    for split in ("train", "dev", "test"):
        for name, label in (("round01-yelp", "positive"), ("round02-dynabench", "neutral")):
            rows = [
                {"sentence": f"{name} {split} one", "gold_label": label, "text_id": "r1-1"},
                {"sentence": f"{name} {split} two", "gold_label": None, "text_id": "r1-2"},
                {"sentence": f"{name} {split} three", "gold_label": "mixed", "text_id": "r1-3"},
            ]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            write(folder / f"dynasent-v1.1/dynasent-v1.1-{name}-{split}.jsonl", lines)
        trees = f"(1 (2 {split}) (2 (2 was) (0 -LRB-bad-RRB-)))\n(4 (3 {split}) (4 excels))\n(2 {split})\n"
        write(folder / f"trees/{split}.txt", trees)
    return folder


def test_sources_are_merged_with_three_classes_and_their_names(tmp_path: Path) -> None:
    folder = write_sources(tmp_path / "sentiment")
    data = load_task(SENTIMENT, Place(folder=tmp_path))
    assert data.source == str(folder)
    train = data.train
    assert train.skipped == {"no gold label": 4}
    ends = [
        "round01-yelp train one",
        "round02-dynabench train one",
        "train was -LRB-bad-RRB-",
        "train excels",
        "train",
    ]
    order = published_order(5)
    assert list(train.texts) == [ends[place] for place in order]
    assert train.sources is not None and train.target_N is not None
    labelled = dict(zip(train.texts, zip(train.sources, train.target_N, strict=True), strict=True))
    assert labelled["train excels"] == (SST, 2.0)
    assert labelled["train was -LRB-bad-RRB-"] == (SST, 0.0)
    assert labelled["train"] == (SST, 1.0)
    assert labelled["round01-yelp train one"] == ("dynasent_r1", 2.0)
    assert list(data.dev) == ["sentiment", "sentiment-test"]


def test_the_tabular_treebank_serves_as_well(tmp_path: Path) -> None:
    folder = write_sources(tmp_path / "sentiment")
    (folder / "trees/dev.txt").unlink()
    lines = "".join(f"__label__{number}\ttext {number}\n" for number in range(1, 6))
    (folder / "sst_dev.txt.gz").write_bytes(gzip.compress(lines.encode()))
    dev = load_task(SENTIMENT, Place(folder=tmp_path)).dev["sentiment"]
    assert dev.target_N is not None
    found = dict(zip(dev.texts, dev.target_N, strict=True))
    assert [found[f"text {number}"] for number in range(1, 6)] == [0, 0, 1, 2, 2]


@pytest.mark.parametrize("line", ["(5 (2 a))", "(2 (2 a)", "__label__6\ta", "__label__3", "a b c", ""])
def test_a_line_that_is_no_sentence_of_the_treebank_is_named(tmp_path: Path, line: str) -> None:
    folder = write_sources(tmp_path / "sentiment")
    write(folder / "trees/dev.txt", f"(2 fine)\n{line}\n")
    with pytest.raises(InputError, match=r"trees/dev\.txt has 1 unusable row\n  line 2"):
        load_task(SENTIMENT, Place(folder=tmp_path))


def test_a_missing_source_is_named_with_what_to_do(tmp_path: Path) -> None:
    folder = write_sources(tmp_path / "sentiment")
    (folder / "dynasent-v1.1/dynasent-v1.1-round02-dynabench-train.jsonl").unlink()
    with pytest.raises(InputError, match=r"missing: dynasent_r2: dynasent-v1\.1-round02") as caught:
        load_task(SENTIMENT, Place(folder=tmp_path))
    assert "hf download jbeno/sentiment_merged" in caught.value.hint


def test_merged_files_go_before_sources_wherever_they_lie(tmp_path: Path) -> None:
    folder = write_sources(tmp_path / "sentiment")
    write(folder / "merged/val_all.csv", merged_csv(range(7)))
    data = load_task(SENTIMENT, Place(folder=tmp_path))
    assert len(data.dev["sentiment"]) == 7
    assert len(data.train) == 5


def test_other_numbers_than_published_are_told_with_both_values(tmp_path: Path) -> None:
    write_merged(tmp_path / "sentiment")
    write(tmp_path / "sentiment/test_all.csv", merged_csv(range(12), SST))
    remarks = load_task(SENTIMENT, Place(folder=tmp_path)).remarks
    assert "validation: 12 rows of dynasent_r1, the published set has 3,600" in remarks
    assert "validation: 0 rows of sst_local, the published set has 1,101" in remarks
    wanted = "test: 4 / 4 / 4 rows of the classes, the published set has 2,352 / 1,829 / 2,349"
    assert wanted in remarks
    assert "test: 12 of its texts are training texts too" in remarks
    # Without a source column only the whole number is known.
    bare = "sentence,label\n" + "".join(f"{text_of(n)},{CLASSES[n % 3]}\n" for n in range(6))
    write(tmp_path / "sentiment/val_all.csv", bare)
    remarks = load_task(SENTIMENT, Place(folder=tmp_path)).remarks
    assert "validation: 6 rows, the published set has 5,421" in remarks


def test_the_hub_has_the_merged_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[str, str, str]] = []

    def from_cache(name: str, config: str, split: str) -> object:
        asked.append((name, config, split))
        numbers = range({"train": 30, "validation": 6, "test": 9}[split])
        return datasets.Dataset.from_dict(
            {
                "sentence": [text_of(n) for n in numbers],
                "label": [CLASSES[n % 3] for n in numbers],
                "source": ["dynasent_r2"] * len(numbers),
            }
        )

    monkeypatch.setattr(hub, "why_offline", lambda: "")
    monkeypatch.setattr(datasets, "load_dataset", from_cache)
    data = load_task(SENTIMENT, Place(folder=tmp_path / "nothing"))
    splits = ("train", "validation", "test")
    assert set(asked) == {("jbeno/sentiment_merged", "default", split) for split in splits}
    assert data.train.sources == ("dynasent_r2",) * 30
    assert len(data.dev["sentiment-test"]) == 9


def test_the_task_is_chosen_by_its_name() -> None:
    assert choose(["Sentiment"], []) == (SENTIMENT,)


def real_rows(path: Path) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode(), newline=""))


def test_the_real_merged_sets_are_the_sources_in_the_published_order(
    data_folder: Path, tmp_path: Path
) -> None:
    names = {"validation": ("val_all", "dev"), "test": ("test_all", "test")}
    folder = tmp_path / "sentiment"
    for file, short in names.values():
        rows = list(real_rows(data_folder / f"sentiment/merged/{file}.csv.gz"))
        by_place = {int(place): row for place, row in zip(published_order(len(rows)), rows, strict=True)}
        for number, name, first in ((1, "yelp", 0), (2, "dynabench", 3600)):
            mine = [by_place[first + n] for n in range((3600, 720)[number - 1])]
            assert {row["source"] for row in mine} == {f"dynasent_r{number}"}
            lines = (json.dumps({"sentence": r["sentence"], "gold_label": r["label"]}) for r in mine)
            stem = f"dynasent-v1.1-round0{number}-{name}"
            write(folder / f"{stem}-{short}.jsonl", "\n".join(lines) + "\n")
        packed = (data_folder / f"sentiment/sst5/trees_{short}.txt.gz").read_bytes()
        write(folder / f"trees_{short}.txt", gzip.decompress(packed).decode())
    # DynaSent's training part is not at hand.
    write(folder / "train_all.csv", merged_csv(range(30)))
    ours = load_task(SENTIMENT, Place(folder=tmp_path))
    for file, _ in names.values():
        packed = (data_folder / f"sentiment/merged/{file}.csv.gz").read_bytes()
        write(tmp_path / f"whole/sentiment/{file}.csv", gzip.decompress(packed).decode())
    write(tmp_path / "whole/sentiment/train_all.csv", merged_csv(range(30)))
    theirs = load_task(SENTIMENT, Place(folder=tmp_path / "whole"))
    assert ours.sha256 == theirs.sha256
    for split in ("sentiment", "sentiment-test"):
        assert ours.dev[split].sources == theirs.dev[split].sources
    assert not [remark for remark in theirs.remarks if not remark.startswith("train")]


def own_task_file(tmp_path: Path, rows: list[dict[str, str]]) -> Path:
    for name, some in (("train", rows[::2]), ("dev", rows[1::2])):
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, ["sentence", "label", "source"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(some)
        write(tmp_path / f"{name}.csv", out.getvalue())
    return write(
        tmp_path / "project.toml",
        '[evaluate]\nprotocol = "sentiment"\nlearning_rate = 1e-3\nlayer_decay = 1.0\nbatch_size = 16\n'
        "seeds = 1\n"
        '[[evaluate.task]]\nname = "reviews"\ntrain = "train.csv"\ndev = "dev.csv"\ntext = "sentence"\n'
        'metric = "macro_f1"\nlabels = ["negative", "neutral", "positive"]\nepochs = 2\n',
    )


def test_an_encoder_is_tuned_on_part_of_the_real_set_and_what_it_says_is_kept(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(real_rows(data_folder / "sentiment/merged/val_all.csv.gz"))[:96]
    assert {row["label"] for row in rows} == set(CLASSES)
    own_task_file(tmp_path, rows)
    write_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELECTRA_SET", raising=False)
    command = ["eval-glue", "--task", "reviews", "--model", "model"]
    assert run_boundary(app, [*command, "--save-model", "--predict", "dev.csv"]) == 0
    assert "macro_f1" in capsys.readouterr().out
    out = tmp_path / "evaluate/glue/model"
    content = json.loads((out / "results.json").read_text("utf-8"))
    (run,) = content["tasks"]["reviews"]["runs"]
    assert content["protocol"] == "sentiment"
    assert {"macro_f1", "macro_f1:dynasent_r1"} <= set(run["metrics"])
    # What is kept says what was scored.
    (path,) = (out / "answers").iterdir()
    kept = read_answers(path)
    assert kept.classes == CLASSES and len(kept) == len(rows[1::2])
    assert kept.sources == tuple(row["source"] for row in rows[1::2])
    assert kept.labels == tuple(row["label"] for row in rows[1::2])
    assert kept.predictions == tuple(CLASSES[place] for place in kept.probability_NC.argmax(1))
    np.testing.assert_allclose(kept.probability_NC.sum(1), 1, rtol=1e-6)
    assert kept.state_ND.shape == (len(rows[1::2]), 32)
    numbers = [np.array([CLASSES.index(name) for name in names]) for names in (kept.labels, kept.predictions)]
    assert run["value"] == pytest.approx(macro_f1(*numbers).value)
    # The saved model says the same, from its own folder.
    saved = load_fine_tuned(out / "fine_tuned/reviews")
    assert saved.facts.protocol == "sentiment"
    again = read_answers(out / "predictions/reviews-dev.arrow")
    assert again.predictions == kept.predictions
    np.testing.assert_allclose(again.state_ND, kept.state_ND, rtol=1e-5, atol=1e-6)
    # A rerun is free, unless its answers are gone.
    ran: list[int] = []
    plain = task_runs.run_seed

    def counted(prepared: object, setup: object, seed: int, advance: object) -> object:
        ran.append(seed)
        return plain(prepared, setup, seed, advance)  # type: ignore[arg-type]

    monkeypatch.setattr(glue, "run_seed", counted)
    assert run_boundary(app, command) == 0
    assert ran == []
    before = path.read_bytes()
    path.unlink()
    assert run_boundary(app, command) == 0
    assert ran == [0]
    assert path.read_bytes() == before


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_merged(tmp_path / "glue/sentiment")
    write_model(tmp_path / "model")
    return tmp_path


def test_the_task_is_scored_on_validation_and_test_beside_the_papers(place: Path) -> None:
    project = make_project(place, protocol="sentiment", seeds=1, learning_rate=1e-3)
    wanted = replace(request(place), data=place / "glue", tasks=("sentiment",))
    short = replace(SENTIMENT, epochs=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glue, "choose", lambda names, own: (short,))
        report = evaluate(project, place / "model", wanted, Silent())
    assert report.asked == ("sentiment", "sentiment-test")
    entry = report.results.as_json()["tasks"]["sentiment-test"]  # type: ignore[index]
    assert entry["published"][0]["value"] == 0.7914
    assert any("the published set has" in remark for remark in entry["data"]["remarks"])
    assert "Of the data:" in (report.folder / "results.md").read_text("utf-8")
    names = sorted(path.name.partition("-0-")[0] for path in (report.folder / "answers").iterdir())
    assert names == ["sentiment", "sentiment-test"]


def stored(place: Path) -> tuple[Path, Examples]:
    setup = glue.load_setup(make_project(place, protocol="sentiment"), place / "model", request(place))
    examples = load_task(SENTIMENT, Place(folder=place / "glue")).dev["sentiment"]
    classifier = setup.classifier(SENTIMENT)
    reading = read(classifier, encode(examples, setup.subject.text_encoder, 64), setup.arithmetic)
    answers = task_runs.answers_of(SENTIMENT, (0.0, 1.0), examples, reading.output_NC)
    answers = replace(answers, state_ND=reading.state_ND)
    path = place / "kept.arrow"
    labels = labels_of(SENTIMENT, examples)
    write_answers(path, answers.stored(task="sentiment", split="dev", model="key", labels=labels))
    return path, examples


def test_kept_answers_are_read_back_and_damage_is_noticed(place: Path) -> None:
    path, examples = stored(place)
    kept = read_answers(path)
    assert (kept.task, kept.split, kept.model) == ("sentiment", "dev", "key")
    assert kept.examples_sha256 == examples.sha256
    assert kept.labels == tuple(CLASSES[number % 3] for number in range(100, 112))
    table = pa.ipc.open_file(str(path)).read_all()
    assert table.column_names == ["index", "source", "label", "prediction", "probabilities", "state"]
    with pytest.raises(InputError, match="no kept answers"):
        read_answers(place / "nowhere.arrow")
    content = path.read_bytes()
    for damaged in (content[:-20], b"x" * 40, b""):
        path.write_bytes(damaged)
        with pytest.raises(CorruptError, match="not what electra wrote"):
            read_answers(path)


def test_any_texts_are_answered_with_states(place: Path) -> None:
    project = make_project(place, protocol="sentiment", seeds=1, learning_rate=1e-3)
    short = replace(SENTIMENT, epochs=1)
    wanted = replace(request(place, save_models=True), data=place / "glue", tasks=("sentiment",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glue, "choose", lambda names, own: (short,))
        report = evaluate(project, place / "model", wanted, Silent())
    model = load_fine_tuned(report.folder / "fine_tuned/sentiment")
    file = write(place / "new.csv", "sentence\ngood film\nbad film\n")
    texts = load_texts(model.facts.task, file, skip_bad=False)
    arithmetic = Arithmetic("fp32", "as set", next(model.classifier.parameters()).device)
    answers = predict(model, texts, arithmetic, with_states=True)
    assert answers.state_ND is not None and answers.state_ND.shape == (2, 32)
    assert predict(model, texts, arithmetic).state_ND is None
