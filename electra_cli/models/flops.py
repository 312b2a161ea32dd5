"""What a training step costs in floating-point operations: our count, and the paper's own.

Ours counts matrix products alone: 2 operations a multiplication, look-ups 0, the backward pass twice the
forward pass, the vocabulary head only at the masked positions. The paper's counts every bias, activation,
dropout and LayerNorm, look-ups as products with the whole table, and the backward pass like the forward pass.
"""

from dataclasses import dataclass, replace

from electra_cli.models.sizes import EncoderConfig

BACKWARD = 2
"""Backward pass relative to forward: one product for the input's gradient, one for the weight's."""


def encoder_forward(config: EncoderConfig, sequence_length: int) -> int:
    """Matmul FLOPs of an encoder for one token of a row."""
    width = config.hidden_size
    projections = 2 * width * 4 * width
    scores_and_values = 2 * 2 * sequence_length * width
    if config.backbone == "deberta":
        # Two more products, for each of 2S distances. The table is projected once a batch: left out.
        scores_and_values += 2 * 2 * 2 * sequence_length * width
    feed_forward = 2 * (3 if config.is_gated else 2) * width * config.feed_forward_size
    layers = config.num_layers * (projections + scores_and_values + feed_forward)
    return layers + (2 * config.embedding_size * width if config.has_projection else 0)


def masked_lm_forward(config: EncoderConfig) -> int:
    """Matmul FLOPs of the generator's head for one masked token: dense, then the vocabulary.

    Where the dense layer does not lead to the table's width, the encoder's projection, turned round, follows.
    """
    inner, width = config.masked_lm_size, config.embedding_size
    back = inner * width if inner != width else 0
    return 2 * (config.hidden_size * inner + back + width * config.vocab_size)


def discriminator_head_forward(config: EncoderConfig) -> int:
    """Matmul FLOPs of the discriminator's head for one token."""
    return 2 * config.hidden_size * (config.hidden_size + 1)


def deberta_v3_training(
    discriminator: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequence_length: int,
    masked_fraction: float,
) -> float:
    """As `electra_training`, for a generator whose enhanced mask decoder applies its last layer twice."""
    return electra_training(
        discriminator,
        replace(generator, num_layers=generator.num_layers + 1),
        sequence_length=sequence_length,
        masked_fraction=masked_fraction,
    )


def electra_training(
    discriminator: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequence_length: int,
    masked_fraction: float,
) -> float:
    """Matmul FLOPs of a training step for one token, forward and backward of both networks."""
    forward = (
        encoder_forward(discriminator, sequence_length)
        + discriminator_head_forward(discriminator)
        + encoder_forward(generator, sequence_length)
        + masked_fraction * masked_lm_forward(generator)
    )
    return (1 + BACKWARD) * forward


def masked_lm_training(config: EncoderConfig, *, sequence_length: int, masked_fraction: float) -> float:
    """Matmul FLOPs of a training step of masked language modelling for one token."""
    forward = encoder_forward(config, sequence_length) + masked_fraction * masked_lm_forward(config)
    return (1 + BACKWARD) * forward


def replace_mlm_training(
    restorer: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequence_length: int,
    masked_fraction: float,
    restores_all: bool,
) -> float:
    """Matmul FLOPs of a training step of Replace MLM, or of All-Tokens MLM, for one token.

    The vocabulary head of the network that is kept is computed at the masked tokens, or at all of them, where
    a copy gate of the size of ELECTRA's head stands beside it.
    """
    gate = discriminator_head_forward(restorer) if restores_all else 0
    forward = (
        encoder_forward(restorer, sequence_length)
        + (1.0 if restores_all else masked_fraction) * masked_lm_forward(restorer)
        + gate
    )
    return (1 + BACKWARD) * forward + masked_lm_training(
        generator, sequence_length=sequence_length, masked_fraction=masked_fraction
    )


def fast_electra_training(
    discriminator: EncoderConfig,
    auxiliary: EncoderConfig | None,
    *,
    sequence_length: int,
    masked_fraction: float,
) -> float:
    """Matmul FLOPs of a training step of Fast-ELECTRA for one token.

    The auxiliary model goes forward alone; `None`: its samples were drawn before the run.
    """
    forward = encoder_forward(discriminator, sequence_length) + discriminator_head_forward(discriminator)
    drawing = 0.0
    if auxiliary is not None:
        drawing = encoder_forward(auxiliary, sequence_length) + masked_fraction * masked_lm_forward(auxiliary)
    return (1 + BACKWARD) * forward + drawing


PAPER_MASKED_FRACTION = 0.15625
"""The share of masked tokens in all of the paper's own counts, the large models' 25 % included."""


@dataclass(frozen=True)
class _PaperCost:
    """Operations an element, as the paper's public script counts them."""

    dropout: int = 4
    layer_norm: int = 5
    activation: int = 8
    softmax: int = 5


_PAPER = _PaperCost()


def _paper_layer(config: EncoderConfig, sequence_length: int) -> int:
    """One layer, one token."""
    width, inner, heads = config.hidden_size, config.feed_forward_size, config.num_heads
    products = 2 * width * (4 * width + 2 * sequence_length + 2 * inner)
    attention_weights = sequence_length * heads * (_PAPER.softmax + _PAPER.dropout + 1)
    biases = 3 * width + width + inner + width
    # The script counts the LayerNorm behind attention once a token instead of once a value.
    residuals = 2 * width * (_PAPER.dropout + 1) + _PAPER.layer_norm * (width + 1)
    return products + attention_weights + biases + residuals + _PAPER.activation * inner


