"""The runs of one task: what they learn from, one seed after another, and the best model of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from electra_cli.errors import CorruptError
from electra_cli.evaluation.classifier import Classifier
from electra_cli.evaluation.encoding import Encoded, encode, joined
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.finetune import Advance, Outputs, TrainingSet, answer, fine_tune, read, unheard
from electra_cli.evaluation.judge import judge, score_scale
from electra_cli.evaluation.predict import Answers, answers_of
from electra_cli.evaluation.results import RunScore
from electra_cli.evaluation.saved import MARK, FineTunedFacts, read_facts, save_fine_tuned
from electra_cli.evaluation.setup import Setup
from electra_cli.evaluation.sources import TaskData


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A task in token ids, with the network that learns it."""

    data: TaskData
    training: TrainingSet
    dev: Mapping[str, Encoded]
    scale: tuple[float, float]
    """Lowest and highest score of a regression task."""
    classifier: Classifier


def prepare_training(data: TaskData, setup: Setup) -> tuple[TrainingSet, tuple[float, float]]:
    """What a task's runs learn from, both orders of a swapped pair included, and the range of its scores."""
    task, train = data.task, data.train
    assert train.target_N is not None
    scale = score_scale(task, train.target_N) if task.is_regression else (0.0, 1.0)
    target_N = (train.target_N - scale[0]) / (scale[1] - scale[0])
    encoded = _encode(train, setup)
    if setup.is_swapped(task) and train.pairs is not None:
        swapped = replace(train, texts=train.pairs, pairs=train.texts)
        encoded = joined([encoded, _encode(swapped, setup)])
        target_N = np.concatenate([target_N, target_N])
    return TrainingSet(encoded=encoded, target_N=target_N, is_regression=task.is_regression), scale


def prepare(data: TaskData, setup: Setup) -> Prepared:
    """Tokenize a task once for all its seeds."""
    training, scale = prepare_training(data, setup)
    return Prepared(
        data=data,
        training=training,
        dev={name: _encode(examples, setup) for name, examples in data.dev.items()},
        scale=scale,
        classifier=setup.classifier(data.task),
    )


def _encode(examples: Examples, setup: Setup) -> Encoded:
    return encode(examples, setup.subject.text_encoder, setup.max_length)


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """What one seed gave."""

    scores: Mapping[str, RunScore]
    """By dev split."""
    answers: Mapping[str, Answers]
    """By dev split, with pooled states; empty for a protocol that keeps none, and for a failed run."""


def run_seed(prepared: Prepared, setup: Setup, seed: int, advance: Advance = unheard) -> RunOutcome:
    """One fine-tuning run and its score on each dev split; the classifier holds the weights afterwards."""
    task = prepared.data.task
    began = perf_counter()

    def first_score() -> float | None:
        name, encoded = next(iter(prepared.dev.items()))
        output_NC = answer(prepared.classifier, encoded, setup.arithmetic)
        return _judged(prepared, name, output_NC, seed, 0.0).value

    failure = fine_tune(
        prepared.classifier,
        setup.initial(task),
        prepared.training,
        setup.recipe(task),
        seed,
        setup.arithmetic,
        advance,
        first_score,
    )
    outputs: dict[str, Outputs] = {}
    answers: dict[str, Answers] = {}
    for name, encoded in prepared.dev.items() if not failure else ():
        if not setup.protocol.keeps_answers:
            outputs[name] = answer(prepared.classifier, encoded, setup.arithmetic)
            continue
        reading = read(prepared.classifier, encoded, setup.arithmetic)
        outputs[name] = reading.output_NC
        plain = answers_of(task, prepared.scale, prepared.data.dev[name], reading.output_NC)
        answers[name] = replace(plain, state_ND=reading.state_ND)
    seconds = round(perf_counter() - began, 3)
    scores = {
        name: _judged(prepared, name, outputs.get(name), seed, seconds, failure) for name in prepared.dev
    }
    return RunOutcome(scores=scores, answers=answers)


def _judged(
    prepared: Prepared,
    name: str,
    output_NC: Outputs | None,
    seed: int,
    seconds: float,
    failure: str = "",
) -> RunScore:
    examples = prepared.data.dev[name]
    assert examples.target_N is not None
    return judge(
        prepared.data.task,
        examples.target_N,
        output_NC,
        scale=prepared.scale,
        seed=seed,
        seconds=seconds,
        failure=failure,
        sources=examples.sources,
    )


def headline(data: TaskData, scores: Mapping[str, RunScore]) -> float | None:
    """The score by which models of a task are compared: that of its first dev split, if the run is ok."""
    first = scores[next(iter(data.dev))]
    return first.value if first.status == "ok" else None


def is_saved(folder: Path, data: TaskData, setup: Setup, scores: Mapping[str, RunScore]) -> bool:
    """Whether `folder` holds a model of these runs that is at least as good as one of these scores."""
    if not (folder / MARK).is_file():
        return False
    try:
        facts = read_facts(folder)
    except CorruptError:
        # Whatever lies there is written anew.
        return False
    value = headline(data, scores)
    is_as_good = value is None or (facts.value is not None and facts.value >= value)
    return facts.key == setup.key(data, None) and is_as_good


def save_if_best(
    folder: Path, prepared: Prepared, setup: Setup, seed: int, scores: Mapping[str, RunScore]
) -> bool:
    """Keep the classifier in `folder` unless a better one of these runs lies there; says whether it did."""
    if is_saved(folder, prepared.data, setup, scores):
        return False
    if any(score.status == "failed" for score in scores.values()):
        return False
    facts = FineTunedFacts(
        task=prepared.data.task,
        scale=prepared.scale,
        sequence_length=setup.max_length,
        seed=seed,
        value=headline(prepared.data, scores),
        protocol=setup.protocol.name,
        key=setup.key(prepared.data, None),
    )
    save_fine_tuned(folder, prepared.classifier, facts, setup.subject.folder)
    return True
