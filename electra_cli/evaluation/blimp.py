"""The stage `eval-blimp`: zero-shot choices between the two sentences of minimal pairs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from electra_cli import durable
from electra_cli.errors import BelowThresholdError, UsageError
from electra_cli.evaluation.blimp_data import HUB_NAME, MinimalPairs, PairSets, load_pairs
from electra_cli.evaluation.blimp_results import BlimpResults, ModelScores, SetScore, Tally
from electra_cli.evaluation.blimp_scoring import Scorer
from electra_cli.evaluation.encoding import load_text_encoder
from electra_cli.evaluation.kept import fingerprint
from electra_cli.evaluation.subject import folder_sha256
from electra_cli.models.networks import load_network
from electra_cli.optimization.device import resolve_device
from electra_cli.progress import Progress
from electra_cli.project import Project

KEPT = "kept"
"""Folder of the finished sets of each model, below the results."""

FOLDER = "data/blimp"
"""Where the sets are looked for before the Hub is asked, from the project's folder."""

_METHOD = 1
"""Raised when the same inputs come to mean other scores; kept ones of older methods stay aside."""


@dataclass(frozen=True, kw_only=True)
class BlimpRequest:
    """Flags of eval-blimp."""

    data: str = ""
    """Folder, file or `hf://…`; empty: `data/blimp`, else the Hub."""
    limit: int = 0
    is_offline: bool = False
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Lowest shares in percent, by phenomenon or `overall`."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model to judge."""

    folder: Path
    """Of a discriminator or a masked language model."""
    name: str
    step: int | None


@dataclass(frozen=True, kw_only=True)
class BlimpReport:
    """What an evaluation wrote."""

    folder: Path
    results: BlimpResults


def load_sets(project: Project, request: BlimpRequest) -> PairSets:
    """The pairs that `request` names."""
    folder = project.resolve(FOLDER)
    source = request.data or (str(folder) if folder.is_dir() else HUB_NAME)
    return load_pairs(source, limit=request.limit, is_offline=request.is_offline)


def check_thresholds(request: BlimpRequest, pairs: PairSets) -> None:
    """Raise UsageError for a threshold of something that will not be scored."""
    known = ["overall", *sorted({one.phenomenon for one in pairs.sets})]
    for name in request.thresholds:
        if name not in known:
            raise UsageError(f"--fail-under {name}: not scored here", hint="there are: " + ", ".join(known))


def eval_blimp(
    project: Project,
    candidates: Iterable[Candidate],
    pairs: PairSets,
    folder: Path,
    progress: Progress,
    *,
    is_along_run: bool = False,
) -> BlimpReport:
    """Judge every candidate by every set; write results.json and results.md into `folder`.

    The last candidate's scores head the results; `is_along_run` lists all of them beside. A finished set of a
    model is kept at once, and the same call continues behind it.
    """
    device = resolve_device(project.settings.pretrain.device)
    total = sum(map(len, pairs.sets))
    progress.message(f"pairs  {total:,} in {len(pairs.sets)} sets from {pairs.source}")
    finished: list[ModelScores] = []
    with durable.locked(folder, "electra eval-blimp"):
        durable.remove_leftovers(folder)
        for candidate in candidates:
            finished.append(_judge(candidate, pairs, folder / KEPT, device, progress))
            # Written behind each, so that what is known of a run can be read while the rest is computed.
            results = _results(finished, pairs, device, is_along_run=is_along_run)
            durable.write_json(folder / "results.json", results.as_json())
            durable.write_text(folder / "results.md", results.as_markdown())
    assert finished, "there is at least one candidate"
    return BlimpReport(folder=folder, results=results)


def require_thresholds(request: BlimpRequest, results: BlimpResults) -> None:
    """Raise BelowThresholdError naming every share that is too low."""
    shares = {"overall": results.scores.overall, **results.scores.phenomena}
    below = [
        f"{name} {100 * shares[name].value:.1f} < {wanted:g}"
        for name, wanted in request.thresholds.items()
        if 100 * shares[name].value < wanted
    ]
    if below:
        raise BelowThresholdError(
            f"below the threshold{' (limited)' if results.limit else ''}: {', '.join(below)}"
        )


def _results(
    finished: Sequence[ModelScores], pairs: PairSets, device: torch.device, *, is_along_run: bool
) -> BlimpResults:
    return BlimpResults(
        scores=finished[-1],
        checkpoints=tuple(finished) if is_along_run else (),
        source=pairs.source,
        data_sha256=pairs.sha256,
        limit=pairs.limit,
        arithmetic=f"fp32 on {device.type}",
    )


def _judge(
    candidate: Candidate, pairs: PairSets, kept: Path, device: torch.device, progress: Progress
) -> ModelScores:
    network = load_network(candidate.folder)
    network.encoder.to(device)
    network.head.to(device)
    scorer = Scorer(network=network, text_encoder=load_text_encoder(candidate.folder), device=device)
    sha256 = folder_sha256(candidate.folder)
    store = _KeptTallies(kept / f"{sha256[:16]}-{device.type}.json", sha256)
    progress.begin(
        "score" if candidate.step is None else f"step {candidate.step:,}", sum(map(len, pairs.sets)), "pairs"
    )
    scores = []
    for one in pairs.sets:
        tally = store.find(one)
        if tally is None:
            tally = compare(scorer, one, progress)
            store.add(one, tally)
        else:
            progress.advance(len(one))
        scores.append(SetScore(name=one.name, phenomenon=one.phenomenon, tally=tally))
    progress.end()
    result = ModelScores(
        model=candidate.name,
        model_sha256=sha256,
        step=candidate.step,
        method=scorer.method,
        sets=tuple(scores),
    )
    progress.figures("evaluation", {"step": candidate.step, **result.overall.as_json()})
    return result


def compare(scorer: Scorer, pairs: MinimalPairs, progress: Progress) -> Tally:
    """Score both sentences of every pair; `progress` advances by the pairs of the set."""
    told = 0

    def heard(done: int, total: int) -> None:
        nonlocal told
        now = len(pairs) * done // total
        progress.advance(now - told)
        told = now

    score_T = scorer.score([*pairs.good, *pairs.bad], heard)
    good_P, bad_P = score_T[: len(pairs)], score_T[len(pairs) :]
    progress.advance(len(pairs) - told)
    return Tally(
        num_pairs=len(pairs),
        num_right=int((good_P > bad_P).sum()),
        num_ties=int((good_P == bad_P).sum()),
    )


class _KeptTallies:
    """The finished sets of one model in one small file, by the hash of their sentences."""

    def __init__(self, path: Path, model_sha256: str) -> None:
        self.path = path
        self.key = fingerprint({"method": _METHOD, "model": model_sha256})
        self.tallies = self._read()

    def find(self, pairs: MinimalPairs) -> Tally | None:
        """What the set came to, if it is finished."""
        return self.tallies.get(pairs.sha256)

    def add(self, pairs: MinimalPairs, tally: Tally) -> None:
        """Keep what a set came to."""
        self.tallies[pairs.sha256] = tally
        kept = {sha256: asdict(one) for sha256, one in self.tallies.items()}
        durable.write_json(self.path, {"format": 1, "key": self.key, "sets": kept})

    def _read(self) -> dict[str, Tally]:
        try:
            content = json.loads(self.path.read_bytes())
            if content["format"] != 1 or content["key"] != self.key:
                return {}
            return {
                str(sha256): Tally(**{name: int(value) for name, value in entry.items()})
                for sha256, entry in content["sets"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
