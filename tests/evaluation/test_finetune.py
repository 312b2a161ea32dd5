"""One run: the head, the loss, and what happens when a run goes wrong."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_cases import make_project, pair_of, request, tsv, write, write_model

from electra_cli.evaluation.classifier import HEADS, Classifier
from electra_cli.evaluation.encoding import encode, gather
from electra_cli.evaluation.finetune import Recipe, answer, batch_loss, fine_tune, num_steps
from electra_cli.evaluation.glue import evaluate, load_setup
from electra_cli.evaluation.judge import judge
from electra_cli.evaluation.layer_rates import Rates
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.setup import Setup
from electra_cli.evaluation.sources import TaskData, load_task
from electra_cli.evaluation.task_runs import prepare, run_seed
from electra_cli.evaluation.tasks import GLUE
from electra_cli.progress import Silent
from electra_cli.settings_protocols import ELECTRA, ELECTRA_MEAN, PROTOCOLS


def recipe(learning_rate: float, epochs: int = 3) -> Recipe:
    return Recipe(
        epochs=epochs,
        batch_size=16,
        rates=Rates(learning_rate, 1.0, "paper"),
        weight_decay=0.0,
        warmup_fraction=0.1,
        dropout=0.0,
        sequence_length=64,
    )


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return load_setup(make_project(tmp_path), write_model(tmp_path / "model"), request(tmp_path))


def score_task(folder: Path) -> TaskData:
    """64 pairs whose score the second text's words tell."""
    rows = []
    for number in range(64):
        words = ["good"] * (number % 6) + ["bad"] * (5 - number % 6)
        rows.append(["the film", " ".join(words), f"{number % 6}.000"])
    for split in ("train", "dev"):
        write(folder / f"STS-B/{split}.tsv", tsv(["sentence1", "sentence2", "score"], *rows))
    return load_task(GLUE["stsb"], Place(folder=folder))


def test_case_E04_64_scores_are_learned_by_heart(tmp_path: Path, setup: Setup) -> None:
    data = score_task(tmp_path)
    prepared = prepare(data, setup)
    failure = fine_tune(
        prepared.classifier,
        setup.subject.initial,
        prepared.training,
        recipe(3e-3, epochs=25),
        0,
        setup.arithmetic,
    )
    output_NC = answer(prepared.classifier, prepared.dev["stsb"], setup.arithmetic)
    truth_N = data.dev["stsb"].target_N
    assert not failure and truth_N is not None
    score = judge(data.task, truth_N, output_NC, scale=(0.0, 5.0), seed=0, seconds=0.0)
    assert score.metrics["pearson"] is not None and score.metrics["pearson"] > 0.99


def test_case_E04_the_loss_never_broadcasts_a_column_against_a_row() -> None:
    output_B1, target_B = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0])
    assert batch_loss(output_B1, target_B, is_regression=True).item() == 2.0
    with pytest.raises(AssertionError):
        batch_loss(output_B1.squeeze(1), target_B, is_regression=True)


def test_protocol_electra_mean_classifies_the_mean_of_the_real_states() -> None:
    head = HEADS[PROTOCOLS["electra-mean"].head](3, 2, 0.0)
    state_BSD = torch.arange(12.0).view(1, 4, 3)
    # The last token is padding.
    output_BC = head(state_BSD, torch.tensor([[1, 1, 1, 0]]))
    mean_D = torch.tensor([3.0, 4.0, 5.0])
    expected_C = (head.weight.double() @ mean_D.double()).float()
    torch.testing.assert_close(output_BC[0], expected_C)
    assert [f.name for f in fields(ELECTRA) if getattr(ELECTRA, f.name) != getattr(ELECTRA_MEAN, f.name)] == [
        "name",
        "head",
    ]


def test_case_E05_a_model_that_learns_nothing_is_marked_with_the_reason() -> None:
    truth_N = np.array([0.0, 1.0, 1.0])
    constant_NC = np.array([[0.0, 1.0]] * 3, dtype=np.float32)
    score = judge(GLUE["cola"], truth_N, constant_NC, scale=(0.0, 1.0), seed=0, seconds=0.0)
    assert (score.value, score.status) == (0.0, "degenerate")
    assert "every answer is '1'" in score.reason
    score = judge(GLUE["stsb"], truth_N, constant_NC[:, :1], scale=(0.0, 5.0), seed=0, seconds=0.0)
    assert (score.value, score.status) == (None, "undefined")
    assert "all the same" in score.reason


