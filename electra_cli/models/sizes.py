"""The sizes of the networks: one table, and what a project file makes of it."""

from dataclasses import dataclass, replace

from electra_cli.errors import Problem, ProjectError
from electra_cli.settings import BackboneName, Model, ProjectSettings


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """All that fixes the shapes and the arithmetic of an encoder."""

    vocab_size: int
    num_layers: int
    hidden_size: int
    feed_forward_size: int
    num_heads: int
    embedding_size: int
    max_positions: int
    num_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    init_std: float = 0.02
    padding_id: int = 0
    backbone: BackboneName = "electra"
    position_buckets: int = 256
    """DeBERTa: rows of the relative table for each sign of a distance."""
    max_distance: int = 512
    """DeBERTa: distances from here on share a bucket."""

    @property
    def has_projection(self) -> bool:
        """Whether a linear layer brings the embeddings to the hidden size."""
        return self.embedding_size != self.hidden_size


@dataclass(frozen=True)
class Size:
    """A row of the table."""

    num_layers: int
    hidden_size: int
    feed_forward_size: int
    num_heads: int
    embedding_size: int


# small, base and large: Clark et al. 2020, Table 6. xsmall is small at half its depth; tiny and toy are ours.
SIZES = {
    "toy": Size(2, 32, 64, 2, 32),
    "tiny": Size(4, 128, 512, 2, 128),
    "xsmall": Size(6, 256, 1024, 4, 128),
    "small": Size(12, 256, 1024, 4, 128),
    "base": Size(12, 768, 3072, 12, 768),
    "large": Size(24, 1024, 4096, 16, 1024),
}

# He et al. 2021 (2111.09543) and the configurations released with it; tiny and toy are ours.
DEBERTA_SIZES = {
    "toy": SIZES["toy"],
    "tiny": SIZES["tiny"],
    "xsmall": Size(12, 384, 1536, 6, 384),
    "small": Size(6, 768, 3072, 12, 768),
    "base": Size(12, 768, 3072, 12, 768),
    "large": Size(24, 1024, 4096, 16, 1024),
}

BACKBONE_SIZES: dict[BackboneName, dict[str, Size]] = {"electra": SIZES, "deberta": DEBERTA_SIZES}
"""The rows of each backbone."""

_NUM_SEGMENTS: dict[BackboneName, int] = {"electra": 2, "deberta": 0, "modern": 0}
"""Token types: rows of the table, where there is one."""

MIN_POSITIONS = 512
"""Rows of the position table at least, so that an export serves longer texts than it was trained on."""


def discriminator_config(settings: ProjectSettings, vocab_size: int, padding_id: int) -> EncoderConfig:
    """The discriminator, or the only network, of a project; `ProjectError` where the sizes do not fit."""
    model = settings.model
    if model.backbone not in BACKBONE_SIZES:
        message = f'model.backbone = "{model.backbone}" has no network in this version'
        raise ProjectError(
            message,
            problems=(Problem("model.backbone", message),),
            key="model.backbone",
            hint=f"there are {', '.join(BACKBONE_SIZES)}",
        )
    size = _overridden(model)
    if size.hidden_size % size.num_heads:
        message = (
            f"model.hidden_size = {size.hidden_size} is no multiple of model.num_heads = {size.num_heads}"
        )
        raise ProjectError(
            message,
            problems=(Problem("model.num_heads", message),),
            key="model.num_heads",
            hint=f"{_nearest_divisor(size.hidden_size, size.num_heads)} heads would fit",
        )
    return EncoderConfig(
        vocab_size=vocab_size,
        num_layers=size.num_layers,
        hidden_size=size.hidden_size,
        feed_forward_size=size.feed_forward_size,
        num_heads=size.num_heads,
        embedding_size=size.embedding_size,
        max_positions=max(MIN_POSITIONS, settings.rows.sequence_length),
        num_segments=_NUM_SEGMENTS[model.backbone],
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        layer_norm_eps=model.layer_norm_eps,
        init_std=model.init_std,
        padding_id=padding_id,
        backbone=model.backbone,
    )


def generator_config(settings: ProjectSettings, vocab_size: int, padding_id: int) -> EncoderConfig:
    """The generator: width and depth by `[generator]`, the tables of the discriminator's size."""
    discriminator = discriminator_config(settings, vocab_size, padding_id)
    width = settings.generator.width or discriminator.hidden_size
    num_layers = max(1, int(settings.generator.depth_fraction * discriminator.num_layers + 0.5))
    if width == discriminator.hidden_size:
        return replace(discriminator, num_layers=num_layers)
    num_heads = max(1, width // 64)
    if width % num_heads:
        message = f"generator.width = {width} is no multiple of its {num_heads} heads (width // 64)"
        raise ProjectError(
            message,
            problems=(Problem("generator.width", message),),
            key="generator.width",
            hint=f"{width // 64 * 64} would fit",
        )
    return replace(
        discriminator,
        num_layers=num_layers,
        hidden_size=width,
        feed_forward_size=4 * width,
        num_heads=num_heads,
    )


def _overridden(model: Model) -> Size:
    """The named row with the non-zero overrides of `[model]`."""
    row = BACKBONE_SIZES[model.backbone][model.size]
    return Size(
        num_layers=model.num_layers or row.num_layers,
        hidden_size=model.hidden_size or row.hidden_size,
        feed_forward_size=model.feed_forward_size or row.feed_forward_size,
        num_heads=model.num_heads or row.num_heads,
        embedding_size=model.embedding_size or row.embedding_size,
    )


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
    return min(divisors, key=lambda divisor: abs(divisor - wanted))
