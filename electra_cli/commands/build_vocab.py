"""`electra build-vocab`: the vocabulary, learned from the corpus."""

import shlex
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
from electra_cli.commands._screen import open_screen

if TYPE_CHECKING:
    from electra_cli.data.vocabulary import VocabularyReport


def build_vocab(
    paths: CorpusArgument = None,
    project: ProjectOption = None,
    sets: SetOption = None,
    force: ForceOption = False,
    output: FormatOption = OutputFormat.AUTO,
) -> None:
    """Learn a vocabulary from the corpus, the same to the byte every time."""
    from electra_cli.data.vocabulary import build_vocabulary
    from electra_cli.project import load_project

    with open_screen("build-vocab", output) as screen:
        loaded = load_project(project, [*(sets or []), *corpus_override(paths)])
        report = build_vocabulary(loaded, screen, force=force)
        vocabulary = report.vocabulary
        screen.result(
            {
                "folder": str(vocabulary.folder),
                "is_fresh": report.is_fresh,
                "size": vocabulary.size,
                "sha256": vocabulary.sha256,
                "tokens_per_word": report.tokens_per_word,
                "unknown_fraction": report.unknown_fraction,
                "character_coverage": report.character_coverage,
            },
            _lines(report),
            next_command=_next(paths, load_project(project, sets or []).settings.corpus.files),
        )


def _next(paths: list[str] | None, files: list[str]) -> str:
    """Text that the project does not name has to be named again."""
    is_named = not paths or [p.rstrip("/") for p in paths] == [file.rstrip("/") for file in files]
    return "electra shard-corpus" if is_named else f"electra shard-corpus {shlex.join(paths or [])}"


def _lines(report: "VocabularyReport") -> list[str]:
    name = report.vocabulary.folder.name
    files = ["tokenizer.json", "vocab.txt", "manifest.json"]
    if not report.is_fresh:
        lines = [f"{name}/ is up to date"]
    else:
        there = [file for file in files if (report.vocabulary.folder / file).exists()]
        lines = ["  ".join(f"{name}/{file}" for file in there)]
    figures = [f"{report.vocabulary.size:,} pieces"]
    if report.tokens_per_word is not None:
        figures.append(f"{report.tokens_per_word:.2f} tokens per word")
    if report.unknown_fraction is not None:
        figures.append(f"{100 * report.unknown_fraction:.2f} % unknown")
    if report.character_coverage is not None:
        figures.append(f"{100 * report.character_coverage:.2f} % of characters covered")
    return [*lines, " · ".join(figures)]
