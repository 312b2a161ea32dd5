"""The own settings of each built-in pre-training system: the keys of `[objective]` beside `use`."""

from typing import Literal

from pydantic import Field, model_validator

from electra_cli.settings import Settings, Share


class ElectraSettings(Settings):
    """`[objective]` with `use = "electra"`."""

    generator_weight: float = Field(1.0, ge=0)
    """Weight of the generator's loss."""
    discriminator_weight: float = Field(50.0, ge=0)
    """Weight of the discriminator's loss, λ in the paper."""
    temperature: float = Field(1.0, gt=0)
    """Temperature at which the generator's samples are drawn."""
    discriminator_positions: Literal["all", "chosen"] = "all"
    """Tokens that the discriminator's loss counts: all real ones, or the chosen ones ("ELECTRA 15 %")."""


class MaskedLMSettings(Settings):
    """`[objective]` with `use = "masked_lm"`."""

    random_fraction: Share = 0.1
    """Share of the chosen tokens that become a random piece; BERT keeps as many (masking.keep_fraction)."""


class ReplaceMLMSettings(Settings):
    """`[objective]` with `use = "replace_mlm"`: the ablations Replace MLM and All-Tokens MLM."""

    generator_weight: float = Field(1.0, ge=0)
    """Weight of the generator's loss."""
    restorer_weight: float = Field(1.0, ge=0)
    """Weight of the loss of the network that is kept."""
    temperature: float = Field(1.0, gt=0)
    """Temperature at which the generator's samples are drawn."""
    positions: Literal["chosen", "all"] = "chosen"
    """Tokens to restore: the chosen ones (Replace MLM), or all with a copy gate (All-Tokens MLM)."""


class FastElectraSettings(Settings):
    """`[objective]` with `use = "fast_electra"`."""

    auxiliary: str = ""
    """Folder of the frozen masked language model: `generator/` of an export, or a Hugging Face folder."""
    samples: str = ""
    """Folder that `electra cache-samples` wrote; empty: the auxiliary model draws while training."""
    temperature_schedule: Literal["exponential", "linear", "polynomial", "constant"] = "exponential"
    """How the temperature falls to 1 over the run; constant stays at the initial one."""
    initial_temperature: float = Field(2.0, gt=0)
    """Temperature of the samples at the first step."""
    temperature_decay: float = Field(0.1, gt=0)
    """τ of the exponential schedule, as a share of the run."""
    temperature_power: float = Field(2.0, gt=0)
    """Exponent of the polynomial schedule."""
    discriminator_weight: float = Field(1.0, gt=0)
    """Weight of the one loss; it acts through Adam's ε and the clipping alone."""
    initial_weights: Literal["fresh", "embeddings", "auxiliary"] = "fresh"
    """What the discriminator takes from the auxiliary model before the first step: nothing, its embeddings,
    or its whole body ("auxiliary", the two-stage ablation of ELECTRA)."""


class DebertaV3Settings(Settings):
    """`[objective]` with `use = "deberta_v3"`."""

    generator_weight: float = Field(1.0, ge=0)
    """Weight of the generator's loss."""
    discriminator_weight: float = Field(50.0, ge=0)
    """Weight of the discriminator's loss: λ = 50 in the paper, 10 in the released code."""
    temperature: float = Field(1.0, gt=0)
    """Temperature at which the generator's samples are drawn."""
    update: Literal["joint", "decoupled"] = "decoupled"
    """One update with both losses, or two: the generator's, then the discriminator's."""
    generator_learning_rate_scale: float = Field(1.0, ge=0)
    """Times `optimizer.learning_rate`, for the generator's own update."""
    discriminator_learning_rate_scale: float = Field(1.0, ge=0)
    """Times `optimizer.learning_rate`, for the discriminator's own update."""
    generator_clip_norm: float = Field(1.0, ge=0)
    """Largest gradient norm of the generator's own update; 0: no clipping."""
    discriminator_clip_norm: float = Field(1.0, ge=0)
    """Largest gradient norm of the discriminator's own update; 0: no clipping."""
    enhanced_mask_decoder: bool = True
    """The generator sees absolute positions before its last layer, which is then applied twice."""

    @model_validator(mode="after")
    def _scales_need_two_updates(self) -> "DebertaV3Settings":
        own = {
            "generator_learning_rate_scale": self.generator_learning_rate_scale,
            "discriminator_learning_rate_scale": self.discriminator_learning_rate_scale,
            "generator_clip_norm": self.generator_clip_norm,
            "discriminator_clip_norm": self.discriminator_clip_norm,
        }
        for name, value in own.items():
            if self.update == "joint" and value != 1.0:
                raise ValueError(f'{name} = {value} would be ignored with update = "joint"')
        return self


