"""Which settings make a run another run."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from electra_cli.settings import ProjectSettings
from electra_cli.training.fingerprint import Content, Identity, Kind, classify, identify, two_columns

CONTENT = Content(vocabulary_sha256="a" * 64, shards_sha256="b" * 64)

FREE = {
    "project.name",
    "project.recipe",
    "project.language",
    "project.license",
    "pretrain.device",
    "pretrain.sampler",
    "pretrain.compile",
    "pretrain.activation_checkpointing",
    "pretrain.log_every",
    "pretrain.heldout_every",
    "pretrain.heldout_rows",
    "pretrain.save_every",
    "pretrain.keep_checkpoints",
}
CHOICES = {
    "pretrain.precision": "bf16",
    "schedule.decay": "cosine",
    "generator.sharing": "none",
    "collaborate.key_variable": "MY_API_KEY",
    "collaborate.strategies": ["all"],
    "collaborate.inside": "label",
    "collaborate.prompt": "paper",
    "collaborate.constrain": "rules",
    "collaborate.price": [{"model": "m", "input": 1.0, "output": 2.0}],
    "objective.discriminator_positions": "chosen",
    "evaluate.protocol": "sentiment",
}


def all_keys() -> list[str]:
    return [key for key in identify(ProjectSettings(), CONTENT).values if not key.startswith("content.")]


def changed(key: str) -> ProjectSettings:
    """Default settings with one value changed, whatever its type."""
    table, _, name = key.partition(".")
    values = ProjectSettings().model_dump(mode="json")
    # An own key of the default objective is filled in by its settings class.
    old = values[table].get(name, 1.0)
    new: object
    if key == "vocab.kind":
        new = "bpe"
    elif key == "vocab.unicode_norm":
        new = "NFKC"
    elif key == "corpus.document":
        new = "line"
    elif key == "corpus.encoding_errors":
        new = "replace"
    elif key == "corpus.engine":
        new = "ray"
    elif key == "model.backbone":
        new = "modern"
    elif key == "model.size":
        new = "base"
    elif key == "pretrain.sampler":
        new = "reference"
    elif key == "pretrain.compile":
        new = "off"
    elif key == "evaluate.layer_decay_exponent":
        new = "google"
    elif key in ("corpus.source",):
        new = [{"name": "x", "files": ["y"]}]
    elif key == "evaluate.task":
        new = [{"name": "x", "train": "y", "dev": "z"}]
    elif key in CHOICES:
        new = CHOICES[key]
    elif key == "pretrain.micro_batch_size":
        new = 64
    elif key == "optimizer.betas":
        new = [0.9, 0.98]
    elif isinstance(old, bool):
        new = not old
    elif isinstance(old, int):
        new = old + 1
    elif isinstance(old, float):
        new = old / 2 if old else 0.03125
    elif isinstance(old, list):
        new = [*old, "more"]
    else:
        new = "other"
    values[table][name] = new
    return ProjectSettings.model_validate(values)


@pytest.mark.parametrize("key", all_keys())
def test_every_setting_is_free_guarded_or_fatal(key):
    before, after = identify(ProjectSettings(), CONTENT), identify(changed(key), CONTENT)
    differences = [d for d in before.differences(after) if d.key == key]
    table = key.partition(".")[0]
    if key in FREE or table in ("corpus", "vocab", "evaluate", "collaborate"):
        assert classify(key) is Kind.FREE
        assert before.differences(after) == ()
        assert before.fingerprint == after.fingerprint
    elif key == "pretrain.steps":
        assert [d.kind for d in differences] == [Kind.GUARDED]
        assert before.fingerprint == after.fingerprint
    else:
        assert [d.kind for d in differences] == [Kind.FATAL]
        assert before.fingerprint != after.fingerprint


def test_other_frozen_models_and_their_samples_are_fatal():
    """A run that reads neither has no such entry, so that its fingerprint stays what it was."""
    plain = identify(ProjectSettings(), CONTENT)
    assert not {"content.auxiliary", "content.samples"} & plain.values.keys()
    with_model = replace(CONTENT, models_sha256={"auxiliary": "d" * 64})
    before = identify(ProjectSettings(), with_model)
    for other in (
        replace(CONTENT, models_sha256={"auxiliary": "e" * 64}),
        replace(with_model, samples_sha256="f" * 64),
    ):
        differences = before.differences(identify(ProjectSettings(), other))
        assert [d.kind for d in differences] == [Kind.FATAL]


@pytest.mark.parametrize(
    "name", ["vocabulary_sha256", "shards_sha256", "objective_sha256", "init_from_sha256"]
)
def test_other_content_is_fatal(name):
    values = {"vocabulary_sha256": "a" * 64, "shards_sha256": "b" * 64, name: "c" * 64}
    other = identify(ProjectSettings(), Content(**values))
    differences = identify(ProjectSettings(), CONTENT).differences(other)
    assert [d.kind for d in differences] == [Kind.FATAL]


def test_a_default_of_the_objective_written_out_is_no_difference():
    written = ProjectSettings.model_validate(
        {"objective": {"use": "electra", "discriminator_weight": 50.0, "temperature": 1.0}}
    )
    plain = identify(ProjectSettings(), CONTENT)
    assert plain.differences(identify(written, CONTENT)) == ()
    other = ProjectSettings.model_validate({"objective": {"use": "electra", "discriminator_weight": 49.0}})
    assert [d.key for d in plain.differences(identify(other, CONTENT))] == ["objective.discriminator_weight"]


def test_identity_survives_json():
    identity = identify(ProjectSettings(), CONTENT)
    again = Identity(json.loads(json.dumps(identity.values)))
    assert again.fingerprint == identity.fingerprint
    assert again.differences(identity) == ()


def test_fingerprint_is_the_same_in_every_process():
    program = (
        "from electra_cli.settings import ProjectSettings\n"
        "from electra_cli.training.fingerprint import Content, identify\n"
        "content = Content(vocabulary_sha256='a' * 64, shards_sha256='b' * 64)\n"
        "print(identify(ProjectSettings(), content).fingerprint)"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        assert done.stdout.strip() == identify(ProjectSettings(), CONTENT).fingerprint


def test_the_diff_has_two_columns():
    before = identify(ProjectSettings(), CONTENT)
    after = identify(changed("optimizer.betas"), CONTENT)
    lines = two_columns(before.differences(after)).splitlines()
    assert lines[0].split() == ["setting", "that", "run", "now"]
    assert "[0.9, 0.999]" in lines[1] and lines[1].endswith("[0.9, 0.98]")
