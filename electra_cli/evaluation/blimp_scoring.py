"""How well a network likes a sentence, without any training for it.

A discriminator: Σ log p(original) over the tokens of the text, one forward pass a sentence. A masked language
model: the pseudo-log-likelihood Σ log p(token | all others) of Salazar et al. 2020 (arXiv 1910.14659), one
forward pass a token. [CLS] and [SEP] count in neither. Both in float32: what is compared are two sums.
"""

# B batch, S sequence, N different sentences, K rows: a sentence with one of its tokens masked,
# D hidden, E embedding size

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from electra_cli.errors import InputError
from electra_cli.evaluation.encoding import Encoded, TextEncoder, encode, gather, scoring_batches
from electra_cli.evaluation.examples import Examples
from electra_cli.kernels.masked_sampling import token_log_prob
from electra_cli.models.heads import DetectionHead, MaskedLMHead
from electra_cli.models.networks import Network

Scores = NDArray[np.float64]
Heard = Callable[[int, int], None]
"""Hears of forward passes that are done, and of how many there are."""

_BATCH_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A network with its tokenizer; higher scores are better sentences."""

    network: Network
    text_encoder: TextEncoder
    device: torch.device

    @property
    def method(self) -> str:
        """What a score is, for the results."""
        if isinstance(self.network.head, DetectionHead):
            return "sum of log p(original) over the tokens"
        return "pseudo-log-likelihood: sum of log p(token | all others)"

    def score(self, texts: Sequence[str], heard: Heard = lambda done, total: None) -> Scores:
        """A score each. Texts with the same tokens are computed once, so that they tie to the bit.

        Raises InputError for a text longer than the model has positions, and where a score is not finite.
        """
        encoded, index_T = _different(self._encode(texts))
        with torch.inference_mode():
            if isinstance(self.network.head, DetectionHead):
                score_N = self._detected(encoded, self.network.head, heard)
            else:
                score_N = self._restored(encoded, self.network.head, heard)
        if not np.isfinite(score_N).all():
            raise InputError(
                f"the score of {texts[int(np.argmin(np.isfinite(score_N[index_T])))]!r} is not finite",
                hint="the weights of this model are damaged, or its training diverged",
            )
        return score_N[index_T]

    def _encode(self, texts: Sequence[str]) -> Encoded:
        examples = Examples(source="", texts=tuple(texts), pairs=None, target_N=None, indices=(), skipped={})
        encoded = encode(examples, self.text_encoder, 1 << 30)
        longest, most = int(encoded.length_N.argmax()), self.network.encoder.config.max_positions
        if encoded.length_N[longest] > most:
            raise InputError(
                f"a sentence has {encoded.length_N[longest]:,} tokens, the model {most:,} positions: "
                f"{texts[longest][:80]!r} …",
                hint="a sentence that is cut would be compared with a whole one; leave it out",
            )
        return encoded

    def _detected(self, encoded: Encoded, head: DetectionHead, heard: Heard) -> Scores:
        score_N = np.zeros(len(encoded))
        done = 0
        for index_B in scoring_batches(encoded.length_N, _BATCH_TOKENS):
            batch = gather(encoded, index_B, self.text_encoder.padding_id, self.device)
            hidden_BSD = self.network.encoder(
                batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS
            )
            logit_BS = head.detect(hidden_BSD, batch.position_BS)
            last_B = (batch.piece_BS > 0).sum(1, keepdim=True) - 1
            is_text_BS = (batch.position_BS > 0) & (batch.position_BS < last_B)
            original_BS = torch.where(is_text_BS, F.logsigmoid(-logit_BS.double()), 0.0)
            score_N[index_B] = original_BS.sum(1).cpu().numpy()
            done += len(index_B)
            heard(done, len(encoded))
        return score_N

    def _restored(self, encoded: Encoded, head: MaskedLMHead, heard: Heard) -> Scores:
        if self.text_encoder.mask_id is None:
            raise InputError(
                "the tokenizer of this masked language model has no [MASK]",
                hint="tokenizer_config.json may name its mask_token",
            )
        num_tokens_N = encoded.length_N - 2
        sentence_K = np.repeat(np.arange(len(encoded)), num_tokens_N)
        first_N = np.cumsum(num_tokens_N) - num_tokens_N
        place_K = 1 + np.arange(len(sentence_K)) - first_N[sentence_K]
        score_N = np.zeros(len(encoded))
        done = 0
        for index_B in scoring_batches(encoded.length_N[sentence_K], _BATCH_TOKENS):
            batch = gather(encoded, sentence_K[index_B], self.text_encoder.padding_id, self.device)
            here_B = (torch.arange(len(index_B)), torch.from_numpy(place_K[index_B]))
            target_B = batch.token_ids_BS[here_B]
            batch.token_ids_BS[here_B] = self.text_encoder.mask_id
            hidden_BSD = self.network.encoder(
                batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS
            )
            log_prob_B = token_log_prob(
                head.transform(hidden_BSD[here_B]),
                self.network.encoder.embeddings.word_VE,
                head.bias_V,
                target_B,
            )
            np.add.at(score_N, sentence_K[index_B], log_prob_B.double().cpu().numpy())
            done += len(index_B)
            heard(done, len(sentence_K))
        return score_N


def _different(encoded: Encoded) -> tuple[Encoded, NDArray[np.int64]]:
    """Each sequence of tokens once, and for every text the number of its sequence."""
    number_of: dict[bytes, int] = {}
    index_T = np.empty(len(encoded), dtype=np.int64)
    first: list[int] = []
    for number, (start, length) in enumerate(zip(encoded.start_N, encoded.length_N, strict=True)):
        key = encoded.token_ids[start : start + length].tobytes()
        if key not in number_of:
            number_of[key] = len(first)
            first.append(number)
        index_T[number] = number_of[key]
    once = Encoded(
        token_ids=encoded.token_ids,
        start_N=encoded.start_N[first],
        length_N=encoded.length_N[first],
        first_length_N=encoded.first_length_N[first],
    )
    return once, index_T
