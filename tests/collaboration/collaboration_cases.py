"""Rows, an encoder's recorded answers and settings for collaborations in the size of a test."""

import json
from pathlib import Path

from electra_cli.pipeline_collaborate_plan import CollaborateRequest
from electra_cli.project import Project, project_from_settings
from electra_cli.settings import ProjectSettings
from electra_cli.settings_collaborate import Collaborate

CLASSES = ("negative", "neutral", "positive")
SENTENCES = {
    "negative": ("The soup was cold.", "We waited an hour for nothing.", "Never again.", "A rude waiter."),
    "neutral": ("It opens at nine.", "We sat by the window.", "There are two floors.", "The menu is long."),
    "positive": ("The bread is wonderful.", "We loved it.", "Best tea in town.", "A kind waiter."),
}


def write_rows(folder: Path, count: int = 12, name: str = "rows.csv") -> Path:
    """`count` labelled rows with sources; the texts repeat with a running number."""
    lines = ["sentence,label,source"]
    for number in range(count):
        label = CLASSES[number % 3]
        text = SENTENCES[label][number // 3 % 4] + (f" ({number})" if number >= 12 else "")
        lines.append(f'"{text}",{label},{"diner" if number % 2 else "cafe"}')
    return write(folder / name, "\n".join(lines) + "\n")


def write_encoder(folder: Path, count: int = 12, name: str = "encoder.csv") -> Path:
    """Probabilities: right with .9 for two rows of three, wrong with .5 for the third."""
    lines = ["row,p"]
    for number in range(count):
        gold = number % 3
        is_sure = number % 4 != 3
        label = gold if is_sure else (gold + 1) % 3
        top = 0.9 - number / 1000 if is_sure else 0.5 + number / 1000
        shares = [(1 - top) / 2] * 3
        shares[label] = top
        lines.append(f"{number}," + " ".join(f"{share:.6f}" for share in shares))
    return write(folder / name, "\n".join(lines) + "\n")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def make_project(root: Path, base_url: str, **values: object) -> Project:
    """A project that asks `base_url` quickly."""
    quick: dict[str, object] = {
        "base_url": base_url,
        "model": "stub",
        "backoff_seconds": 0.0,
        "timeout_seconds": 5.0,
        "resamples": 50,
        "strategies": ["alone"],
    }
    return project_from_settings(
        ProjectSettings(collaborate=Collaborate.model_validate(quick | values)), root
    )


def request(folder: Path, **values: object) -> CollaborateRequest:
    """Of the files that `write_rows` and `write_encoder` left in `folder`."""
    usual: dict[str, object] = {
        "data": folder / "rows.csv",
        "encoder": f"{folder / 'encoder.csv'}:p",
        "out": folder / "out",
    }
    return CollaborateRequest(**(usual | values))  # type: ignore[arg-type]


def read_results(folder: Path) -> dict[str, object]:
    """results.json, refusing what is no strict JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    content = json.loads((folder / "results.json").read_text("utf-8"), parse_constant=refuse)
    assert isinstance(content, dict)
    return content
