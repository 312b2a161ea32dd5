"""Which networks eval-blimp judges: the head of an export, or each checkpoint of a run."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra_cli.errors import InputError, UsageError
from electra_cli.pipeline_export import evaluation_model, load_trained
from electra_cli.pipeline_runs import newest_run, run_facts
from electra_cli.progress import Progress
from electra_cli.project import Project

if TYPE_CHECKING:
    from electra_cli.evaluation.blimp import Candidate

NETWORKS = ("discriminator", "generator")
"""In the order in which they are looked for: the first that is there is judged."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What is judged, and where the results go."""

    models: "Iterator[Candidate]"
    folder: Path


def model_to_judge(project: Project, model: Path | None, network: str, progress: Progress) -> Candidates:
    """The discriminator of a model, or its masked language model where it has none; `network` names one.

    `model`: a run, an export or the folder of one network; `None`: the newest, as eval-glue finds it.
    """
    from electra_cli.evaluation.blimp import Candidate
    from electra_cli.evaluation.subject import export_step, results_folder, shown_folder

    _check_network(network)
    found = evaluation_model(project, model, progress)
    folder = found
    if found != model:
        # It is the encoder of an export: a body, whose heads lie beside it.
        there = _networks_in(found.parent)
        folder = found.parent / there[_chosen(list(there), network, str(found.parent))]
    elif network:
        raise UsageError(
            f"--network {network} chooses from a run or an export; {model} is the folder of one network",
            hint="leave --network out, or name the folder above",
        )
    candidate = Candidate(folder=folder, name=shown_folder(folder, project), step=export_step(folder))
    return Candidates(
        models=iter([candidate]), folder=_beside(results_folder(folder, project, "blimp"), folder)
    )


def checkpoints_to_judge(project: Project, run: Path | None, network: str) -> Candidates:
    """Every checkpoint of a run, the oldest first; `run` `None`: the newest run."""
    from electra_cli.training.checkpoint import numbered

    _check_network(network)
    folder = run_facts(run if run is not None else newest_run(project)).path
    checkpoints = [checkpoint for _, checkpoint in reversed(numbered(folder / "checkpoints"))]
    if not checkpoints:
        raise InputError(f"{folder} has no checkpoint", path=folder, hint="electra pretrain makes them")
    return Candidates(
        models=_exported(project, checkpoints, network),
        folder=folder / "evaluate" / "blimp" / ("generator" if network == "generator" else ""),
    )


def _exported(project: Project, checkpoints: list[Path], network: str) -> "Iterator[Candidate]":
    """Each checkpoint's network as a folder that is gone when the next one is asked for."""
    from electra_cli.evaluation.blimp import Candidate
    from electra_cli.evaluation.subject import shown_folder
    from electra_cli.export.tokenizer_files import write_tokenizer
    from electra_cli.models.folders import write_folder

    for checkpoint in checkpoints:
        trained = load_trained(project, checkpoint)
        exports = trained.objective.exports()
        there = {one: one for one in NETWORKS if one in exports}
        if "discriminator" not in there and exports["encoder"].rtd_head:
            there = {"discriminator": "encoder", **there}
        name = there[_chosen(list(there), network, str(checkpoint))]
        with tempfile.TemporaryDirectory(prefix="electra-blimp-") as place:
            folder = Path(place)
            write_folder(folder, exports[name])
            write_tokenizer(
                folder,
                trained.vocabulary,
                model_type=str(exports[name].config["model_type"]),
                model_max_length=trained.objective.settings.rows.sequence_length,
            )
            yield Candidate(folder=folder, name=shown_folder(checkpoint, project), step=trained.step)


def _networks_in(export: Path) -> dict[str, str]:
    """The folder of each network; a discriminator may be an encoder with the head beside its weights."""
    from electra_cli.models.folder_heads import RTD_HEAD

    there = {name: name for name in NETWORKS if (export / name / "config.json").is_file()}
    if "discriminator" not in there and (export / "encoder" / RTD_HEAD).is_file():
        there = {"discriminator": "encoder", **there}
    return there


def _check_network(network: str) -> None:
    if network not in ("", *NETWORKS):
        raise UsageError(f"--network {network}: there are {' and '.join(NETWORKS)}")


def _chosen(there: list[str], network: str, place: str) -> str:
    wanted = network or next(iter(there), "")
    if wanted not in there:
        held = f"it has {' and '.join(there)}" if there else "it has neither discriminator nor generator"
        raise InputError(
            f"{place} holds no {network or 'network that can judge sentences'}; {held}",
            path=place,
            hint="" if there else "a bare encoder knows no probability; judge one with electra eval-glue",
        )
    return wanted


def _beside(results: Path, folder: Path) -> Path:
    """A generator beside a discriminator is not the model of its run: its results lie one folder below."""
    is_second = folder.name == "generator" and "discriminator" in _networks_in(folder.parent)
    return results / "generator" if is_second else results
