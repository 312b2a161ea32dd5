"""Embeddings: the tables below the layers, and how two networks share them."""

# B batch, S sequence, V vocabulary, E embedding size

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.kernels.layer_passes import dropped
from electra_cli.models.sizes import EncoderConfig


class TokenEmbeddings(nn.Module, ABC):
    """Tables, whose rows are added up, and what follows the sum."""

    word_VE: Tensor
    """The word table, which is also the output table of a masked language model."""

    @abstractmethod
    def look_up(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        """Sum of the rows of all tables [B, S, E]."""

    @abstractmethod
    def finish(self, summed_BSE: Tensor) -> Tensor:
        """What the layers get of that sum [B, S, E]."""

    def forward(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        """Embeddings [B, S, E]."""
        return self.finish(self.look_up(token_ids_BS, position_BS, segment_BS))

    def plain_state(self) -> dict[str, Tensor]:
        """Parameters of embeddings that stand alone and compute the same."""
        return dict(self.state_dict())

    def own_state(self, plain: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What `state_dict` must hold to compute what `plain` does."""
        return dict(plain)


class Embeddings(TokenEmbeddings):
    """Word, position and token type, normalised; ELECTRA's two networks share all of it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.word_VE = nn.Parameter(torch.zeros(config.vocab_size, config.embedding_size))
        self.positions = nn.Embedding(config.max_positions, config.embedding_size)
        self.segments = nn.Embedding(config.num_segments, config.embedding_size)
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.dropout = config.dropout

    def look_up(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        """Sum of the three rows of each token."""
        word_BSE = F.embedding(token_ids_BS, self.word_VE)
        summed_BSE: Tensor = word_BSE + self.positions(position_BS) + self.segments(segment_BS)
        return summed_BSE

    def finish(self, summed_BSE: Tensor) -> Tensor:
        """LayerNorm and dropout; float32."""
        return dropped(self.layer_norm(summed_BSE), self.dropout if self.training else 0.0)


class WordEmbeddings(TokenEmbeddings):
    """The word table alone, for encoders that know positions by other means."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.word_VE = nn.Parameter(torch.zeros(config.vocab_size, config.embedding_size))

    def look_up(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        """The row of each word."""
        return F.embedding(token_ids_BS, self.word_VE)

    def finish(self, summed_BSE: Tensor) -> Tensor:
        """Nothing: the encoder normalises, for its width may be another."""
        return summed_BSE
