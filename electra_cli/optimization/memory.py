"""An allocation that failed, told as what it is: work that does not fit into the memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from electra_cli.errors import MemoryShortError


@contextmanager
def naming_memory_shortage(what: str, *, key: str, hint: str) -> Iterator[None]:
    """Raise MemoryShortError, which names the setting to change, where the block runs out of memory.

    torch has a class for a full GPU; a full machine is a plain RuntimeError of its allocator.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        is_short = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
            "can't allocate memory" in str(error) or "not enough memory" in str(error)
        )
        if not is_short:
            raise
        reason = (str(error).splitlines() or ["no memory left"])[0]
        raise MemoryShortError(f"out of memory at {what}: {reason}", key=key, hint=hint) from error
