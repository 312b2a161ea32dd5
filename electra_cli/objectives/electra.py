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

from electra_cli.corruption import Chosen, label_replaced, mark_chosen, put_samples
from electra_cli.data.batches import Batch
from electra_cli.errors import refusal
from electra_cli.kernels.masked_sampling import MaskedSample, masked_sample
from electra_cli.models.backbone import Backbone
from electra_cli.models.backbones import build_encoder
from electra_cli.models.embeddings import TokenEmbeddings
from electra_cli.models.folders import HFFolder, discriminator_folders, generator_folders
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.sharing import share_embeddings
from electra_cli.models.sizes import EncoderConfig, discriminator_config, generator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.detection import detection_figures, detection_loss, summarise_detection
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import ElectraSettings

SHARINGS = ("tied", "none", "all")


class Generator(nn.Module):
    """The small masked language model; its output layer is its embedding table."""

    def __init__(
        self,
        config: EncoderConfig,
        embeddings: TokenEmbeddings | None,
        *,
        encoder: Backbone | None = None,
    ) -> None:
        """`embeddings`, or a whole `encoder`: those of another network, to share them."""
        super().__init__()
        self.encoder = build_encoder(config, embeddings) if encoder is None else encoder
        self.head = MaskedLMHead(config, self.encoder.projection)

    def forward(self, masked_BS: Tensor, batch: Batch, index_M: Tensor) -> Tensor:
        """States [M, E] at the chosen positions, ready for the product with the embedding table."""
        hidden_BSD = self.encoder(masked_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        state_ME: Tensor = self.head.transform(hidden_BSD.flatten(0, 1).index_select(0, index_M))
        return state_ME

    def fill(
        self,
        masked_BS: Tensor,
        batch: Batch,
        chosen: Chosen,
        uniform_M: Tensor,
        *,
        temperature: float = 1.0,
        sampler: str = "auto",
    ) -> MaskedSample:
        """The loss at the chosen positions, and an id drawn for each by `uniform_M`; never [PAD]."""
        return masked_sample(
            self(masked_BS, batch, chosen.index_M),
            self.encoder.embeddings.word_VE,
            self.head.bias_V,
            chosen.target_M,
            chosen.weight_M,
            uniform_M,
            temperature=temperature,
            # A sampled [PAD] would train the one row of the table that transformers keeps out of training.
            forbidden_M=torch.full_like(chosen.target_M, self.encoder.config.padding_id),
            implementation=sampler,
        )


class Discriminator(nn.Module):
    """The encoder that is kept, with a head that says of each token whether it was replaced."""

    def __init__(self, config: EncoderConfig, embeddings: TokenEmbeddings | None = None) -> None:
        super().__init__()
        self.encoder = build_encoder(config, embeddings)
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
        """ProjectError for settings that do not go together."""
        super().__init__(settings, vocabulary, sampler=sampler)
        own = own_settings(settings.objective, ElectraSettings)
        self.temperature = own.temperature
        self.detects_all = own.discriminator_positions == "all"
        self.updates = (
            Update(
                name="electra",
                networks=("discriminator", "generator"),
                terms={"mlm": own.generator_weight, "rtd": own.discriminator_weight},
            ),
        )
        config = discriminator_config(settings, vocabulary.size, vocabulary.padding_id)
        if settings.generator.sharing == "gradient-disentangled":
            smaller = generator_config(settings, vocabulary.size, vocabulary.padding_id)
            tables = share_embeddings(settings.generator.sharing, config, smaller)
            self.discriminator = Discriminator(config, tables.discriminator)
            self.generator = Generator(smaller, tables.generator)
        else:
            self.discriminator = Discriminator(config)
            self.generator = make_generator(settings, vocabulary, self.discriminator.encoder)
        self.masking = RowMasking(settings, vocabulary)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions for "mlm"; real tokens, or the chosen ones, for "rtd"."""
        num_chosen = self.masking.choose(batch).weight_M.sum()
        return {
            "mlm": num_chosen,
            "rtd": (batch.piece_BS > 0).sum().float() if self.detects_all else num_chosen,
        }

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """Both sums of one micro-batch. While training, dropout is on in the generator as it samples."""
        chosen = self.masking.choose(batch)
        sample = self.generator.fill(
            self.masking.hide(batch, chosen),
            batch,
            chosen,
            self.masking.uniform(batch, chosen),
            temperature=self.temperature,
            sampler=self.sampler,
        )
        corrupted_BS = put_samples(batch.token_ids_BS, chosen, sample.sampled_M)
        is_replaced_BS = label_replaced(corrupted_BS, batch.token_ids_BS)
        logit_BS = self.discriminator(corrupted_BS, batch)
        is_counted_BS = batch.piece_BS > 0 if self.detects_all else mark_chosen(batch.token_ids_BS, chosen)
        is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
        return Losses(
            sums={
                "mlm": sample.loss_sum,
                "rtd": detection_loss(logit_BS, is_replaced_BS, is_counted_BS),
            },
            figures={
                "num_chosen": chosen.weight_M.sum(),
                "num_sampled_right": is_right_M.sum(),
                **detection_figures(logit_BS, is_replaced_BS, is_counted_BS),
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


def make_generator(settings: ProjectSettings, vocabulary: VocabularyFacts, kept: Backbone) -> Generator:
    """The generator of a project, sharing with the encoder `kept` what `[generator] sharing` says.

    ProjectError for a sharing that the objective does not have, or one that needs other sizes.
    """
    sharing = settings.generator.sharing
    if sharing == "all":
        _require_one_size(settings, kept.config)
        return Generator(kept.config, None, encoder=kept)
    if sharing not in SHARINGS:
        allowed = " or ".join(f'"{name}"' for name in SHARINGS)
        raise refusal(
            "generator.sharing",
            f'generator.sharing = "{sharing}" does not go with objective.use = "{settings.objective.use}"',
            hint=f"allowed: {allowed}",
        )
    config = generator_config(settings, vocabulary.size, vocabulary.padding_id)
    return Generator(config, kept.embeddings if sharing == "tied" else None)


def _require_one_size(settings: ProjectSettings, kept: EncoderConfig) -> None:
    width = settings.generator.width or kept.hidden_size
    depth = settings.generator.depth_fraction
    if width != kept.hidden_size:
        raise refusal(
            "generator.width",
            f'generator.sharing = "all" needs two networks of one size: generator.width = {width}, '
            f"the other's hidden_size = {kept.hidden_size}",
            hint=f"set generator.width = {kept.hidden_size}",
        )
    if depth != 1:
        raise refusal(
            "generator.depth_fraction",
            f'generator.sharing = "all" needs two networks of one size: generator.depth_fraction = {depth}, '
            "not 1",
            hint="set generator.depth_fraction = 1.0",
        )
