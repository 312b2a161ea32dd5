"""A run's answers against the labels: its scores, and whether it counts."""

# N examples, C outputs

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from electra_cli.evaluation.results import RunScore, Status
from electra_cli.evaluation.scores import compute
from electra_cli.evaluation.tasks import Task

Numbers = NDArray[np.float64]


def score_scale(task: Task, target_N: Numbers) -> tuple[float, float]:
    """Lowest and highest score of a regression task: its own range, else that of the training scores."""
    if task.score_range is not None:
        return task.score_range
    low, high = float(target_N.min()), float(target_N.max())
    return (low, high) if high > low else (low, low + 1.0)


def predictions(task: Task, output_NC: NDArray[np.float32], scale: tuple[float, float]) -> Numbers:
    """Class numbers, or scores on the task's own scale (not cut to its range)."""
    if task.is_regression:
        low, high = scale
        return output_NC[:, 0].astype(np.float64) * (high - low) + low
    value_N: Numbers = output_NC.argmax(1).astype(np.float64)
    return value_N


def judge(
    task: Task,
    truth_N: Numbers,
    output_NC: NDArray[np.float32] | None,
    *,
    scale: tuple[float, float],
    seed: int,
    seconds: float,
    failure: str = "",
    sources: Sequence[str] | None = None,
) -> RunScore:
    """The run's score on one dev split.

    "failed": training or an answer was not finite. "undefined": the metric has no value. "degenerate": one
    class for every example although the labels differ, which is the score of no model at all. `output_NC` is
    `None` only with a `failure`. With `sources`, one an example, the headline metric of each stands among the
    metrics, as `macro_f1:dynasent_r1`.
    """
    names = (task.metric, *task.other_metrics)
    if not failure and (output_NC is None or not np.all(np.isfinite(output_NC))):
        failure = "an answer is not finite"
    if failure or output_NC is None:
        return RunScore(
            seed=seed,
            value=None,
            metrics=dict.fromkeys(names),
            status="failed",
            reason=failure,
            seconds=seconds,
        )
    predicted_N = predictions(task, output_NC, scale)
    positive = task.classes.index(task.positive) if task.positive else 1
    scores = {name: compute(name, truth_N, predicted_N, positive=positive) for name in names}
    headline = scores[task.metric]
    status: Status = "ok"
    reason = headline.reason
    if headline.value is None:
        status = "undefined"
    elif not task.is_regression and np.all(predicted_N == predicted_N[0]) and np.any(truth_N != truth_N[0]):
        status = "degenerate"
        answer = task.classes[int(predicted_N[0])]
        share = float(np.mean(truth_N == predicted_N[0]))
        reason = f"every answer is {answer!r}, which {100 * share:.1f} % of the labels are"
    elif headline.reason:
        status = "undefined"
    for source in sorted(set(sources or ())):
        is_from_N = np.array([one == source for one in sources or ()])
        scores[f"{task.metric}:{source}"] = compute(
            task.metric, truth_N[is_from_N], predicted_N[is_from_N], positive=positive
        )
    return RunScore(
        seed=seed,
        value=headline.value,
        metrics={name: score.value for name, score in scores.items()},
        status=status,
        reason=reason,
        seconds=seconds,
    )
