"""Sequence contrastive learning: two views of a text find each other among the views of other texts."""

# N texts (slots), U = 2·N views, W width of the vectors

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Views:
    """Two vectors of length 1 for each text; slots of weight 0 hold none."""

    whole_NW: Tensor
    crop_NW: Tensor
    weight_N: Tensor


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The loss of some texts and how many of their views were closest to their partner."""

    loss_sum: Tensor
    """0-d; Σ over texts of the mean loss of their two views, so that the number of texts divides it."""
    num_found: Tensor
    """0-d, detached; views whose most similar other view is their partner."""


def contrast(views: Views, *, temperature: float, among_processes: bool = False) -> Contrast:
    """½ Σ over views u of −log (exp(u·u⁺/τ) / Σ over views v ≠ u of exp(u·v/τ)), u⁺ being u's partner.

    The other views are those of this micro-batch, or with `among_processes` also those of the same-numbered
    micro-batch of every process. Then the gradient is this process's share of that of the loss of all texts;
    processes add their gradients up. A text that is alone has nothing to be told from, and its loss is 0.
    """
    if not (among_processes and dist.is_available() and dist.is_initialized()):
        return _contrast(views, temperature)
    everywhere = Views(
        whole_NW=_with_other_processes(views.whole_NW),
        crop_NW=_with_other_processes(views.crop_NW),
        weight_N=_with_other_processes(views.weight_N),
    )
    own = slice(len(views.weight_N) * dist.get_rank(), len(views.weight_N) * (dist.get_rank() + 1))
    theirs_N = everywhere.weight_N.clone()
    theirs_N[own] = 0.0
    mine = _contrast(everywhere, temperature, counted_N=everywhere.weight_N - theirs_N)
    others = _contrast(everywhere, temperature, counted_N=theirs_N)
    # The value is of the own texts; what the others' losses owe to our vectors comes along as a gradient.
    return Contrast(
        loss_sum=mine.loss_sum + (others.loss_sum - others.loss_sum.detach()), num_found=mine.num_found
    )


def _contrast(views: Views, temperature: float, *, counted_N: Tensor | None = None) -> Contrast:
    """`counted_N`: the texts whose loss is summed, where these are not all."""
    view_UW = torch.cat([views.whole_NW, views.crop_NW])
    is_used_U = views.weight_N.repeat(2) > 0
    place_U = torch.arange(len(view_UW), device=view_UW.device)
    partner_U = place_U.roll(len(views.weight_N))
    with torch.autocast(view_UW.device.type, enabled=False):
        score_UU = view_UW @ view_UW.T / temperature
    # An unused slot keeps its partner, so that every row has something finite to sum over.
    is_other_UU = (is_used_U | (partner_U[:, None] == place_U)) & (place_U[:, None] != place_U)
    score_UU = score_UU.masked_fill(~is_other_UU, -torch.inf)
    loss_U = score_UU.logsumexp(1) - score_UU.gather(1, partner_U[:, None]).squeeze(1)
    weight_U = (views.weight_N if counted_N is None else counted_N).repeat(2)
    is_found_U = score_UU.detach().argmax(1) == partner_U
    return Contrast(loss_sum=(loss_U * weight_U).sum() / 2, num_found=(is_found_U * weight_U).sum())


def _with_other_processes(own: Tensor) -> Tensor:
    """The rows of all processes, in the order of the ranks; only the own ones carry a gradient."""
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.detach().contiguous())
    parts[dist.get_rank()] = own
    return torch.cat(parts)
