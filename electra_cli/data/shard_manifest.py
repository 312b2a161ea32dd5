"""What shard-corpus says about its shards: manifest.json and DATA_CARD.md, and how two builds differ."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_cli.data.checked_manifest import read_checked
from electra_cli.data.vocabulary_manifest import input_differences
from electra_cli.settings import ProjectSettings

FORMAT = "electra-shards-1"


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


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """The manifest and the sha256 of its bytes.

    `InputError` where there is none, or one of another program; `CorruptError` where any byte of it changed.
    """
    return read_checked(
        folder, wanted_format=FORMAT, nothing="there are no shards", command="electra shard-corpus"
    )


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
