"""Texts as single vectors: the mean of an encoder's hidden states, for finding similar examples."""

# B batch, S sequence, D hidden, N examples

import numpy as np
import torch
from numpy.typing import NDArray

from electra_cli.evaluation.encoding import encode, gather, load_text_encoder, scoring_batches
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.saved import FineTuned

_TOKENS_A_BATCH = 8192


def mean_states(model: FineTuned, examples: Examples, arithmetic: Arithmetic) -> NDArray[np.float32]:
    """Mean hidden state of the real tokens of each example, [N, D], in the order of the examples."""
    encoder = model.classifier.encoder.to(arithmetic.device).eval()
    encoded = encode(examples, load_text_encoder(model.folder), model.facts.sequence_length)
    state_ND = np.empty((len(examples), encoder.config.hidden_size), dtype=np.float32)
    with torch.inference_mode():
        for index_B in scoring_batches(encoded.length_N, _TOKENS_A_BATCH):
            batch = gather(encoded, index_B, encoder.config.padding_id, arithmetic.device)
            with arithmetic.autocast():
                hidden_BSD = encoder(batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
            is_token_BS1 = (batch.piece_BS > 0).unsqueeze(-1)
            sum_BD = hidden_BSD.float().masked_fill(~is_token_BS1, 0.0).sum(1)
            state_ND[index_B] = (sum_BD / is_token_BS1.sum(1)).cpu().numpy()
    return state_ND
