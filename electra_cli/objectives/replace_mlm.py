"""Two ablations of ELECTRA (Clark et al. 2020, arXiv 2003.10555, section 3.4, Table 5).

A generator corrupts the row as in ELECTRA, but the network that is kept restores the original tokens:
Replace MLM at the chosen positions, like BERT without [MASK]; All-Tokens MLM everywhere, with a copy gate

    p(x_t | corrupted) = D_t · 1[x_t is the token that stands there] + (1 − D_t) · softmax(...)[x_t]

where D_t is the probability that the token is the original one. docs/baselines.md has the details.
"""

# B batch, S sequence, M slots for chosen positions, N = B·S tokens of the batch, D hidden, E embedding size

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_cli.corruption import label_replaced, put_samples
from electra_cli.data.batches import Batch
from electra_cli.kernels.masked_sampling import token_log_prob
from electra_cli.models.backbones import build_encoder
from electra_cli.models.folders import (
    HFFolder,
    discriminator_folders,
    encoder_folder,
    generator_folders,
)
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import EncoderConfig, discriminator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.detection import HISTOGRAM, detection_figures, summarise_detection
from electra_cli.objectives.electra import Generator, make_generator
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import ReplaceMLMSettings


class Restorer(nn.Module):
    """The encoder that is kept, with a head over the vocabulary and, for all tokens, a copy gate."""

    def __init__(self, config: EncoderConfig, *, has_gate: bool) -> None:
        super().__init__()
        self.encoder = build_encoder(config)
        self.head = MaskedLMHead(config)
        self.gate = DiscriminatorHead(config) if has_gate else None

    def forward(self, corrupted_BS: Tensor, batch: Batch) -> Tensor:
        """Hidden states [B, S, D]."""
        hidden_BSD: Tensor = self.encoder(corrupted_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        return hidden_BSD

    def log_prob(self, hidden_ND: Tensor, target_N: Tensor, sampler: str) -> Tensor:
        """log softmax(...)[target] of each state, through the kernel's tiles; never [N, V]."""
        return token_log_prob(
            self.head.transform(hidden_ND),
            self.encoder.embeddings.word_VE,
            self.head.bias_V,
            target_N,
            implementation=sampler,
        )


class ReplaceMLM(Objective):
    """Joint training of generator and restorer, in one update."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        """ProjectError for a sharing or masking that ELECTRA does not have."""
        super().__init__(settings, vocabulary, sampler=sampler)
        own = own_settings(settings.objective, ReplaceMLMSettings)
        self.temperature = own.temperature
        self.restores_all = own.positions == "all"
        self.term = "all_tokens_mlm" if self.restores_all else "replace_mlm"
        self.updates = (
            Update(
                name="replace_mlm",
                networks=("restorer", "generator"),
                terms={"mlm": own.generator_weight, self.term: own.restorer_weight},
            ),
        )
        config = discriminator_config(settings, vocabulary.size, vocabulary.padding_id)
        self.restorer = Restorer(config, has_gate=self.restores_all)
        self.generator: Generator = make_generator(settings, vocabulary, self.restorer.encoder)
        self.masking = RowMasking(settings, vocabulary)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions for "mlm"; they, or all real tokens, for the restorer's term."""
        num_chosen = self.masking.choose(batch).weight_M.sum()
        return {
            "mlm": num_chosen,
            self.term: (batch.piece_BS > 0).sum().float() if self.restores_all else num_chosen,
        }

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """Both sums of one micro-batch."""
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
        hidden_BSD = self.restorer(corrupted_BS, batch)
        is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
        figures = {"num_chosen": chosen.weight_M.sum(), "num_sampled_right": is_right_M.sum()}
        if self.restorer.gate is not None:
            replaced_BS = self.restorer.gate(hidden_BSD)
            is_replaced_BS = label_replaced(corrupted_BS, batch.token_ids_BS)
            loss_sum = self._restore_all(batch, hidden_BSD, replaced_BS, is_replaced_BS)
            figures |= detection_figures(replaced_BS, is_replaced_BS, batch.piece_BS > 0)
        else:
            hidden_MD = hidden_BSD.flatten(0, 1).index_select(0, chosen.index_M)
            log_prob_M = self.restorer.log_prob(hidden_MD, chosen.target_M, self.sampler)
            loss_sum = -torch.where(chosen.weight_M > 0, log_prob_M, 0.0).sum()
        return Losses(sums={"mlm": sample.loss_sum, self.term: loss_sum}, figures=figures)

    def _restore_all(
        self, batch: Batch, hidden_BSD: Tensor, replaced_BS: Tensor, is_replaced_BS: Tensor
    ) -> Tensor:
        """−Σ log p over the real tokens; a logit of the gate above 0 means replaced, so D = σ(−logit)."""
        log_softmax_BS = self.restorer.log_prob(
            hidden_BSD.flatten(0, 1), batch.token_ids_BS.flatten(), self.sampler
        ).view_as(replaced_BS)
        restored_BS = F.logsigmoid(replaced_BS) + log_softmax_BS
        copied_BS = torch.logaddexp(F.logsigmoid(-replaced_BS), restored_BS)
        log_prob_BS = torch.where(is_replaced_BS, restored_BS, copied_BS)
        return -torch.where(batch.piece_BS > 0, log_prob_BS, 0.0).sum()

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """sampled_accuracy; with the copy gate also how well it tells replaced tokens, as ELECTRA's head."""
        num_chosen, num_right = float(figures["num_chosen"]), float(figures["num_sampled_right"])
        return {
            "sampled_accuracy": num_right / num_chosen if num_chosen else None,
            **(summarise_detection(figures) if HISTOGRAM in figures else {}),
        }

    def exports(self) -> dict[str, HFFolder]:
        """The encoder that is kept, and the generator; with the copy gate, which is ELECTRA's head, on it."""
        kept = (
            {"encoder": encoder_folder(self.restorer.encoder)}
            if self.restorer.gate is None
            else discriminator_folders(self.restorer.encoder, self.restorer.gate)
        )
        return {**kept, **generator_folders(self.generator.encoder, self.generator.head)}
