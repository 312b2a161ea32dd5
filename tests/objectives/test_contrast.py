"""Sequence contrastive learning: who is compared with whom, alone and over processes."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from electra_cli.objectives import contrast as module
from electra_cli.objectives.contrast import Views, contrast


def views_of(num_texts: int, *, used: list[int] | None = None, seed: int = 0, width: int = 6) -> Views:
    random = torch.Generator().manual_seed(seed)
    whole, crop = (
        F.normalize(torch.randn(num_texts, width, generator=random, dtype=torch.float64), dim=-1)
        for _ in range(2)
    )
    weight = torch.ones(num_texts) if used is None else torch.tensor(used).float()
    return Views(whole_NW=whole, crop_NW=crop, weight_N=weight)


def in_numpy(views: Views, temperature: float) -> float:
    """Interleaved, the diagonal masked, the targets 1, 0, 3, 2, …"""
    is_used = views.weight_N.numpy() > 0
    pairs = np.stack([views.whole_NW.numpy()[is_used], views.crop_NW.numpy()[is_used]], 1)
    flat = pairs.reshape(-1, pairs.shape[-1])
    score = flat @ flat.T / temperature
    np.fill_diagonal(score, -np.inf)
    target = np.arange(len(flat)) ^ 1
    loss = np.log(np.exp(score).sum(1)) - score[np.arange(len(flat)), target]
    return float(0.5 * loss.sum())


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("used", [None, [1, 0, 1, 1, 0], [1, 1, 0, 0, 0]])
def test_the_loss_equals_the_numpy_program(temperature, used):
    views = views_of(5, used=used)
    found = contrast(views, temperature=temperature).loss_sum
    assert found.item() == pytest.approx(in_numpy(views, temperature), rel=1e-12)


def test_property_P22_the_loss_is_symmetric_not_negative_and_blind_to_the_order():
    views = views_of(7)
    loss = contrast(views, temperature=0.5).loss_sum
    swapped = Views(whole_NW=views.crop_NW, crop_NW=views.whole_NW, weight_N=views.weight_N)
    order = torch.tensor([3, 1, 6, 0, 5, 2, 4])
    shuffled = Views(
        whole_NW=views.whole_NW[order], crop_NW=views.crop_NW[order], weight_N=views.weight_N[order]
    )
    assert loss >= 0
    for other in (swapped, shuffled):
        torch.testing.assert_close(contrast(other, temperature=0.5).loss_sum, loss, rtol=1e-12, atol=0)


def test_a_text_that_is_alone_has_no_loss_and_no_text_a_finite_gradient():
    for used in ([0, 1, 0], [0, 0, 0]):
        views = views_of(3, used=used)
        whole = views.whole_NW.clone().requires_grad_()
        found = contrast(
            Views(whole_NW=whole, crop_NW=views.crop_NW, weight_N=views.weight_N), temperature=1.0
        )
        found.loss_sum.backward()
        assert found.loss_sum == 0 and not whole.grad.any()


def test_a_view_is_found_where_its_partner_is_the_most_similar():
    eye = torch.eye(4, dtype=torch.float64)
    same = Views(whole_NW=eye, crop_NW=eye, weight_N=torch.tensor([1.0, 1, 1, 0]))
    assert contrast(same, temperature=1.0).num_found == 6
    turned = Views(whole_NW=eye, crop_NW=eye.roll(1, 0), weight_N=torch.ones(4))
    assert contrast(turned, temperature=1.0).num_found == 0


class TwoProcesses:
    """`torch.distributed` as each of two processes would see it, one after the other in this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, everywhere: list[Views]) -> None:
        self.rank, self.everywhere = 0, everywhere
        for name in ("is_available", "is_initialized", "get_world_size", "get_rank", "all_gather"):
            monkeypatch.setattr(module.dist, name, getattr(self, name))

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_world_size(self) -> int:
        return 2

    def get_rank(self) -> int:
        return self.rank

    def all_gather(self, parts: list[torch.Tensor], own: torch.Tensor) -> None:
        fields = ("whole_NW", "crop_NW", "weight_N")
        field = next(f for f in fields if torch.equal(getattr(self.everywhere[self.rank], f), own))
        for part, views in zip(parts, self.everywhere, strict=True):
            part.copy_(getattr(views, field))


def test_over_processes_values_and_gradients_add_up_to_those_of_all_texts(monkeypatch):
    parts = [views_of(3, used=[1, 1, 0], seed=1), views_of(3, used=[1, 0, 1], seed=2)]
    leaves = [
        Views(
            whole_NW=v.whole_NW.clone().requires_grad_(),
            crop_NW=v.crop_NW.clone().requires_grad_(),
            weight_N=v.weight_N,
        )
        for v in parts
    ]
    together = contrast(
        Views(
            whole_NW=torch.cat([v.whole_NW for v in leaves]),
            crop_NW=torch.cat([v.crop_NW for v in leaves]),
            weight_N=torch.cat([v.weight_N for v in leaves]),
        ),
        temperature=0.4,
    )
    together.loss_sum.backward()
    expected = [(v.whole_NW.grad.clone(), v.crop_NW.grad.clone()) for v in leaves]
    processes, total, found = TwoProcesses(monkeypatch, parts), 0.0, 0.0
    for rank, views in enumerate(leaves):
        processes.rank = rank
        views.whole_NW.grad = views.crop_NW.grad = None
        own = contrast(views, temperature=0.4, among_processes=True)
        own.loss_sum.backward()
        total, found = total + own.loss_sum.item(), found + own.num_found.item()
        for grad, wanted in zip((views.whole_NW.grad, views.crop_NW.grad), expected[rank], strict=True):
            torch.testing.assert_close(grad, wanted, rtol=1e-10, atol=1e-12)
    assert total == pytest.approx(together.loss_sum.item(), rel=1e-12)
    assert found == together.num_found
