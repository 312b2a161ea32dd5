"""The encoder of ModernBERT (Warner et al. 2024, arXiv 2412.13663): what has changed since BERT, in one body.

LayerNorm before each part instead of behind it, rotary positions (Su et al. 2021, arXiv 2104.09864), gated
feed-forward layers, no biases, and global attention in every third layer only; between them a token sees its
neighbours. docs/modern.md lists what is exactly `ModernBertModel` of transformers.
"""

# B batch, S sequence, D hidden, K width of a head, L = 3·D (query, key, value), F feed-forward

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.kernels.layer_passes import add_dropped, dropped, linear_gated_gelu, rotated
from electra_cli.models.attention import attend, piece_mask
from electra_cli.models.backbone import Backbone
from electra_cli.models.embeddings import TokenEmbeddings, WordEmbeddings
from electra_cli.models.sizes import EncoderConfig

_WORDS, _PROJECTION = "embeddings.word_VE", "projection.weight"


def rotary_angles(position_BS: Tensor, head_width: int, theta: float) -> Tensor:
    """Angles [B, S, K] by which positions turn a head's values; both halves of K hold the same K/2 rates."""
    place = torch.arange(0, head_width, 2, dtype=torch.float32, device=position_BS.device)
    rate = 1.0 / (theta ** (place / head_width))
    angle_BSK = position_BS.unsqueeze(-1).float() * rate
    return torch.cat((angle_BSK, angle_BSK), dim=-1)


def window_mask(mask_B1SS: Tensor, window: int) -> Tensor:
    """The mask without what lies further than half a `window` away, which is as far as local layers see."""
    place_S = torch.arange(mask_B1SS.shape[-1], device=mask_B1SS.device)
    is_far_SS = (place_S.unsqueeze(0) - place_S.unsqueeze(1)).abs() > window // 2
    return mask_B1SS.masked_fill(is_far_SS, float("-inf"))


@dataclass(frozen=True, kw_only=True)
class _Sight:
    """What the layers of one kind, global or local, see of a row."""

    mask_B1SS: Tensor
    cos_BSK: Tensor
    sin_BSK: Tensor


class ModernLayer(nn.Module):
    """Attention, then a gated feed-forward; each behind its LayerNorm, and added to what comes in."""

    def __init__(self, config: EncoderConfig, *, is_first: bool) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.feed_forward_size
        self.num_heads = config.num_heads
        self.dropout, self.attention_dropout = config.dropout, config.attention_dropout
        # The embeddings are normalised already.
        self.attention_norm = nn.Identity() if is_first else _norm(config)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_output = nn.Linear(width, width, bias=False)
        self.feed_forward_norm = _norm(config)
        self.feed_forward_inner = nn.Linear(width, 2 * inner, bias=False)
        self.feed_forward_output = nn.Linear(inner, width, bias=False)

    def forward(self, hidden_BSD: Tensor, sight: _Sight) -> Tensor:
        """One layer; keeps the shape."""
        rate, inner_rate = (self.attention_dropout, self.dropout) if self.training else (0.0, 0.0)
        qkv_BSL = rotated(self.qkv(self.attention_norm(hidden_BSD)), sight.cos_BSK, sight.sin_BSK)
        context_BSD = attend(qkv_BSL, sight.mask_B1SS, num_heads=self.num_heads, dropout=rate)
        attended_BSD = self.attention_output(context_BSD)
        hidden_BSD = add_dropped(hidden_BSD, attended_BSD, rate)
        normed_BSD = self.feed_forward_norm(hidden_BSD)
        inner_BSF = linear_gated_gelu(normed_BSD, self.feed_forward_inner.weight, inner_rate)
        output_BSD: Tensor = hidden_BSD + self.feed_forward_output(inner_BSF)
        return output_BSD


class ModernEncoder(Backbone):
    """Words, a projection where their width is not the hidden size, LayerNorm, the layers, LayerNorm.

    `ModernBertModel` has no projection. Ours is linear and stands before the LayerNorm, so words and
    projection together are one word table of the hidden size: `plain_state` gives that one.
    """

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
        self.embedding_norm = _norm(config)
        self.layers = nn.ModuleList(
            ModernLayer(config, is_first=number == 0) for number in range(config.num_layers)
        )
        self.final_norm = _norm(config)

    def forward(
        self, token_ids_BS: Tensor, piece_BS: Tensor, position_BS: Tensor, segment_BS: Tensor
    ) -> Tensor:
        """Hidden states [B, S, D]; `segment_BS` does not count."""
        hidden_BSD: Tensor = self.embeddings(token_ids_BS, position_BS, segment_BS)
        if self.projection is not None:
            hidden_BSD = self.projection(hidden_BSD)
        hidden_BSD = dropped(self.embedding_norm(hidden_BSD), self.config.dropout if self.training else 0.0)
        if torch.is_autocast_enabled(hidden_BSD.device.type):
            hidden_BSD = hidden_BSD.to(torch.get_autocast_dtype(hidden_BSD.device.type))
        mask_B1SS = piece_mask(piece_BS, hidden_BSD.dtype)
        seen_globally = self._sight(mask_B1SS, position_BS, self.config.global_theta)
        near_B1SS = window_mask(mask_B1SS, self.config.local_window)
        seen_locally = self._sight(near_B1SS, position_BS, self.config.local_theta)
        for number, layer in enumerate(self.layers):
            is_global = number % self.config.global_every == 0
            hidden_BSD = self.through(layer, hidden_BSD, seen_globally if is_global else seen_locally)
        output_BSD: Tensor = self.final_norm(hidden_BSD)
        return output_BSD

    def parameters_above_the_layers(self) -> list[nn.Parameter]:
        """Those of the last LayerNorm."""
        return list(self.final_norm.parameters())

    def plain_state(self) -> dict[str, Tensor]:
        """With the one word table that words and projection are together."""
        state = super().plain_state()
        if self.projection is not None:
            state[_WORDS] = F.linear(state[_WORDS], state.pop(_PROJECTION))
        return state

    def _sight(self, mask_B1SS: Tensor, position_BS: Tensor, theta: float) -> _Sight:
        angle_BSK = rotary_angles(position_BS, self.config.hidden_size // self.config.num_heads, theta)
        return _Sight(mask_B1SS=mask_B1SS, cos_BSK=angle_BSK.cos(), sin_BSK=angle_BSK.sin())


def _norm(config: EncoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
