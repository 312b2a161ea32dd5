"""Real text that every installation already has: the documentation inside installed Python packages.

The quickstart pre-trains on it and then asks of other paragraphs whether their words stand in order. Modules
are split once, by a hash of their name: what the task's development part is made of is in no training text.
"""

import hashlib
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from electra_cli import durable
from electra_cli.errors import InputError

PACKAGES = ("python", "numpy", "pandas", "networkx", "sympy", "torch")
"""Where the text comes from; "python" is the standard library. All are installed with electra-cli."""

_MIN_PARAGRAPH_CHARS, _MAX_TASK_CHARS = 60, 400
_PROSE_SHARE = 0.9
_TRIPLE_QUOTED = re.compile(r'"""(.*?)"""', re.DOTALL)
_NO_PROSE = re.compile(r"^\s*(\.\.|:|>>>|\||=|\+[-=])|^\s*\w+ *: |---|===|>>>|\\", re.MULTILINE | re.ASCII)


@dataclass(frozen=True)
class InstalledDocs:
    """What was written, for the person who watches."""

    num_bytes: int
    """Size of the training text."""
    num_train: int
    num_dev: int


def package_folder(package: str) -> Path:
    """The folder of an installed package's sources; raises InputError where it is not installed."""
    if package == "python":
        return Path(sysconfig.get_paths()["stdlib"])
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"the package {package} is not installed", hint="install electra-cli with its packages"
        )
    return Path(spec.submodule_search_locations[0])


def paragraphs(source: str) -> Iterator[str]:
    """The prose paragraphs of a module's triple-quoted texts, each on one line; no code, tables or fields.

    Nearly all of these are docstrings; a pattern finds them thirty times faster than a parser would.
    """
    for match in _TRIPLE_QUOTED.finditer(source):
        for block in re.split(r"\n\s*\n", match.group(1)):
            if _is_prose(block):
                yield " ".join(block.split())


def _is_prose(block: str) -> bool:
    text = " ".join(block.split())
    if len(text) < _MIN_PARAGRAPH_CHARS or _NO_PROSE.search(block):
        return False
    wordlike = sum(character.isalpha() or character in " ,.'’" for character in text)
    return wordlike >= _PROSE_SHARE * len(text)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _modules(folder: Path) -> list[Path]:
    """Python files below a package, in an order that does not follow the alphabet; no tests."""
    found = [
        path
        for path in folder.rglob("*.py")
        if not {"site-packages", "dist-packages", "test", "tests", "idlelib"}
        & set(path.parts[len(folder.parts) :])
    ]
    return sorted(found, key=lambda path: _hash(path.relative_to(folder).as_posix()))


def write_installed_docs(
    corpus: Path,
    task: Path,
    *,
    packages: Sequence[str] = PACKAGES,
    bytes_per_package: int = 1_600_000,
    train_per_class: int = 100,
    dev_per_class: int = 250,
) -> InstalledDocs:
    """Write one text file a package into `corpus`, and train.tsv and dev.tsv of the task into `task`.

    A document is a module, a line a paragraph; a blank line ends a document. A paragraph that several
    modules or packages share is kept once.

    The task is word order: half of the paragraphs are "written" as they are, the others "shuffled", all words
    but the first and the last. So counts of words, the length, the capital at the start and the full stop at
    the end tell nothing. `train_per_class` and `dev_per_class` are the most that a class gets.
    """
    seen: set[str] = set()
    texts: dict[str, list[str]] = {"train": [], "dev": []}
    num_bytes = 0
    for package in packages:
        documents, held, taken = [], [], 0
        folder = package_folder(package)
        for path in _modules(folder):
            if taken >= bytes_per_package:
                break
            fresh = [
                p for p in dict.fromkeys(paragraphs(path.read_text("utf-8", "replace"))) if p not in seen
            ]
            seen.update(fresh)
            if _hash(f"split {package} {path.relative_to(folder).as_posix()}") % 6 == 0:
                held += fresh
            elif fresh:
                documents.append(fresh)
                taken += sum(len(p) + 1 for p in fresh)
        text = "\n\n".join("\n".join(document) for document in documents) + "\n"
        durable.write_text(corpus / f"{package}.txt", text)
        num_bytes += len(text.encode())
        texts["train"] += [paragraph for document in documents for paragraph in document]
        texts["dev"] += held
    rows = {
        "train": _examples(texts["train"], 2 * train_per_class),
        "dev": _examples(texts["dev"], 2 * dev_per_class),
    }
    for split, lines in rows.items():
        durable.write_text(task / f"{split}.tsv", "\n".join(["text\tlabel", *lines]) + "\n")
    return InstalledDocs(num_bytes, len(rows["train"]), len(rows["dev"]))


def _examples(texts: Sequence[str], most: int) -> list[str]:
    """Every second of the texts "shuffled", which have no order of their own; as many of both labels."""
    fitting = sorted((text for text in texts if len(text) <= _MAX_TASK_CHARS), key=_hash)[:most]
    pairs = zip(fitting[::2], fitting[1::2], strict=False)
    return [line for one, other in pairs for line in (f"{one}\twritten", f"{_shuffled(other)}\tshuffled")]


def _shuffled(text: str) -> str:
    first, *inner, last = text.split()
    keys = {place: _hash(f"{place} {text}") for place in range(len(inner))}
    return " ".join([first, *(inner[place] for place in sorted(keys, key=keys.__getitem__)), last])
