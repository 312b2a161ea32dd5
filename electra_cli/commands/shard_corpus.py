"""`electra shard-corpus`: the corpus as token streams, ready to train on."""

from typing import TYPE_CHECKING

from electra_cli.commands._options import (
    CorpusArgument,
    ForceOption,
    FormatOption,
    OutputFormat,
    ProjectOption,
    SetOption,
    corpus_override,
)
from electra_cli.commands._safe import compact
from electra_cli.commands._screen import open_screen

if TYPE_CHECKING:
    from electra_cli.data.shards import ShardReport
    from electra_cli.settings import ProjectSettings


def shard_corpus(
    paths: CorpusArgument = None,
    project: ProjectOption = None,
    sets: SetOption = None,
    force: ForceOption = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Cut the corpus into shards of tokens, without duplicates, with a part held out."""
    from electra_cli.data.shards import build_shards
    from electra_cli.pipeline import ensure_vocabulary
    from electra_cli.project import load_project

    with open_screen("shard-corpus", output) as screen:
        loaded = load_project(project, [*(sets or []), *corpus_override(paths)])
        # An own vocabulary is only copied; one that must be learned is build-vocab's work.
        vocabulary = ensure_vocabulary(loaded, screen, build=bool(loaded.settings.vocab.path))
        report = build_shards(loaded, vocabulary, screen, force=force)
        screen.result(
            {
                "folder": str(report.folder),
                "is_fresh": report.is_fresh,
                "files": len(report.manifest["shards"]),
                "num_content_tokens": report.manifest["num_content_tokens"],
                "dropped": report.manifest["dropped"],
                "rows": report.num_rows(loaded.settings),
            },
            _lines(report, loaded.settings),
            next_command=f"electra pretrain {loaded.path.name if loaded.path else ''}".rstrip(),
        )


def _lines(report: "ShardReport", settings: "ProjectSettings") -> list[str]:
    manifest, pretrain = report.manifest, settings.pretrain
    if not report.is_fresh:
        first = [f"{report.folder.name}/ is up to date"]
    else:
        counts = []
        for reason, number in manifest["dropped"].items():
            parts = manifest["num_parts"] + number
            share = f" ({100 * number / parts:.1f} %)" if reason == "duplicates" else ""
            counts.append(f"{reason} {number:,}{share}")
        first = [f"dropped   {' · '.join(counts)}"] if counts else []
    held_out = sum(s["num_parts"] for s in manifest["shards"] if s["split"] == "heldout")
    rows = report.num_rows(settings)
    passes = pretrain.steps * pretrain.batch_size / rows
    return [
        *first,
        f"{report.folder.name}/   {len(manifest['shards']):,} files, "
        f"{compact(manifest['num_content_tokens'])} tokens, held out "
        f"{100 * held_out / manifest['num_parts']:.1f} %, 0 tokens lost   manifest.json  DATA_CARD.md",
        f"one pass = {compact(-(-rows // pretrain.batch_size))} steps at batch {pretrain.batch_size} × "
        f"{settings.rows.sequence_length}: steps = {pretrain.steps:,} means {passes:,.1f} passes",
    ]
