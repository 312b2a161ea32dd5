"""Replaced-token detection: the loss over all real tokens, and its health figures as additive histograms.

Accuracy says nothing here: about 7 % of the tokens are replaced, so "nothing is replaced" is right 93 % of
the time. Area under the curve, precision and recall do; all three follow from two histograms of the logits,
which add up over micro-batches and processes, and are read only when a line is logged.
"""

# B batch, S sequence, C class (0 original, 1 replaced), H bins

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST_LOGIT = 16.0
"""Logits beyond ± this fall into the outermost bins."""

BINS_PER_UNIT = 256
NUM_BINS = int(2 * LARGEST_LOGIT * BINS_PER_UNIT)
HISTOGRAM = "detection_histogram"


def detection_loss(logit_BS: Tensor, is_replaced_BS: Tensor, is_real_BS: Tensor) -> Tensor:
    """Sum of the binary cross entropies of all real tokens, [CLS] and [SEP] included; float32, 0-d."""
    loss_BS = F.binary_cross_entropy_with_logits(
        logit_BS, is_replaced_BS.to(logit_BS.dtype), reduction="none"
    )
    return torch.where(is_real_BS, loss_BS, 0.0).sum()


def detection_figures(logit_BS: Tensor, is_replaced_BS: Tensor, is_real_BS: Tensor) -> dict[str, Tensor]:
    """Two histograms of the logits [C, H], of original and of replaced tokens; padding is in neither.

    The middle edge is 0, and a logit of exactly 0 lies below it: it says "original".
    """
    scaled_BS = torch.ceil((logit_BS.detach().float() + LARGEST_LOGIT) * BINS_PER_UNIT) - 1
    bin_BS = torch.nan_to_num(scaled_BS, nan=0.0).clamp(0, NUM_BINS - 1).to(torch.int64)
    flat_CH = torch.zeros(2 * NUM_BINS, device=logit_BS.device)
    flat_CH.index_add_(
        0, (bin_BS + NUM_BINS * is_replaced_BS.to(torch.int64)).flatten(), is_real_BS.flatten().float()
    )
    return {HISTOGRAM: flat_CH.view(2, NUM_BINS)}


def summarise_detection(figures: Mapping[str, Tensor]) -> dict[str, float | None]:
    """Replaced fraction, area under the ROC curve, precision and recall at logit 0; `None` where undefined.

    Two logits of one bin (1/256 wide) count as equal, a half each.
    """
    original_H, replaced_H = figures[HISTOGRAM].detach().to("cpu", torch.float64)
    num_original, num_replaced = float(original_H.sum()), float(replaced_H.sum())
    called = slice(NUM_BINS // 2, None)
    caught, false_alarms = float(replaced_H[called].sum()), float(original_H[called].sum())
    below_H = original_H.cumsum(0) - original_H
    wins = float((replaced_H * (below_H + original_H / 2)).sum())
    return {
        "replaced_fraction": share(num_replaced, num_replaced + num_original),
        "disc_auc": share(wins, num_replaced * num_original),
        "disc_precision": share(caught, caught + false_alarms),
        "disc_recall": share(caught, num_replaced),
    }


def share(part: float, whole: float) -> float | None:
    """One sum as a share of another; `None` of nothing."""
    return part / whole if whole else None
