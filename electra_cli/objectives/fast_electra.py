"""Fast-ELECTRA (Dong et al. 2023, arXiv 2310.07347): a frozen model corrupts, only the discriminator learns.

L = mean over all real tokens of the binary cross entropy of "was replaced"; no masked-language-model loss.
The samples come from softmax(z / T), where T falls from T_0 to 1 with u, the share of the run that is done:

    T(u) = 1 + (T_0 − 1) · exp(−u / τ)          (the paper's equation 2)

Easy replacements come first, as from a generator that still learns. docs/fast-electra.md has the details.
"""

# B batch, S sequence, K slots of a row, M = B·K slots of the batch, E embedding size

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from electra_cli.corruption import label_replaced, put_samples
from electra_cli.data.batches import Batch
from electra_cli.errors import InputError, refusal
from electra_cli.kernels.masked_sampling import masked_sample
from electra_cli.models.folders import (
    HFFolder,
    PretrainedPart,
    copy_body,
    copy_into,
    discriminator_folders,
)
from electra_cli.models.initial import initialise
from electra_cli.models.masked_lm_folders import copy_embeddings, load_masked_lm
from electra_cli.models.sizes import discriminator_config
from electra_cli.objectives.base import (
    DrawingObjective,
    Losses,
    Reads,
    Update,
    VocabularyFacts,
    own_settings,
)
from electra_cli.objectives.detection import detection_figures, detection_loss, summarise_detection
from electra_cli.objectives.electra import Discriminator, Generator
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import FastElectraSettings

KEY = "objective.auxiliary"


class Auxiliary(nn.Module):
    """A masked language model that never learns and never drops anything."""

    def __init__(self, part: PretrainedPart, *, sequence_length: int) -> None:
        """InputError where its position table is shorter than a row."""
        super().__init__()
        self.network = Generator(part.config, None)
        copy_body(self.network.encoder, part, sequence_length=sequence_length)
        copy_into(self.network.head, part.head, source=str(part.folder))
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> "Auxiliary":
        """Stay in evaluation mode, whatever the networks around it do."""
        return super().train(False)

    def forward(
        self, masked_BS: Tensor, batch: Batch, index_M: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Tensor]:
        """States [M, E] and biases [V] whose product with the table gives z / T at the chosen positions."""
        # Both are divided, for the kernel's own temperature is a constant of the compiled code.
        return self.network(masked_BS, batch, index_M) / temperature, self.network.head.bias_V / temperature

    @property
    def table_VE(self) -> Tensor:
        """The output table."""
        return self.network.encoder.embeddings.word_VE


