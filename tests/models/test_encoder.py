"""The encoder: pieces, padding, blocks of attention, dropout, and a forward pass written in NumPy."""

# B batch, S sequence, D hidden

import weakref
from dataclasses import replace
from math import erf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import BASE, CONFIGS, Input, make_networks, one_piece_rows
from torch import Tensor
from torch.nn import functional as F

from electra_cli.kernels.layer_passes import softened
from electra_cli.models import attention
from electra_cli.models.attention import attend, piece_mask
from electra_cli.models.encoder import Encoder


def packed(rows: Input, lengths: list[int]) -> Input:
    """The pieces of one-piece rows one behind the other in a single row."""
    cut = [tensor[i, :n] for tensor in rows.all() for i, n in enumerate(lengths)]
    count = len(lengths)
    token_ids, pieces, positions, segments = (torch.cat(cut[i * count : (i + 1) * count]) for i in range(4))
    pieces = torch.repeat_interleave(torch.arange(1, count + 1), torch.tensor(lengths)).int()
    return Input(*(tensor.unsqueeze(0) for tensor in (token_ids, pieces, positions, segments)))


@pytest.mark.parametrize("name", CONFIGS)
def test_pitfall_K29_padding_and_packing_do_not_change_a_piece(name):
    lengths = [5, 17, 9, 3]
    encoder = make_networks(CONFIGS[name]).encoder
    to_its_length = [encoder(*one_piece_rows([n], n, seed=n).all())[0] for n in lengths]
    rows = [one_piece_rows([n], n, seed=n) for n in lengths]
    wide = Input(
        *(
            torch.cat([F.pad(tensor, (0, 128 - n)) for tensor, n in zip(column, lengths, strict=True)])
            for column in zip(*(row.all() for row in rows), strict=True)
        )
    )
    padded = encoder(*wide.all())
    together = encoder(*packed(wide, lengths).all())[0].split(lengths)
    for i, (alone, n) in enumerate(zip(to_its_length, lengths, strict=True)):
        # Sums of up to 128 terms in another order, float32.
        torch.testing.assert_close(padded[i, :n], alone, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(together[i], alone, rtol=1e-5, atol=1e-5)


def test_pitfall_K10_a_row_of_padding_alone_is_finite_forward_and_backward():
    networks = make_networks(replace(BASE, dropout=0.1, attention_dropout=0.1)).train()
    batch = one_piece_rows([0, 2, 1], 12)
    logit_BS = networks.discriminator_head(networks.encoder(*batch.all()))
    assert logit_BS.isfinite().all()
    (logit_BS * batch.piece_BS).sum().backward()
    assert all(p.grad.isfinite().all() for p in networks.parameters() if p.grad is not None)


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(1, 12),
    padding=st.integers(0, 9),
    filler=st.integers(0, 96),
    seed=st.integers(0, 2**32),
)
def test_what_lies_on_padding_never_reaches_a_real_token(length, padding, filler, seed):
    encoder = make_networks(BASE).encoder
    alone = one_piece_rows([length], length, seed=seed)
    wide = one_piece_rows([length], length + padding, seed=seed)
    token_ids_BS = F.pad(alone.token_ids_BS, (0, padding), value=filler)
    segment_BS = F.pad(alone.segment_BS, (0, padding))
    wide_BSD = encoder(token_ids_BS, wide.piece_BS, wide.position_BS, segment_BS)
    torch.testing.assert_close(wide_BSD[:, :length], encoder(*alone.all()), rtol=1e-5, atol=1e-5)


