"""The command shard-corpus as a person runs it: what it says, and its exit codes."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from conftest import RunElectra

sys.path.insert(0, str(Path(__file__).parent))
from test_shards import document, tree, write_corpus, write_vocabulary


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_vocabulary(tmp_path / "vocab")
    write_corpus(tmp_path)
    return tmp_path


def test_shard_corpus_says_what_it_did_and_is_then_up_to_date(root: Path, electra: RunElectra) -> None:
    (root / "corpus" / "twice.txt").write_text(document(3, 83) + "\n\n \n\nfresh words")
    first = electra("shard-corpus", cwd=root).stdout
    assert "dropped   duplicates 1 (1.6 %)" in first
    assert "0 tokens lost   manifest.json  DATA_CARD.md" in first
    assert "steps at batch 128 × 128: steps = 1,000,000 means" in first
    before = tree(root / "shards")
    again = electra("shard-corpus", "--format", "json", cwd=root).stdout.splitlines()
    event = json.loads(again[-1])
    assert event["event"] == "result" and event["is_fresh"] is False and event["rows"] > 0
    assert tree(root / "shards") == before


def test_conflicts_and_missing_things_end_with_exit_code_4(root: Path, electra: RunElectra) -> None:
    electra("shard-corpus", "corpus/", cwd=root)
    said = electra("shard-corpus", "-s", "corpus.document=line", cwd=root, check=4).stderr
    assert 'corpus.document: "blank-line" there, "line" now' in said and "--force" in said
    assert "Traceback" not in said
    electra("shard-corpus", "-s", "corpus.engine=ray", cwd=root, check=3)
    electra("shard-corpus", "nowhere/", cwd=root, check=4)


def test_pitfall_K1_without_a_whole_vocabulary_nothing_is_left(root: Path, electra: RunElectra) -> None:
    path = root / "vocab" / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-1])
    assert "vocab/tokenizer.json" in electra("shard-corpus", cwd=root, check=5).stderr
    assert not (root / "shards").exists()
    for file in (root / "vocab").iterdir():
        file.unlink()
    assert "electra build-vocab" in electra("shard-corpus", cwd=root, check=4).stderr
    assert not (root / "shards").exists()
