"""How long work tells what it is doing; the library reports, `commands/_screen.py` draws."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

Figure = str | int | float | bool | None


def counted(number: int, noun: str) -> str:
    """A number with the noun that it counts: `1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Progress(ABC):
    """Receives what a stage does. Implementations must be cheap: callers report often."""

    @abstractmethod
    def begin(self, task: str, total: int | None = None, unit: str = "") -> None:
        """A task of `total` units (`None`: unknown) starts; an unfinished earlier one ends."""

    @abstractmethod
    def advance(self, amount: int = 1, *, note: str = "") -> None:
        """`amount` units of the current task are done; `note` replaces the text behind the bar."""

    @abstractmethod
    def end(self) -> None:
        """The current task is complete."""

    @abstractmethod
    def message(self, text: str) -> None:
        """A line for the person: a fact worth reading."""

    @abstractmethod
    def warning(self, text: str, *, code: str = "") -> None:
        """A line for the person: something that is probably not meant. `code` is its short constant name."""

    @abstractmethod
    def figures(self, kind: str, values: Mapping[str, object]) -> None:
        """A record of named figures, such as a line of metrics.jsonl; `kind` says which table it is for."""


class Silent(Progress):
    """Draws nothing."""

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None: ...

    def advance(self, amount: int = 1, *, note: str = "") -> None: ...

    def end(self) -> None: ...

    def message(self, text: str) -> None: ...

    def warning(self, text: str, *, code: str = "") -> None: ...

    def figures(self, kind: str, values: Mapping[str, object]) -> None: ...
