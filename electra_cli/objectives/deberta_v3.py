"""DeBERTaV3 (He et al. 2021, arXiv 2111.09543): replaced-token detection on DeBERTa.

As ELECTRA, but: every chosen token becomes [MASK]; the generator is as wide as the discriminator and half as
deep, with the enhanced mask decoder; the discriminator's head also reads the state of the piece's [CLS]; the
embeddings may be shared gradient-disentangled; and the two networks may be moved by two updates, each with
its own optimizer state. docs/deberta.md lists every detail, and where and why we differ from others.
"""

# B batch, S sequence, M slots for chosen positions, D hidden, E embedding size, V vocabulary

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from electra_cli.corruption import label_replaced, put_samples
from electra_cli.data.batches import Batch
from electra_cli.errors import refusal
from electra_cli.kernels.masked_sampling import masked_sample
from electra_cli.models.backbones import build_encoder
from electra_cli.models.deberta import DebertaEncoder, EnhancedMaskDecoder
from electra_cli.models.embeddings import TokenEmbeddings
from electra_cli.models.folders import HFFolder, discriminator_folders, generator_folders
from electra_cli.models.heads import ContextDiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.sharing import share_embeddings
from electra_cli.models.sizes import EncoderConfig, discriminator_config, generator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.detection import detection_figures, detection_loss, summarise_detection
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import DebertaV3Settings

