"""Whether a manifest still fits the project: its settings, and the list of its input files."""

from collections.abc import Iterator, Mapping

from electra_cli.errors import InputError
from electra_cli.project import Project
from electra_cli.settings import Settings


def setting_differences(
    manifest: Mapping[str, object], table: str, settings: Settings
) -> Iterator[tuple[str, object, object]]:
    """Key, recorded value and present value of what differs; what was not recorded does not matter."""
    recorded = manifest.get("settings")
    if not isinstance(recorded, dict):
        return
    inside = recorded.get(table, recorded)
    now = settings.model_dump(mode="json")
    for name, old in inside.items() if isinstance(inside, dict) else ():
        if name in now and now[name] != old:
            yield f"{table}.{name}", old, now[name]


def input_change(project: Project, manifest: Mapping[str, object]) -> str:
    """How the corpus differs from a manifest's inputs, by names and sizes; empty where it does not.

    Contents are hashed by the build itself. A corpus that is not there cannot be compared.
    """
    from electra_cli.data.corpus import list_files

    inputs = manifest.get("inputs")
    if not isinstance(inputs, list):
        return ""
    old = {str(entry.get("path")): entry.get("bytes") for entry in inputs if isinstance(entry, dict)}
    try:
        listing = list_files(project.settings.corpus, project.root)
    except InputError:
        return ""
    new = {file.name.encode("utf-8", "backslashreplace").decode(): file.num_bytes for file in listing.files}
    if old == new:
        return ""
    for name in new:
        if name not in old:
            return f"{name} is not in it"
    for name in old:
        if name not in new:
            return f"{name} is gone"
    return f"{next(name for name in new if new[name] != old[name])} changed"
