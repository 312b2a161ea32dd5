"""What shard-corpus says about its shards: manifest.json and DATA_CARD.md, and how two builds differ."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_cli.data.vocabulary_manifest import input_differences
from electra_cli.durable import write_bytes
from electra_cli.errors import CorruptError, InputError
from electra_cli.settings import ProjectSettings

FORMAT = "electra-shards-1"
NAME = "manifest.json"
_CHECKSUM = "checksum"

_REBUILD = "electra shard-corpus --force builds the shards again"


class OtherFormatError(InputError):
    """The shards are those of another version of this program."""


def identity(
    settings: ProjectSettings, vocabulary_sha256: str, inputs: list[dict[str, Any]]
) -> dict[str, Any]:
    """All that the bytes of the shards depend on."""
    corpus = settings.corpus
    return {
        "format": FORMAT,
        "vocab_sha256": vocabulary_sha256,
        "settings": {
            "document": corpus.document,
            "text_column": corpus.text_column,
            "encoding_errors": corpus.encoding_errors,
            "drop_duplicates": corpus.drop_duplicates,
            "heldout_fraction": corpus.heldout_fraction,
            "shard_bytes": corpus.shard_bytes,
        },
        "inputs": inputs,
    }


def _dumped(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write manifest.json, with a checksum over itself as its last field."""
    checksum = hashlib.sha256(_dumped(content)).hexdigest()
    write_bytes(folder / NAME, _dumped({**content, _CHECKSUM: checksum}))


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """The manifest and the sha256 of its bytes.

    `InputError` where there is none, or one of another program; `CorruptError` where any byte of it changed.
    """
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"there are no shards in {folder}", path=folder, hint="run electra shard-corpus first"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", path=path) from error
    actual = hashlib.sha256(data).hexdigest()
    damaged = CorruptError(
        f"{path} is damaged: it is not the text that shard-corpus wrote (now sha256 {actual})",
        path=path,
        hint=_REBUILD,
    )
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(content, dict):
        raise damaged
    checksum = content.pop(_CHECKSUM, None)
    if checksum is None and not str(content.get("format", "")).startswith("electra-shards"):
        raise InputError(f"{path} is no manifest of shard-corpus", path=path, hint="name another folder")
    if _dumped({**content, _CHECKSUM: hashlib.sha256(_dumped(content)).hexdigest()}) != data:
        raise damaged
    if content.get("format") != FORMAT:
        raise OtherFormatError(
            f"{path} has the format {content.get('format')}; this version reads {FORMAT}",
            path=path,
            hint=_REBUILD,
        )
    return {**content, _CHECKSUM: checksum}, actual


def differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """How an existing build differs from the wanted one, each with both values."""
    found = []
    if there.get("vocab_sha256") != wanted["vocab_sha256"]:
        found.append(f"vocabulary: {there.get('vocab_sha256')} there, {wanted['vocab_sha256']} now")
    old_settings = there.get("settings", {})
    for key, value in wanted["settings"].items():
        if old_settings.get(key) != value:
            found.append(f"corpus.{key}: {json.dumps(old_settings.get(key))} there, {json.dumps(value)} now")
    return [*found, *input_differences(there.get("inputs", []), wanted["inputs"])]


def data_card(manifest: Mapping[str, Any], settings: ProjectSettings) -> str:
    """DATA_CARD.md: what a reader of the model should know of its text."""
    chosen = manifest["settings"]
    inputs: Sequence[Mapping[str, Any]] = manifest["inputs"]
    splits = {
        split: sum(
            s["num_stream_tokens"] - 2 * s["num_parts"] for s in manifest["shards"] if s["split"] == split
        )
        for split in ("train", "heldout")
    }
    lines = [
        f"# Data card of {settings.project.name}",
        "",
        f"Languages: {', '.join(settings.project.language)}. Text of {len(inputs):,} files, "
        f"{sum(entry['bytes'] for entry in inputs):,} bytes as they lie on disk.",
        "",
        "| what | number |",
        "|---|---|",
        f"| documents read | {manifest['num_documents']:,} |",
        f"| parts kept (a part is at most 64 KiB of a document) | {manifest['num_parts']:,} |",
        f"| tokens to train on | {splits['train']:,} |",
        f"| tokens held out | {splits['heldout']:,} |",
        *(f"| dropped: {_cell(reason)} | {number:,} |" for reason, number in manifest["dropped"].items()),
        *(f"| repaired: {_cell(reason)} | {number:,} |" for reason, number in manifest["repaired"].items()),
        "",
        "Held out are the parts with the lowest hashes of their text; a run measures itself on them and "
        "never trains on them. Parts with exactly the same text "
        + ("are kept once." if chosen["drop_duplicates"] else "are all kept."),
        "",
        f"Settings: {', '.join(f'{key} = {json.dumps(value)}' for key, value in chosen.items())}.",
        f"Vocabulary: sha256 `{manifest['vocab_sha256']}`.",
        "",
        "## Sources",
        "",
        "| source | files | bytes |",
        "|---|---|---|",
    ]
    for source in dict.fromkeys(entry["source"] for entry in inputs):
        sizes = [entry["bytes"] for entry in inputs if entry["source"] == source]
        lines.append(f"| {_cell(source)} | {len(sizes):,} | {sum(sizes):,} |")
    lines += ["", "## Files", "", "| file | bytes | sha256 |", "|---|---|---|"]
    lines += [f"| {_cell(e['path'])} | {e['bytes']:,} | `{e['sha256'][:16]}` |" for e in inputs[:100]]
    if len(inputs) > 100:
        lines.append(f"| … and {len(inputs) - 100:,} more in manifest.json | | |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text from data inside a table of Markdown: no line ends, controls, bars or markup."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "".join(f"&#{ord(c)};" if c in "|<>&`*_[]" else c for c in shown)
