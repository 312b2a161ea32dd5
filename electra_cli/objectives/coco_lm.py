"""COCO-LM (Meng et al. 2021, arXiv 2102.08473): correct what was replaced, and know a text by its crop.

L = mlm_weight · mean over chosen positions of −log p_G(x_i | masked)
  + copy_weight · mean over real tokens of the binary cross entropy of "is the original"
  + correction_weight · mean over chosen positions of the corrective language model's loss
  + contrast_weight · mean over pieces of the contrastive loss of the corrupted piece and an original crop.

docs/coco-lm.md lists every detail, and what of it is the paper's, the released code's, or ours.
"""

# B batch, S sequence, M slots for chosen positions, N slots for pieces, D hidden, E embedding size

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.corruption import Chosen, label_replaced, put_samples
from electra_cli.corruption_crops import Crops, crop_pieces
from electra_cli.data.batches import Batch, joined
from electra_cli.distributed import from_environment
from electra_cli.errors import refusal
from electra_cli.kernels.masked_sampling import MaskedSample, token_log_prob
from electra_cli.models.backbones import build_encoder
from electra_cli.models.correction import CopyHead, CorrectiveHead, TextVectorHead
from electra_cli.models.folders import HFFolder, discriminator_folders, generator_folders
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import EncoderConfig, discriminator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.contrast import Contrast, Views, contrast
from electra_cli.objectives.detection import (
    detection_figures,
    detection_loss,
    share,
    summarise_detection,
)
from electra_cli.objectives.electra import make_generator
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import CocoLMSettings


class Corrector(nn.Module):
    """The encoder that is kept, with the heads of its tasks."""

    def __init__(self, config: EncoderConfig, vector_size: int) -> None:
        """`vector_size`: width of the text vectors; 0: the network makes none."""
        super().__init__()
        self.encoder = build_encoder(config)
        self.copy_head = CopyHead(config)
        self.corrective_head = CorrectiveHead(config)
        self.vector_head = TextVectorHead(config, vector_size) if vector_size else None


