"""The size table and what a project file makes of it."""

from dataclasses import replace

import pytest
import torch

from electra_cli.errors import ProjectError
from electra_cli.models.encoder import Encoder, num_parameters
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.sizes import SIZES, discriminator_config, generator_config
from electra_cli.settings import Generator, Model, ProjectSettings, Rows


def settings(**model: object) -> ProjectSettings:
    return ProjectSettings(model=Model.model_validate(model))


@pytest.mark.parametrize("name", SIZES)
def test_every_size_fits(name):
    config = discriminator_config(settings(size=name), 1000, 0)
    assert config.hidden_size % config.num_heads == 0
    assert config.max_positions == 512


def test_electra_small_has_the_papers_shapes_and_size():
    discriminator = discriminator_config(ProjectSettings(), 30_522, 0)
    generator = generator_config(ProjectSettings(), 30_522, 0)
    assert (generator.num_layers, generator.hidden_size, generator.num_heads) == (12, 64, 1)
    assert (generator.feed_forward_size, generator.embedding_size) == (256, 128)
    with torch.device("meta"):
        encoder = Encoder(discriminator)
        # By hand: tables 3,972,608 and their LayerNorm 256, projection 33,024, twelve layers of 789,760,
        # head 66,049. The paper says 14M.
        assert num_parameters(encoder, DiscriminatorHead(discriminator)) == 13_549_057
        shared = Encoder(generator, encoder.embeddings)
        both = num_parameters(encoder, shared, MaskedLMHead(generator))
        assert both < num_parameters(encoder) + 750_000


def test_base_generator_has_a_projection_that_its_discriminator_has_not():
    project = settings(size="base").model_copy(update={"generator": Generator(width=256)})
    discriminator, generator = discriminator_config(project, 99, 0), generator_config(project, 99, 0)
    assert not discriminator.has_projection
    assert generator.has_projection
    assert (generator.embedding_size, generator.num_heads) == (768, 4)


def test_overrides_replace_single_values():
    config = discriminator_config(settings(size="toy", num_layers=3, embedding_size=8), 99, 0)
    assert (config.num_layers, config.hidden_size, config.embedding_size) == (3, 32, 8)


def test_position_table_grows_with_the_rows():
    project = ProjectSettings(rows=Rows(sequence_length=700))
    assert discriminator_config(project, 99, 0).max_positions == 700


def test_depth_fraction_rounds_and_leaves_a_layer():
    project = settings(size="toy").model_copy(update={"generator": Generator(width=16, depth_fraction=0.1)})
    assert generator_config(project, 99, 0).num_layers == 1


def test_heads_that_do_not_divide_the_width_are_refused_by_name():
    with pytest.raises(ProjectError, match=r"hidden_size = 32 .*num_heads = 5") as caught:
        discriminator_config(settings(size="toy", num_heads=5), 99, 0)
    assert caught.value.key == "model.num_heads"
    assert "4 heads" in caught.value.hint


def test_a_generator_width_that_its_heads_do_not_divide_is_refused_by_name():
    project = ProjectSettings(generator=Generator(width=200))
    with pytest.raises(ProjectError, match=r"generator\.width = 200") as caught:
        generator_config(project, 99, 0)
    assert "192" in caught.value.hint


def test_deberta_has_sizes_of_its_own_and_a_generator_as_wide_and_half_as_deep():
    project = settings(backbone="deberta", size="xsmall").model_copy(
        update={"generator": Generator(width=0, depth_fraction=0.5)}
    )
    discriminator, generator = discriminator_config(project, 99, 0), generator_config(project, 99, 0)
    assert (discriminator.num_layers, discriminator.hidden_size, discriminator.num_heads) == (12, 384, 6)
    assert (discriminator.num_segments, discriminator.has_projection) == (0, False)
    assert generator == replace(discriminator, num_layers=6)