def random_attention(batch: int, sequence: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    qkv_BSL = torch.randn(batch, sequence, 3 * width, generator=generator, dtype=torch.float64)
    piece_BS = torch.randint(0, 3, (batch, sequence), generator=generator)
    return qkv_BSL.requires_grad_(), piece_mask(piece_BS, torch.float64)


@pytest.mark.parametrize("block_scores", [1, 60, 250, 1 << 18])
def test_blocks_of_any_size_give_torchs_attention(monkeypatch, block_scores):
    monkeypatch.setattr(attention, "BLOCK_SCORES", block_scores)
    qkv_BSL, mask_B1SS = random_attention(5, 7, 12)
    query, key, value = qkv_BSL.view(5, 7, 3, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)
    theirs = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_B1SS).transpose(1, 2).flatten(2)
    ours = attend(qkv_BSL, mask_B1SS, num_heads=3, dropout=0.0)
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn(theirs.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad((context * weight).sum(), qkv_BSL)[0] for context in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_attention_leaves_its_input_alone_and_takes_an_expanded_gradient():
    for shape in ((1, 1, 12), (2, 3, 12)):
        qkv_BSL = torch.randn(shape, requires_grad=True)
        before = qkv_BSL.detach().clone()
        mask_B1SS = piece_mask(torch.ones(shape[:2]), torch.float32)
        attend(qkv_BSL, mask_B1SS, num_heads=2, dropout=0.2).sum().backward()
        assert torch.equal(qkv_BSL, before)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_attention_keeps_weights_only_where_a_gradient_is_wanted(monkeypatch, is_wanted):
    alive = []

    def seen(*scores: Tensor) -> tuple[Tensor, Tensor]:
        weight_BHSS, used_BHSS = softened(*scores)
        alive.append(weakref.ref(weight_BHSS))
        return weight_BHSS, used_BHSS

    monkeypatch.setattr(attention, "BLOCK_SCORES", 9)
    monkeypatch.setattr(attention, "softened", seen)
    qkv_BSL = torch.randn(4, 3, 12, requires_grad=True)
    mask_B1SS = piece_mask(torch.ones(4, 3), torch.float32)
    with torch.set_grad_enabled(is_wanted):
        context_BSD = attend(qkv_BSL, mask_B1SS, num_heads=2, dropout=0.2)
    assert context_BSD.requires_grad == is_wanted
    assert len(alive) == 8
    assert sum(reference() is not None for reference in alive) == (8 if is_wanted else 0)


@pytest.mark.parametrize("block_scores", [1, 60, 1 << 18])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_of_attention_against_central_differences(monkeypatch, block_scores, dropout):
    monkeypatch.setattr(attention, "BLOCK_SCORES", block_scores)
    qkv_BSL, mask_B1SS = random_attention(2, 5, 6)

    def seeded(qkv_BSL: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(qkv_BSL, mask_B1SS, num_heads=3, dropout=dropout)

    assert torch.autograd.gradcheck(seeded, (qkv_BSL,))


def test_dropout_does_not_depend_on_the_number_of_threads():
    networks = make_networks(replace(BASE, dropout=0.1, attention_dropout=0.1)).train()
    batch = one_piece_rows([30, 40], 40)
    threads = torch.get_num_threads()
    results = []
    for number in (1, 2):
        torch.set_num_threads(number)
        torch.manual_seed(11)
        results.append(networks.encoder(*batch.all()))
    torch.set_num_threads(threads)
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    assert not torch.equal(results[0], networks.encoder(*batch.all()))


def test_no_dropout_outside_training():
    networks = make_networks(replace(BASE, dropout=0.5, attention_dropout=0.5))
    batch = one_piece_rows([6], 6)
    assert torch.equal(networks.encoder(*batch.all()), networks.encoder(*batch.all()))


def test_autocast_computes_in_bfloat16_and_keeps_weights_and_logits_in_float32():
    networks = make_networks(replace(BASE, dropout=0.1, attention_dropout=0.1)).train()
    batch = one_piece_rows([8, 12], 12)
    with torch.autocast("cpu", torch.bfloat16):
        hidden_BSD = networks.encoder(*batch.all())
        logit_BS = networks.discriminator_head(hidden_BSD)
    assert hidden_BSD.dtype == torch.bfloat16
    assert logit_BS.dtype == torch.float32
    logit_BS.sum().backward()
    assert {p.grad.dtype for p in networks.encoder.parameters()} == {torch.float32}


def test_bfloat16_stays_near_float32():
    networks = make_networks(BASE, std=0.05)
    batch = one_piece_rows([8, 12], 12)
    exact = networks.encoder(*batch.all())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = networks.encoder(*batch.all()).float()
    # 8 bits of mantissa through two layers of unit-sized states: a few hundredths at most.
    assert (rounded - exact).abs().max() < 0.06


def test_shared_embeddings_are_one_module():
    config = replace(BASE, hidden_size=16, num_heads=2)
    first = Encoder(BASE)
    second = Encoder(config, first.embeddings)
    assert second.embeddings is first.embeddings
    assert second.projection is not None


def numpy_layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def numpy_forward(w: dict[str, np.ndarray], row: Input, num_layers: int, num_heads: int) -> np.ndarray:
    """The paper's encoder for one row, pieces one at a time, float64."""
    ids, pieces, positions, segments = (tensor[0].numpy() for tensor in row.all())
    gelu = np.vectorize(lambda x: 0.5 * x * (1 + erf(x / 2**0.5)))
    result = []
    for piece in dict.fromkeys(pieces.tolist()):
        at = pieces == piece
        x = w["embeddings.word_VE"][ids[at]] + w["embeddings.positions.weight"][positions[at]]
        x = x + w["embeddings.segments.weight"][segments[at]]
        x = numpy_layer_norm(x, w["embeddings.layer_norm.weight"], w["embeddings.layer_norm.bias"])
        if "projection.weight" in w:
            x = x @ w["projection.weight"].T + w["projection.bias"]
        for number in range(num_layers):
            p = {
                name.split(".", 2)[2]: value
                for name, value in w.items()
                if name.startswith(f"layers.{number}.")
            }
            query, key, value = np.split(x @ p["qkv.weight"].T + p["qkv.bias"], 3, axis=-1)
            heads = []
            for q, k, v in zip(
                *(np.split(part, num_heads, axis=-1) for part in (query, key, value)), strict=True
            ):
                score = np.exp(q @ k.T / np.sqrt(q.shape[-1]))
                heads.append(score / score.sum(-1, keepdims=True) @ v)
            attended = np.concatenate(heads, -1) @ p["attention_output.weight"].T + p["attention_output.bias"]
            x = numpy_layer_norm(x + attended, p["attention_norm.weight"], p["attention_norm.bias"])
            inner = gelu(x @ p["feed_forward_inner.weight"].T + p["feed_forward_inner.bias"])
            change = inner @ p["feed_forward_output.weight"].T + p["feed_forward_output.bias"]
            x = numpy_layer_norm(x + change, p["feed_forward_norm.weight"], p["feed_forward_norm.bias"])
        result.append(x)
    return np.concatenate(result)


@pytest.mark.parametrize("name", CONFIGS)
def test_encoder_equals_a_forward_pass_in_numpy(name):
    config = CONFIGS[name]
    encoder = make_networks(config).encoder
    lengths = [6, 11, 2]
    row = packed(one_piece_rows(lengths, 11), lengths)
    weights = {key: value.double().numpy() for key, value in encoder.state_dict().items()}
    expected = numpy_forward(weights, row, config.num_layers, config.num_heads)
    ours = encoder.double()(*row.all())[0].detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-11)