class FastElectra(DrawingObjective):
    """One discriminator; the model that corrupts its rows is read from a folder, or was asked beforehand."""

    draw_settings: ClassVar[tuple[str, ...]] = (
        "temperature_schedule",
        "initial_temperature",
        "temperature_decay",
        "temperature_power",
    )

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        super().__init__(settings, vocabulary, sampler=sampler)
        self.own = own_settings(settings.objective, FastElectraSettings)
        self.updates = (
            Update(
                name="fast_electra",
                networks=("discriminator",),
                terms={"rtd": self.own.discriminator_weight},
            ),
        )
        config = discriminator_config(settings, vocabulary.size, vocabulary.padding_id)
        self.discriminator = Discriminator(config)
        self.masking = RowMasking(settings, vocabulary)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)
        self.auxiliary: Auxiliary | None = None

    @classmethod
    def reads(cls, settings: ProjectSettings) -> Reads:
        """The auxiliary model, and the folder of its samples where there is one."""
        own = own_settings(settings.objective, FastElectraSettings)
        if not own.auxiliary:
            message = f'{KEY} is empty: objective.use = "fast_electra" needs a trained masked language model'
            raise refusal(
                KEY,
                message,
                hint="name generator/ of an export, or a Hugging Face folder with this project's vocabulary",
            )
        return Reads(models={"auxiliary": own.auxiliary}, samples=own.samples)

    def load_frozen(self, folders: Mapping[str, Path]) -> None:
        """Read the auxiliary model; where its samples are at hand, only for the discriminator's start.

        InputError where it does not fit the rows, or where the start needs sizes that it does not have.
        """
        folder, start = folders["auxiliary"], self.own.initial_weights
        if self.own.samples and start == "fresh":
            return
        part, length = load_masked_lm(folder), self.settings.rows.sequence_length
        _require_fit(part, self.vocabulary.size, has_pairs=self.settings.rows.segment_pairs)
        if start == "auxiliary":
            copy_body(self.discriminator.encoder, part, sequence_length=length)
        elif start == "embeddings":
            copy_embeddings(self.discriminator.encoder, part, sequence_length=length)
        if not self.own.samples:
            self.auxiliary = Auxiliary(part, sequence_length=length)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """All real tokens."""
        return {"rtd": (batch.piece_BS > 0).sum().float()}

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """The sum of one micro-batch; `batch.drawn_BK`, where it is there, takes the auxiliary's place."""
        chosen = self.masking.choose(batch)
        drawn_BK = self.draw(batch, progress) if batch.drawn_BK is None else batch.drawn_BK
        sampled_M = drawn_BK.flatten()
        corrupted_BS = put_samples(batch.token_ids_BS, chosen, sampled_M)
        is_replaced_BS = label_replaced(corrupted_BS, batch.token_ids_BS)
        logit_BS = self.discriminator(corrupted_BS, batch)
        is_real_BS = batch.piece_BS > 0
        is_right_M = (sampled_M == chosen.target_M) * chosen.weight_M
        return Losses(
            sums={"rtd": detection_loss(logit_BS, is_replaced_BS, is_real_BS)},
            figures={
                "num_chosen": chosen.weight_M.sum(),
                "num_sampled_right": is_right_M.sum(),
                **detection_figures(logit_BS, is_replaced_BS, is_real_BS),
            },
        )

    @torch.no_grad()
    def draw(self, batch: Batch, progress: Tensor) -> Tensor:
        """The ids [B, K] that the auxiliary model puts at the chosen positions.

        Held-out rows are corrupted at temperature 1, so that their figures can be compared over a run.
        """
        assert self.auxiliary is not None, "no auxiliary model was loaded, and the batch brings no samples"
        chosen = self.masking.choose(batch)
        temperature = torch.ones_like(progress) if batch.is_heldout else self.temperature(progress)
        masked_BS = self.masking.hide(batch, chosen)
        state_ME, bias_V = self.auxiliary(masked_BS, batch, chosen.index_M, temperature)
        sample = masked_sample(
            state_ME,
            self.auxiliary.table_VE,
            bias_V,
            chosen.target_M,
            chosen.weight_M,
            self.masking.uniform(batch, chosen),
            # A sampled [PAD] would train the one row of the table that transformers keeps out of training.
            forbidden_M=torch.full_like(chosen.target_M, self.vocabulary.padding_id),
            implementation=self.sampler,
        )
        return sample.sampled_M.view(len(batch.sample_B), -1)

    def temperature(self, progress: Tensor) -> Tensor:
        """T at a share of the run in [0, 1]; 0-d, as `progress`."""
        own = self.own
        excess = own.initial_temperature - 1
        if own.temperature_schedule == "exponential":
            return 1 + excess * torch.exp(-progress / own.temperature_decay)
        if own.temperature_schedule == "linear":
            return 1 + excess * (1 - progress)
        if own.temperature_schedule == "polynomial":
            return 1 + excess * (1 - progress) ** own.temperature_power
        return torch.full_like(progress, own.initial_temperature)

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """sampled_accuracy, replaced_fraction, disc_auc, disc_precision, disc_recall."""
        num_chosen, num_right = float(figures["num_chosen"]), float(figures["num_sampled_right"])
        return {
            "sampled_accuracy": num_right / num_chosen if num_chosen else None,
            **summarise_detection(figures),
        }

    def exports(self) -> dict[str, HFFolder]:
        """The discriminator with and without its head; the auxiliary model has a folder of its own."""
        return discriminator_folders(self.discriminator.encoder, self.discriminator.head)


def _require_fit(part: PretrainedPart, vocabulary_size: int, *, has_pairs: bool) -> None:
    """InputError where the auxiliary model cannot read this project's rows."""
    if part.config.vocab_size != vocabulary_size:
        raise InputError(
            f"{KEY}: {part.folder} has a table of {part.config.vocab_size:,} pieces, "
            f"this project's vocabulary has {vocabulary_size:,}",
            path=part.folder,
            key=KEY,
            hint="take a model of this vocabulary, or set vocab.path to the model's and shard again",
        )
    if has_pairs and part.config.num_segments == 1:
        raise InputError(
            f"{KEY}: {part.folder} knows {part.config.num_segments} token type, "
            "rows.segment_pairs = true makes two",
            path=part.folder,
            key=KEY,
            hint="set rows.segment_pairs = false",
        )
