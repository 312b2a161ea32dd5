"""The model card: README.md of every exported folder."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from electra_cli.export.facts import ModelFacts, Score

_PIPELINE_TAG = {"encoder": "feature-extraction", "generator": "fill-mask", "discriminator": ""}
_USE = {
    "encoder": """from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModel.from_pretrained("FOLDER")
hidden = model(**tokenizer("some text", return_tensors="pt")).last_hidden_state""",
    "discriminator": """from transformers import AutoTokenizer, CLASS

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = CLASS.from_pretrained("FOLDER")
logits = model(**tokenizer("some text", return_tensors="pt")).logits  # above 0: replaced""",
    "generator": """from transformers import pipeline

fill = pipeline("fill-mask", "FOLDER")
fill("some [MASK] text")""",
}


def model_card(kind: str, architecture: str, facts: ModelFacts) -> str:
    """Markdown with a YAML head; `kind` is the folder's name: encoder, discriminator or generator.

    `architecture` is the class of transformers that loads it.
    """
    parts = [_head(kind, facts), f"# {facts.name} ({kind})", _summary(kind, facts)]
    parts += [
        "## Use",
        "```python\n" + _USE[kind].replace("CLASS", architecture) + "\n```",
        "## Training",
        _training(facts),
    ]
    if facts.data:
        parts += ["## Data", _data(facts.data)]
    if facts.scores:
        parts += ["## Scores", _scores(facts.scores)]
    if facts.left_out:
        parts += ["## Not exported", *(f"- {kind}: {reason}." for kind, reason in facts.left_out.items())]
    return "\n\n".join(parts) + "\n"


def _head(kind: str, facts: ModelFacts) -> str:
    # JSON strings are YAML strings: quoting by json keeps any name harmless.
    quote = json.dumps
    lines = ["---", "library_name: transformers"]
    if facts.language:
        lines += ["language:", *(f"- {quote(code)}" for code in facts.language)]
    if facts.license:
        lines.append(f"license: {quote(facts.license)}")
    if _PIPELINE_TAG[kind]:
        lines.append(f"pipeline_tag: {_PIPELINE_TAG[kind]}")
    lines += ["tags:", "- electra", f"- {quote(facts.objective)}", "- pretraining"]
    if facts.scores and kind == "encoder":
        lines += ["model-index:", f"- name: {quote(facts.name)}", "  results:"]
        for score in facts.scores:
            lines += [
                "  - task:",
                "      type: text-classification",
                "    dataset:",
                f"      name: {quote('GLUE ' + score.task)}",
                "      type: nyu-mll/glue",
                "    metrics:",
                f"    - type: {quote(score.metric)}",
                f"      value: {score.value:.4f}",
                f"      name: {quote(f'{score.statistic} of {score.num_runs} runs, dev')}",
            ]
    return "\n".join([*lines, "---"])


def _summary(kind: str, facts: ModelFacts) -> str:
    what = {
        "encoder": "The text encoder: the body of the network that was trained, without a head.",
        "discriminator": "The discriminator: says of each token whether it was replaced (logit above 0).",
        "generator": "A masked language model: the network that fills [MASK].",
    }[kind]
    return (
        f"{what} Pre-trained with electra-cli, objective `{facts.objective}`, recipe `{facts.recipe}`, "
        f"{facts.step:,} of {facts.steps:,} steps, {facts.tokens:,} tokens.\n\n"
        f"Positions 0 to {facts.sequence_length - 1} were trained (`model_max_length` = "
        f"{facts.sequence_length}); what the model takes beyond them is untrained."
    )


def _training(facts: ModelFacts) -> str:
    lines = [f"Run `{facts.run}`. Settings that differ from the recipe:", ""]
    if facts.changed_settings:
        lines += ["| setting | value | from |", "|---|---|---|"]
        lines += [
            f"| {_cell(c.key)} | {_cell(c.value)} | {_cell(c.origin)} |" for c in facts.changed_settings
        ]
    else:
        lines.append("none.")
    if facts.heldout:
        lines += ["", "Last figures on held-out rows:", "", "| figure | value |", "|---|---|"]
        lines += [f"| {_cell(name)} | {_figure(value)} |" for name, value in facts.heldout.items()]
    if facts.versions:
        lines += [
            "",
            "Versions: " + ", ".join(f"{name} {version}" for name, version in facts.versions.items()),
        ]
    return "\n".join(lines)


def _data(manifest: Mapping[str, object]) -> str:
    lines = ["| fact | value |", "|---|---|"]
    for key in ("num_documents", "num_parts", "num_content_tokens", "vocab_sha256"):
        if key in manifest:
            lines.append(f"| {key} | {_figure(manifest[key])} |")
    for name in ("dropped", "repaired"):
        counted = cast(Mapping[str, object], manifest.get(name) or {})
        lines += [f"| {name}: {_cell(reason)} | {_figure(count)} |" for reason, count in counted.items()]
    return "\n".join(lines)


def _scores(scores: Sequence[Score]) -> str:
    lines = ["| task | metric | value | runs |", "|---|---|---|---|"]
    for score in scores:
        lines.append(
            f"| {_cell(score.task)} | {_cell(score.metric)} | {100 * score.value:.1f} ({score.statistic}) "
            f"| {score.num_runs} |"
        )
    return "\n".join(lines)


def _figure(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _cell(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cell(text: str) -> str:
    visible = "".join(character if character.isprintable() else " " for character in text)
    return visible.replace("|", "\\|").replace("<", "&lt;")
