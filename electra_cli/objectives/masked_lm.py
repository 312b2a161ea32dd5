"""Masked language modelling (BERT, Devlin et al. 2018, arXiv 1810.04805): one network, no sentence task.

L = mean over chosen positions of −log p(x_i | shown). Of the chosen tokens `keep_fraction` are shown as they
are, `random_fraction` as a random piece, the others as [MASK]. docs/baselines.md has the details.
"""

# B batch, S sequence, M slots for chosen positions, A pieces that may stand for a word, V vocabulary

from collections.abc import Mapping

import torch
from torch import Tensor

from electra_cli.corruption import Chosen, draw, put_samples
from electra_cli.data.batches import Batch
from electra_cli.errors import refusal
from electra_cli.models.folders import HFFolder, encoder_folder, generator_folders
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import discriminator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.electra import Generator
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import MaskedLMSettings


class MaskedLM(Objective):
    """An encoder of `[model]`'s size with a tied head; `[generator]` plays no part."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        """ProjectError where the kept and the random tokens are more than the chosen ones."""
        super().__init__(settings, vocabulary, sampler=sampler)
        self.random_fraction = own_settings(settings.objective, MaskedLMSettings).random_fraction
        _require_room(settings.masking.keep_fraction, self.random_fraction)
        self.updates = (Update(name="masked_lm", networks=("generator",), terms={"mlm": 1.0}),)
        self.generator = Generator(
            discriminator_config(settings, vocabulary.size, vocabulary.padding_id), None
        )
        self.masking = RowMasking(settings, vocabulary, "random tokens")
        self.piece_A: Tensor
        special = {*vocabulary.never_masked, vocabulary.unknown_id}
        pieces = [number for number in range(vocabulary.size) if number not in special]
        self.register_buffer("piece_A", torch.tensor(pieces), persistent=False)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions."""
        return {"mlm": self.masking.choose(batch).weight_M.sum()}

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """The sum of one micro-batch."""
        chosen = self.masking.choose(batch)
        # The kernel's sample is drawn in the same pass and says how often the network is right.
        sample = self.generator.fill(
            self.show(batch, chosen), batch, chosen, self.masking.uniform(batch, chosen), sampler=self.sampler
        )
        is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
        return Losses(
            sums={"mlm": sample.loss_sum},
            figures={"num_chosen": chosen.weight_M.sum(), "num_sampled_right": is_right_M.sum()},
        )

    def show(self, batch: Batch, chosen: Chosen) -> Tensor:
        """The rows [B, S] as the network sees them. One number a slot decides between its three fates."""
        masked_M = self.masking.hide(batch, chosen).flatten()[chosen.index_M]
        fate_M = draw(batch, chosen, key=self.masking.key("kept tokens", batch))
        # Below keep_fraction a token stays, as `hide` has it; the next stretch becomes random.
        keep = self.settings.masking.keep_fraction
        is_random_M = (fate_M >= keep) & (fate_M < keep + self.random_fraction)
        which_M = draw(batch, chosen, key=self.masking.key("random tokens", batch)) * len(self.piece_A)
        random_M = self.piece_A[which_M.to(torch.int64)]
        return put_samples(batch.token_ids_BS, chosen, torch.where(is_random_M, random_M, masked_M))

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """sampled_accuracy."""
        num_chosen, num_right = float(figures["num_chosen"]), float(figures["num_sampled_right"])
        return {"sampled_accuracy": num_right / num_chosen if num_chosen else None}

    def exports(self) -> dict[str, HFFolder]:
        """The encoder, and the whole network as a model that fills masks."""
        encoder, head = self.generator.encoder, self.generator.head
        return {"encoder": encoder_folder(encoder), **generator_folders(encoder, head)}


def _require_room(keep_fraction: float, random_fraction: float) -> None:
    if keep_fraction + random_fraction > 1:
        message = (
            f"masking.keep_fraction = {keep_fraction} and objective.random_fraction = {random_fraction} "
            "are more than all chosen tokens"
        )
        raise refusal("objective.random_fraction", message, hint="BERT has 0.1 and 0.1")
