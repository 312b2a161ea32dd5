# --8<-- [start:whole]
"""An own objective: BERT's masked language model (Devlin et al. 2018), with its random words."""

# B batch, S sequence, M slots for chosen positions, D hidden, E embedding size, V vocabulary

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from electra_cli import keyed
from electra_cli.corruption import Chosen, choose_positions, draw, mask_tokens, put_samples
from electra_cli.data.batches import Batch
from electra_cli.kernels.masked_sampling import masked_sample
from electra_cli.models.folders import HFFolder, encoder_folder, generator_folders
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import discriminator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.electra import Generator
from electra_cli.settings import ProjectSettings, Settings


# --8<-- [start:settings]
class MaskedLMSettings(Settings):
    """The keys of `[objective]` beside `use`."""

    random_fraction: float = Field(0.1, ge=0, le=1)
    """Share of the chosen tokens that become a random word instead of [MASK]."""


# --8<-- [end:settings]
class MaskedLM(Objective):
    """One network that restores the words it does not see."""

    # --8<-- [start:networks]
    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        super().__init__(settings, vocabulary, sampler=sampler)
        self.own = own_settings(settings.objective, MaskedLMSettings)
        self.updates = (Update(name="masked_lm", networks=("network",), terms={"mlm": 1.0}),)
        # The generator of ELECTRA, at the size of `[model]`: an encoder with a tied head.
        config = discriminator_config(settings, vocabulary.size, vocabulary.padding_id)
        self.network = Generator(config, None)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    # --8<-- [end:networks]
    # --8<-- [start:counts]
    def counts(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": self._choose(batch).weight_M.sum()}

    # --8<-- [end:counts]
    # --8<-- [start:forward]
    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        chosen = self._choose(batch)
        sample = masked_sample(
            self.network(self._shown(batch, chosen), batch, chosen.index_M),
            self.network.encoder.embeddings.word_VE,
            self.network.head.bias_V,
            chosen.target_M,
            chosen.weight_M,
            draw(batch, chosen, key=self._key("samples", batch)),
            implementation=self.sampler,
        )
        is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
        return Losses(
            sums={"mlm": sample.loss_sum},
            figures={"num_chosen": chosen.weight_M.sum(), "num_right": is_right_M.sum()},
        )

    # --8<-- [end:forward]
    # --8<-- [start:figures]
    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        num_chosen, num_right = float(figures["num_chosen"]), float(figures["num_right"])
        return {"sampled_accuracy": num_right / num_chosen if num_chosen else None}

    # --8<-- [end:figures]
    # --8<-- [start:exports]
    def exports(self) -> dict[str, HFFolder]:
        encoder, head = self.network.encoder, self.network.head
        return {"encoder": encoder_folder(encoder), **generator_folders(encoder, head)}

    # --8<-- [end:exports]
    def _choose(self, batch: Batch) -> Chosen:
        return choose_positions(
            batch,
            fraction=self.settings.masking.fraction,
            never_masked=self.vocabulary.never_masked,
            key=self._key("chosen positions", batch),
        )

    # --8<-- [start:shown]
    def _shown(self, batch: Batch, chosen: Chosen) -> Tensor:
        """The chosen tokens become [MASK], stay, or turn into a random word."""
        masked_BS = mask_tokens(
            batch,
            chosen,
            mask_id=self.vocabulary.mask_id,
            keep_fraction=self.settings.masking.keep_fraction,
            key=self._key("kept tokens", batch),
        )
        is_random_M = draw(batch, chosen, key=self._key("is random", batch)) < self.own.random_fraction
        random_M = draw(batch, chosen, key=self._key("random word", batch)) * self.vocabulary.size
        shown_M = torch.where(is_random_M, random_M.long(), masked_BS.flatten()[chosen.index_M])
        return put_samples(batch.token_ids_BS, chosen, shown_M)

    def _key(self, purpose: str, batch: Batch) -> int:
        heldout = "heldout " if batch.is_heldout else ""
        return keyed.key(self.settings.project.seed, heldout + purpose)

    # --8<-- [end:shown]


# --8<-- [end:whole]
