"""config.json of Hugging Face: from our `EncoderConfig`, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra_cli.errors import InputError
from electra_cli.models.sizes import EncoderConfig

Kind = Literal["electra", "bert"]

LARGEST = 1 << 26
"""No size in a config.json is larger; keeps products of two within what a tensor can have."""


def electra_config(config: EncoderConfig, architecture: str) -> dict[str, object]:
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


@dataclass(frozen=True)
class _Reader:
    """Takes single values out of a config.json and names the key that is wrong."""

    content: Mapping[str, object]
    path: Path

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise self.wrong(key, value, f"a whole number from {least} to {LARGEST}")
        return value

    def share(self, key: str, default: float) -> float:
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.wrong(key, value, "a number in [0, 1)")
        return float(value)

    def only(self, key: str, *allowed: object) -> None:
        value = self.content.get(key, allowed[0])
        if value not in allowed:
            raise self.wrong(key, value, " or ".join(map(repr, allowed)))

    def wrong(self, key: str, value: object, needed: str) -> InputError:
        return InputError(f"{self.path}: {key} = {value!r}; needs {needed}", path=self.path, key=key)


def kind_of(content: Mapping[str, object], path: Path) -> Kind:
    """The family of a model folder; `InputError` for one whose arithmetic is another."""
    model_type = content.get("model_type")
    if model_type == "electra":
        return "electra"
    if model_type == "bert":
        return "bert"
    raise InputError(
        f"{path}: model_type = {model_type!r}; ELECTRA and BERT models can be read",
        path=path,
        key="model_type",
    )


def encoder_config(content: Mapping[str, object], path: Path) -> EncoderConfig:
    """The encoder that a config.json of ELECTRA or BERT describes, defaults as in transformers."""
    kind = kind_of(content, path)
    read = _Reader(content, path)
    read.only("hidden_act", "gelu")
    read.only("position_embedding_type", "absolute", None)
    read.only("is_decoder", False, None)
    read.only("add_cross_attention", False, None)
    hidden_size, num_heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    if hidden_size % num_heads:
        raise read.wrong("num_attention_heads", num_heads, f"a divisor of hidden_size = {hidden_size}")
    padding_id = 0 if content.get("pad_token_id") is None else read.whole("pad_token_id", least=0)
    return EncoderConfig(
        vocab_size=read.whole("vocab_size"),
        num_layers=read.whole("num_hidden_layers"),
        hidden_size=hidden_size,
        feed_forward_size=read.whole("intermediate_size"),
        num_heads=num_heads,
        embedding_size=hidden_size if kind == "bert" else read.whole("embedding_size", 128),
        max_positions=read.whole("max_position_embeddings"),
        num_segments=read.whole("type_vocab_size", 2),
        dropout=read.share("hidden_dropout_prob", 0.1),
        attention_dropout=read.share("attention_probs_dropout_prob", 0.1),
        layer_norm_eps=read.share("layer_norm_eps", 1e-12),
        init_std=read.share("initializer_range", 0.02),
        padding_id=padding_id,
    )
