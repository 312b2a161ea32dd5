"""What a pre-training objective is. The engine knows this file and `find`, never a concrete system.

An objective owns its networks. For each micro-batch it returns named sums; how they are divided is fixed
beforehand by `counts`, a function of the batch alone, so that micro-batches and processes add up to
exactly the loss of the whole batch: loss = Σ_terms weight · Σ_micro sum / Σ_micro count.
"""

# B batch, K slots for chosen positions of a row

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from pydantic import ValidationError
from torch import Tensor, nn

from electra_cli.data.batches import Batch
from electra_cli.data.vocabulary import Vocabulary, continuation_ids
from electra_cli.errors import Problem, ProjectError
from electra_cli.models.folders import HFFolder
from electra_cli.settings import ObjectiveTable, ProjectSettings, Settings

OwnSettings = TypeVar("OwnSettings", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class VocabularyFacts:
    """What an objective must know of the vocabulary."""

    size: int
    padding_id: int
    unknown_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    continuation_ids: tuple[int, ...] | None = None
    """Ids that continue a word; needed for whole-word masking alone."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, *, whole_word: bool = False) -> "VocabularyFacts":
        """The facts of a loaded vocabulary; its continuations are looked up for `whole_word` alone."""
        return cls(
            size=vocabulary.size,
            padding_id=vocabulary.padding_id,
            unknown_id=vocabulary.unknown_id,
            cls_id=vocabulary.cls_id,
            sep_id=vocabulary.sep_id,
            mask_id=vocabulary.mask_id,
            continuation_ids=tuple(np.flatnonzero(continuation_ids(vocabulary)).tolist())
            if whole_word
            else None,
        )

    @property
    def never_masked(self) -> tuple[int, ...]:
        """Ids that are never chosen: padding, [CLS], [SEP] and [MASK]; [UNK] may be."""
        return (self.padding_id, self.cls_id, self.sep_id, self.mask_id)


@dataclass(frozen=True, kw_only=True)
class Update:
    """One optimizer step of an objective; ELECTRA has one, DeBERTaV3 may have two."""

    name: str
    networks: tuple[str, ...]
    """Names of child modules whose parameters this update owns; no parameter is owned twice."""
    terms: Mapping[str, float]
    """The loss terms of this update with their weights."""
    learning_rate_scale: float = 1.0
    clip_norm: float | None = None
    """Largest norm of this update's gradients, 0: no clipping; `None`: `optimizer.clip_norm`."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What one forward pass of one micro-batch yields."""

    sums: Mapping[str, Tensor]
    """A 0-d float32 sum for each term of the update; undivided, unweighted."""
    figures: Mapping[str, Tensor] = field(default_factory=dict)
    """Detached sums for the health figures; added up over micro-batches and processes by name."""
    carry: object = None
    """Handed to the next update of the same micro-batch."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What an objective reads beside its batches; paths as `[objective]` has them."""

    models: Mapping[str, str] = field(default_factory=dict)
    """Folders of frozen models by the name of the setting; each must have the project's vocabulary."""
    samples: str = ""
    """A folder of ids that those models drew beforehand; empty: they draw while training."""


class Objective(nn.Module, ABC):
    """Networks and losses of one pre-training system.

    Constructed as `Cls(settings, vocabulary, sampler=…)`; initial weights are a function of the
    parameter's name and `settings.project.seed`.
    """

    updates: tuple[Update, ...]
    """In the order in which they run for each batch."""
    coupled_terms: frozenset[str] = frozenset()
    """Terms that compare rows with each other (contrastive): cutting a batch into pieces changes them."""
    num_passes: int = 1
    """How often a step takes each row through the networks for the backward pass: memory grows with it."""
    smallest_micro_batch: int = 1
    """Fewer rows in a forward pass leave a term without anything to learn from."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        super().__init__()
        self.settings = settings
        self.vocabulary = vocabulary
        self.sampler = sampler

    @classmethod
    def reads(cls, settings: ProjectSettings) -> Reads:
        """What else a run reads; ProjectError where `[objective]` does not say it. Most read nothing."""
        return Reads()

    def load_frozen(self, folders: Mapping[str, Path]) -> None:
        """Take in the models of `reads`, by setting, before the first step; an export never asks for them.

        Their parameters must not require gradients: checkpoints hold what training moves.
        """

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The divisor of each term: a 0-d float32 tensor, a function of the batch alone (0 is allowed)."""

    @abstractmethod
    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """Loss sums of one micro-batch; `progress` is a 0-d float32 in [0, 1], the share of steps done."""

    @abstractmethod
    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """Health figures by their metrics.jsonl names; `None` where undefined (no replaced token, …)."""

    @abstractmethod
    def exports(self) -> dict[str, HFFolder]:
        """What can be exported, by folder name (`encoder`, `discriminator`, `generator`)."""

    def left_out(self) -> Mapping[str, str]:
        """Networks that were trained and that no folder can hold, with the reason; most leave none out."""
        return {}


class DrawingObjective(Objective):
    """An objective that samples from frozen models alone, so that all of it can be drawn before a run."""

    draw_settings: ClassVar[tuple[str, ...]]
    """The own settings that the drawn ids depend on, beside the models, the rows and the masking."""

    @abstractmethod
    def draw(self, batch: Batch, progress: Tensor) -> Tensor:
        """The ids [B, K] of the slots for chosen positions; `Batch.drawn_BK` brings them back."""


def own_settings(table: ObjectiveTable, kind: type[OwnSettings]) -> OwnSettings:
    """The keys of `[objective]` beside `use`, checked by the objective's own settings class."""
    try:
        return kind.model_validate(table.model_extra or {})
    except ValidationError as error:
        problems = tuple(
            Problem(".".join(["objective", *map(str, found["loc"])]), found["msg"])
            for found in error.errors(include_url=False)
        )
        known = ", ".join(kind.model_fields) or "none"
        raise ProjectError(
            "; ".join(f"{problem.key}: {problem.message}" for problem in problems),
            problems=problems,
            key=problems[0].key,
            hint=f'keys of [objective] with use = "{table.use}": {known}',
        ) from error
