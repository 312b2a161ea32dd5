"""DeBERTa-v2 and v3 in Hugging Face files: config.json and the names of the parameters."""

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
        "model_type": "deberta-v2",
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
        "type_vocab_size": 0,
        "initializer_range": config.init_std,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.padding_id,
        "relative_attention": True,
        "max_relative_positions": config.max_distance,
        "position_buckets": config.position_buckets,
        "position_biased_input": False,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pooler_dropout": 0,
        "pooler_hidden_act": "gelu",
        "pooler_hidden_size": config.hidden_size,
        # An ordinary masked-language-model head, which also older transformers know.
        "legacy": True,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def read_config(read: ConfigReader) -> EncoderConfig:
    """The encoder that a config.json of DeBERTa-v2 or v3 describes; InputError for other arithmetic."""
    read.only("hidden_act", "gelu")
    for key, needed in (
        ("relative_attention", True),
        ("position_biased_input", False),
        ("share_att_key", True),
        ("norm_rel_ebd", "layer_norm"),
    ):
        if read.content.get(key) != needed:
            raise read.wrong(key, read.content.get(key), repr(needed))
    read.only("type_vocab_size", 0)
    read.only("conv_kernel_size", 0, None)
    terms = read.content.get("pos_att_type")
    names = terms.split("|") if isinstance(terms, str) else terms
    if not isinstance(names, list) or sorted(map(str, names)) != ["c2p", "p2c"]:
        raise read.wrong("pos_att_type", terms, '"c2p" and "p2c"')
    hidden_size = read.whole("hidden_size")
    max_positions = read.whole("max_position_embeddings", 512)
    distance = read.content.get("max_relative_positions", -1)
    return EncoderConfig(
        vocab_size=read.whole("vocab_size"),
        num_layers=read.whole("num_hidden_layers"),
        hidden_size=hidden_size,
        feed_forward_size=read.whole("intermediate_size"),
        num_heads=read.heads(hidden_size),
        embedding_size=read.whole("embedding_size", hidden_size),
        max_positions=max_positions,
        num_segments=0,
        dropout=read.share("hidden_dropout_prob", 0.1),
        attention_dropout=read.share("attention_probs_dropout_prob", 0.1),
        layer_norm_eps=read.share("layer_norm_eps", 1e-7),
        init_std=read.share("initializer_range", 0.02),
        padding_id=read.padding_id(),
        backbone="deberta",
        position_buckets=read.whole("position_buckets"),
        # Anything below 1 stands for the length of the position table.
        max_distance=max_positions if distance in (-1, 0) else read.whole("max_relative_positions"),
    )


def body_names(config: EncoderConfig) -> tuple[Named, ...]:
    """Every parameter of `DebertaEncoder(config)`."""
    names = [Named("embeddings.word_VE", (WORD_TABLE,))]
    if config.has_projection:
        names.append(Named("projection.weight", ("embeddings.embed_proj.weight",)))
    names += weight_and_bias("embedding_norm", "embeddings.LayerNorm")
    names.append(Named("relative_RD", ("encoder.rel_embeddings.weight",)))
    names += weight_and_bias("relative_norm", "encoder.LayerNorm")
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}", f"encoder.layer.{number}"
        asking = [f"{theirs}.attention.self.{name}_proj" for name in ("query", "key", "value")]
        names += weight_and_bias(f"{ours}.qkv", *asking)
        names += behind_the_attention(ours, theirs)
    return tuple(names)


DEBERTA = Format(
    model_type="deberta-v2",
    config=config_of,
    encoder_class="DebertaV2Model",
    generator_class="DebertaV2ForMaskedLM",
    discriminator_class="",
    body_names=body_names,
    prefix="deberta.",
    body_starts=("embeddings.", "encoder."),
    buffers=("embeddings.position_ids",),
    word_table=WORD_TABLE,
    tied_table="cls.predictions.decoder.weight",
    masked_lm_head=(
        *weight_and_bias("dense", "cls.predictions.transform.dense"),
        *weight_and_bias("layer_norm", "cls.predictions.transform.LayerNorm"),
        Named("bias_V", ("cls.predictions.bias",)),
    ),
)
