"""`model.backbone`, chosen in one place: one visible table, and what is built from it."""

from collections.abc import Callable

from electra_cli.models.backbone import Backbone
from electra_cli.models.deberta import DebertaEncoder
from electra_cli.models.embeddings import Embeddings, TokenEmbeddings, WordEmbeddings
from electra_cli.models.encoder import Encoder
from electra_cli.models.modern import ModernEncoder
from electra_cli.models.sizes import EncoderConfig
from electra_cli.settings import BackboneName

ENCODERS: dict[BackboneName, Callable[[EncoderConfig, TokenEmbeddings | None], Backbone]] = {
    "electra": Encoder,
    "deberta": DebertaEncoder,
    "modern": ModernEncoder,
}
EMBEDDINGS: dict[BackboneName, Callable[[EncoderConfig], TokenEmbeddings]] = {
    "electra": Embeddings,
    "deberta": WordEmbeddings,
    "modern": WordEmbeddings,
}


def build_encoder(config: EncoderConfig, embeddings: TokenEmbeddings | None = None) -> Backbone:
    """The encoder that `config` describes, with `embeddings` in place of tables of its own."""
    return ENCODERS[config.backbone](config, embeddings)


def build_embeddings(config: EncoderConfig) -> TokenEmbeddings:
    """The tables alone of the encoder that `config` describes."""
    return EMBEDDINGS[config.backbone](config)
