"""ModernBERT in Hugging Face files: config.json and the names of the parameters."""

from collections.abc import Mapping

from electra_cli.models.folder_format import ConfigReader, Format, Named
from electra_cli.models.sizes import EncoderConfig

WORD_TABLE = "embeddings.tok_embeddings.weight"
GLOBAL, LOCAL = "full_attention", "sliding_attention"
SPECIAL_IDS = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id")
"""Its own defaults lie beyond most vocabularies; the export knows the right ones."""


def config_of(config: EncoderConfig, architecture: str) -> dict[str, object]:
    """What transformers needs to build `architecture`.

    The attention pattern stands there under its older keys, which every version reads (4.x knows no other).
    """
    labels: dict[str, object] = {}
    if architecture.endswith("ForTokenClassification"):
        labels = {"id2label": {"0": "replaced"}, "label2id": {"replaced": 0}}
    return {
        "architectures": [architecture],
        "model_type": "modernbert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.feed_forward_size,
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "max_position_embeddings": config.max_positions,
        "global_attn_every_n_layers": config.global_every,
        "local_attention": config.local_window,
        "global_rope_theta": config.global_theta,
        "local_rope_theta": config.local_theta,
        "embedding_dropout": config.dropout,
        "mlp_dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "classifier_dropout": config.dropout,
        "initializer_range": config.init_std,
        "norm_eps": config.layer_norm_eps,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "pad_token_id": config.padding_id,
        **dict.fromkeys(SPECIAL_IDS),
        **labels,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def read_config(read: ConfigReader) -> EncoderConfig:
    """The encoder that a config.json of ModernBERT describes; InputError for other arithmetic."""
    read.only("hidden_activation", "gelu")
    read.only("classifier_activation", "gelu")
    for key in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        read.only(key, False)
    hidden_size, num_layers = read.whole("hidden_size"), read.whole("num_hidden_layers")
    return EncoderConfig(
        vocab_size=read.whole("vocab_size"),
        num_layers=num_layers,
        hidden_size=hidden_size,
        feed_forward_size=read.whole("intermediate_size"),
        num_heads=read.heads(hidden_size),
        embedding_size=hidden_size,
        max_positions=read.whole("max_position_embeddings", 8192),
        num_segments=0,
        dropout=read.share("mlp_dropout", 0.0),
        attention_dropout=read.share("attention_dropout", 0.0),
        layer_norm_eps=read.share("norm_eps", 1e-5),
        init_std=read.share("initializer_range", 0.02),
        padding_id=read.padding_id(),
        backbone="modern",
        local_window=read.whole("local_attention", 128, least=2),
        global_every=_period(read, num_layers),
        global_theta=_theta(read, GLOBAL, "global_rope_theta", 160_000.0),
        local_theta=_theta(read, LOCAL, "local_rope_theta", 10_000.0),
    )


def _period(read: ConfigReader, num_layers: int) -> int:
    """Every how many layers attention is global, from the older key or from the list of layers."""
    kinds = read.content.get("layer_types")
    if kinds is None:
        return read.whole("global_attn_every_n_layers", 3)
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise read.wrong("layer_types", kinds, f"a kind for each of the {num_layers} layers")
    period = kinds.index(GLOBAL, 1) if GLOBAL in kinds[1:] else max(1, num_layers)
    if kinds != [LOCAL if number % period else GLOBAL for number in range(num_layers)]:
        raise read.wrong("layer_types", kinds, f"{GLOBAL} in the first layer and then at one distance")
    return period


def _theta(read: ConfigReader, kind: str, older_key: str, default: float) -> float:
    """The base of the rotary angles of one kind of layers; scaled rotary positions are refused."""
    value, key = read.content.get(older_key, default), older_key
    parameters = read.content.get("rope_parameters")
    if isinstance(parameters, Mapping):
        key = f"rope_parameters.{kind}"
        entry = parameters.get(kind)
        if not isinstance(entry, Mapping) or entry.get("rope_type", "default") != "default":
            raise read.wrong(key, entry, 'rope_type = "default" and a rope_theta')
        value = entry.get("rope_theta", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 1e12:
        raise read.wrong(key, value, "a number from 1 to 1e12")
    return float(value)


def body_names(config: EncoderConfig) -> tuple[Named, ...]:
    """Every parameter of `ModernEncoder(config)`; words and projection are one table in a file."""
    names = [
        Named("embeddings.word_VE", (WORD_TABLE,)),
        Named("embedding_norm.weight", ("embeddings.norm.weight",)),
        Named("final_norm.weight", ("final_norm.weight",)),
    ]
    for number in range(config.num_layers):
        parts = {
            "qkv": "attn.Wqkv",
            "attention_output": "attn.Wo",
            "feed_forward_norm": "mlp_norm",
            "feed_forward_inner": "mlp.Wi",
            "feed_forward_output": "mlp.Wo",
        }
        if number:
            parts["attention_norm"] = "attn_norm"
        names += [
            Named(f"layers.{number}.{ours}.weight", (f"layers.{number}.{theirs}.weight",))
            for ours, theirs in parts.items()
        ]
    return tuple(names)


MODERN = Format(
    model_type="modernbert",
    config=config_of,
    encoder_class="ModernBertModel",
    generator_class="ModernBertForMaskedLM",
    discriminator_class="ModernBertForTokenClassification",
    body_names=body_names,
    prefix="model.",
    body_starts=("embeddings.", "layers.", "final_norm."),
    word_table=WORD_TABLE,
    tied_table="decoder.weight",
    masked_lm_head=(
        Named("dense.weight", ("head.dense.weight",)),
        Named("layer_norm.weight", ("head.norm.weight",)),
        Named("bias_V", ("decoder.bias",)),
    ),
    discriminator_head=(
        Named("dense.weight", ("head.dense.weight",)),
        Named("layer_norm.weight", ("head.norm.weight",)),
        Named("prediction.weight", ("classifier.weight",)),
        Named("prediction.bias", ("classifier.bias",)),
    ),
)
