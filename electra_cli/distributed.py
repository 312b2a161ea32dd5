"""Which part of a run this process does. Torch is imported only where a group exists."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """This process's place among the processes of one run."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes what is written once: logs, checkpoints, screens."""
        return self.rank == 0


def from_environment() -> Ranks:
    """The place that torchrun's environment variables name; alone without them."""
    return Ranks(
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
    )
