"""What stands on an encoder in pre-training."""

# B batch, S sequence, M rows (masked positions), D hidden, E embedding size, V vocabulary

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.models.sizes import EncoderConfig


class MaskedLMHead(nn.Module):
    """The generator's head before the vocabulary; the tied embedding table and `bias_V` follow."""

    def __init__(self, config: EncoderConfig, projection: nn.Linear | None = None) -> None:
        """`projection`: the encoder's, from the table's width to its own.

        ModernBERT's head keeps the hidden size, so there the projection, transposed, leads back to the table;
        it stays the encoder's. ELECTRA's and DeBERTa's dense layer gives the table's width by itself.
        """
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.masked_lm_size, bias=config.has_biases)
        self.layer_norm = nn.LayerNorm(
            config.masked_lm_size, eps=config.layer_norm_eps, bias=config.has_biases
        )
        self.bias_V = nn.Parameter(torch.zeros(config.vocab_size))
        is_narrow = config.masked_lm_size != config.embedding_size
        assert not is_narrow or projection is not None, "this head needs the encoder's projection"
        # In a tuple: the projection is no parameter of the head.
        self._projection = (projection,) if is_narrow else ()

    def transform(self, hidden_MD: Tensor) -> Tensor:
        """States [M, E] to be multiplied with the table: dense, gelu whatever the encoder's, LayerNorm."""
        state_ME: Tensor = self.layer_norm(F.gelu(self.dense(hidden_MD)))
        for projection in self._projection:
            assert projection is not None
            state_ME = F.linear(state_ME, projection.weight.t())
        return state_ME

    def forward(self, hidden_MD: Tensor, table_VE: Tensor) -> Tensor:
        """Logits [M, V]; training uses `transform` and the sampling kernel, which never keeps them."""
        return F.linear(self.transform(hidden_MD), table_VE, self.bias_V)


class DetectionHead(nn.Module, ABC):
    """One logit a token: is it replaced?"""

    @abstractmethod
    def detect(self, hidden_BSD: Tensor, position_BS: Tensor) -> Tensor:
        """Logits [B, S] in float32; above 0 means replaced. `position_BS` starts at 0 in each piece."""


class ContextDiscriminatorHead(DetectionHead):
    """DeBERTaV3's: the state of the piece's own [CLS] takes part in every decision.

    s_i = LayerNorm(h_CLS + h_i), dense, gelu, one logit.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BSD: Tensor, position_BS: Tensor) -> Tensor:
        """Logits [B, S] in float32; above 0 means replaced. Position 0 of a piece is its [CLS]."""
        place_S = torch.arange(position_BS.shape[1], device=position_BS.device)
        cls_BS1 = (place_S - position_BS).unsqueeze(2)
        cls_BSD = hidden_BSD.gather(1, cls_BS1.expand_as(hidden_BSD))
        state_BSD = F.gelu(self.dense(self.layer_norm(cls_BSD + hidden_BSD)))
        return _one_logit(self.prediction, state_BSD)

    def detect(self, hidden_BSD: Tensor, position_BS: Tensor) -> Tensor:
        """As `forward`."""
        return self(hidden_BSD, position_BS)  # type: ignore[no-any-return]


class DiscriminatorHead(DetectionHead):
    """ELECTRA's: a token's own state decides. On ModernBERT, its own head: no bias, and a LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.has_biases)
        self.layer_norm: nn.Module = nn.Identity()
        if not config.has_biases:
            self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
        self.prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Logits [B, S] in float32, the last product included; above 0 means replaced."""
        state_BSD = self.layer_norm(F.gelu(self.dense(hidden_BSD)))
        return _one_logit(self.prediction, state_BSD)

    def detect(self, hidden_BSD: Tensor, position_BS: Tensor) -> Tensor:
        """As `forward`; positions do not matter."""
        return self(hidden_BSD)  # type: ignore[no-any-return]


class LinearDiscriminatorHead(DetectionHead):
    """COCO-LM's, in ELECTRA's sign: one linear layer."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Logits [B, S] in float32; above 0 means replaced."""
        return _one_logit(self.prediction, hidden_BSD)

    def detect(self, hidden_BSD: Tensor, position_BS: Tensor) -> Tensor:
        """As `forward`; positions do not matter."""
        return self(hidden_BSD)  # type: ignore[no-any-return]


def _one_logit(prediction: nn.Linear, state_BSD: Tensor) -> Tensor:
    with torch.autocast(state_BSD.device.type, enabled=False):
        # One column: rounding its logits to bfloat16 would save nothing.
        logit_BS: Tensor = prediction(state_BSD.to(prediction.weight.dtype)).squeeze(-1)
    return logit_BS
