"""The stage build-vocab: from the corpus, or a vocabulary of one's own, to `vocab/`."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from electra_cli.data.checked_manifest import NAME, write_manifest
from electra_cli.data.corpus import CorpusFile, Listing, list_files
from electra_cli.data.corpus_sample import Sample, sample_words
from electra_cli.data.learning import Learned, learn
from electra_cli.data.listing import tell_skipped
from electra_cli.data.own_vocabulary import check_path, read_own
from electra_cli.data.script_warnings import script_figures, script_warnings
from electra_cli.data.vocabulary import Vocabulary, VocabularyReport, load_vocabulary, special_ids
from electra_cli.data.vocabulary_manifest import (
    FORMAT,
    REMEMBERED,
    Inputs,
    differences,
    read_manifest,
    recorded_settings,
)
from electra_cli.durable import locked, remove_leftovers, write_text
from electra_cli.errors import InputError
from electra_cli.progress import Progress, counted
from electra_cli.settings import Vocab

if TYPE_CHECKING:
    from electra_cli.project import Project

_LOCK = ".lock"
_OURS = frozenset((NAME, REMEMBERED, _LOCK, "tokenizer.json", "vocab.txt"))
_COMMAND = "electra build-vocab"


def build(project: "Project", progress: Progress, *, force: bool) -> VocabularyReport:
    """See `vocabulary.build_vocabulary`."""
    folder = project.vocab_dir
    refuse_foreign(folder)
    path = project.settings.vocab.path
    if path:
        check_path(project.resolve(path), path)
        file = CorpusFile(project.resolve(path), path, project.resolve(path).stat().st_size, "own")
        listing = Listing((file,), {})
    else:
        listing = list_files(project.settings.corpus, project.root)
    try:
        with locked(folder, _COMMAND):
            return _build(project, listing, progress, force=force)
    finally:
        if folder.is_dir() and [entry.name for entry in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder)


def refuse_foreign(folder: Path) -> None:
    """`InputError` where the folder holds anything that build-vocab did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder", path=folder, hint="move it away")
    names = {entry.name for entry in folder.iterdir()}
    foreign = sorted(name for name in names if name not in _OURS and not name.startswith(".tmp-"))
    if not foreign and (not names or NAME in names or _LOCK in names):
        return
    raise InputError(
        f"{folder} holds files that {_COMMAND} did not write: {', '.join((foreign or sorted(names))[:5])}",
        path=folder,
        hint="move them away; nothing was changed",
    )


def _build(project: "Project", listing: Listing, progress: Progress, *, force: bool) -> VocabularyReport:
    folder, settings = project.vocab_dir, project.settings
    remove_leftovers(folder)
    inputs = Inputs(listing.files, folder)
    wanted = recorded_settings(settings)
    if not force and (folder / NAME).exists():
        there = read_manifest(folder)
        found = differences(there, wanted, inputs.facts)
        if found:
            raise InputError(
                f"{folder.name}/ was built from other settings or text:\n  " + "\n  ".join(found),
                path=folder,
                hint=f"{_COMMAND} --force builds it again; shards and runs of the old one will refuse it",
            )
        vocabulary = load_vocabulary(folder)
        inputs.remember()
        return _report(vocabulary, is_fresh=False)
    tell_skipped(listing, progress)
    if settings.vocab.path:
        tokenizer, facts = _own(listing.files[0], settings.vocab)
    else:
        tokenizer, facts = _learn(project, listing, progress)
    inputs.check_unchanged()
    _write(folder, tokenizer, facts, wanted, inputs)
    return _report(load_vocabulary(folder), is_fresh=True)


def _report(vocabulary: Vocabulary, *, is_fresh: bool) -> VocabularyReport:
    figures: dict[str, float | None] = {}
    for name in ("tokens_per_word", "unknown_fraction", "character_coverage"):
        value = vocabulary.manifest.get(name)
        figures[name] = value if isinstance(value, int | float) else None
    return VocabularyReport(
        vocabulary=vocabulary,
        is_fresh=is_fresh,
        tokens_per_word=figures["tokens_per_word"],
        unknown_fraction=figures["unknown_fraction"],
        character_coverage=figures["character_coverage"],
    )


def _own(file: CorpusFile, settings: Vocab) -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = read_own(file.path, settings)
    special_ids(tokenizer, file.path)
    kind = json.loads(tokenizer.to_str())["model"]["type"].lower()
    nothing = dict.fromkeys(("tokens_per_word", "unknown_fraction", "character_coverage"))
    return tokenizer, {"kind": kind, **nothing, "sampled_bytes": 0}


def _learn(project: "Project", listing: Listing, progress: Progress) -> tuple[Tokenizer, dict[str, Any]]:
    settings, corpus = project.settings.vocab, project.settings.corpus

    sample = sample_words(listing, corpus, settings, progress)
    progress.message(
        f"read      {counted(len(listing.files), 'file')}, {counted(sample.text_bytes, 'byte')} of text, "
        f"{counted(sample.num_documents, 'document')} ({sample.sampled_bytes:,} sampled; vocab.sample_bytes)"
    )
    if not sample.counter.words:
        raise _nothing_to_learn(sample, listing, settings)
    progress.begin("merge", settings.size, "pieces")
    learned = learn(sample.counter.words, settings)
    size = learned.tokenizer.get_vocab_size(with_added_tokens=True)
    progress.advance(size)
    progress.end()
    _explain(sample, learned, settings, progress)
    return learned.tokenizer, _facts(sample, learned, settings)


