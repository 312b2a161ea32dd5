"""Several languages as weighted sources: one Unigram vocabulary, and small languages heard more often."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from electra_cli.data.order import CYCLE
from electra_cli.data.shards import build_shards, open_shards
from electra_cli.data.vocabulary import build_vocabulary
from electra_cli.progress import Silent
from electra_cli.project import project_from_settings
from electra_cli.settings import ProjectSettings
from electra_cli.training.samples import open_samples


def write_own_texts(folder: Path) -> dict[str, str]:
    """Texts that we wrote: a large one, a middle one and a small one, with an alphabet each."""
    large = "\n\n".join(f"the boat number {i} went down the river to the mill and back" for i in range(600))
    middle = "\n\n".join(f"лодка номер {i} ушла вниз по реке к мельнице и вернулась" for i in range(120))
    small = "\n\n".join(f"小舟{i}号は川を下り水車まで行って戻った。" for i in range(40))
    texts = {"en": large, "ru": middle, "ja": small}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    return texts


def write_real_texts(folder: Path, data_folder: Path) -> dict[str, str]:
    """The handbook in German and Japanese, and the declaration of human rights in a few languages."""
    texts = {}
    for name, characters in (("de-DE", 300_000), ("ja-JP", 60_000)):
        path = data_folder / "multilingual" / f"debian-handbook.{name}.txt.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            texts[name[:2]] = file.read(characters)
    with zipfile.ZipFile(data_folder / "multilingual" / "udhr2.zip") as archive:
        wanted = [
            name
            for name in archive.namelist()
            if name.endswith(("/tur.txt", "/ell_monotonic.txt", "/swh.txt"))
        ]
        texts["udhr"] = "\n\n".join(archive.read(name).decode("utf-8") for name in sorted(wanted))
        assert len(wanted) == 3
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return texts


@pytest.mark.parametrize("kind", ["own", "real"])
def test_one_vocabulary_and_shares_by_a_power_of_the_size(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    texts = (
        write_own_texts(tmp_path)
        if kind == "own"
        else write_real_texts(tmp_path, request.getfixturevalue("data_folder"))
    )
    size = 300 if kind == "own" else 3000
    settings = ProjectSettings.model_validate(
        {
            "corpus": {
                "source_exponent": 0.3,
                "processes": 1,
                "heldout_fraction": 0.02,
                "source": [{"name": name, "files": [f"{name}.txt"]} for name in texts],
            },
            "vocab": {"kind": "unigram", "size": size, "lowercase": False, "strip_accents": False},
            "rows": {"sequence_length": 32, "segment_pairs": False},
        }
    )
    project = project_from_settings(settings, tmp_path)
    vocabulary = build_vocabulary(project, Silent()).vocabulary
    for text in texts.values():
        ids = vocabulary.tokenizer.encode(text[:5000], add_special_tokens=False).ids
        assert np.mean(np.array(ids) == vocabulary.unknown_id) < 0.02
    build_shards(project, vocabulary, Silent())
    samples = open_samples(
        settings, vocabulary, open_shards(project.shards_dir, vocabulary_sha256=vocabulary.sha256)
    )

    row_R = samples.order.rows_of(np.arange(CYCLE, dtype=np.int64))
    rows = dict(samples.rows.sources)
    assert set(rows) == set(texts)
    pull = {name: count**0.3 for name, count in rows.items()}
    first = 0
    for name, count in rows.items():
        drawn = int(((row_R >= first) & (row_R < first + count)).sum())
        # Rounded to whole samples of a cycle.
        assert drawn == pytest.approx(CYCLE * pull[name] / sum(pull.values()), abs=1)
        first += count
    small, large = min(rows, key=rows.get), max(rows, key=rows.get)
    assert pull[small] / pull[large] > 2 * rows[small] / rows[large]
