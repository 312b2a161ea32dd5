"""Whether a compiled implementation computes on this machine what the definition says, on one small case.

Letters: M rows, D width, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from electra_cli.kernels.masked_sampling import reference
from electra_cli.kernels.masked_sampling.reference import MaskedSample

_M, _D, _V = 70, 32, 300
_PADDING = 3

# float32 sums of 32 products of size 1 round to about 1e-6; a wrong kernel is wrong by far more.
_TOLERANCE = 1e-4

# A boundary within rounding of a row's uniform number; none is expected among 70 rows.
_MOST_OTHER_IDS = 1


def disagreement(
    masked_sample: Callable[..., MaskedSample], log_prob: Callable[..., Tensor], device: torch.device
) -> str:
    """What differs from the definition, in words; empty where nothing does."""
    # Whoever asks first may be in inference mode, where nothing has a gradient.
    with torch.autocast(device.type, enabled=False), torch.inference_mode(False), torch.enable_grad():
        ours, truth = (
            _run(masked_sample, log_prob, device),
            _run(reference.masked_sample, reference.token_log_prob, device),
        )
    if int((ours["ids"] != truth["ids"]).sum()) > _MOST_OTHER_IDS:
        return "other ids are drawn"
    for name, value in truth.items():
        if name != "ids" and not torch.allclose(ours[name], value, rtol=_TOLERANCE, atol=_TOLERANCE):
            return f"the {name} differs by up to {float((ours[name] - value).abs().max()):.2g}"
    return ""


def _run(
    masked_sample: Callable[..., MaskedSample], log_prob: Callable[..., Tensor], device: torch.device
) -> dict[str, Tensor]:
    """Ids, losses and gradients by name: padding, a forbidden id, unused slots and a temperature at once."""
    generator = torch.Generator().manual_seed(0)
    trained = [
        torch.randn(*shape, generator=generator).to(device).requires_grad_()
        for shape in ((_M, _D), (_V, _D), (_V,))
    ]
    target_M = torch.randint(0, _V - _PADDING, (_M,), generator=generator).to(device)
    weight_M = torch.ones(_M).index_fill_(0, torch.arange(0, _M, 5), 0.0).to(device)
    uniform_M = torch.rand(_M, generator=generator, dtype=torch.float64).to(device)
    sample = masked_sample(
        *trained,
        target_M,
        weight_M,
        uniform_M,
        temperature=0.8,
        forbidden_M=target_M.where(weight_M > 0, reference.NOT_FORBIDDEN),
        num_padding_ids=_PADDING,
    )
    log_prob_M = log_prob(*trained, target_M, num_padding_ids=_PADDING)
    gradients = torch.autograd.grad(sample.loss_sum + (log_prob_M * weight_M).sum() / 2, trained)
    names = ("gradient of the hidden states", "gradient of the table", "gradient of the bias")
    return {
        "ids": sample.sampled_M,
        "loss": sample.loss_M,
        "log probability": log_prob_M.detach(),
        **dict(zip(names, gradients, strict=True)),
    }