def test_case_E05_a_rate_of_0_moves_nothing(tmp_path: Path, setup: Setup) -> None:
    prepared = prepare(score_task(tmp_path), setup)
    fine_tune(
        prepared.classifier, setup.subject.initial, prepared.training, recipe(0.0, 1), 0, setup.arithmetic
    )
    for name, value in prepared.classifier.encoder.state_dict().items():
        assert torch.equal(value, setup.subject.initial[name]), name


def test_case_K25_a_run_that_leaves_the_numbers_is_failed_and_stops(tmp_path: Path, setup: Setup) -> None:
    prepared = prepare(score_task(tmp_path), setup)
    broken = {name: value.clone() for name, value in setup.subject.initial.items()}
    broken["embeddings.word_VE"][:] = float("nan")
    steps: list[int] = []
    failure = fine_tune(
        prepared.classifier, broken, prepared.training, recipe(1.0), 0, setup.arithmetic, steps.append
    )
    assert "the loss was not finite" in failure
    assert len(steps) == 20 < num_steps(len(prepared.training.encoded), recipe(1.0))
    score = judge(GLUE["stsb"], np.zeros(2), None, scale=(0.0, 5.0), seed=0, seconds=0.0, failure=failure)
    assert (score.value, score.status, score.reason) == (None, "failed", failure)


def test_a_run_is_a_function_of_its_seed(tmp_path: Path) -> None:
    project = make_project(tmp_path, dropout=0.1)
    setup = load_setup(project, write_model(tmp_path / "model"), request(tmp_path))
    prepared = prepare(score_task(tmp_path), setup)
    outputs = []
    for seed in (0, 1, 0):
        fine_tune(
            prepared.classifier,
            setup.subject.initial,
            prepared.training,
            recipe(1e-3, 1),
            seed,
            setup.arithmetic,
        )
        outputs.append(answer(prepared.classifier, prepared.dev["stsb"], setup.arithmetic))
    assert np.array_equal(outputs[0], outputs[2])
    assert not np.array_equal(outputs[0], outputs[1])


def test_padding_changes_no_answer(tmp_path: Path, setup: Setup) -> None:
    data = score_task(tmp_path).dev["stsb"]
    texts = replace(data.first(2), texts=("good", "a very very very good film"), pairs=("bad", "the plot"))
    encoded = encode(texts, setup.subject.text_encoder, 64)
    classifier = Classifier(setup.subject.encoder, 3, 0.0).eval()
    classifier.head.reset(0)
    with torch.inference_mode():
        alone = classifier(gather(encoded, np.array([0]), 0, torch.device("cpu")))
        beside = classifier(gather(encoded, np.array([0, 1]), 0, torch.device("cpu")))[:1]
    # Two float32 sums in another order.
    torch.testing.assert_close(alone, beside, rtol=1e-5, atol=1e-6)


def test_swapped_pairs_double_the_training_set_of_unordered_tasks(tmp_path: Path, setup: Setup) -> None:
    data = score_task(tmp_path)
    assert len(prepare(data, setup).training.encoded) == 128
    plain = replace(setup, settings=setup.settings.model_copy(update={"swap_pairs": False}))
    assert len(prepare(data, plain).training.encoded) == 64


def test_case_P33_the_order_of_the_label_names_changes_nothing(tmp_path: Path, setup: Setup) -> None:
    header = ["sentence1", "sentence2", "label"]
    rows = [list(pair_of(number, ["entailment", "not_entailment"])) for number in range(32)]
    for split in ("train", "dev"):
        write(tmp_path / f"glue/RTE/{split}.tsv", tsv(header, *rows))
    scores = []
    for labels in (("entailment", "not_entailment"), ("not_entailment", "entailment")):
        task = replace(GLUE["rte"], labels=labels, epochs=2)
        prepared = prepare(load_task(task, Place(folder=tmp_path / "glue")), setup)
        score = run_seed(prepared, setup, 0).scores["rte"]
        scores.append(replace(score, seconds=0.0))
    assert scores[0] == scores[1]


def test_case_K25_runs_that_do_not_count_are_shown_and_left_out(tmp_path: Path) -> None:
    from evaluation_cases import write_glue

    write_glue(tmp_path / "glue", 32, 16)
    # A rate of 5 throws the network far off; what comes out is constant or not finite.
    project = make_project(tmp_path, learning_rate=5.0)
    report = evaluate(project, write_model(tmp_path / "model"), request(tmp_path, tasks=("cola",)), Silent())
    (result,) = report.results.tasks
    assert {run.status for run in result.runs} <= {"failed", "degenerate", "undefined"}
    entry = result.as_json()
    assert (entry["num_ok"], entry["num_runs"], entry["median"], entry["mean"]) == (0, 2, None, None)
    markdown = (report.folder / "results.md").read_text("utf-8")
    assert "Runs that are not in these statistics" in markdown
    assert "0/2" in markdown
