"""The quickstart's corpus: prose only, split by module, the same every time."""

from pathlib import Path

import pytest

from electra_cli.data import installed_docs
from electra_cli.data.installed_docs import paragraphs, write_installed_docs

SOURCE = '''
"""A module about whales, and about the sea in which they live all year.

    >>> code_is_not_prose(1, 2)

Parameters
----------
x : int
    A number that no reader of prose would want to read here at all, ever.

A second paragraph of the text, which runs
over two lines and is joined to one.
"""
QUERY = """SELECT a, b FROM t WHERE (a > 3) AND {b} = %s; -- {{ 1 }} == [2, 3] ((()))"""
'''


def test_only_prose_is_taken_and_each_paragraph_is_one_line() -> None:
    assert list(paragraphs(SOURCE)) == [
        "A module about whales, and about the sea in which they live all year.",
        "A second paragraph of the text, which runs over two lines and is joined to one.",
    ]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for package in ("sea", "sky"):
        for number in range(40):
            text = f"The {package} of module number {'x' * (number + 1)} is wide, and deep, and blue today."
            path = tmp_path / package / f"part{number}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                f'"""{text}"""\n"""What every module of every package says, word for word, again."""'
            )
    monkeypatch.setattr(installed_docs, "package_folder", lambda name: tmp_path / name)
    return tmp_path


def test_development_paragraphs_are_in_no_training_text(packages: Path) -> None:
    report = write_installed_docs(packages / "corpus", packages / "task", packages=("sea", "sky"))
    corpus = "".join((packages / "corpus" / f"{name}.txt").read_text() for name in ("sea", "sky"))
    rows = {split: rows_of(packages / "task" / f"{split}.tsv") for split in ("train", "dev")}
    assert (len(rows["train"]), len(rows["dev"])) == (report.num_train, report.num_dev)
    paragraphs_of_corpus = {words(line) for line in corpus.splitlines()}
    assert rows["dev"] and all(words(text) not in paragraphs_of_corpus for text, _ in rows["dev"])
    assert all(words(text) in paragraphs_of_corpus for text, _ in rows["train"])
    assert all(text in corpus for text, label in rows["train"] if label == "written")
    assert corpus.count("word for word") <= 1
    assert len(corpus.encode()) == report.num_bytes


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]


def words(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split()))


def test_half_of_the_paragraphs_are_shuffled_within(packages: Path) -> None:
    limits = {"train_per_class": 10, "dev_per_class": 3}
    write_installed_docs(packages / "corpus", packages / "task", packages=("sea", "sky"), **limits)
    rows = rows_of(packages / "task" / "train.tsv")
    labels = [label for _, label in rows]
    assert labels.count("written") == labels.count("shuffled") == 10
    assert len(rows_of(packages / "task" / "dev.tsv")) == 6
    inner = [text.split()[1:-1] for text, label in rows if label == "shuffled"]
    # The first word is "The", the last "today."; what is between them is the text's, in another order.
    assert all(text.startswith("The ") and text.endswith(" today.") for text, _ in rows)
    assert not any(" ".join(text[:4]) == f"{text[0]} of module number" for text in inner)


def test_the_files_are_the_same_every_time(packages: Path) -> None:
    for name in ("one", "two"):
        write_installed_docs(packages / name, packages / f"{name}-task", packages=("sea", "sky"))
    for name in ("one", "one-task"):
        other = packages / name.replace("one", "two")
        for path in (packages / name).iterdir():
            assert path.read_bytes() == (other / path.name).read_bytes()


def test_every_package_of_the_list_is_installed() -> None:
    assert all(installed_docs.package_folder(package).is_dir() for package in installed_docs.PACKAGES)
