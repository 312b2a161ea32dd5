"""The own settings of each built-in pre-training system: the keys of `[objective]` beside `use`."""

from pydantic import Field

from electra_cli.settings import Settings


class ElectraSettings(Settings):
    """`[objective]` with `use = "electra"`."""

    generator_weight: float = Field(1.0, ge=0)
    """Weight of the generator's loss."""
    discriminator_weight: float = Field(50.0, ge=0)
    """Weight of the discriminator's loss, λ in the paper."""
    temperature: float = Field(1.0, gt=0)
    """Temperature at which the generator's samples are drawn."""


OBJECTIVE_SETTINGS: dict[str, type[Settings]] = {"electra": ElectraSettings}
"""The own settings of each built-in objective; an objective from a file brings its own class."""
