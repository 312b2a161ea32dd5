"""Small batches that the tests of this folder share."""

import numpy as np
import torch

from electra_cli.data.batches import Batch
from electra_cli.objectives.base import Losses, Objective, VocabularyFacts
from electra_cli.settings import ProjectSettings

PADDING, UNKNOWN, CLS, SEP, MASK = range(5)


def vocabulary_facts(size: int, continuation_ids: tuple[int, ...] | None = None) -> VocabularyFacts:
    return VocabularyFacts(
        size=size,
        padding_id=PADDING,
        unknown_id=UNKNOWN,
        cls_id=CLS,
        sep_id=SEP,
        mask_id=MASK,
        continuation_ids=continuation_ids,
    )


def batch_of_pieces(
    rows: list[list[list[int]]], length: int, *, first_sample: int = 0, is_heldout: bool = False
) -> Batch:
    """A batch from each row's pieces, given without [CLS] and [SEP]; the rest is padding."""
    num_rows = len(rows)
    token_ids, piece, position, segment = (np.zeros((num_rows, length), np.int64) for _ in range(4))
    for r, pieces in enumerate(rows):
        place = 0
        for number, words in enumerate(pieces, start=1):
            ids = [CLS, *words, SEP]
            here = slice(place, place + len(ids))
            token_ids[r, here], piece[r, here], position[r, here] = ids, number, range(len(ids))
            segment[r, here] = [0 if i <= len(ids) // 2 else 1 for i in range(len(ids))]
            place += len(ids)
        assert place <= length
    return Batch(
        token_ids_BS=torch.from_numpy(token_ids),
        piece_BS=torch.from_numpy(piece.astype(np.int32)),
        position_BS=torch.from_numpy(position),
        segment_BS=torch.from_numpy(segment),
        sample_B=torch.arange(first_sample, first_sample + num_rows),
        is_heldout=is_heldout,
    )


def random_batch(
    num_rows: int, length: int, vocabulary: int, *, seed: int = 0, first_sample: int = 0, full: bool = False
) -> Batch:
    """Rows of one to three pieces of random words; some rows are shorter than others unless `full`."""
    random = np.random.default_rng(seed)
    rows = []
    for r in range(num_rows):
        left = length if full or r % 3 == 0 else int(random.integers(5, length + 1))
        pieces = []
        while left >= 3:
            size = left - 2 if full or len(pieces) == 2 else int(random.integers(1, left - 1))
            pieces.append(random.integers(5, vocabulary, size).tolist())
            left -= size + 2
        rows.append(pieces)
    return batch_of_pieces(rows, length, first_sample=first_sample)


def part_of(batch: Batch, rows: slice) -> Batch:
    return Batch(
        token_ids_BS=batch.token_ids_BS[rows],
        piece_BS=batch.piece_BS[rows],
        position_BS=batch.position_BS[rows],
        segment_BS=batch.segment_BS[rows],
        sample_B=batch.sample_B[rows],
        is_heldout=batch.is_heldout,
    )


def with_more_padding(batch: Batch, columns: int, rows: int = 0) -> Batch:
    """The same rows with columns of padding behind, and rows of padding below."""

    def padded(tensor: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(tensor, (0, columns, 0, rows))

    return Batch(
        token_ids_BS=padded(batch.token_ids_BS),
        piece_BS=padded(batch.piece_BS),
        position_BS=padded(batch.position_BS),
        segment_BS=padded(batch.segment_BS),
        sample_B=torch.nn.functional.pad(batch.sample_B, (0, rows), value=10**9),
        is_heldout=batch.is_heldout,
    )


def small_settings(
    *, objective: dict[str, object] | None = None, **tables: dict[str, object]
) -> ProjectSettings:
    """Settings of a toy run without dropout; `tables` change single values."""
    values: dict[str, dict[str, object]] = {
        "rows": {"sequence_length": 32},
        "model": {"size": "toy", "dropout": 0.0, "attention_dropout": 0.0},
        "generator": {"width": 16},
        "objective": {"use": "electra", **(objective or {})},
    }
    for table, changes in tables.items():
        values[table] = {**values.get(table, {}), **changes}
    return ProjectSettings.model_validate(values)


def losses_of(objective: Objective, batch: Batch) -> Losses:
    return objective(batch, objective.updates[0].name, torch.tensor(0.0))


def total_loss(objective: Objective, batch: Batch) -> torch.Tensor:
    """The loss of a batch taken as one micro-batch."""
    losses, counts = losses_of(objective, batch), objective.counts(batch)
    terms = objective.updates[0].terms
    return sum(
        (terms[name] * losses.sums[name] / counts[name].clamp(min=1.0) for name in terms), torch.zeros(())
    )
