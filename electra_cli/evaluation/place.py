"""Where the data of tasks are looked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where to look for data, and how strict to be with it."""

    folder: Path
    """Holds a folder a task, or is the folder of one."""
    is_offline: bool = False
    skip_bad: bool = False
    limit: int = 0
    """Examples read of each split, from its start; 0: all."""
