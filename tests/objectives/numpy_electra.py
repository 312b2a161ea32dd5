"""ELECTRA once more, in NumPy and float64, written from the paper's equations and sharing no code with ours.

Parameters come as arrays by our names; a row is worked piece by piece, so there is no mask and no padding.
"""

# T tokens of a piece, D hidden, E embedding size, V vocabulary, P positions

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Piece:
    """One `[CLS] … [SEP]` of a row."""

    original: np.ndarray
    shown: np.ndarray
    """What the generator sees."""
    chosen: np.ndarray
    """Places within the piece."""
    corrupted: np.ndarray
    """What the discriminator sees."""
    segment: np.ndarray


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def layer_norm(x: np.ndarray, p: Arrays, name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]


def linear(x: np.ndarray, p: Arrays, name: str) -> np.ndarray:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def encode(p: Arrays, net: str, ids: np.ndarray, segment: np.ndarray, num_heads: int) -> np.ndarray:
    """Hidden states [T, D] of one piece."""
    tables = f"{net}.encoder.embeddings"
    x = p[f"{tables}.word_VE"][ids] + p[f"{tables}.segments.weight"][segment]
    x = layer_norm(x + p[f"{tables}.positions.weight"][: len(ids)], p, f"{tables}.layer_norm")
    if f"{net}.encoder.projection.weight" in p:
        x = linear(x, p, f"{net}.encoder.projection")
    layer = 0
    while f"{net}.encoder.layers.{layer}.qkv.weight" in p:
        name = f"{net}.encoder.layers.{layer}"
        width = x.shape[1]
        query, key, value = np.split(linear(x, p, f"{name}.qkv"), 3, axis=1)
        context = np.empty_like(x)
        for head in range(num_heads):
            of = slice(head * width // num_heads, (head + 1) * width // num_heads)
            score = query[:, of] @ key[:, of].T / math.sqrt(width // num_heads)
            weight = np.exp(score - score.max(1, keepdims=True))
            context[:, of] = weight / weight.sum(1, keepdims=True) @ value[:, of]
        x = layer_norm(x + linear(context, p, f"{name}.attention_output"), p, f"{name}.attention_norm")
        inner = gelu(linear(x, p, f"{name}.feed_forward_inner"))
        x = layer_norm(x + linear(inner, p, f"{name}.feed_forward_output"), p, f"{name}.feed_forward_norm")
        layer += 1
    return x


def token_logits(p: Arrays, piece: Piece, num_heads: int) -> np.ndarray:
    """The generator's logits [chosen, V]."""
    hidden = encode(p, "generator", piece.shown, piece.segment, num_heads)[piece.chosen]
    state = layer_norm(gelu(linear(hidden, p, "generator.head.dense")), p, "generator.head.layer_norm")
    return state @ p["generator.encoder.embeddings.word_VE"].T + p["generator.head.bias_V"]


def mlm_sum(p: Arrays, pieces: list[Piece], num_heads: int) -> float:
    total = 0.0
    for piece in pieces:
        if len(piece.chosen):
            logit = token_logits(p, piece, num_heads)
            top = logit.max(1)
            log_total = np.log(np.exp(logit - top[:, None]).sum(1)) + top
            right = logit[np.arange(len(piece.chosen)), piece.original[piece.chosen]]
            total += float((log_total - right).sum())
    return total


def rtd_sum(p: Arrays, pieces: list[Piece], num_heads: int) -> float:
    total = 0.0
    for piece in pieces:
        hidden = encode(p, "discriminator", piece.corrupted, piece.segment, num_heads)
        inner = gelu(linear(hidden, p, "discriminator.head.dense"))
        logit = linear(inner, p, "discriminator.head.prediction")[:, 0]
        is_replaced = piece.corrupted != piece.original
        total += float((np.logaddexp(0, logit) - np.where(is_replaced, logit, 0.0)).sum())
    return total


def sample(p: Arrays, piece: Piece, uniform: np.ndarray, num_heads: int) -> np.ndarray:
    """Ids drawn by inverting the cumulative distribution at temperature 1, without [PAD], id 0."""
    logit = token_logits(p, piece, num_heads)
    logit[:, 0] = -np.inf
    cumulative = np.exp(logit - logit.max(1, keepdims=True)).cumsum(1)
    return (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(1)
