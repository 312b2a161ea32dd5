"""A bias on attention by the distance of two tokens, as in T5 (Raffel et al. 2020, arXiv 1910.10683).

COCO-LM adds one to what its learned positions say: a number a head and bucket, the same in all layers. A
piece is contiguous, so the distance of two of its tokens is that of their places in the row.
"""

# S sequence, H heads, R rows of the table

import torch
from torch import Tensor, nn

from electra_cli.models.disentangled import log_bucket
from electra_cli.models.sizes import EncoderConfig


class RelativeBias(nn.Module):
    """One table for all layers of an encoder."""

    def __init__(self, config: EncoderConfig) -> None:
        """`config.relative_buckets`, half of them for each sign: as many as that but for the shared 0."""
        super().__init__()
        self.reach = config.relative_buckets // 2
        self.max_distance = config.relative_distance
        self.table_RH = nn.Parameter(torch.zeros(2 * self.reach - 1, config.num_heads))

    def forward(self, sequence: int) -> Tensor:
        """Bias [H, S, S]; element (i, j) is for the query at i and the key at j."""
        place_S = torch.arange(sequence, device=self.table_RH.device)
        row_SS = self.rows(place_S.unsqueeze(0) - place_S.unsqueeze(1))
        return self.table_RH.index_select(0, row_SS.flatten()).view(sequence, sequence, -1).permute(2, 0, 1)

    def rows(self, distance: Tensor) -> Tensor:
        """The table's row of each distance, int64.

        Of the buckets of one sign the first half is exact, the second logarithmic up to `max_distance`,
        beyond which all distances share the last.
        """
        largest = self.reach - 1
        bucket = log_bucket(distance, self.reach, self.max_distance)
        return bucket.clamp(-largest, largest) + largest
