"""The stage: results on disk, finished runs kept, models saved and used."""

import gzip
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from evaluation_cases import (
    make_project,
    read_results,
    request,
    sentiment,
    tsv,
    write,
    write_glue,
    write_model,
)
from safetensors.torch import load_file

from electra_cli.errors import BelowThresholdError, InputError, MemoryShortError, UsageError
from electra_cli.evaluation import glue, task_runs
from electra_cli.evaluation.glue import evaluate
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.published import published
from electra_cli.evaluation.request import (
    check_threshold_names,
    check_thresholds,
    parse_seeds,
    parse_thresholds,
    split_names,
)
from electra_cli.evaluation.results import DataFacts, Results, RunScore, TaskResult
from electra_cli.evaluation.sources import load_task
from electra_cli.evaluation.stage import eval_glue
from electra_cli.evaluation.subject import results_folder
from electra_cli.evaluation.submission import SUBMITTED, load_test_files, write_submission
from electra_cli.evaluation.tasks import GLUE, SCORED_IN_GLUE
from electra_cli.progress import Silent
from electra_cli.project import Project


class Recorder(Silent):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.tasks: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None:
        self.tasks.append(task)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    write_glue(folder / "glue")
    write_model(folder / "model")
    return folder


@pytest.fixture
def place(tmp_path: Path, shared: Path) -> Path:
    """A folder of its own with the shared data and model."""
    (tmp_path / "glue").symlink_to(shared / "glue")
    (tmp_path / "model").symlink_to(shared / "model")
    return tmp_path


def test_results_json_has_the_documented_fields(place: Path) -> None:
    report = evaluate(
        make_project(place), place / "model", request(place, tasks=("mnli",), limit=20), Silent()
    )
    content = read_results(report.folder)
    for name in ("model", "checkpoint_step", "protocol", "data", "limited", "tasks", "glue"):
        assert name in content
    assert content["limited"] is True
    assert content["glue"] is None
    tasks = content["tasks"]
    assert isinstance(tasks, dict) and set(tasks) == {"mnli-m", "mnli-mm"}
    entry = tasks["mnli-m"]
    for name in ("metric", "runs", "num_ok", "num_runs", "median", "mean", "std", "min", "max", "published"):
        assert name in entry
    assert set(entry["runs"][0]) == {"seed", "value", "metrics", "status", "reason", "seconds"}
    assert entry["num_runs"] == 2
    small = next(one for one in entry["published"] if one["system"] == "ELECTRA-Small++")
    assert (small["value"], small["statistic"]) == (0.813, "median")
    assert "google-research/electra" in small["source"]
    assert set(content["data"]) == {"source", "split", "sha256"}  # type: ignore[arg-type]
    assert "**Limited**" in (report.folder / "results.md").read_text("utf-8")


