"""What every encoder offers, whatever its family."""

# B batch, S sequence, D hidden

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from electra_cli.models.embeddings import TokenEmbeddings
from electra_cli.models.sizes import EncoderConfig

_EMBEDDINGS = "embeddings."


class Backbone(nn.Module, ABC):
    """Embeddings, and layers over them."""

    config: EncoderConfig
    embeddings: TokenEmbeddings
    projection: nn.Linear | None
    """From the embeddings' width to the layers', where the two differ."""
    layers: nn.ModuleList
    recomputes_layers = False
    """Training keeps what goes into a layer, and computes the rest again on the way back."""

    @abstractmethod
    def forward(
        self, token_ids_BS: Tensor, piece_BS: Tensor, position_BS: Tensor, segment_BS: Tensor
    ) -> Tensor:
        """Hidden states [B, S, D]; a token sees the tokens of its own piece."""

    def through(self, layer: nn.Module, *inputs: object) -> Tensor:
        """What a layer makes of the inputs; dropout draws the same numbers where they are computed again."""
        is_repeated = self.recomputes_layers and self.training and torch.is_grad_enabled()
        output: Tensor = checkpoint(layer, *inputs, use_reentrant=False) if is_repeated else layer(*inputs)
        return output

    def parameters_above_the_layers(self) -> list[nn.Parameter]:
        """What follows the last layer: fine-tuning moves it as the head."""
        return []

    def parameters_below_the_layers(self) -> list[nn.Parameter]:
        """The embeddings, and what else is neither in the layers nor above: fine-tuning moves them least."""
        others = {*self.layers.parameters(), *self.parameters_above_the_layers()}
        return [parameter for parameter in self.parameters() if parameter not in others]

    def plain_state(self) -> dict[str, Tensor]:
        """The parameters that an encoder with tables of its own would need to compute the same."""
        state = {k: v for k, v in self.state_dict().items() if not k.startswith(_EMBEDDINGS)}
        return state | {_EMBEDDINGS + k: v for k, v in self.embeddings.plain_state().items()}

    def own_state(self, plain: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of `plain_state`: what `state_dict` must hold to compute what `plain` does."""
        state = {k: v for k, v in plain.items() if not k.startswith(_EMBEDDINGS)}
        tables = {k.removeprefix(_EMBEDDINGS): v for k, v in plain.items() if k.startswith(_EMBEDDINGS)}
        return state | {_EMBEDDINGS + k: v for k, v in self.embeddings.own_state(tables).items()}
