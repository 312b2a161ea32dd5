"""Write a trained objective's networks as Hugging Face folders, and prove that they load silently."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from electra_cli import durable
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.errors import ElectraError, InputError
from electra_cli.export.card import model_card
from electra_cli.export.facts import ModelFacts
from electra_cli.export.probe import expected_outputs, make_probe, write_probe
from electra_cli.export.tokenizer_files import write_tokenizer
from electra_cli.models.folders import HFFolder, write_folder
from electra_cli.progress import Progress

EXPORT_MARK = "export.json"
"""The file by which we know an export folder as ours."""


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What was written and what the self-check saw."""

    folder: Path
    classes: Mapping[str, str]
    """The class of transformers that loads each folder."""
    num_bytes: Mapping[str, int]
    """Size of each folder's weights."""
    differences: Mapping[str, float]
    """Largest difference of outputs, relative to the largest output; empty when not checked."""
    example: str
    """What the generator fills in, for the eye."""
    left_out: Mapping[str, str]
    """Networks that were trained and are in no folder, with the reason."""
    not_checked: str
    """Why there was no self-check; empty when there was one."""


def export_model(
    exports: Mapping[str, HFFolder],
    vocabulary: Vocabulary,
    facts: ModelFacts,
    out: Path,
    progress: Progress,
    *,
    self_check: bool = True,
) -> ExportReport:
    """Write every folder below `out` in one step, after the self-check has passed.

    Raises InputError where `out` holds something that we did not write, and ElectraError (exit 1) with
    every finding when the self-check fails; nothing is left under the final name then.
    """
    if out.exists() and not (out / EXPORT_MARK).is_file():
        raise InputError(
            f"{out} exists and is no export of ours", path=out, hint="name another folder with --out"
        )
    not_checked = _reason_for_no_check(self_check)
    with durable.locked(out.parent, "electra export"):
        durable.remove_leftovers(out.parent)
        progress.begin("export", len(exports), "folders")
        with durable.writing_folder(out, replace=True) as folder:
            for kind, content in exports.items():
                write_folder(folder / kind, _with_special_ids(content, vocabulary))
                write_tokenizer(
                    folder / kind,
                    vocabulary,
                    model_type=str(content.config["model_type"]),
                    model_max_length=facts.sequence_length,
                )
                durable.write_text(folder / kind / "README.md", model_card(kind, content.architecture, facts))
                progress.advance(note=kind)
            report = {} if not_checked else _checked(exports, vocabulary, facts, folder)
            sizes = {kind: (folder / kind / "model.safetensors").stat().st_size for kind in exports}
            mark = {"format": 1, "run": facts.run, "step": facts.step, "vocab_sha256": vocabulary.sha256}
            held = {"folders": list(exports), "left_out": dict(facts.left_out)}
            durable.write_json(folder / EXPORT_MARK, mark | held | {"self_check": report})
        progress.end()
    differences = report.get("differences", {})
    assert isinstance(differences, dict)
    return ExportReport(
        folder=out,
        classes={kind: content.architecture for kind, content in exports.items()},
        num_bytes=sizes,
        differences=differences,
        example=str(report.get("example", "")),
        left_out=facts.left_out,
        not_checked=not_checked,
    )


def _with_special_ids(content: HFFolder, vocabulary: Vocabulary) -> HFFolder:
    """The folder with the ids that its config.json names and only the vocabulary knows."""
    first, last = vocabulary.cls_id, vocabulary.sep_id
    ids = {"cls_token_id": first, "bos_token_id": first, "sep_token_id": last, "eos_token_id": last}
    known = {name: value for name, value in ids.items() if name in content.config}
    return replace(content, config={**content.config, **known})


def _reason_for_no_check(wanted: bool) -> str:
    if not wanted:
        return "--no-check"
    if importlib.util.find_spec("transformers") is None:
        return "transformers is not installed; pip install 'electra-cli[hf]' to have the folders checked"
    return ""


def _checked(
    exports: Mapping[str, HFFolder], vocabulary: Vocabulary, facts: ModelFacts, folder: Path
) -> dict[str, object]:
    """Run the self-check in a fresh process; returns its report."""
    probe = make_probe(vocabulary, max_length=facts.sequence_length)
    with tempfile.TemporaryDirectory(prefix="electra-self-check-") as scratch:
        probe_file, result_file = Path(scratch) / "probe.safetensors", Path(scratch) / "result.json"
        write_probe(probe_file, probe, expected_outputs(exports, probe))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "electra_cli.export.self_check",
                folder,
                probe_file,
                result_file,
                *exports,
            ],
            env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not result_file.is_file():
            raise ElectraError(
                f"the exported folders do not load in transformers: {done.stderr.strip()[-2000:]}",
                hint="this is a bug in electra-cli; please report it with this text",
            )
        report: dict[str, object] = json.loads(result_file.read_text("utf-8"))
    findings = report["findings"]
    if findings:
        assert isinstance(findings, list)
        raise ElectraError(
            "the exported folders do not load cleanly in transformers:\n" + "\n".join(map(str, findings)),
            hint="this is a bug in electra-cli; please report it with this text",
        )
    return report