GENERATOR, DISCRIMINATOR, JOINT = "generator", "discriminator", "joint"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What the generator hands to the discriminator: ids, without any gradient."""

    corrupted_BS: Tensor


class DebertaGenerator(nn.Module):
    """The masked language model; its output layer is its word table."""

    def __init__(self, config: EncoderConfig, embeddings: TokenEmbeddings, *, is_enhanced: bool) -> None:
        super().__init__()
        self.encoder = build_encoder(config, embeddings)
        self.decoder = EnhancedMaskDecoder(config) if is_enhanced else None
        self.head = MaskedLMHead(config, self.encoder.projection)

    def forward(self, masked_BS: Tensor, batch: Batch, index_M: Tensor) -> Tensor:
        """States [M, E] at the chosen positions, ready for the product with the word table."""
        inputs = masked_BS, batch.piece_BS, batch.position_BS, batch.segment_BS
        if self.decoder is None:
            hidden_BSD = self.encoder(*inputs)
        else:
            assert isinstance(self.encoder, DebertaEncoder)
            hidden_BSD = self.decoder(self.encoder, *inputs)
        return self.head.transform(hidden_BSD.flatten(0, 1).index_select(0, index_M))


class DebertaDiscriminator(nn.Module):
    """The encoder that is kept, with a head that says of each token whether it was replaced."""

    def __init__(self, config: EncoderConfig, embeddings: TokenEmbeddings) -> None:
        super().__init__()
        self.encoder = build_encoder(config, embeddings)
        self.head = ContextDiscriminatorHead(config)

    def forward(self, corrupted_BS: Tensor, batch: Batch) -> Tensor:
        """Logits [B, S], float32; above 0 means replaced."""
        hidden_BSD = self.encoder(corrupted_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        logit_BS: Tensor = self.head(hidden_BSD, batch.position_BS)
        return logit_BS


class DebertaV3(Objective):
    """Generator and discriminator, moved by one update or, in this order, by two."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        """ProjectError for settings that do not go together."""
        super().__init__(settings, vocabulary, sampler=sampler)
        own = own_settings(settings.objective, DebertaV3Settings)
        _require_a_pair(settings, own)
        self.temperature = own.temperature
        self.updates = _updates(own)
        sizes = vocabulary.size, vocabulary.padding_id
        discriminator, generator = discriminator_config(settings, *sizes), generator_config(settings, *sizes)
        tables = share_embeddings(settings.generator.sharing, discriminator, generator)
        self.discriminator = DebertaDiscriminator(discriminator, tables.discriminator)
        self.generator = DebertaGenerator(generator, tables.generator, is_enhanced=own.enhanced_mask_decoder)
        # The official code hides no [UNK] either: nothing is learnt from restoring one.
        self.masking = RowMasking(settings, vocabulary, also_never_masked=(vocabulary.unknown_id,))
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions for "mlm", real tokens for "rtd"."""
        return {
            "mlm": self.masking.choose(batch).weight_M.sum(),
            "rtd": (batch.piece_BS > 0).sum().float(),
        }

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """The sums of one update; the generator's carries what it drew to the discriminator's.

        So the ids are those of the generator before its step, and the tables that the discriminator reads are
        those after it.
        """
        if update == DISCRIMINATOR:
            assert isinstance(carry, Drawn)
            return self._detect(batch, carry)
        drawn, generated = self._generate(batch)
        if update == GENERATOR:
            return replace(generated, carry=drawn)
        detected = self._detect(batch, drawn)
        return Losses(
            sums={**generated.sums, **detected.sums}, figures={**generated.figures, **detected.figures}
        )

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """sampled_accuracy, replaced_fraction, disc_auc, disc_precision, disc_recall."""
        num_chosen, num_right = float(figures["num_chosen"]), float(figures["num_sampled_right"])
        return {
            "sampled_accuracy": num_right / num_chosen if num_chosen else None,
            **summarise_detection(figures),
        }

    def exports(self) -> dict[str, HFFolder]:
        """The discriminator's encoder with E_D = E_G + E_Δ, its head beside it; a plain generator."""
        folders = discriminator_folders(self.discriminator.encoder, self.discriminator.head)
        if self.generator.decoder is None:
            folders |= generator_folders(self.generator.encoder, self.generator.head)
        return folders

    def left_out(self) -> Mapping[str, str]:
        """A generator with the enhanced mask decoder: without its absolute positions it answers otherwise."""
        if self.generator.decoder is None:
            return {}
        return {
            "generator": "no class of transformers has its enhanced mask decoder; "
            "a generator trained with objective.enhanced_mask_decoder = false can be exported"
        }

    def _generate(self, batch: Batch) -> tuple[Drawn, Losses]:
        chosen = self.masking.choose(batch)
        sample = masked_sample(
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
        is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
        losses = Losses(
            sums={"mlm": sample.loss_sum},
            figures={"num_chosen": chosen.weight_M.sum(), "num_sampled_right": is_right_M.sum()},
        )
        return Drawn(corrupted_BS=put_samples(batch.token_ids_BS, chosen, sample.sampled_M)), losses

    def _detect(self, batch: Batch, drawn: Drawn) -> Losses:
        is_replaced_BS = label_replaced(drawn.corrupted_BS, batch.token_ids_BS)
        logit_BS = self.discriminator(drawn.corrupted_BS, batch)
        is_real_BS = batch.piece_BS > 0
        return Losses(
            sums={"rtd": detection_loss(logit_BS, is_replaced_BS, is_real_BS)},
            figures=detection_figures(logit_BS, is_replaced_BS, is_real_BS),
        )


def _updates(own: DebertaV3Settings) -> tuple[Update, ...]:
    mlm, rtd = {"mlm": own.generator_weight}, {"rtd": own.discriminator_weight}
    if own.update == "joint":
        return (Update(name=JOINT, networks=("discriminator", "generator"), terms={**mlm, **rtd}),)
    return (
        Update(
            name=GENERATOR,
            networks=("generator",),
            terms=mlm,
            learning_rate_scale=own.generator_learning_rate_scale,
            clip_norm=own.generator_clip_norm,
        ),
        Update(
            name=DISCRIMINATOR,
            networks=("discriminator",),
            terms=rtd,
            learning_rate_scale=own.discriminator_learning_rate_scale,
            clip_norm=own.discriminator_clip_norm,
        ),
    )


def _require_a_pair(settings: ProjectSettings, own: DebertaV3Settings) -> None:
    """Refuse tied tables under two updates, and the mask decoder where no layer can serve it."""
    if own.update == "decoupled" and settings.generator.sharing == "tied":
        raise refusal(
            "generator.sharing",
            'generator.sharing = "tied" does not go with objective.update = "decoupled": '
            "one table would have two optimizers",
            hint='sharing = "gradient-disentangled", or objective.update = "joint"',
        )
    if own.enhanced_mask_decoder and settings.model.backbone != "deberta":
        raise refusal(
            "objective.enhanced_mask_decoder",
            f"objective.enhanced_mask_decoder = true does not go with model.backbone = "
            f'"{settings.model.backbone}", whose layers take no queries of others',
            hint='model.backbone = "deberta", or enhanced_mask_decoder = false',
        )
