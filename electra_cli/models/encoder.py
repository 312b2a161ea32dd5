"""The encoder of BERT and ELECTRA: post-LayerNorm transformer layers over the embeddings.

Optionally with COCO-LM's bias by relative place, which no class of transformers has on these layers.
"""

# B batch, S sequence, H heads, D hidden, F inner width of the feed-forward

from abc import ABC

import torch
from torch import Tensor, nn

from electra_cli.kernels.layer_passes import Norm, linear_add_norm, linear_gelu
from electra_cli.models.attention import attend, piece_mask
from electra_cli.models.backbone import Backbone
from electra_cli.models.embeddings import Embeddings, TokenEmbeddings
from electra_cli.models.relative_bias import RelativeBias
from electra_cli.models.sizes import EncoderConfig


def num_parameters(*modules: nn.Module) -> int:
    """Values in the parameters of the modules together; a shared parameter counts once."""
    parameters = {parameter for module in modules for parameter in module.parameters()}
    return sum(parameter.numel() for parameter in parameters)


class PostNormLayer(nn.Module, ABC):
    """Attention, then feed-forward; each with dropout, residual and LayerNorm behind it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.attention_dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.attention_output = nn.Linear(config.hidden_size, config.hidden_size)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward_inner = nn.Linear(config.hidden_size, config.feed_forward_size)
        self.feed_forward_output = nn.Linear(config.feed_forward_size, config.hidden_size)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = config.dropout

    def finish(self, hidden_BSD: Tensor, context_BSD: Tensor) -> Tensor:
        """The layer's output from what its attention brought; keeps the shape."""
        hidden_BSD = self._added(hidden_BSD, context_BSD, self.attention_output, self.attention_norm)
        inner = self.feed_forward_inner
        inner_BSF = linear_gelu(hidden_BSD, inner.weight, inner.bias)
        return self._added(hidden_BSD, inner_BSF, self.feed_forward_output, self.feed_forward_norm)

    def _added(self, residual_BSD: Tensor, change: Tensor, linear: nn.Linear, norm: nn.LayerNorm) -> Tensor:
        rate = self.dropout if self.training else 0.0
        following = Norm(gain_F=norm.weight, shift_F=norm.bias, eps=norm.eps)
        return linear_add_norm(change, linear.weight, linear.bias, rate, residual_BSD, following)


class Layer(PostNormLayer):
    """A layer with the attention of the original transformer."""

    def forward(self, hidden_BSD: Tensor, mask_B1SS: Tensor, bias_HSS: Tensor | None) -> Tensor:
        """One layer; keeps the shape."""
        context_BSD = attend(
            self.qkv(hidden_BSD),
            mask_B1SS,
            bias_HSS,
            num_heads=self.num_heads,
            dropout=self.attention_dropout if self.training else 0.0,
        )
        return self.finish(hidden_BSD, context_BSD)


class Encoder(Backbone):
    """Embeddings, a projection where their width is not the hidden size, and the layers."""

    def __init__(self, config: EncoderConfig, embeddings: TokenEmbeddings | None = None) -> None:
        """`embeddings`: those of another network, to share them."""
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config) if embeddings is None else embeddings
        self.projection = (
            nn.Linear(config.embedding_size, config.hidden_size) if config.has_projection else None
        )
        self.relative_bias = RelativeBias(config) if config.relative_buckets else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))

    def forward(
        self, token_ids_BS: Tensor, piece_BS: Tensor, position_BS: Tensor, segment_BS: Tensor
    ) -> Tensor:
        """Hidden states [B, S, D]; a token sees the tokens of its own piece."""
        hidden_BSD: Tensor = self.embeddings(token_ids_BS, position_BS, segment_BS)
        if torch.is_autocast_enabled(hidden_BSD.device.type):
            hidden_BSD = hidden_BSD.to(torch.get_autocast_dtype(hidden_BSD.device.type))
        if self.projection is not None:
            hidden_BSD = self.projection(hidden_BSD)
        mask_B1SS = piece_mask(piece_BS, hidden_BSD.dtype)
        bias_HSS = None if self.relative_bias is None else self.relative_bias(piece_BS.shape[1])
        for layer in self.layers:
            hidden_BSD = self.through(layer, hidden_BSD, mask_B1SS, bias_HSS)
        return hidden_BSD
