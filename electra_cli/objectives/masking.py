"""Which tokens of a row are chosen and hidden, and the numbers that samples are drawn with; all keyed."""

# B batch, S sequence, M slots for chosen positions, V vocabulary

import torch
from torch import Tensor, nn

from electra_cli import keyed
from electra_cli.corruption import Chosen, choose_positions, draw, mask_tokens
from electra_cli.data.batches import Batch
from electra_cli.errors import refusal
from electra_cli.objectives.base import VocabularyFacts
from electra_cli.settings import ProjectSettings

PURPOSES = ("chosen positions", "kept tokens", "samples")


class RowMasking(nn.Module):
    """The choices that `[masking]` describes; a module only so that its table moves to the device."""

    def __init__(
        self,
        settings: ProjectSettings,
        vocabulary: VocabularyFacts,
        *purposes: str,
        also_never_masked: tuple[int, ...] = (),
    ) -> None:
        """`purposes`: what else the objective draws, each with a key of its own.

        ProjectError where whole words are wanted of a vocabulary that does not tell them.
        """
        super().__init__()
        # Held-out rows are numbered from 0 as training samples are; purposes of their own keep them apart.
        names = [heldout + name for name in (*PURPOSES, *purposes) for heldout in ("", "heldout ")]
        self._keys = {name: keyed.key(settings.project.seed, name) for name in names}
        self.settings = settings.masking
        self.never_masked = (*vocabulary.never_masked, *also_never_masked)
        self.mask_id = vocabulary.mask_id
        self.continuation_V: Tensor | None
        self.register_buffer("continuation_V", _continuation_table(settings, vocabulary), persistent=False)

    def choose(self, batch: Batch) -> Chosen:
        """The chosen positions of each row."""
        return choose_positions(
            batch,
            fraction=self.settings.fraction,
            never_masked=self.never_masked,
            key=self.key("chosen positions", batch),
            continuation_V=self.continuation_V,
        )

    def hide(self, batch: Batch, chosen: Chosen) -> Tensor:
        """The rows [B, S] with [MASK] at the chosen positions, but for those that stay visible."""
        return mask_tokens(
            batch,
            chosen,
            mask_id=self.mask_id,
            keep_fraction=self.settings.keep_fraction,
            key=self.key("kept tokens", batch),
        )

    def uniform(self, batch: Batch, chosen: Chosen) -> Tensor:
        """The number [M] in [0, 1), float64, that draws the sample of each slot."""
        return draw(batch, chosen, key=self.key("samples", batch))

    def key(self, purpose: str, batch: Batch) -> int:
        """The key of one of the purposes, for training or for held-out rows."""
        return self._keys[f"heldout {purpose}" if batch.is_heldout else purpose]


def _continuation_table(settings: ProjectSettings, vocabulary: VocabularyFacts) -> Tensor | None:
    """Whether each id continues a word; only whole-word masking asks."""
    if not settings.masking.whole_word:
        return None
    if not vocabulary.continuation_ids:
        message = "masking.whole_word = true, but no piece of the vocabulary is known to continue a word"
        raise refusal(
            "masking.whole_word",
            message,
            hint="set masking.whole_word = false, or use a vocabulary of word pieces",
        )
    table_V = torch.zeros(vocabulary.size, dtype=torch.bool)
    table_V[list(vocabulary.continuation_ids)] = True
    return table_V
