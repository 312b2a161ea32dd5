"""A training step of the engine on made-up rows: what the benchmarks and the profile of a step measure."""

# B batch, S sequence

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from electra_cli.data.batches import Batch
from electra_cli.distributed import Ranks
from electra_cli.objectives import find
from electra_cli.objectives.base import Objective, VocabularyFacts
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.settings import Pretrain, ProjectSettings
from electra_cli.training.device import resolve_engine
from electra_cli.training.step import StepPlan, train_step

PADDING, UNKNOWN, CLS, SEP, MASK = range(5)


@dataclass(frozen=True, kw_only=True)
class StepShape:
    """What a step works on; the rest are the defaults of the project file."""

    size: str = "small"
    backbone: str = "electra"
    use: str = "electra"
    rows: int = 16
    length: int = 128
    vocabulary: int = 30_522
    precision: str = "fp32"
    dropout: float = 0.1
    generator: dict[str, object] = field(default_factory=dict)
    """Keys of `[generator]` that differ from their defaults."""

    def settings(self) -> ProjectSettings:
        """The project that trains so."""
        model = {"size": self.size, "backbone": self.backbone}
        return ProjectSettings.model_validate(
            {
                "model": {**model, "dropout": self.dropout, "attention_dropout": self.dropout},
                "rows": {"sequence_length": self.length},
                "vocab": {"size": self.vocabulary},
                "generator": self.generator,
                "objective": {"use": self.use},
            }
        )


def text_like_ids(rows: int, length: int, vocabulary: int) -> Tensor:
    """Full rows [B, S], [CLS] … [SEP], of ids whose frequencies fall as those of words do."""
    generator = torch.Generator().manual_seed(0)
    rank_BS = torch.rand(rows, length, generator=generator) * torch.log(torch.tensor(vocabulary - 5.0))
    ids_BS = (rank_BS.exp().long() + MASK).clamp(MASK + 1, vocabulary - 1)
    ids_BS[:, 0], ids_BS[:, -1] = CLS, SEP
    return ids_BS


def batch_of(ids_BS: Tensor, piece_BS: Tensor | None = None, position_BS: Tensor | None = None) -> Batch:
    """The batch of these rows; without `piece_BS` each row is one piece."""
    length = ids_BS.shape[1]
    if piece_BS is None:
        piece_BS = torch.ones_like(ids_BS, dtype=torch.int32)
    if position_BS is None:
        position_BS = torch.arange(length).expand_as(ids_BS).contiguous()
    return Batch(
        token_ids_BS=ids_BS,
        piece_BS=piece_BS,
        position_BS=position_BS,
        segment_BS=torch.zeros_like(ids_BS),
        sample_B=torch.arange(len(ids_BS)),
    )


class OurStep:
    """The engine's own step, as `electra pretrain` runs it."""

    def __init__(self, shape: StepShape) -> None:
        settings = shape.settings()
        facts = VocabularyFacts(
            size=shape.vocabulary,
            padding_id=PADDING,
            unknown_id=UNKNOWN,
            cls_id=CLS,
            sep_id=SEP,
            mask_id=MASK,
        )
        self.objective: Objective = find(shape.use, Path())(settings, facts).train()
        updates = self.objective.updates
        self.plan = StepPlan(
            objective=self.objective,
            forward=self.objective,
            updates=tuple(NetworkUpdate(self.objective, update, settings.optimizer) for update in updates),
            engine=resolve_engine(Pretrain(device="cpu", precision=shape.precision)),
            ranks=Ranks(),
            seed=0,
            micro_batch_size=10**9,
        )
        self.batch = batch_of(text_like_ids(shape.rows, shape.length, shape.vocabulary))

    def __call__(self, number: int) -> float:
        """One step; its loss."""
        # Other samples in each step, so that other positions are chosen.
        batch = replace(self.batch, sample_B=self.batch.sample_B + number * len(self.batch.sample_B))
        done = train_step(self.plan, batch, step=number, learning_rate=1e-4, progress=0.0)
        return float(done.loss)
