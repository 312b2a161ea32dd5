"""Small networks and inputs that the tests of this folder share."""

# B batch, S sequence

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from electra_cli.models.encoder import Encoder
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import EncoderConfig

BASE = EncoderConfig(
    vocab_size=97,
    num_layers=2,
    hidden_size=32,
    feed_forward_size=48,
    num_heads=4,
    embedding_size=32,
    max_positions=40,
    dropout=0.0,
    attention_dropout=0.0,
)
CONFIGS = {
    "no projection": BASE,
    "embedding 8 < hidden 32": replace(BASE, embedding_size=8),
    "embedding 32 > hidden 16": replace(BASE, hidden_size=16, num_heads=2, feed_forward_size=64),
    "one head, three layers": replace(BASE, num_heads=1, num_layers=3, embedding_size=20),
}


class Networks(nn.Module):
    """An encoder with both heads."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.discriminator_head = DiscriminatorHead(config)
        self.masked_lm_head = MaskedLMHead(config)


def make_networks(config: EncoderConfig, *, seed: int = 0, std: float = 0.2) -> Networks:
    """Initialised with weights large enough for attention and LayerNorm to matter; no bias is 0."""
    networks = Networks(config)
    initialise(networks, seed=seed, std=std)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in networks.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return networks.eval()


@dataclass(frozen=True)
class Input:
    """What an encoder reads."""

    token_ids_BS: Tensor
    piece_BS: Tensor
    position_BS: Tensor
    segment_BS: Tensor

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """In the order of the encoder's arguments."""
        return self.token_ids_BS, self.piece_BS, self.position_BS, self.segment_BS


def one_piece_rows(lengths: list[int], width: int, *, vocab_size: int = 97, seed: int = 0) -> Input:
    """A piece of each length at the start of its row, padding behind."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), width)
    is_real_BS = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    token_ids_BS = torch.randint(5, vocab_size, shape, generator=generator) * is_real_BS
    position_BS = torch.arange(width).expand(shape) * is_real_BS
    segment_BS = torch.randint(0, 2, shape, generator=generator) * is_real_BS
    return Input(token_ids_BS, is_real_BS.int(), position_BS, segment_BS)
