"""How the two networks of replaced-token detection share embeddings.

`none`: each has its own. `tied`: one module, moved by both losses. `gradient-disentangled` (He et al. 2021,
arXiv 2111.09543, eq. 6): the discriminator reads sg(E_G) + E_Δ, so that its loss moves E_Δ alone.
"""

# B batch, S sequence, V vocabulary, E embedding size

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from electra_cli.errors import refusal
from electra_cli.models.backbones import build_embeddings
from electra_cli.models.embeddings import TokenEmbeddings
from electra_cli.models.sizes import EncoderConfig

Sharing = Literal["none", "tied", "all", "gradient-disentangled"]


@dataclass(frozen=True)
class Tables:
    """The embeddings that each network reads."""

    discriminator: TokenEmbeddings
    generator: TokenEmbeddings


def share_embeddings(sharing: Sharing, discriminator: EncoderConfig, generator: EncoderConfig) -> Tables:
    """The embeddings of two networks of these sizes; ProjectError where their tables cannot be shared.

    "all" is more than embeddings, and refused.
    """
    if sharing == "all":
        message = 'generator.sharing = "all" is for networks that are one; here they differ'
        raise refusal("generator.sharing", message, hint='"none", "tied" or "gradient-disentangled"')
    own = build_embeddings(discriminator)
    if sharing == "none":
        return Tables(own, build_embeddings(generator))
    sizes = discriminator.embedding_size, generator.embedding_size
    if sizes[0] != sizes[1]:
        message = (
            f'generator.sharing = "{sharing}" needs tables of one size; '
            f"the discriminator's have {sizes[0]} columns, the generator's {sizes[1]}"
        )
        raise refusal("generator.sharing", message, hint='sharing = "none" lets them differ')
    if sharing == "tied":
        return Tables(own, own)
    shared = build_embeddings(generator)
    return Tables(GradientDisentangledEmbeddings(shared, own), shared)


class GradientDisentangledEmbeddings(TokenEmbeddings):
    """The generator's tables, from which no gradient flows back, plus differences that start at zero.

    Rows are looked up in both and added; no table of sums is ever made in training. What follows the sum
    (LayerNorm, dropout) is the discriminator's own.
    """

    def __init__(self, shared: TokenEmbeddings, own: TokenEmbeddings) -> None:
        """`shared`: the generator's; `own`: of the same kind and size, its tables become the differences."""
        super().__init__()
        # In a tuple: the generator's tables are not parameters of the discriminator.
        self._shared = (shared,)
        self.own = own

    @property
    def word_VE(self) -> Tensor:  # type: ignore[override]
        """The summed word table, made at each call."""
        return self._shared[0].word_VE.detach() + self.own.word_VE

    def look_up(self, token_ids_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        """sg(E_G[ids]) + E_Δ[ids], over all tables."""
        with torch.no_grad():
            shared_BSE = self._shared[0].look_up(token_ids_BS, position_BS, segment_BS)
        return shared_BSE + self.own.look_up(token_ids_BS, position_BS, segment_BS)

    def finish(self, summed_BSE: Tensor) -> Tensor:
        """As `own` does."""
        return self.own.finish(summed_BSE)

    def differences(self) -> dict[str, Tensor]:
        """The tables E_Δ by name."""
        return {name: value for name, value in self.own.named_parameters() if value.dim() > 1}

    def plain_state(self) -> dict[str, Tensor]:
        """With E_D = E_G + E_Δ as tables."""
        return self._moved(self.own.plain_state(), +1)

    def own_state(self, plain: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """E_Δ = E_D − E_G, for the E_G of this moment."""
        return {f"own.{name}": value for name, value in self._moved(plain, -1).items()}

    def _moved(self, tables: Mapping[str, Tensor], sign: int) -> dict[str, Tensor]:
        shared, differences = self._shared[0].plain_state(), self.differences()
        return {
            name: value + sign * shared[name].to(value.device) if name in differences else value
            for name, value in tables.items()
        }
