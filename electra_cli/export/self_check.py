"""Load exported folders as their users will, in a fresh process, and compare with what was trained.

`python -m electra_cli.export.self_check ROOT PROBE RESULT KIND …` writes a JSON report to RESULT. Whatever
the loading libraries log, warn or print while loading is a finding: a good folder loads without a word.
"""

import contextlib
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra_cli import durable
from electra_cli.export.probe import PAIR, TEXTS

TOLERANCE = 1e-5
"""Largest difference relative to the largest value; float32, the order of sums differs."""


@contextlib.contextmanager
def _listening(findings: list[str]) -> Iterator[None]:
    """Collects log records, warnings and anything printed."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            findings.append(record.getMessage())

    collector, printed = Collector(logging.WARNING), io.StringIO()
    loggers = [logging.getLogger(name) for name in ("", "transformers")]
    for logger in loggers:
        logger.addHandler(collector)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stderr(printed),
            contextlib.redirect_stdout(printed),
        ):
            warnings.simplefilter("always")
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(collector)
    findings += [str(warning.message) for warning in caught]
    findings += [line for line in printed.getvalue().splitlines() if line.strip()]


def _check_tokenizer(transformers: Any, folder: Path, tensors: Any, findings: list[str]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    for number, is_real in enumerate(tensors["is_real"]):
        trained = tensors["token_ids"][number][is_real].tolist()
        given = (TEXTS[number],) if number < len(TEXTS) else PAIR
        # Not a word about texts beyond the model: those were cut.
        encoded = tokenizer(*given, verbose=False)
        # The probe is cut to the sequence length: compare what was not cut.
        if len(encoded["input_ids"]) == len(trained):
            if encoded["input_ids"] != trained:
                findings.append(
                    f"{folder.name}: {given!r} becomes {encoded['input_ids']}, trained as {trained}"
                )
            segments = tensors["segments"][number][is_real].tolist()
            if encoded.get("token_type_ids", segments) != segments:
                findings.append(f"{folder.name}: token types of {given!r} are {encoded['token_type_ids']}")


def _check_model(transformers: Any, folder: Path, tensors: Any, findings: list[str]) -> float:
    import torch

    kind = folder.name
    config = json.loads((folder / "config.json").read_bytes())
    is_token_classifier = config["architectures"][0].endswith("ForTokenClassification")
    loader = {
        "encoder": transformers.AutoModel,
        "discriminator": transformers.AutoModelForTokenClassification
        if is_token_classifier
        else transformers.AutoModelForPreTraining,
        "generator": transformers.AutoModelForMaskedLM,
    }[kind]
    model, loading = loader.from_pretrained(str(folder), output_loading_info=True)
    findings += [f"{kind}: {what}: {sorted(names)}" for what, names in loading.items() if names]
    inputs = {"input_ids": tensors["token_ids"], "attention_mask": tensors["is_real"].long()}
    if config["model_type"] != "modernbert":
        inputs["token_type_ids"] = tensors["segments"]
    with torch.no_grad():
        output = model.eval()(**inputs)
    given = output.last_hidden_state if kind == "encoder" else output.logits
    if is_token_classifier:
        given = given.squeeze(-1)
    expected, is_real = tensors[f"expected.{kind}"], tensors["is_real"]
    difference = (given[is_real] - expected[is_real]).abs().max() / expected[is_real].abs().max()
    if not difference <= TOLERANCE:
        findings.append(
            f"{kind}: outputs differ by {float(difference):.1e} of the largest, over {TOLERANCE:.0e}"
        )
    return float(difference)


def _example(transformers: Any, folder: Path, findings: list[str]) -> str:
    fill = transformers.pipeline("fill-mask", str(folder))
    text = f"the {fill.tokenizer.mask_token} of the house"
    first, again = (fill(text, top_k=1)[0] for _ in range(2))
    if first != again:
        findings.append(f"generator: fill-mask answers {first} and then {again}")
    return f'"{text}" → {first["token_str"].strip()} {first["score"]:.2f}'


def main(root: Path, probe: Path, result: Path, kinds: list[str]) -> None:
    """Check the named folders below `root`; the report holds findings, differences and an example."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from safetensors.torch import load_file

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tensors = load_file(probe)
    findings: list[str] = []
    report: dict[str, Any] = {"transformers": transformers.__version__, "differences": {}, "example": ""}
    with _listening(findings):
        for kind in kinds:
            report["differences"][kind] = _check_model(transformers, root / kind, tensors, findings)
            _check_tokenizer(transformers, root / kind, tensors, findings)
        if "generator" in kinds:
            report["example"] = _example(transformers, root / "generator", findings)
    report["findings"] = findings
    # A difference that is no number would be no JSON; it is already among the findings.
    finite = {kind: value for kind, value in report["differences"].items() if value < float("inf")}
    durable.write_json(result, json.loads(json.dumps(report | {"differences": finite})))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
