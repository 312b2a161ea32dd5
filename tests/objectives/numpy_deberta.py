"""DeBERTaV3 once more, in NumPy and float64, from the papers' equations and sharing no code with ours.

Parameters come as arrays by our names; a row is worked piece by piece, so there is no mask and no padding.
Pieces are shorter than 128 tokens, where the bucket of a distance is the distance itself.
"""

# T tokens of a piece, D hidden, V vocabulary

import math

import numpy as np
from numpy_electra import Arrays, Piece, gelu, layer_norm, linear

MIDDLE = 256
"""The row of the relative table that distance 0 has."""


def attended(p: Arrays, net: str, layer: str, query_state: np.ndarray, state: np.ndarray, heads: int):
    """One layer; A_ij = Qc_i·Kc_j + Qc_i·Kr_δ(i,j) + Kc_j·Qr_δ(i,j), one number after the other."""
    size, width = state.shape
    table = layer_norm(p[f"{net}.encoder.relative_RD"], p, f"{net}.encoder.relative_norm")
    weight, bias = p[f"{layer}.qkv.weight"], p[f"{layer}.qkv.bias"]
    query = query_state @ weight[:width].T + bias[:width]
    key = state @ weight[width : 2 * width].T + bias[width : 2 * width]
    value = state @ weight[2 * width :].T + bias[2 * width :]
    place_query = table @ weight[:width].T + bias[:width]
    place_key = table @ weight[width : 2 * width].T + bias[width : 2 * width]
    context = np.empty_like(state)
    for head in range(heads):
        of = slice(head * width // heads, (head + 1) * width // heads)
        score = np.empty((size, size))
        for i in range(size):
            for j in range(size):
                row = MIDDLE + i - j
                score[i, j] = query[i, of] @ key[j, of]
                score[i, j] += query[i, of] @ place_key[row, of] + key[j, of] @ place_query[row, of]
        score /= math.sqrt(3 * width // heads)
        share = np.exp(score - score.max(1, keepdims=True))
        context[:, of] = share / share.sum(1, keepdims=True) @ value[:, of]
    context = linear(context, p, f"{layer}.attention_output")
    x = layer_norm(query_state + context, p, f"{layer}.attention_norm")
    inner = gelu(linear(x, p, f"{layer}.feed_forward_inner"))
    return layer_norm(x + linear(inner, p, f"{layer}.feed_forward_output"), p, f"{layer}.feed_forward_norm")


def layers_of(p: Arrays, net: str) -> list[str]:
    names = (f"{net}.encoder.layers.{number}" for number in range(99))
    return [name for name in names if f"{name}.qkv.weight" in p]


def words_of(p: Arrays, net: str) -> np.ndarray:
    """The word table that a network reads: E_G, or E_G + E_Δ."""
    table = p["generator.encoder.embeddings.word_VE"]
    return table if net == "generator" else table + p["discriminator.encoder.embeddings.own.word_VE"]


def embedded(p: Arrays, net: str, ids: np.ndarray) -> np.ndarray:
    x = words_of(p, net)[ids]
    if f"{net}.encoder.projection.weight" in p:
        x = x @ p[f"{net}.encoder.projection.weight"].T
    return layer_norm(x, p, f"{net}.encoder.embedding_norm")


def token_logits(p: Arrays, piece: Piece, heads: int) -> np.ndarray:
    """The generator's logits [chosen, V]: layers below the last, then the last one twice."""
    x = embedded(p, "generator", piece.shown)
    *below, last = layers_of(p, "generator")
    for layer in below:
        x = attended(p, "generator", layer, x, x, heads)
    query = x + p["generator.decoder.positions.weight"][: len(x)]
    for _ in range(2):
        query = attended(p, "generator", last, query, x, heads)
    state = gelu(linear(query[piece.chosen], p, "generator.head.dense"))
    state = layer_norm(state, p, "generator.head.layer_norm")
    return state @ words_of(p, "generator").T + p["generator.head.bias_V"]


def mlm_sum(p: Arrays, pieces: list[Piece], heads: int) -> float:
    total = 0.0
    for piece in pieces:
        for logit, place in zip(token_logits(p, piece, heads), piece.chosen, strict=True):
            total += float(np.logaddexp.reduce(logit) - logit[piece.original[place]])
    return total


def rtd_sum(p: Arrays, pieces: list[Piece], heads: int) -> float:
    total = 0.0
    for piece in pieces:
        x = embedded(p, "discriminator", piece.corrupted)
        for layer in layers_of(p, "discriminator"):
            x = attended(p, "discriminator", layer, x, x, heads)
        state = layer_norm(x[0] + x, p, "discriminator.head.layer_norm")
        logit = linear(gelu(linear(state, p, "discriminator.head.dense")), p, "discriminator.head.prediction")
        is_replaced = piece.corrupted != piece.original
        total += float((np.logaddexp(0, logit[:, 0]) - np.where(is_replaced, logit[:, 0], 0.0)).sum())
    return total
