"""Rows to batches: the order of a run's samples, and the tensors that every objective reads."""

# B batch, S sequence

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of pieces, uncorrupted. A piece is one `[CLS] … [SEP]`; it attends only to itself."""

    token_ids_BS: Tensor
    """int64; the padding id on padding."""
    piece_BS: Tensor
    """int32; 0 on padding, 1, 2, … for the pieces of a row."""
    position_BS: Tensor
    """int64; starts at 0 in each piece, 0 on padding."""
    segment_BS: Tensor
    """int64; token type 0 or 1, 0 on padding."""
    sample_B: Tensor
    """int64; running number of each row in the run: the counter of every keyed choice."""
    is_heldout: bool = False
    """Held-out rows have masks of their own, which never change."""
