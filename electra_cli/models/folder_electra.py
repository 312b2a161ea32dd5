"""ELECTRA and BERT in Hugging Face files: config.json and the names of the parameters."""

from electra_cli.models.folder_format import (
    ConfigReader,
    Format,
    Named,
    behind_the_attention,
    weight_and_bias,
)
from electra_cli.models.sizes import EncoderConfig

WORD_TABLE = "embeddings.word_embeddings.weight"


def config_of(config: EncoderConfig, architecture: str) -> dict[str, object]:
    """What transformers needs to build `architecture` (5.x and 4.x: `dtype` and `torch_dtype`)."""
    return {
        "architectures": [architecture],
        "model_type": "electra",
        "vocab_size": config.vocab_size,
        "embedding_size": config.embedding_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.feed_forward_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.num_segments,
        "initializer_range": config.init_std,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.padding_id,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        "summary_last_dropout": 0.1,
        "classifier_dropout": None,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def read_config(read: ConfigReader) -> EncoderConfig:
    """The encoder that a config.json of ELECTRA or BERT describes, defaults as in transformers."""
    read.only("hidden_act", "gelu")
    read.only("position_embedding_type", "absolute", None)
    read.only("is_decoder", False, None)
    read.only("add_cross_attention", False, None)
    hidden_size = read.whole("hidden_size")
    is_bert = read.content.get("model_type") == "bert"
    return EncoderConfig(
        vocab_size=read.whole("vocab_size"),
        num_layers=read.whole("num_hidden_layers"),
        hidden_size=hidden_size,
        feed_forward_size=read.whole("intermediate_size"),
        num_heads=read.heads(hidden_size),
        embedding_size=hidden_size if is_bert else read.whole("embedding_size", 128),
        max_positions=read.whole("max_position_embeddings"),
        num_segments=read.whole("type_vocab_size", 2),
        dropout=read.share("hidden_dropout_prob", 0.1),
        attention_dropout=read.share("attention_probs_dropout_prob", 0.1),
        layer_norm_eps=read.share("layer_norm_eps", 1e-12),
        init_std=read.share("initializer_range", 0.02),
        padding_id=read.padding_id(),
    )


def body_names(config: EncoderConfig) -> tuple[Named, ...]:
    """Every parameter of `Encoder(config)`."""
    names = [
        Named("embeddings.word_VE", (WORD_TABLE,)),
        Named("embeddings.positions.weight", ("embeddings.position_embeddings.weight",)),
        Named("embeddings.segments.weight", ("embeddings.token_type_embeddings.weight",)),
        *weight_and_bias("embeddings.layer_norm", "embeddings.LayerNorm"),
    ]
    if config.has_projection:
        names += weight_and_bias("projection", "embeddings_project")
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}", f"encoder.layer.{number}"
        attention = f"{theirs}.attention.self"
        names += weight_and_bias(
            f"{ours}.qkv", f"{attention}.query", f"{attention}.key", f"{attention}.value"
        )
        names += behind_the_attention(ours, theirs)
    return tuple(names)


ELECTRA = Format(
    model_type="electra",
    config=config_of,
    encoder_class="ElectraModel",
    generator_class="ElectraForMaskedLM",
    discriminator_class="ElectraForPreTraining",
    body_names=body_names,
    prefix="electra.",
    other_prefixes=("discriminator.", "discriminator.electra.", "bert."),
    body_starts=("embeddings.", "embeddings_project.", "encoder."),
    buffers=("embeddings.position_ids", "embeddings.token_type_ids"),
    word_table=WORD_TABLE,
    tied_table="generator_lm_head.weight",
    masked_lm_head=(
        *weight_and_bias("dense", "generator_predictions.dense"),
        *weight_and_bias("layer_norm", "generator_predictions.LayerNorm"),
        Named("bias_V", ("generator_lm_head.bias",)),
    ),
    discriminator_head=(
        *weight_and_bias("dense", "discriminator_predictions.dense"),
        *weight_and_bias("prediction", "discriminator_predictions.dense_prediction"),
    ),
)
