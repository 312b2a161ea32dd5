"""shard-corpus on real text: every token of the library is there, in several scripts and formats."""

import gzip
from pathlib import Path

import numpy as np

from electra_cli.data.checked_manifest import write_manifest
from electra_cli.data.corpus import cut_into_parts
from electra_cli.data.shards import build_shards, open_shards
from electra_cli.data.tokenizer_parts import wordpiece
from electra_cli.data.vocabulary import load_vocabulary
from electra_cli.data.vocabulary_manifest import FORMAT
from electra_cli.durable import sha256_file
from electra_cli.progress import Silent
from electra_cli.project import project_from_settings
from electra_cli.settings import ProjectSettings, Vocab


def test_P05_real_text_keeps_every_token(tmp_path: Path, data_folder: Path) -> None:
    pieces = (data_folder / "vocab" / "bert-base-uncased-vocab.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "vocab").mkdir()
    wordpiece(pieces, Vocab()).save(str(tmp_path / "vocab" / "tokenizer.json"))
    sha256 = {"tokenizer.json": sha256_file(tmp_path / "vocab" / "tokenizer.json")}
    write_manifest(tmp_path / "vocab", {"format": FORMAT, "sha256": sha256})
    (tmp_path / "corpus").mkdir()
    with gzip.open(data_folder / "corpus-bench" / "classics-06.txt.gz", "rt", encoding="utf-8") as file:
        english = file.read(600_000)
    texts = {"english": english}
    for path in sorted((data_folder / "multilingual").glob("debian-handbook*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            texts[path.name.removesuffix(".txt.gz")] = file.read(150_000)
    assert len(texts) >= 3
    for name, text in texts.items():
        (tmp_path / "corpus" / f"{name}.txt").write_text(text, encoding="utf-8")

    vocabulary = load_vocabulary(tmp_path / "vocab")
    settings = ProjectSettings.model_validate({"corpus": {"document": "file", "processes": 1}})
    report = build_shards(project_from_settings(settings, tmp_path), vocabulary, Silent())
    shards = open_shards(report.folder, vocabulary_sha256=vocabulary.sha256)

    assert not shards.manifest["dropped"]
    expected = np.zeros(vocabulary.size, dtype=np.int64)
    for text in texts.values():
        for part in cut_into_parts(text):
            ids = vocabulary.tokenizer.encode(part, add_special_tokens=False).ids
            expected += np.bincount(ids, minlength=vocabulary.size)
    found = np.zeros(vocabulary.size, dtype=np.int64)
    for shard in (*shards.train, *shards.heldout):
        found += np.bincount(shard.stream, minlength=vocabulary.size)
    for special in (vocabulary.cls_id, vocabulary.sep_id):
        assert found[special] == shards.manifest["num_parts"] and expected[special] == 0
        found[special] = 0
    assert (found == expected).all() and expected.sum() == shards.num_content_tokens
