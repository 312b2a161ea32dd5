"""The network that is fine-tuned: an encoder and the official head."""

# B batch, S sequence, D hidden, C classes (1 for a score)

import math

import torch
from torch import Tensor, nn

from electra_cli import keyed
from electra_cli.evaluation.encoding import TextBatch
from electra_cli.models.backbone import Backbone


class Classifier(nn.Module):
    """Last hidden state of [CLS], dropout, one linear layer: no pooler and no dense layer in between.

    This is the head of google-research/electra. `ElectraForSequenceClassification` of transformers has
    another one (dropout, dense, gelu, dropout, linear) and gives other scores.
    """

    def __init__(self, encoder: Backbone, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.config.hidden_size, num_outputs)

    def forward(self, batch: TextBatch) -> Tensor:
        """Float32 outputs [B, C]: logits, or one scaled score."""
        hidden_BSD = self.encoder(batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        cls_BD = self.dropout(hidden_BSD[:, 0]).float()
        # In bf16 a score would be rounded to 8 bits, and rank correlations would see ties.
        with torch.autocast(cls_BD.device.type, enabled=False):
            output_BC: Tensor = self.output(cls_BD)
        return output_BC

    def reset_head(self, seed: int) -> None:
        """Glorot uniform weights (TensorFlow's default for the layer), a function of the seed; bias 0."""
        outputs, width = self.output.weight.shape
        place = torch.arange(outputs * width)
        share = keyed.uniform(keyed.key(seed, "fine-tuning head"), place).view(outputs, width)
        limit = math.sqrt(6 / (outputs + width))
        with torch.no_grad():
            self.output.weight.copy_((share * 2 - 1) * limit)
            self.output.bias.zero_()
