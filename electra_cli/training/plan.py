"""The plan of a run: everything that ids drawn before it depend on, and nothing else.

Runs that share a plan can share the ids, whatever their networks, rates and devices; every other run is
refused them. Precision is no part of it: it moves a draw only where two ids are within rounding.
"""

from electra_cli.data.drawn import COMMAND, DrawnSamples, Plan
from electra_cli.errors import InputError, refusal
from electra_cli.objectives.base import DrawingObjective, Objective
from electra_cli.training.fingerprint import Difference, Identity, Kind, two_columns

_TABLES = ("rows", "masking", "content")
_KEYS = (
    "project.seed",
    "corpus.source",
    "pretrain.batch_size",
    "pretrain.steps",
    "pretrain.heldout_rows",
)
# Weights that the trained network starts from, and the folder of the ids itself.
_NOT_CONTENT = ("content.init_from", "content.samples")


def plan_of(identity: Identity, kind: type[Objective]) -> Plan:
    """The plan of a run of `kind`; ProjectError for an objective whose sampler learns."""
    if not issubclass(kind, DrawingObjective):
        message = (
            f'objective.use = "{identity.values["objective.use"]}" samples from a network that it trains; '
            "nothing can be drawn before the run"
        )
        raise refusal(
            "objective.use", message, hint='objective.use = "fast_electra" samples from a frozen model'
        )
    wanted = {*_KEYS, *(f"objective.{name}" for name in kind.draw_settings)}
    return {
        key: value
        for key, value in identity.values.items()
        if key in wanted or (key.partition(".")[0] in _TABLES and key not in _NOT_CONTENT)
    }


def differences(stored: Plan, wanted: Plan) -> tuple[Difference, ...]:
    """The settings and hashes in which two plans are not the same."""
    return tuple(
        Difference(key, Kind.FATAL, stored.get(key), wanted.get(key))
        for key in dict.fromkeys([*wanted, *stored])
        if stored.get(key) != wanted.get(key)
    )


def require_plan(drawn: DrawnSamples, wanted: Plan) -> None:
    """InputError, with both values of each, where the ids were drawn for another plan."""
    differing = differences(drawn.plan, wanted)
    if differing:
        raise InputError(
            f"{drawn.folder} was drawn for another run:\n{two_columns(differing, theirs='drawn for')}",
            path=drawn.folder,
            key=differing[0].key,
            hint=f'{COMMAND} draws for these settings; objective.samples = "" draws while training',
        )
