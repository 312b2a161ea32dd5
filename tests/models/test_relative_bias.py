"""The bias by relative place: its buckets, its arithmetic in NumPy, its gradient, and what it cannot do."""

# B batch, S sequence, H heads, K width of a head, D hidden

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import BASE, Input, make_networks, one_piece_rows
from torch import Tensor

from electra_cli.errors import ExitCode, InputError, ProjectError
from electra_cli.models import attention
from electra_cli.models.attention import attend, fused_attention, piece_mask
from electra_cli.models.encoder import Encoder
from electra_cli.models.folders import PretrainedPart, copy_body, encoder_folder, generator_folders
from electra_cli.models.relative_bias import RelativeBias
from electra_cli.models.sizes import discriminator_config
from electra_cli.settings import ProjectSettings

BIASED = replace(BASE, relative_buckets=8, relative_distance=12)


def bucket_of(distance: int, buckets: int, max_distance: int) -> int:
    """The released code's rule in plain Python: half the buckets a sign, of these the first half exact."""
    a_sign = buckets // 2
    exact = a_sign // 2
    far, bucket = abs(distance), abs(distance)
    if far >= exact:
        share = math.log(far / exact) / math.log((max_distance - 1) / exact)
        # A hair below: on a border the package rounds in float32.
        bucket = min(exact + math.ceil(share * (a_sign - 1 - exact) - 1e-6), a_sign - 1)
    return int(math.copysign(bucket, distance))


@pytest.mark.parametrize(("buckets", "max_distance"), [(64, 128), (128, 256), (32, 128), (8, 12)])
def test_buckets_are_exact_near_by_and_logarithmic_far_away(buckets: int, max_distance: int) -> None:
    bias = RelativeBias(replace(BASE, relative_buckets=buckets, relative_distance=max_distance))
    distances = list(range(-2 * max_distance, 2 * max_distance + 1))
    rows = bias.rows(torch.tensor(distances)).tolist()
    middle = buckets // 2 - 1
    assert rows == [bucket_of(one, buckets, max_distance) + middle for one in distances]
    assert set(rows) == set(range(len(bias.table_RH))) and rows == sorted(rows)