def _nothing_to_learn(sample: Sample, listing: Listing, settings: Vocab) -> InputError:
    long = sample.counter.num_long_words
    why = "cleaning leaves nothing of it, as of control characters"
    if long:
        number = counted(long, "word")
        why = f"{number} of more than vocab.max_input_chars = {settings.max_input_chars} characters"
    files = counted(len(listing.files), "file")
    return InputError(
        f"the text of {files}, {counted(sample.text_bytes, 'byte')}, holds no word to learn from: {why}",
        key="corpus.files",
        hint="check that corpus.files, corpus.text_column and the encoding name running text",
    )


def _explain(sample: Sample, learned: Learned, settings: Vocab, progress: Progress) -> None:
    """Say what is worth knowing about the text and the vocabulary."""
    size = learned.tokenizer.get_vocab_size(with_added_tokens=True)
    if size < settings.size:
        progress.warning(
            f"{size:,} pieces instead of {settings.size:,}: the text offers no more that occur "
            f"{settings.min_frequency} times (vocab.min_frequency)",
            code="small-vocabulary",
        )
    if learned.num_characters > learned.alphabet_size:
        progress.warning(
            f"the text has {learned.num_characters:,} different characters; vocab.limit_alphabet = "
            f"{settings.limit_alphabet:,} keeps the most frequent, which make up "
            f"{100 * learned.character_coverage:.2f} % of it; words with another become [UNK]",
            code="alphabet-limit",
        )
    counter = sample.counter
    if counter.num_long_words:
        progress.message(
            f"long      {counted(counter.num_long_words, 'word')} of more than vocab.max_input_chars = "
            f"{settings.max_input_chars} characters left out"
            + ("; each becomes [UNK]" * (settings.kind == "wordpiece"))
        )
    for what, counts in (("dropped", sample.tally.dropped), ("repaired", sample.tally.repaired)):
        if counts:
            progress.message(
                f"{what:<10}" + " · ".join(f"{reason} {n:,}" for reason, n in sorted(counts.items()))
            )
    figures = script_figures(counter.characters)
    for code, text in script_warnings(figures, settings, sum(counter.characters.values())):
        progress.warning(text, code=code)


def _facts(sample: Sample, learned: Learned, settings: Vocab) -> dict[str, Any]:
    tokenizer, counter = learned.tokenizer, sample.counter
    tokenizer.encode_special_tokens = True
    unknown_id = special_ids(tokenizer, Path("tokenizer.json"))[1]
    num_tokens = num_unknown = num_words = 0
    for start in range(0, len(sample.examples), 16):
        texts = sample.examples[start : start + 16]
        num_words += sum(len(text.split()) for text in texts)
        for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            num_tokens += len(encoding.ids)
            num_unknown += encoding.ids.count(unknown_id)
    figures = script_figures(counter.characters)
    return {
        "kind": settings.kind,
        "tokens_per_word": round(num_tokens / max(num_words, 1), 4),
        "unknown_fraction": round(num_unknown / max(num_tokens, 1), 6),
        "character_coverage": round(learned.character_coverage, 6),
        "sampled_bytes": sample.sampled_bytes,
        "num_documents": sample.num_documents,
        "text_bytes": sample.text_bytes,
        "num_words": sum(counter.words.values()) + counter.num_long_words,
        "num_long_words": counter.num_long_words,
        "alphabet_size": learned.alphabet_size,
        "changed_letters_fraction": round(figures.changed_fraction, 6) if settings.strip_accents else 0.0,
        "num_dropped_characters": figures.num_dropped_characters,
        "dropped": dict(sorted(sample.tally.dropped.items())),
        "repaired": dict(sorted(sample.tally.repaired.items())),
    }


def _write(
    folder: Path, tokenizer: Tokenizer, facts: Mapping[str, Any], settings: Mapping[str, Any], inputs: Inputs
) -> None:
    """Replace the files one by one; the manifest goes first and comes last, so no mixture ever has one."""
    pieces = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    files = {"tokenizer.json": tokenizer.to_str(pretty=True) + "\n"}
    if not any("\n" in piece or "\r" in piece for piece, _ in pieces):
        files["vocab.txt"] = "".join(f"{piece}\n" for piece, _ in pieces)
    (folder / NAME).unlink(missing_ok=True)
    (folder / "vocab.txt").unlink(missing_ok=True)
    for name, content in files.items():
        write_text(folder / name, content)
    inputs.remember()
    hashes = {name: hashlib.sha256(content.encode("utf-8")).hexdigest() for name, content in files.items()}
    write_manifest(
        folder,
        {
            "format": FORMAT,
            "size": len(pieces),
            "sha256": hashes,
            "settings": settings,
            "inputs": inputs.facts,
            **facts,
        },
    )
