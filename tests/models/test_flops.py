"""Counts of floating-point operations: ours by hand and by torch's counter, the paper's by its figures."""

from dataclasses import replace

import pytest
import torch
from small_networks import BASE, CONFIGS, make_networks, one_piece_rows
from torch.utils.flop_counter import FlopCounterMode

from electra_cli.models.flops import (
    coco_lm_training,
    deberta_v3_training,
    discriminator_head_forward,
    electra_training,
    encoder_forward,
    fast_electra_training,
    masked_lm_forward,
    masked_lm_training,
    mcl_training,
    paper_electra_training,
    paper_fast_electra_training,
    paper_masked_lm_training,
    replace_mlm_training,
)
from electra_cli.models.sizes import SIZES, EncoderConfig


def published(width: int, layers: int, embedding: int) -> EncoderConfig:
    return replace(
        BASE,
        vocab_size=30_522,
        num_layers=layers,
        hidden_size=width,
        feed_forward_size=4 * width,
        num_heads=max(1, width // 64),
        embedding_size=embedding,
    )


SMALL = published(256, 12, 128), published(64, 12, 128)
BASE_PAIR = published(768, 12, 768), published(256, 12, 768)
LARGE = published(1024, 24, 1024), published(256, 24, 1024)


@pytest.mark.parametrize(
    ("pair", "length", "rows", "figure"),
    [
        (SMALL, 128, 128 * 1_000_000, "1.29e+18"),
        (BASE_PAIR, 512, 256 * 766_000, "6.42e+19"),
        (LARGE, 512, 2048 * 400_000, "7.12e+20"),
        (LARGE, 512, 2048 * 1_750_000, "3.11e+21"),
    ],
)
def test_the_papers_count_gives_the_papers_figures(pair, length, rows, figure):
    total = paper_electra_training(*pair, sequence_length=length) * length * rows
    assert f"{total:.2e}" == figure


def test_the_papers_count_of_bert_base():
    total = paper_masked_lm_training(BASE_PAIR[0], sequence_length=512) * 512 * 256 * 1_000_000
    assert f"{total:.2e}" == "6.43e+19"


@pytest.mark.parametrize(
    ("pair", "length", "share"), [(SMALL, 128, 0.272), (BASE_PAIR, 512, 0.253), (LARGE, 512, 0.147)]
)
def test_the_generators_share_of_a_step_in_the_papers_count(pair, length, share):
    generator = paper_masked_lm_training(pair[1], sequence_length=length)
    assert generator / paper_electra_training(*pair, sequence_length=length) == pytest.approx(share, abs=5e-4)


def test_a_token_of_electra_small_costs_about_70_million():
    cost = electra_training(*SMALL, sequence_length=128, masked_fraction=0.15)
    assert cost == pytest.approx(70e6, rel=0.01)
    row = SIZES["small"]
    assert (row.hidden_size, row.num_layers, row.embedding_size) == (256, 12, 128)


@pytest.mark.parametrize("name", CONFIGS)
def test_our_count_equals_the_products_that_torch_runs(name):
    config = CONFIGS[name]
    networks = make_networks(config)
    batch = one_piece_rows([8, 8], 8)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        hidden_BSD = networks.encoder(*batch.all())
        encoder = counter.get_total_flops()
        networks.discriminator_head(hidden_BSD)
        discriminator = counter.get_total_flops() - encoder
        networks.masked_lm_head(hidden_BSD.flatten(0, 1)[:3], networks.encoder.embeddings.word_VE)
        masked_lm = counter.get_total_flops() - encoder - discriminator
    assert encoder == 16 * encoder_forward(config, 8)
    assert discriminator == 16 * discriminator_head_forward(config)
    assert masked_lm == 3 * masked_lm_forward(config)


BASE_SAME_WIDTH = published(768, 12, 768), published(768, 4, 768)


@pytest.mark.parametrize(
    ("pair", "length", "online", "cached"),
    [(SMALL, 128, 0.136, 0.272), (BASE_SAME_WIDTH, 512, 0.166, 0.332)],
)
def test_fast_electra_saves_the_backward_pass_or_all_of_the_generator(pair, length, online, cached):
    """In the paper's count, where the generator's share of a step is what can be saved at most."""
    joint = paper_electra_training(*pair, sequence_length=length)
    for auxiliary, saved in ((pair[1], online), (None, cached)):
        cost = paper_fast_electra_training(pair[0], auxiliary, sequence_length=length)
        assert 1 - cost / joint == pytest.approx(saved, abs=5e-4)


def test_the_costs_of_all_baselines_at_the_size_small():
    """Millions for a token, as docs/baselines.md has them; the sums by hand from the parts counted above."""
    sizes = {"sequence_length": 128, "masked_fraction": 0.15}
    main, generator = SMALL
    body, small_body = encoder_forward(main, 128), encoder_forward(generator, 128)
    head, small_head = masked_lm_forward(main), masked_lm_forward(generator)
    detection = discriminator_head_forward(main)
    filling = small_body + 0.15 * small_head
    costs = {
        masked_lm_training(main, **sizes): (3 * (body + 0.15 * head), 65.1),
        electra_training(main, generator, **sizes): (3 * (body + detection + filling), 70.2),
        replace_mlm_training(main, generator, restores_all=False, **sizes): (
            3 * (body + 0.15 * head + filling),
            73.4,
        ),
        replace_mlm_training(main, generator, restores_all=True, **sizes): (
            3 * (body + head + detection + filling),
            93.9,
        ),
        fast_electra_training(main, generator, **sizes): (3 * (body + detection) + filling, 64.7),
        fast_electra_training(main, None, **sizes): (3 * (body + detection), 61.9),
    }
    for found, (by_hand, millions) in costs.items():
        assert found == pytest.approx(by_hand, rel=1e-12)
        assert found / 1e6 == pytest.approx(millions, abs=0.05)


def test_deberta_counts_two_more_products_over_twice_the_distances_and_the_decoder_a_layer():
    plain = published(64, 4, 64)
    deberta = replace(plain, backbone="deberta")
    more = encoder_forward(deberta, 10) - encoder_forward(plain, 10)
    assert more == 4 * 2 * (2 * 2 * 10) * 64
    options = {"sequence_length": 10, "masked_fraction": 0.15}
    layer = encoder_forward(deberta, 10) // 4
    difference = deberta_v3_training(deberta, deberta, **options) - electra_training(
        deberta, deberta, **options
    )
    assert difference == 3 * layer


def test_coco_lm_and_mcl_cost_a_known_multiple_of_electra():
    """Each is ELECTRA's step and what comes on top of it, counted by hand."""
    discriminator, generator = SMALL
    settings = {"sequence_length": 128, "masked_fraction": 0.15}
    electra = electra_training(discriminator, generator, **settings)
    head = 2 * 256 * 257
    # Without crops and the second drawing: a copy head of one column in place of ELECTRA's head, and a
    # second product with the vocabulary, which the linear layer 256 -> 128 comes before.
    plain = coco_lm_training(
        discriminator, generator, **settings, has_contrast=False, generator_dropout=False
    )
    assert plain == pytest.approx(electra - 3 * (head - 2 * 256) + 3 * 0.15 * 2 * 128 * (256 + 30_522))
    drawing = encoder_forward(generator, 128) + 0.15 * masked_lm_forward(generator)
    whole = coco_lm_training(discriminator, generator, **settings)
    assert whole == pytest.approx(plain + 3 * encoder_forward(discriminator, 128) + drawing)
    # Five rounds of both networks; four vocabulary heads are trained and one only writes.
    less = 2 * 0.15 * masked_lm_forward(generator)
    assert mcl_training(discriminator, generator, **settings) == pytest.approx(5 * electra - less)
