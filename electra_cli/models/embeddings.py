"""Embeddings: word + position + token type, normalised."""

# B batch, S sequence, V vocabulary, E embedding size

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.models.dropout import dropped
from electra_cli.models.sizes import EncoderConfig


class Embeddings(nn.Module):
    """The three tables and their LayerNorm; ELECTRA's two networks share all of it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.word_VE = nn.Parameter(torch.zeros(config.vocab_size, config.embedding_size))
        self.positions = nn.Embedding(config.max_positions, config.embedding_size)
        self.segments = nn.Embedding(config.num_segments, config.embedding_size)
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = config.dropout

    def forward(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        """Normalised sum of the three look-ups, float32 [B, S, E]."""
        summed_BSE = F.embedding(token_ids_BS, self.word_VE)
        summed_BSE = summed_BSE + self.positions(position_BS) + self.segments(segment_BS)
        return dropped(self.layer_norm(summed_BSE), self.dropout, training=self.training)
