"""What a training step of a project costs: the counts of `models.flops`, by what `[objective]` says.

One visible table, as in `objectives`: an objective from a file is not in it, and is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass

from electra_cli.corruption import num_chosen
from electra_cli.errors import refusal
from electra_cli.models.flops import (
    coco_lm_training,
    deberta_v3_training,
    electra_training,
    fast_electra_training,
    masked_lm_training,
    mcl_training,
    replace_mlm_training,
    text_comparison,
)
from electra_cli.models.sizes import EncoderConfig, discriminator_config, generator_config
from electra_cli.objectives.base import own_settings
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import (
    CocoLMSettings,
    DebertaV3Settings,
    FastElectraSettings,
    MCLSettings,
    ReplaceMLMSettings,
)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What the count of a step depends on."""

    settings: ProjectSettings
    main: EncoderConfig
    """The network that is kept."""
    generator: EncoderConfig
    auxiliary: EncoderConfig | None

    @property
    def length(self) -> int:
        """Places of a row."""
        return self.settings.rows.sequence_length

    @property
    def fraction(self) -> float:
        """The slots for chosen positions as a share of the places; an unused one costs the same."""
        return num_chosen(self.length, self.settings.masking.fraction) / self.length


def training_flops(
    settings: ProjectSettings,
    *,
    vocabulary_size: int,
    padding_id: int = 0,
    auxiliary: EncoderConfig | None = None,
) -> float:
    """Matmul FLOPs of a training step for one place of a row, padding counted as what it costs.

    Backward is twice forward, a pass without gradients is forward alone, look-ups are nothing. A term that a
    weight of 0 switches off is counted all the same, but for COCO-LM's contrast. `auxiliary`: the frozen
    model of Fast-ELECTRA as its folder has it; not needed where `objective.samples` names what it drew.

    ProjectError for a system that nobody has counted.
    """
    count = _COUNTS.get(settings.objective.use)
    if count is None:
        raise refusal(
            "objective.use",
            f'objective.use = "{settings.objective.use}": what a step of it costs is not counted',
            hint=f"counted are {', '.join(_COUNTS)}",
        )
    sizes = vocabulary_size, padding_id
    return count(
        _Step(
            settings=settings,
            main=discriminator_config(settings, *sizes),
            generator=generator_config(settings, *sizes),
            auxiliary=auxiliary,
        )
    )


def _electra(step: _Step) -> float:
    return electra_training(
        step.main, step.generator, sequence_length=step.length, masked_fraction=step.fraction
    )


def _masked_lm(step: _Step) -> float:
    return masked_lm_training(step.main, sequence_length=step.length, masked_fraction=step.fraction)


def _replace_mlm(step: _Step) -> float:
    own = own_settings(step.settings.objective, ReplaceMLMSettings)
    return replace_mlm_training(
        step.main,
        step.generator,
        restores_all=own.positions == "all",
        sequence_length=step.length,
        masked_fraction=step.fraction,
    )


def _fast_electra(step: _Step) -> float:
    own = own_settings(step.settings.objective, FastElectraSettings)
    if not own.samples and step.auxiliary is None:
        raise refusal(
            "objective.auxiliary",
            f'objective.auxiliary = "{own.auxiliary}" draws while training: the count needs its sizes',
            hint="read the model first, or name what it drew in objective.samples",
        )
    return fast_electra_training(
        step.main,
        None if own.samples else step.auxiliary,
        sequence_length=step.length,
        masked_fraction=step.fraction,
    )


def _deberta_v3(step: _Step) -> float:
    own = own_settings(step.settings.objective, DebertaV3Settings)
    count = deberta_v3_training if own.enhanced_mask_decoder else electra_training
    return count(step.main, step.generator, sequence_length=step.length, masked_fraction=step.fraction)


def _coco_lm(step: _Step) -> float:
    own, settings = own_settings(step.settings.objective, CocoLMSettings), step.settings
    has_contrast, comparison = own.contrast_weight > 0, 0.0
    if has_contrast:
        comparison = text_comparison(
            step.main,
            vector_size=own.vector_size,
            texts_per_row=step.length // own.contrast_min_tokens,
            rows=settings.pretrain.micro_batch_size or settings.pretrain.batch_size,
            sequence_length=step.length,
        )
    return coco_lm_training(
        step.main,
        step.generator,
        has_contrast=has_contrast,
        generator_dropout=own.generator_dropout,
        comparison=comparison,
        sequence_length=step.length,
        masked_fraction=step.fraction,
    )


def _mcl(step: _Step) -> float:
    own = own_settings(step.settings.objective, MCLSettings)
    off = [term for term, weight in own.weights.items() if not weight]
    if off:
        raise refusal(
            f"objective.{off[0]}_weight",
            f"objective.{off[0]}_weight = 0 leaves passes out; MCL is counted with all its terms alone",
        )
    return mcl_training(step.main, step.generator, sequence_length=step.length, masked_fraction=step.fraction)


_COUNTS: dict[str, Callable[[_Step], float]] = {
    "electra": _electra,
    "masked_lm": _masked_lm,
    "replace_mlm": _replace_mlm,
    "fast_electra": _fast_electra,
    "deberta_v3": _deberta_v3,
    "coco_lm": _coco_lm,
    "mcl": _mcl,
}
