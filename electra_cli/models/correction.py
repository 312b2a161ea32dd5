"""The heads of COCO-LM: copy or correct a token, and know a text again."""

# B batch, S sequence, M rows, D hidden, E embedding size, N texts, W width of the text vectors

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.models.heads import DetectionHead, DiscriminatorHead, LinearDiscriminatorHead
from electra_cli.models.sizes import EncoderConfig


class CopyHead(nn.Module):
    """One logit a token: is it the original, to be copied? One linear layer, as in the paper."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Logits [B, S] in float32; above 0 means original: the opposite sign of ELECTRA's head."""
        with torch.autocast(hidden_BSD.device.type, enabled=False):
            logit_BS: Tensor = self.prediction(hidden_BSD.to(self.prediction.weight.dtype)).squeeze(-1)
        return logit_BS

    def as_discriminator(self) -> DetectionHead:
        """A head with the same answers in ELECTRA's sign: above 0 means replaced.

        ELECTRA's own, exact but for rounding, because gelu(x) − gelu(−x) = x: two of its inner units carry
        the linear layer. None passes through ModernBERT's, which normalises inside: there it stays one layer.
        """
        if not self.config.has_biases:
            return self._turned()
        head = DiscriminatorHead(self.config).to(self.prediction.weight)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.zero_()
            for unit, sign in ((0, 1.0), (1, -1.0)):
                head.dense.weight[unit] = sign * self.prediction.weight[0]
                head.dense.bias[unit] = sign * self.prediction.bias[0]
                head.prediction.weight[0, unit] = -sign
        return head

    def _turned(self) -> LinearDiscriminatorHead:
        head = LinearDiscriminatorHead(self.config).to(self.prediction.weight)
        with torch.no_grad():
            for turned, own in zip(head.parameters(), self.prediction.parameters(), strict=True):
                turned.copy_(-own)
        return head


class CorrectiveHead(nn.Module):
    """From hidden states to the product with the embedding table: nothing but `bias_V`, as in the paper.

    Where the table is narrower than the hidden states (the paper's never is), a linear layer comes first.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.projection = (
            nn.Linear(config.hidden_size, config.embedding_size) if config.has_projection else nn.Identity()
        )
        self.bias_V = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """States [M, E] to be multiplied with the table."""
        state_ME: Tensor = self.projection(hidden_MD)
        return state_ME


class TextVectorHead(nn.Module):
    """From the state of a text's first token to a vector of length 1."""

    def __init__(self, config: EncoderConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """Vectors [N, W], at least float32."""
        state_NW = self.layer_norm(F.gelu(self.dense(hidden_ND)))
        work = torch.promote_types(state_NW.dtype, torch.float32)
        return F.normalize(state_NW.to(work), dim=-1)
