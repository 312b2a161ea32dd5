"""ELECTRA (Clark et al. 2020, arXiv 2003.10555): a generator fills masks, a discriminator finds the fillings.

L = generator_weight · mean over chosen positions of −log p_G(x_i | masked)
  + discriminator_weight · mean over all real tokens of the binary cross entropy of "was replaced".

The ids are sampled from the generator, so no gradient of the second term reaches it but through what both
networks share. docs/electra.md lists every detail, and where and why we differ from the official code.
"""

# B batch, S sequence, M slots for chosen positions, D hidden, E embedding size, V vocabulary

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from electra_cli.corruption import Chosen, label_replaced, put_samples
from electra_cli.data.batches import Batch
from electra_cli.errors import Problem, ProjectError
from electra_cli.kernels.masked_sampling import MaskedSample, masked_sample
from electra_cli.models.backbones import build_encoder
from electra_cli.models.embeddings import TokenEmbeddings
from electra_cli.models.folders import HFFolder, discriminator_folders, generator_folders
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import EncoderConfig, discriminator_config, generator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.detection import detection_figures, detection_loss, summarise_detection
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import ElectraSettings

SHARINGS = ("tied", "none")


class Generator(nn.Module):
    """The small masked language model; its output layer is its embedding table."""

    def __init__(self, config: EncoderConfig, embeddings: TokenEmbeddings | None) -> None:
        super().__init__()
        self.encoder = build_encoder(config, embeddings)
        self.head = MaskedLMHead(config)

    def forward(self, masked_BS: Tensor, batch: Batch, index_M: Tensor) -> Tensor:
        """States [M, E] at the chosen positions, ready for the product with the embedding table."""
        hidden_BSD = self.encoder(masked_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        state_ME: Tensor = self.head.transform(hidden_BSD.flatten(0, 1).index_select(0, index_M))
        return state_ME


class Discriminator(nn.Module):
    """The encoder that is kept, with a head that says of each token whether it was replaced."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = build_encoder(config)
        self.head = DiscriminatorHead(config)

    def forward(self, corrupted_BS: Tensor, batch: Batch) -> Tensor:
        """Logits [B, S], float32; above 0 means replaced."""
        hidden_BSD = self.encoder(corrupted_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        logit_BS: Tensor = self.head(hidden_BSD)
        return logit_BS


class Electra(Objective):
    """Joint training of generator and discriminator, in one update."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        """ProjectError for a sharing or masking that ELECTRA does not have."""
        super().__init__(settings, vocabulary, sampler=sampler)
        own = own_settings(settings.objective, ElectraSettings)
        self.temperature = own.temperature
        self.updates = (
            Update(
                name="electra",
                networks=("discriminator", "generator"),
                terms={"mlm": own.generator_weight, "rtd": own.discriminator_weight},
            ),
        )
        is_tied = _is_tied(settings.generator.sharing)
        sizes = vocabulary.size, vocabulary.padding_id
        self.discriminator = Discriminator(discriminator_config(settings, *sizes))
        self.generator = Generator(
            generator_config(settings, *sizes), self.discriminator.encoder.embeddings if is_tied else None
        )
        self.masking = RowMasking(settings, vocabulary)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions for "mlm", real tokens for "rtd"."""
        return {
            "mlm": self.masking.choose(batch).weight_M.sum(),
            "rtd": (batch.piece_BS > 0).sum().float(),
        }

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """Both sums of one micro-batch. While training, dropout is on in the generator as it samples."""
        chosen = self.masking.choose(batch)
        sample = self._generate(batch, chosen)
        corrupted_BS = put_samples(batch.token_ids_BS, chosen, sample.sampled_M)
        is_replaced_BS = label_replaced(corrupted_BS, batch.token_ids_BS)
        logit_BS = self.discriminator(corrupted_BS, batch)
        is_real_BS = batch.piece_BS > 0
        is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
        return Losses(
            sums={
                "mlm": sample.loss_sum,
                "rtd": detection_loss(logit_BS, is_replaced_BS, is_real_BS),
            },
            figures={
                "num_chosen": chosen.weight_M.sum(),
                "num_sampled_right": is_right_M.sum(),
                **detection_figures(logit_BS, is_replaced_BS, is_real_BS),
            },
        )

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """sampled_accuracy, replaced_fraction, disc_auc, disc_precision, disc_recall."""
        num_chosen, num_right = float(figures["num_chosen"]), float(figures["num_sampled_right"])
        return {
            "sampled_accuracy": num_right / num_chosen if num_chosen else None,
            **summarise_detection(figures),
        }

    def exports(self) -> dict[str, HFFolder]:
        """The discriminator with and without its head, and the generator."""
        return {
            **discriminator_folders(self.discriminator.encoder, self.discriminator.head),
            **generator_folders(self.generator.encoder, self.generator.head),
        }

    def _generate(self, batch: Batch, chosen: Chosen) -> MaskedSample:
        return masked_sample(
            self.generator(self.masking.hide(batch, chosen), batch, chosen.index_M),
            self.generator.encoder.embeddings.word_VE,
            self.generator.head.bias_V,
            chosen.target_M,
            chosen.weight_M,
            self.masking.uniform(batch, chosen),
            temperature=self.temperature,
            # A sampled [PAD] would train the one row of the table that transformers keeps out of training.
            forbidden_M=torch.full_like(chosen.target_M, self.vocabulary.padding_id),
            implementation=self.sampler,
        )


def _is_tied(sharing: str) -> bool:
    if sharing not in SHARINGS:
        allowed = " or ".join(f'"{name}"' for name in SHARINGS)
        message = f'generator.sharing = "{sharing}" does not go with objective.use = "electra"'
        raise ProjectError(
            message,
            problems=(Problem("generator.sharing", message),),
            key="generator.sharing",
            hint=f"allowed: {allowed}",
        )
    return sharing == "tied"