def _paper_embeddings(config: EncoderConfig, sequence_length: int) -> int:
    """Look-ups as dense products with one-hot rows, one token."""
    size, width = config.embedding_size, config.hidden_size
    tables = 2 * size * (config.vocab_size + sequence_length + config.num_segments)
    rest = size * (2 + _PAPER.layer_norm + _PAPER.dropout)
    projection = (2 * size + 1) * width if config.has_projection else 0
    return tables + rest + projection


def _paper_masked_lm(config: EncoderConfig) -> int:
    """The head before and over the vocabulary, one masked token."""
    size, vocab = config.embedding_size, config.vocab_size
    transform = size * (2 * config.hidden_size + 1 + _PAPER.activation + _PAPER.layer_norm)
    return transform + vocab * (2 * size + _PAPER.softmax + 2)


def _paper_discriminator_head(config: EncoderConfig) -> int:
    return config.hidden_size * (2 * config.hidden_size + 1 + _PAPER.activation + 2)


def paper_masked_lm_training(
    config: EncoderConfig, *, sequence_length: int, masked_fraction: float = PAPER_MASKED_FRACTION
) -> float:
    """The paper's count for a token in a training step of BERT, or of ELECTRA's generator."""
    forward = (
        config.num_layers * _paper_layer(config, sequence_length)
        + _paper_embeddings(config, sequence_length)
        + masked_fraction * _paper_masked_lm(config)
    )
    return 2 * forward


def paper_electra_training(
    discriminator: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequence_length: int,
    masked_fraction: float = PAPER_MASKED_FRACTION,
) -> float:
    """The paper's count for a token in a training step of ELECTRA."""
    return _paper_discriminator_training(discriminator, sequence_length) + paper_masked_lm_training(
        generator, sequence_length=sequence_length, masked_fraction=masked_fraction
    )


def _paper_discriminator_training(discriminator: EncoderConfig, sequence_length: int) -> float:
    forward = (
        discriminator.num_layers * _paper_layer(discriminator, sequence_length)
        + _paper_embeddings(discriminator, sequence_length)
        + _paper_discriminator_head(discriminator)
    )
    return 2 * forward


def paper_fast_electra_training(
    discriminator: EncoderConfig,
    auxiliary: EncoderConfig | None,
    *,
    sequence_length: int,
    masked_fraction: float = PAPER_MASKED_FRACTION,
) -> float:
    """ELECTRA's way of counting, for a token in a training step of Fast-ELECTRA; `auxiliary` as in ours."""
    drawing = 0.0
    if auxiliary is not None:
        # A training step is two passes there; an auxiliary model makes one.
        drawing = (
            paper_masked_lm_training(
                auxiliary, sequence_length=sequence_length, masked_fraction=masked_fraction
            )
            / 2
        )
    return _paper_discriminator_training(discriminator, sequence_length) + drawing


def coco_lm_training(
    corrector: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequence_length: int,
    masked_fraction: float,
    has_contrast: bool = True,
    generator_dropout: bool = True,
    comparison: float = 0.0,
) -> float:
    """Matmul FLOPs of a training step of COCO-LM for one token.

    The crops of the contrastive loss fill rows of the same length. With dropout in the generator its samples
    come from one forward pass more. `comparison`: what `text_comparison` counts, forward.
    """
    copy = 2 * corrector.hidden_size
    projection = corrector.hidden_size if corrector.has_projection else 0
    corrective = 2 * corrector.embedding_size * (projection + corrector.vocab_size)
    kept = (1 + has_contrast) * encoder_forward(corrector, sequence_length) + copy
    drawing = encoder_forward(generator, sequence_length) + masked_fraction * masked_lm_forward(generator)
    trained = kept + masked_fraction * corrective + drawing + comparison
    return (1 + BACKWARD) * trained + generator_dropout * drawing


def text_comparison(
    config: EncoderConfig, *, vector_size: int, texts_per_row: int, rows: int, sequence_length: int
) -> float:
    """Matmul FLOPs, forward, of COCO-LM's text vectors for one token: made, and each compared with all.

    `texts_per_row`: slots for texts, each of which has two vectors; `rows`: of a micro-batch.
    """
    vectors = 2 * texts_per_row
    made = 2 * vectors * config.hidden_size * vector_size
    compared = 2 * vectors * (rows * vectors) * vector_size
    return (made + compared) / sequence_length


def mcl_training(
    discriminator: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequence_length: int,
    masked_fraction: float,
) -> float:
    """Matmul FLOPs of a training step of MCL with all its courses, for one token of the batch.

    Three passes of each network in the first round and two in the second. The vocabulary head is counted as
    if all that is replaced were caught; for insertions it only writes.
    """
    encoders = encoder_forward(discriminator, sequence_length) + encoder_forward(generator, sequence_length)
    head = masked_fraction * masked_lm_forward(generator)
    trained = 5 * (encoders + discriminator_head_forward(discriminator)) + 4 * head
    return (1 + BACKWARD) * trained + head
