"""What stands on an encoder in pre-training."""

# B batch, S sequence, M rows (masked positions), D hidden, E embedding size, V vocabulary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.models.sizes import EncoderConfig


class MaskedLMHead(nn.Module):
    """The generator's head before the vocabulary; the tied embedding table and `bias_V` follow."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias_V = nn.Parameter(torch.zeros(config.vocab_size))

    def transform(self, hidden_MD: Tensor) -> Tensor:
        """States [M, E] to be multiplied with the table: dense, gelu whatever the encoder's, LayerNorm."""
        state_ME: Tensor = self.layer_norm(F.gelu(self.dense(hidden_MD)))
        return state_ME

    def forward(self, hidden_MD: Tensor, table_VE: Tensor) -> Tensor:
        """Logits [M, V]; training uses `transform` and the sampling kernel, which never keeps them."""
        return F.linear(self.transform(hidden_MD), table_VE, self.bias_V)


class DiscriminatorHead(nn.Module):
    """One logit a token: is it replaced?"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Logits [B, S] in float32, the last product included; above 0 means replaced."""
        state_BSD = F.gelu(self.dense(hidden_BSD))
        with torch.autocast(hidden_BSD.device.type, enabled=False):
            # One column: rounding its logits to bfloat16 would save nothing.
            logit_BS: Tensor = self.prediction(state_BSD.to(self.prediction.weight.dtype)).squeeze(-1)
        return logit_BS