class CocoLM(Objective):
    """Joint training of generator and corrector, in one update."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        """ProjectError for settings with which a term would have nothing to learn from."""
        super().__init__(settings, vocabulary, sampler=sampler)
        self.own = own_settings(settings.objective, CocoLMSettings)
        weights = {
            "mlm": self.own.mlm_weight,
            "copy": self.own.copy_weight,
            "clm": self.own.correction_weight,
            "scl": self.own.contrast_weight,
        }
        self.updates = (
            Update(
                name="coco_lm",
                networks=("discriminator", "generator"),
                terms={term: weight for term, weight in weights.items() if weight},
            ),
        )
        self.has_contrast = self.own.contrast_weight > 0
        if self.has_contrast:
            self.num_passes = 2
            self.coupled_terms = frozenset({"scl"})
            self.smallest_micro_batch = _rows_for_contrast(self.own)
            _refuse_short_rows(settings, self.own)
        config = discriminator_config(settings, vocabulary.size, vocabulary.padding_id)
        self.discriminator = Corrector(config, self.own.vector_size if self.has_contrast else 0)
        self.generator = make_generator(settings, vocabulary, self.discriminator.encoder)
        self.masking = RowMasking(settings, vocabulary, "crops")
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions for "mlm" and "clm", real tokens for "copy", long enough pieces for "scl"."""
        num_chosen = self.masking.choose(batch).weight_M.sum()
        counts = {"mlm": num_chosen, "copy": (batch.piece_BS > 0).sum().float(), "clm": num_chosen}
        if self.has_contrast:
            counts["scl"] = self._crop(batch).weight_N.sum()
        return {term: counts[term] for term in self.updates[0].terms}

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """The sums of one micro-batch; "scl" tells its texts from one another, so it couples the rows."""
        chosen = self.masking.choose(batch)
        sample = self._generate(batch, chosen)
        corrupted_BS = put_samples(batch.token_ids_BS, chosen, sample.sampled_M)
        is_replaced_BS, is_real_BS = label_replaced(corrupted_BS, batch.token_ids_BS), batch.piece_BS > 0
        crops = self._crop(batch) if self.has_contrast else None
        hidden_BSD, crop_BSD = self._encode(replace(batch, token_ids_BS=corrupted_BS), crops)
        logit_BS = self.discriminator.copy_head(hidden_BSD)
        # Labels say "replaced" everywhere in this package; the head says "original".
        figures = {
            "num_chosen": chosen.weight_M.sum(),
            "num_sampled_right": ((sample.sampled_M == chosen.target_M) * chosen.weight_M).sum(),
            **detection_figures(-logit_BS, is_replaced_BS, is_real_BS),
        }
        sums = {
            "mlm": sample.loss_sum,
            "copy": detection_loss(-logit_BS, is_replaced_BS, is_real_BS),
            "clm": self._correct(hidden_BSD, logit_BS, is_replaced_BS, chosen),
        }
        if crops is not None:
            found = self._compare(hidden_BSD, crop_BSD, crops, batch)
            sums["scl"] = found.loss_sum
            figures |= {"num_views": 2 * crops.weight_N.sum(), "num_views_found": found.num_found}
        return Losses(sums={term: sums[term] for term in self.updates[0].terms}, figures=figures)

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """ELECTRA's figures, and `contrast_accuracy`: views whose nearest other view is their partner."""
        shares = {"sampled_accuracy": ("num_sampled_right", "num_chosen")}
        if self.has_contrast:
            shares["contrast_accuracy"] = ("num_views_found", "num_views")
        return {
            **{
                name: share(float(figures[part]), float(figures[whole]))
                for name, (part, whole) in shares.items()
            },
            **summarise_detection(figures),
        }

    def exports(self) -> dict[str, HFFolder]:
        """The corrector's encoder, it with its copy head as ELECTRA's head, and the generator."""
        network, generator = self.discriminator, self.generator
        return {
            **discriminator_folders(network.encoder, network.copy_head.as_discriminator()),
            **generator_folders(generator.encoder, generator.head),
        }

    def _generate(self, batch: Batch, chosen: Chosen) -> MaskedSample:
        """The generator's loss, and samples that are drawn without dropout."""
        given = self.masking.hide(batch, chosen), batch, chosen, self.masking.uniform(batch, chosen)
        if not self.training or not self.own.generator_dropout:
            with _without_dropout(self.generator):
                return self.generator.fill(*given, sampler=self.sampler)
        with torch.no_grad(), _without_dropout(self.generator):
            sampled_M = self.generator.fill(*given, sampler=self.sampler).sampled_M
        return self.generator.fill(*given, sampler=self.sampler)._replace(sampled_M=sampled_M)

    def _encode(self, corrupted: Batch, crops: Crops | None) -> tuple[Tensor, Tensor]:
        """States [B, S, D] of the corrupted rows and of the crops (without any: the former), in one pass."""
        rows = corrupted if crops is None else joined([corrupted, crops.batch])
        hidden_BSD = self.discriminator.encoder(
            rows.token_ids_BS, rows.piece_BS, rows.position_BS, rows.segment_BS
        )
        num_rows = len(corrupted.sample_B)
        return hidden_BSD[:num_rows], hidden_BSD[-num_rows:]

    def _correct(
        self, hidden_BSD: Tensor, logit_BS: Tensor, is_replaced_BS: Tensor, chosen: Chosen
    ) -> Tensor:
        log_prob_M = token_log_prob(
            self.discriminator.corrective_head(hidden_BSD.flatten(0, 1)[chosen.index_M]),
            self.discriminator.encoder.embeddings.word_VE,
            self.discriminator.corrective_head.bias_V,
            chosen.target_M,
            implementation=self.sampler,
        )
        loss_M = correction_loss(
            log_prob_M,
            logit_BS.flatten()[chosen.index_M],
            is_replaced_BS.flatten()[chosen.index_M],
            is_weighted=self.own.correction == "weighted",
        )
        return (loss_M * chosen.weight_M).sum()

    def _crop(self, batch: Batch) -> Crops:
        return crop_pieces(
            batch,
            fraction=self.own.crop_fraction,
            min_tokens=self.own.contrast_min_tokens,
            keeps_cls=self.own.crop_keeps_cls,
            cls_id=self.vocabulary.cls_id,
            padding_id=self.vocabulary.padding_id,
            key=self.masking.key("crops", batch),
        )

    def _compare(self, hidden_BSD: Tensor, crop_BSD: Tensor, crops: Crops, batch: Batch) -> Contrast:
        head = self.discriminator.vector_head
        assert head is not None
        views = Views(
            whole_NW=head(hidden_BSD.flatten(0, 1)[crops.whole_N]),
            crop_NW=head(crop_BSD.flatten(0, 1)[crops.crop_N]),
            weight_N=crops.weight_N,
        )
        # The first process alone measures on held-out rows: there is nobody to gather from.
        among_processes = self.own.contrast_negatives == "processes" and not batch.is_heldout
        return contrast(views, temperature=self.own.contrast_temperature, among_processes=among_processes)


def correction_loss(
    log_prob_M: Tensor, logit_M: Tensor, is_replaced_M: Tensor, *, is_weighted: bool
) -> Tensor:
    """Loss [M] of the corrective language model; no gradient reaches the copy head's logits.

    With c = σ(logit), the probability of copying: the paper's −log (c·1[not replaced] + (1 − c)·p), or the
    released code's −(1 − c)·log p, where p is the probability of the original.
    """
    logit_M = logit_M.detach()
    if is_weighted:
        return -torch.sigmoid(-logit_M) * log_prob_M
    copied_M = F.logsigmoid(logit_M).masked_fill(is_replaced_M, -torch.inf)
    return -torch.logaddexp(copied_M, F.logsigmoid(-logit_M) + log_prob_M)


@contextmanager
def _without_dropout(network: nn.Module) -> Iterator[None]:
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        # What it shares with the other network was in the same mode.
        network.train(was_training)


def _rows_for_contrast(own: CocoLMSettings) -> int:
    """Rows of a micro-batch that leave a text with another one to be told from."""
    if own.contrast_negatives == "micro-batch":
        return 2
    return -(-2 // from_environment().world_size)


def _refuse_short_rows(settings: ProjectSettings, own: CocoLMSettings) -> None:
    length = settings.rows.sequence_length
    if length < own.contrast_min_tokens:
        raise refusal(
            "rows.sequence_length",
            f"rows.sequence_length = {length} holds no piece of "
            f"objective.contrast_min_tokens = {own.contrast_min_tokens} tokens to learn from",
            hint="longer rows, shorter pieces, or objective.contrast_weight = 0",
        )
