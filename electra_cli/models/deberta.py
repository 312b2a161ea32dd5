"""The encoder of DeBERTa-v2 and v3 (He et al. 2021, arXiv 2006.03654; 2111.09543).

Tokens know their place through disentangled attention alone: no position and no token type is added to the
words. One table of relative positions, normalised, serves all layers, which project it with their own query
and key. docs/deberta.md lists what is exactly `DebertaV2Model` of transformers.
"""

# B batch, S sequence, D hidden, E embedding size, R rows of the relative table

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from electra_cli.kernels.layer_passes import dropped
from electra_cli.models.attention import piece_mask
from electra_cli.models.backbone import Backbone
from electra_cli.models.disentangled import Relative, disentangled_attention, needed_rows, relative_rows
from electra_cli.models.embeddings import TokenEmbeddings, WordEmbeddings
from electra_cli.models.encoder import PostNormLayer
from electra_cli.models.sizes import EncoderConfig

DECODING_PASSES = 2
"""How often the enhanced mask decoder applies the last layer, as in the official code."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What every layer reads beside the hidden states."""

    relative: Relative
    mask_B1SS: Tensor


class DebertaLayer(PostNormLayer):
    """Disentangled attention, then feed-forward."""

    def forward(self, hidden_BSD: Tensor, row: _Row, query_BSD: Tensor | None = None) -> Tensor:
        """One layer; keeps the shape. `query_BSD`: what asks, and is added to, in place of `hidden_BSD`."""
        width = hidden_BSD.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        if query_BSD is None:
            query_BSD = hidden_BSD
            asked_BSD, key_BSD, value_BSD = self.qkv(hidden_BSD).chunk(3, dim=-1)
        else:
            asked_BSD = nn.functional.linear(query_BSD, weight[:width], bias[:width])
            key_value_BSL = nn.functional.linear(hidden_BSD, weight[width:], bias[width:])
            key_BSD, value_BSD = key_value_BSL.chunk(2, dim=-1)
        table_RD = dropped(row.relative.table_RD, self.dropout if self.training else 0.0)
        context_BSD = disentangled_attention(
            asked_BSD,
            key_BSD,
            value_BSD,
            replace(row.relative, table_RD=table_RD),
            (weight[: 2 * width], bias[: 2 * width]),
            row.mask_B1SS,
            num_heads=self.num_heads,
            dropout=self.attention_dropout if self.training else 0.0,
        )
        return self.finish(query_BSD, context_BSD)


class DebertaEncoder(Backbone):
    """Words, a projection where their width is not the hidden size, LayerNorm, and the layers."""

    def __init__(self, config: EncoderConfig, embeddings: TokenEmbeddings | None = None) -> None:
        """`embeddings`: the word table of another network, to share it."""
        super().__init__()
        self.config = config
        self.embeddings = WordEmbeddings(config) if embeddings is None else embeddings
        self.projection = (
            nn.Linear(config.embedding_size, config.hidden_size, bias=False)
            if config.has_projection
            else None
        )
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.relative_RD = nn.Parameter(torch.zeros(2 * config.position_buckets, config.hidden_size))
        self.relative_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(DebertaLayer(config) for _ in range(config.num_layers))

    def forward(
        self, token_ids_BS: Tensor, piece_BS: Tensor, position_BS: Tensor, segment_BS: Tensor
    ) -> Tensor:
        """Hidden states [B, S, D]; places within a piece count, `position_BS` and `segment_BS` do not."""
        hidden_BSD = self._embed(token_ids_BS, position_BS, segment_BS)
        row = self._row(piece_BS)
        for layer in self.layers:
            hidden_BSD = self.through(layer, hidden_BSD, row)
        return hidden_BSD

    def decode(
        self,
        token_ids_BS: Tensor,
        piece_BS: Tensor,
        position_BS: Tensor,
        segment_BS: Tensor,
        absolute_BSD: Tensor,
    ) -> Tensor:
        """States [B, S, D] of the enhanced mask decoder, which knows absolute positions.

        The last layer is applied twice, with the states below it as keys and values; they and the embedded
        absolute positions ask first, the result of the first pass asks in the second.
        """
        hidden_BSD = self._embed(token_ids_BS, position_BS, segment_BS)
        row = self._row(piece_BS)
        for layer in self.layers[:-1]:
            hidden_BSD = self.through(layer, hidden_BSD, row)
        query_BSD = hidden_BSD + absolute_BSD.to(hidden_BSD.dtype)
        for _ in range(DECODING_PASSES):
            query_BSD = self.through(self.layers[-1], hidden_BSD, row, query_BSD)
        return query_BSD

    def _embed(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        hidden_BSD: Tensor = self.embeddings(token_ids_BS, position_BS, segment_BS)
        if self.projection is not None:
            hidden_BSD = self.projection(hidden_BSD)
        hidden_BSD = dropped(self.embedding_norm(hidden_BSD), self.config.dropout if self.training else 0.0)
        if torch.is_autocast_enabled(hidden_BSD.device.type):
            hidden_BSD = hidden_BSD.to(torch.get_autocast_dtype(hidden_BSD.device.type))
        return hidden_BSD

    def _row(self, piece_BS: Tensor) -> _Row:
        sequence = piece_BS.shape[1]
        buckets, reach = self.config.position_buckets, self.config.max_distance
        first, end = needed_rows(sequence, buckets, reach)
        relative = Relative(
            table_RD=self.relative_norm(self.relative_RD[first:end]),
            row_C=relative_rows(sequence, buckets, reach, piece_BS.device) - first,
        )
        exact = torch.promote_types(relative.table_RD.dtype, torch.float32)
        return _Row(relative=relative, mask_B1SS=piece_mask(piece_BS, exact))


class EnhancedMaskDecoder(nn.Module):
    """The absolute positions that a masked language model on DeBERTa adds before its last layer."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.positions = nn.Embedding(config.max_positions, config.hidden_size)

    def forward(
        self,
        encoder: DebertaEncoder,
        token_ids_BS: Tensor,
        piece_BS: Tensor,
        position_BS: Tensor,
        segment_BS: Tensor,
    ) -> Tensor:
        """States [B, S, D] from which hidden words are predicted."""
        absolute_BSD = self.positions(position_BS)
        return encoder.decode(token_ids_BS, piece_BS, position_BS, segment_BS, absolute_BSD)