def random_case(batch: int, sequence: int, num_heads: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    qkv_BSL = torch.randn(batch, sequence, 3 * width, generator=generator, dtype=torch.float64)
    bias_HSS = torch.randn(num_heads, sequence, sequence, generator=generator, dtype=torch.float64)
    piece_BS = torch.randint(0, 3, (batch, sequence), generator=generator)
    return qkv_BSL.requires_grad_(), piece_mask(piece_BS, torch.float64), bias_HSS.requires_grad_()


def numpy_attention(qkv: np.ndarray, mask: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(q · k / √K + bias + mask) · v, a head and row at a time."""
    batch, sequence, width = qkv.shape
    num_heads = len(bias)
    parts = qkv.reshape(batch, sequence, 3, num_heads, width // 3 // num_heads)
    found = np.empty((batch, sequence, num_heads, parts.shape[-1]))
    for row in range(batch):
        for head in range(num_heads):
            query, key, value = (parts[row, :, which, head] for which in range(3))
            score = query @ key.T / math.sqrt(parts.shape[-1]) + bias[head] + mask[row, 0]
            weight = np.exp(score - score.max(-1, keepdims=True))
            found[row, :, head] = weight / weight.sum(-1, keepdims=True) @ value
    return found.reshape(batch, sequence, -1)


@pytest.mark.parametrize("block_scores", [1, 60, 250, 1 << 18])
def test_blocks_of_any_size_are_the_formula_and_torchs_own(
    monkeypatch: pytest.MonkeyPatch, block_scores: int
) -> None:
    monkeypatch.setattr(attention, "BLOCK_SCORES", block_scores)
    qkv_BSL, mask_B1SS, bias_HSS = random_case(5, 7, 3, 12)
    ours = attend(qkv_BSL, mask_B1SS, bias_HSS, num_heads=3, dropout=0.0)
    theirs = fused_attention(qkv_BSL, mask_B1SS, bias_HSS, num_heads=3, dropout=0.0)
    given = qkv_BSL.detach().numpy(), mask_B1SS.numpy(), bias_HSS.detach().numpy()
    torch.testing.assert_close(ours.detach(), torch.from_numpy(numpy_attention(*given)))
    torch.testing.assert_close(theirs, ours)
    weight_BSD = torch.randn(ours.shape, dtype=torch.float64)
    inputs = qkv_BSL, bias_HSS
    gradients = [torch.autograd.grad((one * weight_BSD).sum(), inputs) for one in (ours, theirs)]
    for mine, torchs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, torchs)


@pytest.mark.parametrize("block_scores", [16, 1 << 18])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_of_the_bias_against_central_differences(
    monkeypatch: pytest.MonkeyPatch, block_scores: int, dropout: float
) -> None:
    monkeypatch.setattr(attention, "BLOCK_SCORES", block_scores)
    qkv_BSL, mask_B1SS, bias_HSS = random_case(2, 3, 2, 4)

    def seeded(qkv_BSL: Tensor, bias_HSS: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(qkv_BSL, mask_B1SS, bias_HSS, num_heads=2, dropout=dropout)

    assert torch.autograd.gradcheck(seeded, (qkv_BSL, bias_HSS))


def test_the_bias_alone_can_be_what_is_trained() -> None:
    qkv_BSL, mask_B1SS, bias_HSS = random_case(2, 5, 3, 6)
    attend(qkv_BSL.detach(), mask_B1SS, bias_HSS, num_heads=3, dropout=0.0).square().sum().backward()
    assert bias_HSS.grad is not None and bias_HSS.grad.any()


def test_one_table_serves_all_layers_and_0_is_no_bias() -> None:
    encoder, given = make_networks(BIASED).encoder, one_piece_rows([9, 4], 9)
    assert [name for name, _ in encoder.named_parameters() if "relative" in name] == [
        "relative_bias.table_RH"
    ]
    biased_BSD = encoder(*given.all())
    biased_BSD.square().sum().backward()
    assert encoder.relative_bias is not None and encoder.relative_bias.table_RH.grad is not None
    # Rows of 9 tokens: distances up to 8, which are all the buckets there are.
    assert encoder.relative_bias.table_RH.grad.any(1).all()
    plain = Encoder(BASE).eval()
    plain.load_state_dict({k: v for k, v in encoder.state_dict().items() if "relative" not in k})
    assert (plain(*given.all()) - biased_BSD).abs().max() > 0.01
    with torch.no_grad():
        encoder.relative_bias.table_RH.zero_()
    torch.testing.assert_close(encoder(*given.all()), plain(*given.all()))


def test_pitfall_K29_a_piece_reads_the_same_alone_and_packed() -> None:
    encoder, lengths = make_networks(BIASED).encoder, [5, 17, 9, 3]
    rows = [one_piece_rows([n], n, seed=n) for n in lengths]
    columns = zip(*(row.all() for row in rows), strict=True)
    token_ids_BS, _, position_BS, segment_BS = (torch.cat(column, dim=1) for column in columns)
    piece_BS = torch.repeat_interleave(torch.arange(1, 5), torch.tensor(lengths)).int().unsqueeze(0)
    packed = Input(token_ids_BS, piece_BS, position_BS, segment_BS)
    together = encoder(*packed.all())[0].split(lengths)
    for row, part_SD in zip(rows, together, strict=True):
        # Sums of up to 34 terms in another order, float32.
        torch.testing.assert_close(part_SD, encoder(*row.all())[0], rtol=1e-5, atol=1e-5)


def test_bfloat16_attention_takes_a_float32_bias() -> None:
    qkv_BSL, mask_B1SS, bias_HSS = (one.detach() for one in random_case(2, 5, 3, 6))
    exact = attend(qkv_BSL, mask_B1SS, bias_HSS, num_heads=3, dropout=0.0)
    bias_HSS = bias_HSS.float().requires_grad_()
    rough = attend(qkv_BSL.bfloat16(), mask_B1SS.bfloat16(), bias_HSS, num_heads=3, dropout=0.0)
    rough.float().sum().backward()
    assert rough.dtype == torch.bfloat16 and bias_HSS.grad is not None
    # bfloat16 keeps 8 bits of each factor.
    torch.testing.assert_close(rough.double(), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"backbone": "modern", "relative_buckets": 32}, ("relative_buckets = 32", 'backbone = "modern"')),
        ({"backbone": "deberta", "relative_buckets": 32}, ("relative_buckets = 32", 'backbone = "deberta"')),
        ({"relative_buckets": 30}, ("relative_buckets = 30", "multiple of 4")),
        ({"relative_buckets": 4}, ("relative_buckets = 4", "8 at least")),
        (
            {"relative_buckets": 64, "relative_distance": 17},
            ("relative_distance = 17", "relative_buckets = 64"),
        ),
    ],
)
def test_a_bias_that_cannot_be_is_refused(model: dict[str, object], said: tuple[str, str]) -> None:
    settings = ProjectSettings.model_validate({"model": {"size": "toy", **model}})
    with pytest.raises(ProjectError) as caught:
        discriminator_config(settings, 99, 0)
    assert caught.value.exit_code == ExitCode.PROJECT
    assert all(value in caught.value.message for value in said)


def test_no_folder_holds_it_and_none_without_it_starts_it(tmp_path) -> None:
    networks = make_networks(BIASED)
    for make in (
        lambda: encoder_folder(networks.encoder),
        lambda: generator_folders(networks.encoder, networks.masked_lm_head),
    ):
        with pytest.raises(InputError, match="relative_buckets = 8: no class of transformers") as caught:
            make()
        assert caught.value.exit_code == ExitCode.INPUT
    plain = make_networks(BASE).encoder
    part = PretrainedPart(folder=tmp_path, config=BASE, body=plain.plain_state(), head={})
    with pytest.raises(InputError, match="relative_buckets = 0 there, 8 here"):
        copy_body(networks.encoder, part, sequence_length=8)
