"""What makes two runs the same run: every setting is free, guarded or fatal.

Free settings change neither weights nor order; guarded ones may change in a documented way; every other
setting, and the content that the run reads, is fatal: another value is another run. The tables of the corpus
and the vocabulary act only through the files that they produce, so the hashes of those stand for them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import OBJECTIVE_SETTINGS


class Kind(StrEnum):
    """How a difference of one setting is treated when a run continues."""

    FREE = "free"
    GUARDED = "guarded"
    FATAL = "fatal"


FREE_TABLES = ("corpus", "vocab", "evaluate", "collaborate")
FREE_KEYS = frozenset(
    {
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
)
GUARDED_KEYS = frozenset({"pretrain.steps"})


def classify(key: str) -> Kind:
    """Kind of a dotted setting, or of a content hash."""
    if key in GUARDED_KEYS:
        return Kind.GUARDED
    if key in FREE_KEYS or key.partition(".")[0] in FREE_TABLES:
        return Kind.FREE
    return Kind.FATAL


@dataclass(frozen=True)
class Difference:
    """One setting that two runs do not share."""

    key: str
    kind: Kind
    old: object
    new: object


@dataclass(frozen=True, kw_only=True)
class Content:
    """Hashes of what a run reads; empty where there is nothing."""

    vocabulary_sha256: str
    shards_sha256: str
    objective_sha256: str = ""
    """Of the file that an own objective comes from."""
    init_from_sha256: str = ""
    """Of the weights that the run starts from."""
    models_sha256: Mapping[str, str] = field(default_factory=dict)
    """Of the frozen models that the objective reads, by its setting."""
    samples_sha256: str = ""
    """Of the ids that those models drew beforehand."""


@dataclass(frozen=True)
class Identity:
    """All settings by dotted name, and the content hashes, as JSON values."""

    values: Mapping[str, object]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the fatal values; equal in every process, on every machine."""
        fatal = {key: value for key, value in self.values.items() if classify(key) is Kind.FATAL}
        text = json.dumps(fatal, sort_keys=True, ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def differences(self, new: "Identity") -> tuple[Difference, ...]:
        """Guarded and fatal values in which `new` departs from this one, in the order of the tables."""
        keys = dict.fromkeys([*self.values, *new.values])
        return tuple(
            Difference(key, classify(key), self.values.get(key), new.values.get(key))
            for key in keys
            if classify(key) is not Kind.FREE and self.values.get(key) != new.values.get(key)
        )


def identify(settings: ProjectSettings, content: Content) -> Identity:
    """The identity of a run with these settings over this content."""
    values: dict[str, object] = {}
    for table, entries in settings.model_dump(mode="json").items():
        for key, value in entries.items():
            values[f"{table}.{key}"] = value
    own = OBJECTIVE_SETTINGS.get(settings.objective.use)
    if own is not None:
        # So that a default written out is no difference.
        filled = own.model_validate(settings.objective.model_extra or {})
        values |= {f"objective.{key}": value for key, value in filled.model_dump(mode="json").items()}
    values |= {
        "content.vocabulary": content.vocabulary_sha256,
        "content.shards": content.shards_sha256,
        "content.objective": content.objective_sha256,
        "content.init_from": content.init_from_sha256,
        **{f"content.{name}": sha256 for name, sha256 in content.models_sha256.items()},
    }
    if content.samples_sha256:
        values["content.samples"] = content.samples_sha256
    return Identity(values)


def two_columns(differences: tuple[Difference, ...], *, theirs: str = "that run") -> str:
    """A table of setting, value of the run or of what `theirs` names, value asked for."""
    rows = [("setting", theirs, "now")]
    rows += [(d.key, _shown(d.old), _shown(d.new)) for d in differences]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"  {key:<{widths[0]}}  {old:<{widths[1]}}  {new}" for key, old, new in rows)


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:16] + "…"
