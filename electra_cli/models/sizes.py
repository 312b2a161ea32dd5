"""The sizes of the networks: one table, and what a project file makes of it."""

from dataclasses import dataclass, replace

from electra_cli.errors import refusal
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
    relative_buckets: int = 0
    """ELECTRA: buckets of a bias on attention by relative place, half of them for each sign; 0: no bias."""
    relative_distance: int = 128
    """ELECTRA: distances from here on share a bucket of that bias."""
    position_buckets: int = 256
    """DeBERTa: rows of the relative table for each sign of a distance."""
    max_distance: int = 512
    """DeBERTa: distances from here on share a bucket."""
    local_window: int = 128
    """ModernBERT: a token of a local layer sees half of this to each side."""
    global_every: int = 3
    """ModernBERT: the first and then every so many layers see the whole piece."""
    global_theta: float = 160_000.0
    """ModernBERT: base of the rotary angles of global layers."""
    local_theta: float = 10_000.0
    """ModernBERT: base of the rotary angles of local layers."""

    @property
    def has_projection(self) -> bool:
        """Whether a linear layer brings the embeddings to the hidden size."""
        return self.embedding_size != self.hidden_size

    @property
    def is_gated(self) -> bool:
        """Whether a third matrix of the feed-forward gates what passes."""
        return self.backbone == "modern"

    @property
    def has_biases(self) -> bool:
        """Whether linear layers and LayerNorms add a bias."""
        return self.backbone != "modern"

    @property
    def masked_lm_size(self) -> int:
        """Width of the masked language model's head before it meets the word table."""
        return self.embedding_size if self.backbone != "modern" else self.hidden_size


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

# base: the configuration of ModernBERT-base (Warner et al. 2024, Table 4); large from memory. The others are
# ours: as many parameters as ELECTRA's row of the name, whose feed-forward has two matrices instead of three.
MODERN_SIZES = {
    "toy": Size(2, 32, 48, 2, 32),
    "tiny": Size(4, 128, 352, 2, 128),
    "xsmall": Size(6, 256, 672, 4, 256),
    "small": Size(12, 256, 672, 4, 256),
    "base": Size(22, 768, 1152, 12, 768),
    "large": Size(28, 1024, 2624, 16, 1024),
}

BACKBONE_SIZES: dict[BackboneName, dict[str, Size]] = {
    "electra": SIZES,
    "deberta": DEBERTA_SIZES,
    "modern": MODERN_SIZES,
}
"""The rows of each backbone."""

_NUM_SEGMENTS: dict[BackboneName, int] = {"electra": 2, "deberta": 0, "modern": 0}
"""Token types: rows of the table, where there is one."""

MIN_BUCKETS = 8
"""Fewer buckets of relative places have no logarithmic part."""

MIN_POSITIONS = 512
"""Rows of the position table at least, so that an export serves longer texts than it was trained on."""


def discriminator_config(settings: ProjectSettings, vocab_size: int, padding_id: int) -> EncoderConfig:
    """The discriminator, or the only network, of a project; `ProjectError` where the sizes do not fit."""
    model = settings.model
    size = _overridden(model)
    if size.hidden_size % size.num_heads:
        message = (
            f"model.hidden_size = {size.hidden_size} is no multiple of model.num_heads = {size.num_heads}"
        )
        raise refusal(
            "model.num_heads",
            message,
            hint=f"{_nearest_divisor(size.hidden_size, size.num_heads)} heads would fit",
        )
    if model.backbone == "modern":
        _check_modern(size)
    elif model.local_window != Model().local_window:
        message = f"model.local_window = {model.local_window}, and {model.backbone!r} has no local layers"
        raise refusal("model.local_window", message, hint='leave it out, or choose model.backbone = "modern"')
    if model.relative_buckets:
        _check_bias(model)
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
        local_window=model.local_window,
        relative_buckets=model.relative_buckets,
        relative_distance=model.relative_distance,
    )


def generator_config(settings: ProjectSettings, vocab_size: int, padding_id: int) -> EncoderConfig:
    """The generator: width and depth by `[generator]`, the tables of the discriminator's size."""
    discriminator = discriminator_config(settings, vocab_size, padding_id)
    width = settings.generator.width or discriminator.hidden_size
    num_layers = max(1, int(settings.generator.depth_fraction * discriminator.num_layers + 0.5))
    if width == discriminator.hidden_size:
        return replace(discriminator, num_layers=num_layers)
    num_heads = max(1, width // 64)
    if width % num_heads or (discriminator.is_gated and width // num_heads % 2):
        even = "even " if discriminator.is_gated else ""
        message = f"generator.width = {width} is no {even}multiple of its {num_heads} heads (width // 64)"
        raise refusal("generator.width", message, hint=f"{max(1, width // 64) * 64} would fit")
    return replace(
        discriminator,
        num_layers=num_layers,
        hidden_size=width,
        feed_forward_size=width * discriminator.feed_forward_size // discriminator.hidden_size
        if discriminator.is_gated
        else 4 * width,
        num_heads=num_heads,
    )


def _overridden(model: Model) -> Size:
    """The named row with the non-zero overrides of `[model]`."""
    row = BACKBONE_SIZES[model.backbone][model.size]
    if model.backbone == "modern" and model.hidden_size:
        row = replace(row, embedding_size=model.hidden_size)
    return Size(
        num_layers=model.num_layers or row.num_layers,
        hidden_size=model.hidden_size or row.hidden_size,
        feed_forward_size=model.feed_forward_size or row.feed_forward_size,
        num_heads=model.num_heads or row.num_heads,
        embedding_size=model.embedding_size or row.embedding_size,
    )


def _check_modern(size: Size) -> None:
    """Refuse what ModernBERT has no place for."""
    if size.embedding_size != size.hidden_size:
        message = (
            f"model.embedding_size = {size.embedding_size} is not model.hidden_size = {size.hidden_size}, "
            'and model.backbone = "modern" has no projection between them'
        )
        raise refusal(
            "model.embedding_size",
            message,
            hint="leave model.embedding_size out; only the generator may be narrower than its word table",
        )
    head_width = size.hidden_size // size.num_heads
    if head_width % 2:
        message = (
            f"model.hidden_size = {size.hidden_size} in model.num_heads = {size.num_heads} gives heads of "
            f"{head_width}, and rotary positions need an even width"
        )
        raise refusal("model.num_heads", message, hint="half as many heads are twice as wide")


def _check_bias(model: Model) -> None:
    """Refuse a bias on layers that know relative places, and buckets that cannot be divided."""
    buckets, distance = model.relative_buckets, model.relative_distance
    key, hint = "model.relative_buckets", "leave model.relative_buckets out"
    if model.backbone != "electra":
        message = (
            f'model.relative_buckets = {buckets} does not go with model.backbone = "{model.backbone}", whose '
            "attention knows relative places already"
        )
    elif buckets < MIN_BUCKETS or buckets % 4:
        message = (
            f"model.relative_buckets = {buckets}: two signs with an exact and a logarithmic half each need a "
            f"multiple of 4, {MIN_BUCKETS} at least"
        )
        hint = f"{max(MIN_BUCKETS, buckets // 4 * 4)} would fit"
    elif distance - 1 <= buckets // 4:
        message = (
            f"model.relative_distance = {distance} leaves nothing between it and the {buckets // 4} exact "
            f"distances of model.relative_buckets = {buckets}"
        )
        key, hint = "model.relative_distance", f"at least {buckets // 4 + 2}"
    else:
        return
    raise refusal(key, message, hint=hint)


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
    return min(divisors, key=lambda divisor: abs(divisor - wanted))
