"""The ready-made pipelines: beside the package in a wheel, at the repository root in a checkout."""

from pathlib import Path

from electra_cli.project_suggestions import distance, nearest

_PACKAGE = Path(__file__).resolve().parent


def recipes_folder() -> Path:
    """The folder of the ready-made project files; never one in the working directory."""
    inside = _PACKAGE / "_pipelines"
    return inside if inside.is_dir() else _PACKAGE.parent / "pipelines"


def recipe_names() -> tuple[str, ...]:
    """Names of all ready-made pipelines, sorted."""
    return tuple(sorted(path.stem for path in recipes_folder().glob("*.toml")))


def recipe_path(name: str) -> Path | None:
    """The file of a ready-made pipeline; `None` when there is none of that name."""
    return recipes_folder() / f"{name}.toml" if name in recipe_names() else None


def is_recipe_file(path: Path) -> bool:
    """Whether `path` is a ready-made pipeline, whose relative paths start at the working directory."""
    return path.absolute().parent.name == "pipelines" or path.resolve().parent == recipes_folder()


def nearest_recipes(name: str) -> tuple[str, ...]:
    """The recipes that a wrong name may mean, the best first."""
    names = recipe_names()
    near = nearest(name, names)
    if near:
        return near
    begun = [other for other in names if distance(name.lower(), other[: len(name)]) <= 2]
    return tuple(sorted(begun, key=lambda other: (not other.endswith("-small"), other)))[:1]


def headline(name: str) -> str:
    """What a recipe is, in the words of its first comment line."""
    path = recipe_path(name)
    first = path.read_text("utf-8").partition("\n")[0] if path is not None else ""
    return first.removeprefix("#").strip().removeprefix(f"{name}:").strip()
