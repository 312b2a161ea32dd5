"""Published scores to set beside ours, each with its source. In percent, as printed there.

Of development sets, unless the result's name says test.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One published score."""

    system: str
    value: float
    """A share, 0 to 1."""
    statistic: str
    source: str


@dataclass(frozen=True, kw_only=True)
class _System:
    name: str
    statistic: str
    source: str
    percent: Mapping[str, float]


_ELECTRA_README = "google-research/electra README, GLUE dev"
_ELECTRA_ORDER = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli-m", "qnli", "rte")


def _in_order(*values: float) -> dict[str, float]:
    return dict(zip(_ELECTRA_ORDER, values, strict=True))


_SYSTEMS = (
    _System(
        name="ELECTRA-Small++",
        statistic="median",
        source=_ELECTRA_README,
        percent=_in_order(57.0, 91.2, 88.0, 87.5, 89.0, 81.3, 88.4, 66.7),
    ),
    _System(
        name="ELECTRA-Small-OWT",
        statistic="median",
        source=_ELECTRA_README,
        percent=_in_order(56.8, 88.3, 87.4, 86.8, 88.3, 78.9, 87.9, 68.5),
    ),
    _System(
        name="ELECTRA-Base++",
        statistic="median",
        source=_ELECTRA_README,
        percent=_in_order(67.7, 95.1, 89.5, 91.2, 91.5, 88.8, 93.2, 82.7),
    ),
    _System(
        name="ELECTRA-Large",
        statistic="median",
        source=_ELECTRA_README,
        percent=_in_order(69.1, 96.9, 90.8, 92.6, 92.4, 90.9, 95.0, 88.0),
    ),
    _System(
        name="ELECTRA-400K",
        statistic="median of 10",
        source="Clark et al. 2020 (arXiv 2003.10555), Table 2",
        percent=_in_order(69.3, 96.0, 90.6, 92.1, 92.4, 90.5, 94.5, 86.8),
    ),
    _System(
        name="COCO-LM-Base++",
        statistic="median of 5",
        source="microsoft/COCO-LM README, GLUE dev (arXiv 2102.08473)",
        percent=_in_order(67.3, 94.6, 91.2, 91.8, 92.2, 90.2, 94.2, 87.4) | {"mnli-mm": 90.0},
    ),
    _System(
        name="COCO-LM-Large++",
        statistic="median of 5",
        source="microsoft/COCO-LM README, GLUE dev (arXiv 2102.08473)",
        percent=_in_order(73.9, 96.9, 92.2, 92.7, 92.8, 91.4, 95.7, 91.0) | {"mnli-mm": 91.6},
    ),
    _System(
        name="ELECTRA-Base, fine-tuned",
        statistic="mean of 2",
        source="Beno 2024 (arXiv 2501.00062), Table 6",
        percent={"sentiment-test": 79.14},
    ),
    _System(
        name="ELECTRA-Large, fine-tuned",
        statistic="mean of 2",
        source="Beno 2024 (arXiv 2501.00062), Table 6",
        percent={"sentiment-test": 82.76},
    ),
)

ON_SCREEN = ("ELECTRA-Small++", "ELECTRA-Small-OWT", "ELECTRA-Base++")
"""The columns of the command's table; results.json and results.md hold all."""


def published(result: str) -> tuple[Published, ...]:
    """The published scores of a result name, such as "mnli-m"."""
    return tuple(
        Published(system.name, round(system.percent[result] / 100, 4), system.statistic, system.source)
        for system in _SYSTEMS
        if result in system.percent
    )