class CocoLMSettings(Settings):
    """`[objective]` with `use = "coco_lm"`: COCO-LM; a weight of 0 switches its term off."""

    mlm_weight: float = Field(1.0, ge=0)
    """Weight of the generator's loss."""
    copy_weight: float = Field(50.0, ge=0)
    """Weight of the copy head's loss, λ_copy in the paper."""
    correction_weight: float = Field(1.0, ge=0)
    """Weight of the corrective language model's loss."""
    contrast_weight: float = Field(1.0, ge=0)
    """Weight of the sequence contrastive loss."""
    correction: Literal["mixture", "weighted"] = "mixture"
    """The corrective loss: of the paper's mixture with the copy probability, or the released code's form."""
    generator_dropout: bool = True
    """Dropout in the generator's own loss; a second pass, then, draws its samples without."""
    contrast_temperature: float = Field(1.0, gt=0)
    """τ of the contrastive loss."""
    contrast_min_tokens: int = Field(32, ge=2)
    """Shorter pieces take no part in the contrastive loss; [CLS] and [SEP] count."""
    contrast_negatives: Literal["micro-batch", "processes"] = "micro-batch"
    """Where the other texts are from; with "processes" a run depends on how many there are."""
    crop_fraction: float = Field(0.9, gt=0, le=1)
    """Length of the crop relative to its piece."""
    crop_keeps_cls: bool = False
    """Put [CLS] in front of a crop that lost it."""
    vector_size: int = Field(768, ge=1)
    """Width of the text vectors that are compared."""


class MCLSettings(Settings):
    """`[objective]` with `use = "mcl"`: MCL; a weight of 0 switches its term off."""

    mlm_weight: float = Field(1.0, ge=0)
    """Generator: restore hidden tokens."""
    rtd_weight: float = Field(50.0, ge=0)
    """Discriminator: find replaced tokens."""
    slm_weight: float = Field(1.0, ge=0)
    """Generator: restore swapped tokens."""
    std_weight: float = Field(50.0, ge=0)
    """Discriminator: find swapped tokens."""
    itd_weight: float = Field(50.0, ge=0)
    """Discriminator: find inserted tokens."""
    re_mlm_weight: float = Field(1.0, ge=0)
    """Generator again: restore the replaced tokens that were caught."""
    re_rtd_weight: float = Field(50.0, ge=0)
    """Discriminator again: its mistakes about replaced tokens."""
    re_slm_weight: float = Field(1.0, ge=0)
    """Generator again: restore the swapped tokens that were caught."""
    re_std_weight: float = Field(50.0, ge=0)
    """Discriminator again: its mistakes about swapped tokens."""
    temperature: float = Field(1.0, gt=0)
    """Temperature at which the generator's samples are drawn."""

    @property
    def weights(self) -> dict[str, float]:
        """By the names of the loss terms."""
        return {
            "mlm": self.mlm_weight,
            "rtd": self.rtd_weight,
            "slm": self.slm_weight,
            "std": self.std_weight,
            "itd": self.itd_weight,
            "re_mlm": self.re_mlm_weight,
            "re_rtd": self.re_rtd_weight,
            "re_slm": self.re_slm_weight,
            "re_std": self.re_std_weight,
        }


OBJECTIVE_SETTINGS: dict[str, type[Settings]] = {
    "electra": ElectraSettings,
    "masked_lm": MaskedLMSettings,
    "replace_mlm": ReplaceMLMSettings,
    "fast_electra": FastElectraSettings,
    "deberta_v3": DebertaV3Settings,
    "coco_lm": CocoLMSettings,
    "mcl": MCLSettings,
}
"""The own settings of each built-in objective; an objective from a file brings its own class."""
