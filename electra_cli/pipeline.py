"""The stages in order, and what joins them: the next stage's input is found, or built by the one before.

Nothing here imports torch or pyarrow before a stage needs them, so that the status board is quick.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra_cli.distributed import from_environment
from electra_cli.errors import InputError
from electra_cli.pipeline_export import (
    evaluation_model,
    export_run,
    load_trained,
    refuse_to_replace,
)
from electra_cli.pipeline_manifests import setting_differences
from electra_cli.pipeline_runs import newest_run
from electra_cli.pipeline_soup import export_soup
from electra_cli.progress import Progress
from electra_cli.project import Project
from electra_cli.settings import Settings

if TYPE_CHECKING:
    from electra_cli.data.shards import ShardSet
    from electra_cli.data.vocabulary import Vocabulary

__all__ = [
    "STAGES",
    "Stage",
    "ensure_shards",
    "ensure_vocabulary",
    "evaluation_model",
    "export_run",
    "export_soup",
    "load_trained",
    "newest_run",
    "refuse_to_replace",
]


@dataclass(frozen=True)
class Stage:
    """One step from text to scores."""

    name: str
    """What it makes."""
    command: str
    reads: tuple[str, ...]
    writes: str


STAGES = (
    Stage("vocabulary", "electra build-vocab", ("corpus.files",), "vocab/"),
    Stage("shards", "electra shard-corpus", ("corpus.files", "vocab/"), "shards/"),
    Stage("model", "electra pretrain", ("vocab/", "shards/"), "runs/"),
    Stage("export", "electra export", ("runs/",), "runs/latest/export/"),
    Stage(
        "scores", "electra eval-glue", ("runs/latest/export/encoder/", "data/glue/"), "runs/latest/evaluate/"
    ),
)


def ensure_vocabulary(project: Project, progress: Progress, *, build: bool = True) -> "Vocabulary":
    """The project's vocabulary, learned first where there is none.

    InputError when it is missing and `build` is false, or belongs to other settings.
    """
    manifest = project.vocab_dir / "manifest.json"
    if not manifest.is_file() and not build:
        raise _missing("vocabulary", project.vocab_dir, "electra build-vocab")
    from electra_cli.data.vocabulary import build_vocabulary, load_vocabulary

    if not manifest.is_file() and not _another_builds(manifest, progress):
        progress.message("vocab/ is missing: building it, as electra build-vocab does")
        return build_vocabulary(project, progress).vocabulary
    vocabulary = load_vocabulary(project.vocab_dir)
    _warn_of_differences(vocabulary.manifest, "vocab", project.settings.vocab, progress)
    return vocabulary


def ensure_shards(
    project: Project, progress: Progress, *, build: bool = True, verify: bool = False
) -> "tuple[Vocabulary, ShardSet]":
    """Vocabulary and shards of the project, built first where they are missing.

    InputError when something is missing and `build` is false, or when the shards are of another
    vocabulary; CorruptError when a file is damaged.
    """
    vocabulary = ensure_vocabulary(project, progress, build=build)
    from electra_cli.data.shards import build_shards, open_shards

    manifest = project.shards_dir / "manifest.json"
    if not manifest.is_file():
        if not build:
            raise _missing("shards", project.shards_dir, "electra shard-corpus")
        if not _another_builds(manifest, progress):
            progress.message("shards/ is missing: building it, as electra shard-corpus does")
            build_shards(project, vocabulary, progress)
    shards = open_shards(project.shards_dir, vocabulary_sha256=vocabulary.sha256, verify=verify)
    _warn_of_differences(shards.manifest, "corpus", project.settings.corpus, progress)
    return vocabulary, shards


def _another_builds(manifest: Path, progress: Progress) -> bool:
    """Of several processes the first builds; the others wait here until the manifest is there."""
    if from_environment().is_first:
        return False
    progress.message(f"waiting for the first process to build {manifest.parent.name}/")
    while not manifest.is_file():
        time.sleep(0.5)
    return True


def _warn_of_differences(
    manifest: Mapping[str, object], table: str, settings: Settings, progress: Progress
) -> None:
    """What was built with other settings is used as it is, but never silently."""
    for key, old, new in setting_differences(manifest, table, settings):
        what = "vocab/" if table == "vocab" else "shards/"
        progress.warning(
            f"{what} was built with {key} = {old}, the project says {new}; {what} is used as it is",
            code="built-with-other-settings",
        )


def _missing(what: str, path: Path, command: str) -> InputError:
    return InputError(f"there is no {what} in {path}", path=path, hint=f"run {command} first")
