"""The network that is fine-tuned: an encoder and a head."""

# B batch, S sequence, D hidden, C outputs (classes, or 1 for a score), H width inside the head

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli import keyed
from electra_cli.evaluation.encoding import TextBatch
from electra_cli.evaluation.tasks import Task
from electra_cli.models.backbone import Backbone
from electra_cli.settings_protocols import HeadName

HEAD_WIDTH = 1024


class Head(nn.Module, ABC):
    """What turns hidden states into outputs."""

    @abstractmethod
    def forward(self, hidden_BSD: Tensor, piece_BS: Tensor) -> Tensor:
        """Float32 outputs [B, C] of states of any precision; `piece_BS` is 0 on padding."""

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Fresh weights, a function of the seed."""


class ClsHead(Head):
    """Last hidden state of [CLS], dropout, one linear layer: no pooler and no dense layer in between.

    This is the head of google-research/electra. `ElectraForSequenceClassification` of transformers has
    another one (dropout, dense, gelu, dropout, linear) and gives other scores.
    """

    def __init__(self, hidden_size: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(num_outputs, hidden_size))
        self.bias = nn.Parameter(torch.empty(num_outputs))
        self.reset(0)

    def forward(self, hidden_BSD: Tensor, piece_BS: Tensor) -> Tensor:
        """Outputs [B, C]: logits, or one scaled score."""
        return F.linear(self.dropout(hidden_BSD[:, 0]).float(), self.weight, self.bias)

    def reset(self, seed: int) -> None:
        """Glorot uniform weights (TensorFlow's default for the layer); bias 0."""
        outputs, width = self.weight.shape
        _fill(self.weight, seed, "fine-tuning head", math.sqrt(6 / (outputs + width)))
        with torch.no_grad():
            self.bias.zero_()


class MeanHead(ClsHead):
    """The same on the mean of the states: dropout, one linear layer."""

    def forward(self, hidden_BSD: Tensor, piece_BS: Tensor) -> Tensor:
        """Outputs [B, C]: logits, or one scaled score."""
        return F.linear(self.dropout(mean_pooled(hidden_BSD, piece_BS)), self.weight, self.bias)


class SwishGlu(nn.Module):
    """Linear(H, 2H) cut in two: a · SiLU(b)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, 2 * width)

    def forward(self, state_BH: Tensor) -> Tensor:
        """Keeps the shape [B, H]."""
        value_BH, gate_BH = self.projection(state_BH).chunk(2, dim=-1)
        output_BH: Tensor = value_BH * F.silu(gate_BH)
        return output_BH


class MeanSwishGluHead(Head):
    """Mean of the states, then linear, SwishGLU and dropout twice, and a linear layer (Beno 2024).

    Both SwishGLU are one module: the published number of parameters counts it once.
    """

    def __init__(self, hidden_size: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(hidden_size, HEAD_WIDTH)
        self.second = nn.Linear(HEAD_WIDTH, HEAD_WIDTH)
        self.swish_glu = SwishGlu(HEAD_WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(HEAD_WIDTH, num_outputs)

    def forward(self, hidden_BSD: Tensor, piece_BS: Tensor) -> Tensor:
        """Outputs [B, C]: logits, or one scaled score."""
        state_BH = self.first(mean_pooled(hidden_BSD, piece_BS))
        state_BH = self.second(self.dropout(self.swish_glu(state_BH)))
        output_BC: Tensor = self.output(self.dropout(self.swish_glu(state_BH)))
        return output_BC

    def reset(self, seed: int) -> None:
        """Uniform within ± 1/√inputs, weights and biases, as PyTorch's linear layers begin."""
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                limit = 1 / math.sqrt(layer.in_features)
                for kind, parameter in layer.named_parameters():
                    _fill(parameter, seed, f"fine-tuning head {name}.{kind}", limit)


HEADS: Mapping[HeadName, Callable[[int, int, float], Head]] = {
    "cls": ClsHead,
    "mean": MeanHead,
    "mean-swishglu": MeanSwishGluHead,
}
"""By the name in a protocol; made from hidden size, number of outputs and dropout."""


def mean_pooled(hidden_BSD: Tensor, piece_BS: Tensor) -> Tensor:
    """Mean state [B, D] in float32 of the real tokens, [CLS] and [SEP] included."""
    is_real_BS1 = (piece_BS != 0).unsqueeze(-1)
    total_BD = torch.where(is_real_BS1, hidden_BSD, 0.0).sum(1, dtype=torch.float32)
    return total_BD / is_real_BS1.sum(1)


def _fill(parameter: nn.Parameter, seed: int, purpose: str, limit: float) -> None:
    if parameter.is_meta:
        return
    place = torch.arange(parameter.numel())
    share = keyed.uniform(keyed.key(seed, purpose), place).view(parameter.shape)
    with torch.no_grad():
        parameter.copy_((share * 2 - 1) * limit)


def num_outputs_of(task: Task) -> int:
    """A logit a class, or one score."""
    return 1 if task.is_regression else len(task.classes)


class Classifier(nn.Module):
    """An encoder with a head for one task."""

    def __init__(self, encoder: Backbone, num_outputs: int, dropout: float, head: HeadName = "cls") -> None:
        super().__init__()
        self.encoder = encoder
        self.num_outputs = num_outputs
        self.head = HEADS[head](encoder.config.hidden_size, num_outputs, dropout)

    def forward(self, batch: TextBatch) -> Tensor:
        """Float32 outputs [B, C]: logits, or one scaled score."""
        return self.outputs(self.states(batch), batch)

    def states(self, batch: TextBatch) -> Tensor:
        """Hidden states [B, S, D] of the last layer."""
        hidden_BSD: Tensor = self.encoder(
            batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS
        )
        return hidden_BSD

    def outputs(self, hidden_BSD: Tensor, batch: TextBatch) -> Tensor:
        """Outputs [B, C] of states that `states` gave for the batch."""
        # In bf16 a score would be rounded to 8 bits, and rank correlations would see ties.
        with torch.autocast(hidden_BSD.device.type, enabled=False):
            output_BC: Tensor = self.head(hidden_BSD, batch.piece_BS)
        return output_BC