def test_a_run_that_does_not_fit_names_what_to_change(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    wanted = request(place, tasks=("cola",))
    for name in ("run_seed", "measure_pace"):
        with monkeypatch.context() as patch, pytest.raises(MemoryShortError) as caught:
            patch.setattr(glue, name, full)
            evaluate(make_project(place), place / "model", wanted, Silent())
        assert caught.value.exit_code == 8 and caught.value.key == "evaluate.batch_size"


def test_a_killed_evaluation_continues_behind_the_last_finished_seed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, wanted = make_project(place, seeds=3), request(place, tasks=("cola",))
    plain = task_runs.run_seed
    started: list[int] = []

    def counted(prepared: object, setup: object, seed: int, advance: object) -> object:
        started.append(seed)
        if len(started) == 3:
            raise KeyboardInterrupt
        return plain(prepared, setup, seed, advance)  # type: ignore[arg-type]

    monkeypatch.setattr(glue, "run_seed", counted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(project, place / "model", wanted, Silent())
    assert not (place / "out/results.json").exists()
    second = evaluate(project, place / "model", wanted, Silent())
    assert started == [0, 1, 2, 2]
    recorder = Recorder()
    third = evaluate(project, place / "model", wanted, recorder)
    assert started == [0, 1, 2, 2]
    assert third.results == second.results
    assert any("3 finished runs" in message for message in recorder.messages)


def test_other_data_settings_or_weights_do_not_use_finished_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    plain = task_runs.run_seed

    def counted(prepared: object, setup: object, seed: int, advance: object) -> object:
        started.append(seed)
        return plain(prepared, setup, seed, advance)  # type: ignore[arg-type]

    monkeypatch.setattr(glue, "run_seed", counted)
    wanted = request(place, tasks=("cola",), seeds=(0,), limit=16)
    evaluate(make_project(place), place / "model", wanted, Silent())
    evaluate(make_project(place), place / "model", replace(wanted, limit=17), Silent())
    evaluate(make_project(place, learning_rate=1e-3), place / "model", wanted, Silent())
    other = write_model(place / "other", std=0.1)
    evaluate(make_project(place), other, wanted, Silent())
    assert len(started) == 4
    # A damaged file of a finished run counts as none.
    for path in (place / "out/runs").iterdir():
        path.write_bytes(b'{"format": 1')
    evaluate(make_project(place), place / "model", wanted, Silent())
    assert len(started) == 5


def test_tasks_run_one_after_another_stand_in_one_file(place: Path) -> None:
    project = make_project(place, seeds=1)
    evaluate(project, place / "model", request(place, tasks=("cola",), limit=16), Silent())
    report = evaluate(project, place / "model", request(place, tasks=("rte",), limit=16), Silent())
    assert [result.name for result in report.results.tasks] == ["cola", "rte"]
    assert report.asked == ("rte",)
    # Another part of the data is marked; other settings start the file afresh.
    report = evaluate(project, place / "model", request(place, tasks=("sst2",), limit=12), Silent())
    assert [(result.name, result.data.limit) for result in report.results.tasks] == [
        ("cola", 16),
        ("rte", 16),
        ("sst2", 12),
    ]
    assert report.results.as_markdown().count("(limited to 12)") == 1
    other = make_project(place, seeds=1, learning_rate=1e-3)
    report = evaluate(other, place / "model", request(place, tasks=("sst2",), limit=12), Silent())
    assert [result.name for result in report.results.tasks] == ["sst2"]


def test_a_labelled_diagnostic_set_is_answered_by_the_mnli_model(place: Path, tmp_path: Path) -> None:
    data = tmp_path / "with-ax"
    write_glue(data)
    write(
        data / "AX/diagnostic-full.tsv",
        "Logic\tPremise\tHypothesis\tLabel\n\tthe cat\tthe dog is same\tentailment\n"
        "\tthe cat\tthe dog is other\tneutral\n",
    )
    wanted = replace(request(place, tasks=("ax",), seeds=(0,), limit=12), data=data)
    report = evaluate(make_project(place), place / "model", wanted, Silent())
    assert report.asked == ("mnli-m", "mnli-mm", "ax")
    with pytest.raises(InputError, match="has no labels"):
        evaluate(make_project(place), place / "model", replace(wanted, data=place / "glue"), Silent())


def test_a_saved_model_answers_files_as_it_did_its_dev_set(place: Path) -> None:
    project = make_project(place, seeds=2)
    wanted = request(place, tasks=("sst2",), save_models=True)
    lines = ["sentence"] + [sentiment(number)[0] for number in range(24)]
    file = write(place / "new.tsv", "\n".join(lines) + "\n")
    outcome = eval_glue(project, place / "model", replace(wanted, predict=file), Silent())
    assert outcome.report is not None and outcome.predictions is not None
    rows = [line.split("\t") for line in outcome.predictions.read_text("utf-8").splitlines()]
    assert rows[0] == ["index", "prediction", "p:0", "p:1"]
    assert len(rows) == 25 == outcome.num_predictions + 1
    for _, prediction, zero, one in rows[1:]:
        assert float(zero) + float(one) == pytest.approx(1, abs=2e-6)
        assert prediction == ("1" if float(one) > float(zero) else "0")
    truth = [sentiment(number)[1] for number in range(24)]
    share = sum(row[1] == label for row, label in zip(rows[1:], truth, strict=True)) / 24
    (result,) = outcome.report.results.tasks
    assert share == pytest.approx(max(run.value or 0 for run in result.runs))
    # Without fine-tuning again, from the folder itself as well.
    saved = place / "out/fine_tuned/sst2"
    alone = eval_glue(project, saved, request(place, predict=file), Silent())
    assert alone.report is None and alone.predictions is not None
    assert alone.predictions.read_bytes() == outcome.predictions.read_bytes()
    assert set(load_file(saved / "head.safetensors")) == {"weight", "bias"}


def test_the_encoder_of_a_saved_model_loads_in_transformers_with_its_label_names(place: Path) -> None:
    transformers = pytest.importorskip("transformers")
    wanted = request(place, tasks=("rte",), seeds=(0,), limit=16, save_models=True)
    evaluate(make_project(place), place / "model", wanted, Silent())
    folder = place / "out/fine_tuned/rte"
    model, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.config.id2label == {0: "entailment", 1: "not_entailment"}
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_a_bert_folder_of_transformers_is_evaluated(place: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pieces = (place / "model/vocab.txt").read_text("utf-8").split()
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    transformers.BertForMaskedLM(config).save_pretrained(place / "bert")
    write(place / "bert/vocab.txt", "\n".join(pieces) + "\n")
    recorder = Recorder()
    report = evaluate(
        make_project(place), place / "bert", request(place, tasks=("rte",), seeds=(0,), limit=16), recorder
    )
    assert report.asked == ("rte",)
    assert "inputs are cut to the model's 32 positions" in recorder.messages


def test_a_run_may_start_from_a_model_of_another_task(place: Path) -> None:
    project = make_project(place, seeds=1)
    wanted = request(place, tasks=("rte",), limit=16, init_from="mnli")
    with pytest.raises(InputError, match="no fine-tuned model 'mnli'") as caught:
        evaluate(project, place / "model", wanted, Silent())
    assert "--task mnli --save-model" in caught.value.hint
    evaluate(project, place / "model", request(place, tasks=("mnli",), limit=16, save_models=True), Silent())
    plain = evaluate(project, place / "model", replace(wanted, init_from=""), Silent())
    started = evaluate(project, place / "model", wanted, Silent())
    assert started.results.settings != plain.results.settings
    assert len(list((place / "out/runs").glob("rte-0-*.json"))) == 2


def test_predicting_without_a_saved_model_says_how_to_get_one(place: Path) -> None:
    file = write(place / "new.tsv", "sentence\ngood\n")
    with pytest.raises(InputError, match="no fine-tuned model of SST-2") as caught:
        eval_glue(
            make_project(place), place / "model", request(place, tasks=("sst2",), predict=file), Silent()
        )
    assert "--save-model" in caught.value.hint
    with pytest.raises(UsageError, match="one task"):
        eval_glue(make_project(place), place / "model", request(place, predict=file), Silent())


def test_a_submission_is_eleven_files_of_the_right_length(place: Path) -> None:
    project = make_project(place, seeds=1, batch_size=32)
    wanted = request(place, tasks=SUBMITTED, save_models=True, limit=24)
    report = evaluate(project, place / "model", wanted, Silent())
    rows = dict.fromkeys(
        (split.result for task in GLUE.values() for split in task.splits if split.role == "test"), 6
    )
    tests = load_test_files(glue.place_of(project, request(place)), rows)
    out = place / "out/submission.zip"
    count = write_submission(report.folder / glue.MODELS, tests, out, glue.arithmetic_of(project), Silent())
    assert count == 11
    with zipfile.ZipFile(out) as archive:
        assert sorted(archive.namelist()) == sorted(f"{name}.tsv" for name in rows)
        for name in archive.namelist():
            lines = archive.read(name).decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert [line.split("\t")[0] for line in lines[1:]] == list("012345")
        answers = {line.split("\t")[1] for line in archive.read("AX.tsv").decode().splitlines()[1:]}
        assert answers <= {"entailment", "neutral", "contradiction"}
        scores = [float(x.split("\t")[1]) for x in archive.read("STS-B.tsv").decode().splitlines()[1:]]
        assert all(0 <= score <= 5 for score in scores)


def test_a_submission_refuses_test_files_that_are_missing_or_not_the_official_ones(place: Path) -> None:
    project = make_project(place)
    with pytest.raises(InputError, match="has 6 rows; the leaderboard expects 1,063"):
        eval_glue(project, place / "model", request(place, submit=True), Silent())
    with pytest.raises(UsageError, match="neither --task"):
        eval_glue(project, place / "model", request(place, submit=True, limit=3), Silent())


def result_of(name: str, *values: float | None) -> TaskResult:
    runs = tuple(
        RunScore(
            seed=seed,
            value=value,
            metrics={},
            status="ok" if value is not None else "failed",
            reason="",
            seconds=1.0,
        )
        for seed, value in enumerate(values)
    )
    facts = DataFacts(source="here", sha256="", num_train=1, num_dev=1, skipped={}, bad_rows={})
    return TaskResult(name=name, metric=GLUE.get(name, GLUE["mnli"]).metric, runs=runs, data=facts)


def results_of(*tasks: TaskResult) -> Results:
    return Results(
        model="m",
        model_sha256="",
        checkpoint_step=None,
        protocol="electra",
        settings={},
        arithmetic="fp32 on cpu",
        tasks=tasks,
    )


def test_the_glue_score_needs_all_eight_tasks() -> None:
    eight = [result_of(name, 0.1 * n, None) for n, name in enumerate(SCORED_IN_GLUE)]
    assert results_of(*eight, result_of("mnli-mm", 0.0)).glue == pytest.approx(0.35)
    assert results_of(*eight[1:]).glue is None
    assert results_of(result_of(SCORED_IN_GLUE[0], None), *eight[1:]).glue is None


def test_statistics_are_over_ok_runs_alone() -> None:
    entry = result_of("cola", 0.1, None, 0.3, 0.2).as_json()
    assert (entry["num_ok"], entry["num_runs"], entry["median"], entry["min"], entry["max"]) == (
        3,
        4,
        0.2,
        0.1,
        0.3,
    )
    assert entry["mean"] == pytest.approx(0.2)
    assert entry["std"] == pytest.approx(0.1)


def test_a_score_below_its_threshold_fails() -> None:
    results = results_of(result_of("mnli-m", 0.785))
    check_thresholds(parse_thresholds(["mnli-m=78"]), results)
    with pytest.raises(BelowThresholdError, match=r"mnli-m 78\.5 < 79") as caught:
        check_thresholds(parse_thresholds(["mnli-m=79"]), results)
    assert not caught.value.hint
    with pytest.raises(BelowThresholdError, match="glue – < 1") as caught:
        check_thresholds(parse_thresholds(["glue=1"]), results)
    assert "a dash is a score that no run gave" in caught.value.hint
    with pytest.raises(UsageError, match="not scored here"):
        check_threshold_names({"mnli": 79.0}, ["mnli-m"])
    for wrong in ("mnli-m", "mnli-m=", "=3", "mnli-m=nan"):
        with pytest.raises(UsageError):
            parse_thresholds([wrong])


def test_seeds_are_a_number_or_a_list() -> None:
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds("4,0") == (4, 0)
    assert parse_seeds("7,") == (7,)
    assert parse_seeds("") == ()
    for wrong in ("0", "-1", "1,1", "a", "1,-2", ","):
        with pytest.raises(UsageError):
            parse_seeds(wrong)
    assert split_names(["mnli, rte", "cola"]) == ("mnli", "rte", "cola")


def test_published_scores_are_shares_with_their_source() -> None:
    for name in SCORED_IN_GLUE:
        rows = published(name)
        assert {row.system for row in rows} >= {"ELECTRA-Small++", "ELECTRA-Small-OWT", "ELECTRA-Base++"}
        assert all(0 < row.value < 1 and row.source and row.statistic for row in rows)
    owt = [next(r.value for r in published(n) if r.system == "ELECTRA-Small-OWT") for n in SCORED_IN_GLUE]
    # The mean that the source gives is 80.36 over these eight.
    assert 100 * sum(owt) / 8 == pytest.approx(80.36, abs=0.12)


def test_results_of_a_run_lie_in_the_run_and_others_under_their_name(tmp_path: Path) -> None:
    project: Project = make_project(tmp_path)
    run = tmp_path / "runs/one"
    write(run / "status.json", "{}")
    assert results_folder(run / "export/encoder", project) == (run / "evaluate/glue").resolve()
    assert results_folder(tmp_path / "models/bert", project) == project.evaluate_dir / "glue/bert"
    assert results_folder(tmp_path / "models/mine/encoder", project) == project.evaluate_dir / "glue/mine"


def test_the_real_three_way_set_runs_in_mnlis_layout(data_folder: Path, place: Path, tmp_path: Path) -> None:
    names = {"train": "train", "trial": "dev_matched", "test_annotated": "dev_mismatched"}
    for theirs, ours in names.items():
        packed = (data_folder / f"nli-sick/SICK_{theirs}.txt.gz").read_bytes()
        lines = gzip.decompress(packed).decode().splitlines()[1:]
        fields = [line.split("\t") for line in lines]
        rows = [[a, b, judgement.lower()] for _, a, b, _, judgement in fields]
        write(tmp_path / f"sick/MNLI/{ours}.tsv", tsv(["sentence1", "sentence2", "gold_label"], *rows))
    wanted = replace(request(place, tasks=("mnli",), seeds=(0,), limit=48), data=tmp_path / "sick")
    report = evaluate(make_project(place), place / "model", wanted, Silent())
    assert report.asked == ("mnli-m", "mnli-mm")
    whole = load_task(GLUE["mnli"], Place(folder=tmp_path / "sick"))
    assert (len(whole.train), *(len(dev) for dev in whole.dev.values())) == (4500, 500, 4927)
