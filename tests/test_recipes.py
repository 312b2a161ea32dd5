"""Every ready-made pipeline loads, says what the paper says, and has a header that tells its cost."""

import re
import tomllib
from pathlib import Path

import pytest

from electra_cli.models.sizes import generator_config
from electra_cli.objectives.costs import training_flops
from electra_cli.project import load_project, recipe_settings
from electra_cli.project_recipes import headline, recipe_names, recipe_path, recipes_folder

NAMES = recipe_names()


def test_the_recipes_lie_beside_the_package() -> None:
    assert {"electra-tiny", "electra-small", "electra-base", "electra-large"} <= set(NAMES)
    assert recipes_folder().is_absolute()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_loads_in_place_and_by_name(name: str, tmp_path: Path) -> None:
    path = recipe_path(name)
    assert path is not None
    in_place = load_project(path, environ={}, cwd=tmp_path)
    assert in_place.root == tmp_path
    assert in_place.settings.project.name == in_place.settings.project.recipe == name
    by_name = recipe_settings(name)
    assert by_name.model_dump(exclude={"project"}) == in_place.settings.model_dump(exclude={"project"})


@pytest.mark.parametrize("name", NAMES)
def test_the_header_tells_what_how_and_at_which_cost(name: str) -> None:
    path = recipe_path(name)
    assert path is not None
    header = re.match(r"(#.*\n)+", path.read_text(encoding="utf-8"))
    assert header is not None
    entries = [line.removeprefix("#").split(maxsplit=1)[0] for line in header[0].splitlines()[1:]]
    assert [e for e in entries if e in ("paper", "command", "hardware", "time", "score")] == [
        "paper",
        "command",
        "hardware",
        "time",
        "score",
    ]
    assert f"electra init --recipe {name}" in header[0]
    assert headline(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_recipes_lists_each(name: str) -> None:
    assert f"`{name}`" in (recipes_folder() / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_recipes_gives_the_flops_that_the_ladder_counts(name: str) -> None:
    settings = recipe_settings(name)
    is_frozen = settings.objective.use == "fast_electra"
    places = settings.pretrain.steps * settings.pretrain.batch_size * settings.rows.sequence_length
    flops = places * training_flops(
        settings,
        vocabulary_size=settings.vocab.size,
        auxiliary=generator_config(settings, settings.vocab.size, 0) if is_frozen else None,
    )
    table = (recipes_folder() / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in table.splitlines() if line.startswith(f"| `{name}` |"))
    assert float(row.split(" | ")[4]) == pytest.approx(flops, rel=0.05)


@pytest.mark.parametrize(
    ("name", "size", "width", "fraction", "length", "rate", "steps", "batch"),
    [
        ("electra-small", "small", 64, 0.15, 128, 5e-4, 1_000_000, 128),
        ("electra-base", "base", 256, 0.15, 512, 2e-4, 766_000, 256),
        ("electra-large", "large", 256, 0.25, 512, 2e-4, 400_000, 2048),
    ],
)
def test_the_published_sizes_have_the_published_values(
    name: str, size: str, width: int, fraction: float, length: int, rate: float, steps: int, batch: int
) -> None:
    """Clark et al. 2020, Table 6, and the official configuration's comments for base and large."""
    settings = recipe_settings(name)
    assert (settings.model.size, settings.generator.width, settings.masking.fraction) == (
        size,
        width,
        fraction,
    )
    assert (settings.rows.sequence_length, settings.optimizer.learning_rate) == (length, rate)
    assert (settings.pretrain.steps, settings.pretrain.batch_size) == (steps, batch)
    assert settings.schedule.warmup_steps == 10_000
    assert settings.vocab.size == 30_522


MORE_KEYS = {
    "electra-small-15": ["objective.discriminator_positions"],
    "mdeberta-base": ["project.language", "corpus.source_exponent"],
}
"""What an ablation, or a recipe for many languages, is about."""


def keys_of(name: str) -> list[str]:
    path = recipe_path(name)
    assert path is not None
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    keys = [f"{table}.{key}" for table, values in content.items() for key in values]
    # The tiny one also measures and saves more often.
    return [key for key in keys if not key.endswith("_every") and key not in MORE_KEYS.get(name, [])]


@pytest.mark.parametrize("name", NAMES)
def test_the_recipes_of_a_family_differ_in_values_and_not_in_keys(name: str) -> None:
    def family(of: str) -> tuple[str, str]:
        settings = recipe_settings(of)
        return settings.objective.use, settings.model.backbone

    first = next(other for other in NAMES if family(other) == family(name))
    assert keys_of(name) == keys_of(first)
