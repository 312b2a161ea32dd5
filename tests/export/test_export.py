"""Exports load in transformers without a word and say the same; nothing half-checked gets a name."""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from electra_cli.data.vocabulary import Vocabulary, build_vocabulary
from electra_cli.errors import ElectraError, InputError
from electra_cli.export.card import model_card
from electra_cli.export.facts import ChangedSetting, ModelFacts, Score
from electra_cli.export.model import export_model
from electra_cli.export.probe import TEXTS
from electra_cli.models.folders import HFFolder
from electra_cli.objectives.base import VocabularyFacts
from electra_cli.objectives.electra import Electra
from electra_cli.progress import Silent
from electra_cli.project import project_from_settings
from electra_cli.settings import Corpus, Generator, Model, ProjectSettings, Rows, Vocab

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
FACTS = ModelFacts(
    name="toy",
    recipe="electra-small",
    objective="electra",
    run="20261130-000000-toy",
    step=3,
    steps=9,
    tokens=1234,
    sequence_length=32,
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    root = tmp_path_factory.mktemp("vocabulary")
    text = "the captain of the white whale was seen again in the house of france by paris\n" * 40
    (root / "corpus").mkdir()
    (root / "corpus" / "a.txt").write_text(text + "möchte müsste café , . ! ? – 1 2 3 4 5 ( )\n" * 3)
    settings = ProjectSettings(corpus=Corpus(files=["corpus/"]), vocab=Vocab(size=160))
    return build_vocabulary(project_from_settings(settings, root), Silent()).vocabulary


def make_exports(
    vocabulary: Vocabulary, *, embedding_size: int = 32, width: int = 16, sequence_length: int = 32
) -> dict[str, HFFolder]:
    settings = ProjectSettings(
        model=Model(size="toy", embedding_size=embedding_size),
        generator=Generator(width=width),
        rows=Rows(sequence_length=sequence_length),
    )
    facts = VocabularyFacts(
        size=vocabulary.size,
        padding_id=vocabulary.padding_id,
        unknown_id=vocabulary.unknown_id,
        cls_id=vocabulary.cls_id,
        sep_id=vocabulary.sep_id,
        mask_id=vocabulary.mask_id,
    )
    return Electra(settings, facts).exports()


@needs_transformers
@pytest.mark.parametrize(("embedding_size", "width"), [(32, 16), (16, 64)])
def test_exports_load_silently_and_agree(
    vocabulary: Vocabulary, tmp_path: Path, embedding_size: int, width: int
) -> None:
    exports = make_exports(vocabulary, embedding_size=embedding_size, width=width)
    report = export_model(exports, vocabulary, FACTS, tmp_path / "export", Silent())
    assert not report.not_checked
    assert set(report.differences) == {"encoder", "discriminator", "generator"}
    # Float32, sums in another order; the bound.
    assert all(difference <= 1e-5 for difference in report.differences.values())
    for kind in exports:
        names = {path.name for path in (report.folder / kind).iterdir()}
        assert names == {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
            "README.md",
        }
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp")]


@needs_transformers
def test_a_model_shorter_than_the_texts_it_is_asked_is_an_export_all_the_same(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    exports = make_exports(vocabulary, sequence_length=12)
    facts = dataclasses.replace(FACTS, sequence_length=12)
    longest = max(len(vocabulary.tokenizer.encode(text).ids) for text in TEXTS)
    assert longest > facts.sequence_length
    report = export_model(exports, vocabulary, facts, tmp_path / "export", Silent())
    assert set(report.differences) == {"encoder", "discriminator", "generator"}


@needs_transformers
def test_a_network_that_answers_otherwise_is_no_export(vocabulary: Vocabulary, tmp_path: Path) -> None:
    exports = make_exports(vocabulary)

    def wrong(token_ids_BS: Tensor, piece_BS: Tensor, position_BS: Tensor, segment_BS: Tensor) -> Tensor:
        hidden_BSD = exports["encoder"].run(token_ids_BS, piece_BS, position_BS, segment_BS)
        return hidden_BSD + 1e-3

    broken = exports | {"encoder": dataclasses.replace(exports["encoder"], run=wrong)}
    with pytest.raises(ElectraError, match="encoder: outputs differ"):
        export_model(broken, vocabulary, FACTS, tmp_path / "export", Silent())
    assert not (tmp_path / "export").exists()


@needs_transformers
def test_case_F04_a_renamed_tensor_is_no_export(vocabulary: Vocabulary, tmp_path: Path) -> None:
    exports = make_exports(vocabulary)
    tensors: Mapping[str, Tensor] = exports["discriminator"].tensors
    renamed = {name.replace("layer.0.output", "layer.0.outputs"): tensor for name, tensor in tensors.items()}
    broken = exports | {"discriminator": dataclasses.replace(exports["discriminator"], tensors=renamed)}
    with pytest.raises(ElectraError, match=r"missing_keys.*layer\.0\.output"):
        export_model(broken, vocabulary, FACTS, tmp_path / "export", Silent())


def test_the_same_weights_give_the_same_bytes(vocabulary: Vocabulary, tmp_path: Path) -> None:
    def contents(out: Path) -> dict[str, bytes]:
        export_model(make_exports(vocabulary), vocabulary, FACTS, out, Silent(), self_check=False)
        return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}

    assert contents(tmp_path / "one" / "export") == contents(tmp_path / "two" / "export")


def test_a_foreign_folder_is_not_replaced(vocabulary: Vocabulary, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="no export of ours"):
        export_model(make_exports(vocabulary), vocabulary, FACTS, out, Silent(), self_check=False)
    assert (out / "thesis.txt").read_text() == "years of work"


def test_an_older_export_is_replaced(vocabulary: Vocabulary, tmp_path: Path) -> None:
    out = tmp_path / "export"
    for step in (1, 2):
        facts = dataclasses.replace(FACTS, step=step)
        export_model(make_exports(vocabulary), vocabulary, facts, out, Silent(), self_check=False)
    assert json.loads((out / "export.json").read_text())["step"] == 2


def test_no_table_is_stored_twice(vocabulary: Vocabulary) -> None:
    for folder in make_exports(vocabulary).values():
        pointers = [tensor.data_ptr() for tensor in folder.tensors.values()]
        assert len(pointers) == len(set(pointers))
        tables = [n for n, t in folder.tensors.items() if t.shape[0] == vocabulary.size and t.ndim == 2]
        assert len(tables) == 1


def test_a_card_tells_the_facts_and_stays_yaml() -> None:
    facts = dataclasses.replace(
        FACTS,
        name='evil: "name"\n---',
        language=["en", "de"],
        license="apache-2.0",
        changed_settings=[
            ChangedSetting(key="pretrain.steps", value="9 | <b>", origin="project.toml line 3")
        ],
        data={"num_documents": 12345, "dropped": {"duplicate": 7}},
        heldout={"losses.mlm": 4.56789},
        scores=[Score(task="sst2", metric="accuracy", value=0.8125, num_runs=5, statistic="median")],
    )
    card = model_card("encoder", "ElectraModel", facts)
    head = card.split("---\n")[1]
    assert card.startswith("---\n") and r'"evil: \"name\"\n---"' in head
    for expected in (
        "12,345",
        "dropped: duplicate",
        "4.568",
        "81.2",
        "pretrain.steps",
        "1,234 tokens",
        "0 to 31",
    ):
        assert expected in card, expected
    assert "<b>" not in card
    assert "ModernBertForTokenClassification.from_pretrained" in model_card(
        "discriminator", "ModernBertForTokenClassification", facts
    )
    torch.testing.assert_close(0.8125, float(head.split("value: ")[1].split()[0]))
