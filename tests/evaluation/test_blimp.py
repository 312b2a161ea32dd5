"""Minimal pairs: what a score is, what counts as right, what is read, and what a rerun computes."""

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_cases import LETTERS, SPECIAL, WORDS, make_project, write

from electra_cli import durable
from electra_cli.commands._boundary import run as run_boundary
from electra_cli.errors import InputError
from electra_cli.evaluation import blimp, hub
from electra_cli.evaluation.blimp_data import MinimalPairs, load_pairs
from electra_cli.evaluation.blimp_results import ModelScores, SetScore, Tally
from electra_cli.evaluation.blimp_scoring import Scorer
from electra_cli.evaluation.encoding import load_text_encoder
from electra_cli.main import app
from electra_cli.models.encoder import Encoder
from electra_cli.models.folders import discriminator_folders, generator_folders, write_folder
from electra_cli.models.heads import DiscriminatorHead, MaskedLMHead
from electra_cli.models.initial import initialise
from electra_cli.models.networks import load_network
from electra_cli.models.sizes import EncoderConfig
from electra_cli.progress import Silent

SENTENCES = ("the cat is a dog", "was the film very bad ?", "a", "the dog, the cat and the actor", "is is is")


def write_network(folder: Path, kind: str, *, max_positions: int = 64) -> Path:
    """A random discriminator, generator or encoder with a tokenizer that spells every word of ours."""
    pieces = SPECIAL + WORDS + LETTERS + [f"##{letter}" for letter in LETTERS]
    config = EncoderConfig(
        vocab_size=len(pieces),
        num_layers=2,
        hidden_size=32,
        feed_forward_size=64,
        num_heads=2,
        embedding_size=16,
        max_positions=max_positions,
    )
    network = torch.nn.ModuleDict(
        {"encoder": Encoder(config), "disc": DiscriminatorHead(config), "mlm": MaskedLMHead(config)}
    )
    initialise(network, seed=0, std=0.2)
    encoder = network["encoder"]
    contents = {
        **discriminator_folders(encoder, network["disc"]),
        **generator_folders(encoder, network["mlm"]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, contents[kind])
    durable.write_text(folder / "vocab.txt", "\n".join(pieces) + "\n")
    return folder


def scorer_of(folder: Path) -> Scorer:
    encoder = load_text_encoder(folder)
    return Scorer(network=load_network(folder), text_encoder=encoder, device=torch.device("cpu"))


def ids_of(folder: Path, text: str) -> list[int]:
    encoder = load_text_encoder(folder)
    return [encoder.cls_id, *encoder.tokenizer.encode(text, add_special_tokens=False).ids, encoder.sep_id]


def their_model(folder: Path, name: str) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name).from_pretrained(folder).eval()


def test_a_discriminator_scores_by_the_log_probability_of_original(tmp_path: Path) -> None:
    folder = write_network(tmp_path, "discriminator")
    model = their_model(folder, "ElectraForPreTraining")
    expected = []
    for text in SENTENCES:
        with torch.no_grad():
            logits = model(torch.tensor([ids_of(folder, text)])).logits[0].double().numpy()
        expected.append(sum(math.log(1 - 1 / (1 + math.exp(-logit))) for logit in logits[1:-1]))
    np.testing.assert_allclose(scorer_of(folder).score(SENTENCES), expected, rtol=1e-4)


def test_a_masked_language_model_scores_by_each_token_given_all_others(tmp_path: Path) -> None:
    folder = write_network(tmp_path, "generator")
    model = their_model(folder, "ElectraForMaskedLM")
    mask_id = SPECIAL.index("[MASK]")
    expected = []
    for text in SENTENCES:
        ids, total = ids_of(folder, text), 0.0
        for place in range(1, len(ids) - 1):
            hidden = [*ids[:place], mask_id, *ids[place + 1 :]]
            with torch.no_grad():
                logits = model(torch.tensor([hidden])).logits[0, place].double().numpy()
            total += logits[ids[place]] - math.log(np.exp(logits).sum())
        expected.append(total)
    np.testing.assert_allclose(scorer_of(folder).score(SENTENCES), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["discriminator", "generator"])
def test_a_score_does_not_depend_on_what_is_scored_with_it(tmp_path: Path, kind: str) -> None:
    scorer = scorer_of(write_network(tmp_path, kind))
    alone = [float(scorer.score([text])[0]) for text in SENTENCES]
    np.testing.assert_allclose(scorer.score(SENTENCES * 3), alone * 3, rtol=1e-4)


@pytest.mark.parametrize("kind", ["discriminator", "generator"])
def test_sentences_of_the_same_tokens_tie_to_the_bit_and_count_half(tmp_path: Path, kind: str) -> None:
    pairs = MinimalPairs(
        name="ties", phenomenon="case", good=("The cat.", "a dog", "is"), bad=("the  CAT .", "a DOG", "is it")
    )
    tally = blimp.compare(scorer_of(write_network(tmp_path, kind)), pairs, Silent())
    assert (tally.num_pairs, tally.num_ties) == (3, 2)
    assert tally.value == (1 + tally.num_right) / 3


def test_the_interval_holds_the_shares_that_a_test_would_not_refuse() -> None:
    """Wilson's ends are where the share lies 1.96 standard errors of the end itself away."""
    for right, ties, number in ((810, 0, 1000), (500, 20, 1000), (3, 1, 7), (20, 0, 20)):
        tally = Tally(num_pairs=number, num_right=right, num_ties=ties)
        low, high = tally.interval
        assert 0 <= low <= tally.value <= high <= 1
        for end in {low, high} - {0.0, 1.0}:
            error = math.sqrt(end * (1 - end) / number)
            assert abs(abs(tally.value - end) / error - 1.959964) < 1e-4
    assert Tally(num_pairs=20, num_right=20, num_ties=0).interval[1] == 1.0


def test_phenomena_and_overall_count_every_pair_once() -> None:
    tallies = [
        Tally(num_pairs=n, num_right=r, num_ties=t) for n, r, t in ((10, 8, 0), (30, 12, 2), (5, 5, 0))
    ]
    scores = ModelScores(
        model="m",
        model_sha256="",
        step=None,
        method="",
        sets=tuple(
            SetScore(name=f"set {n}", phenomenon="ab"[n == 2], tally=one) for n, one in enumerate(tallies)
        ),
    )
    assert scores.overall == Tally(num_pairs=45, num_right=25, num_ties=2)
    assert scores.phenomena == {"a": Tally(num_pairs=40, num_right=20, num_ties=2), "b": tallies[2]}


def lines(*pairs: tuple[str, str], term: str = "agreement") -> str:
    return "".join(
        json.dumps({"sentence_good": good, "sentence_bad": bad, "linguistics_term": term, "UID": "x"}) + "\n"
        for good, bad in pairs
    )


PAIRS = (
    ("the cat is good", "the cat is is good"),
    ("a film was bad", "a film film was"),
    ("the dog", "dog the"),
)


def write_sets(folder: Path) -> Path:
    write(folder / "first_set.jsonl", lines(*PAIRS))
    (folder / "second_set.jsonl.gz").write_bytes(gzip.compress(lines(*PAIRS[:2], term="order").encode()))
    write(folder / "README.md", "not a set")
    return folder


def test_a_folder_is_read_set_by_set_whatever_the_files(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = write_sets(tmp_path / "sets")
    write(folder / "third.csv", "sentence_good,sentence_bad\na cat,cat a\n")
    for number, pair in enumerate(PAIRS):
        place = folder / "fourth_set" / f"train-{number:05d}-of-00003.parquet"
        place.parent.mkdir(exist_ok=True)
        columns = {"sentence_good": [pair[0]], "sentence_bad": [pair[1]], "linguistics_term": ["order"]}
        parquet.write_table(pyarrow.table(columns), place)
    write(folder / ".cache/huggingface/hidden.jsonl", "not JSON")
    pairs = load_pairs(str(folder))
    found = {one.name: (one.phenomenon, len(one)) for one in pairs.sets}
    assert found == {
        "first_set": ("agreement", 3),
        "second_set": ("order", 2),
        "third": ("other", 1),
        "fourth_set": ("order", 3),
    }
    by_name = {one.name: one for one in pairs.sets}
    assert by_name["fourth_set"].sha256 == by_name["first_set"].sha256
    limited = load_pairs(str(folder), limit=1)
    assert [len(one) for one in limited.sets] == [1] * 4
    assert limited.sha256 != pairs.sha256
    assert [one.name for one in load_pairs(str(folder / "first_set.jsonl")).sets] == ["first_set"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "a"}\n', "line 2: no field"),
        ('{"sentence_good": "a", "sentence_bad": " "}\n', "line 1: a sentence is empty"),
        ('{"sentence_good": 3, "sentence_bad": "b"}\n', "line 1: field 'sentence_good' is no text"),
        ("", "is empty"),
    ],
)
def test_rows_that_are_no_pair_are_refused_by_line(tmp_path: Path, content: str, said: str) -> None:
    write(tmp_path / "set.jsonl", content)
    with pytest.raises(InputError, match=said):
        load_pairs(str(tmp_path))


def test_two_files_of_one_set_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a/set.jsonl", lines(*PAIRS))
    write(tmp_path / "b/set.jsonl", lines(*PAIRS))
    with pytest.raises(InputError, match="are both the set set"):
        load_pairs(str(tmp_path))
    with pytest.raises(InputError, match="is not there"):
        load_pairs(str(tmp_path / "nowhere"))


def test_the_hub_gives_one_set_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def from_cache(name: str, config: str, split: str) -> object:
        assert (name, split) == ("nyu-mll/blimp", "train")
        good, bad = zip(*PAIRS, strict=True)
        return datasets.Dataset.from_dict(
            {"sentence_good": list(good), "sentence_bad": list(bad), "linguistics_term": [config] * 3}
        )

    monkeypatch.setattr(hub, "why_offline", lambda: "")
    monkeypatch.setattr(datasets, "load_dataset", from_cache)
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda name: ["one", "two"])
    pairs = load_pairs("hf://nyu-mll/blimp")
    assert {(one.name, one.phenomenon, len(one)) for one in pairs.sets} == {
        ("one", "one", 3),
        ("two", "two", 3),
    }
    assert [one.name for one in load_pairs("hf://nyu-mll/blimp/two").sets] == ["two"]


def test_without_network_and_folder_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")

    def fail(name: str) -> list[str]:
        raise ConnectionError("offline")

    monkeypatch.setattr(hub, "why_offline", lambda: "the network is off (HF_HUB_OFFLINE=1)")
    monkeypatch.setattr(datasets, "get_dataset_config_names", fail)
    with pytest.raises(
        InputError, match="nyu-mll/blimp is not on this machine, and the network is off"
    ) as caught:
        blimp.load_sets(make_project(tmp_path), blimp.BlimpRequest())
    assert "hf download nyu-mll/blimp" in caught.value.hint


def test_a_sentence_longer_than_the_model_is_refused_and_never_cut(tmp_path: Path) -> None:
    scorer = scorer_of(write_network(tmp_path, "discriminator", max_positions=8))
    with pytest.raises(InputError, match=r"9 tokens, the model 8 positions"):
        scorer.score(["cat", "cat cat cat cat cat cat cat"])


def test_a_score_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    scorer = scorer_of(write_network(tmp_path, "discriminator"))
    with torch.no_grad():
        scorer.network.head.prediction.bias.fill_(math.nan)
    with pytest.raises(InputError, match="is not finite"):
        scorer.score(["a cat"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sets(tmp_path / "data/blimp")
    for kind in ("encoder", "discriminator", "generator"):
        write_network(tmp_path / "model" / kind, kind)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("ELECTRA_SET", raising=False)
    return tmp_path


def electra(*arguments: str) -> int:
    return run_boundary(app, ["eval-blimp", *arguments])


def test_the_command_judges_an_export_and_keeps_what_is_finished(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert electra("--model", "model", "--format", "json") == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    folder = place / "evaluate/blimp/model"
    results = json.loads((folder / "results.json").read_text("utf-8"))
    assert (last["event"], last["results"]) == ("result", results)
    assert results["scoring"].startswith("sum of log p(original)")
    assert results["model"] == "model/discriminator"
    assert results["overall"]["num_pairs"] == 5 and not results["limited"]
    assert results["sets"]["second_set"]["phenomenon"] == "order"
    assert "agreement" in (folder / "results.md").read_text("utf-8")

    def refuse(self: Scorer, texts: Sequence[str], heard: object) -> None:
        pytest.fail("scored again")

    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "score", refuse)
        assert electra("--model", "model") == 0
    shown = capsys.readouterr().out
    assert "overall" in shown and "order" in shown
    assert electra("--model", "model", "--limit", "1", "--format", "json") == 0
    limited = json.loads(capsys.readouterr().out.splitlines()[-1])["results"]
    assert limited["limited"] and limited["overall"]["num_pairs"] == 2


def test_the_generator_beside_a_discriminator_has_results_of_its_own(place: Path) -> None:
    assert electra("--model", "model", "--network", "generator") == 0
    results = json.loads((place / "evaluate/blimp/model/generator/results.json").read_text("utf-8"))
    assert results["scoring"].startswith("pseudo-log-likelihood")
    assert not (place / "evaluate/blimp/model/results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--model", "model/encoder"], 4, "holds no head"),
        (["--model", "model", "--network", "judge"], 2, "--network judge"),
        (["--model", "model/generator", "--network", "generator"], 2, "chooses from a run or an export"),
        (["--model", "nowhere"], 4, "is not there"),
        (["--model", "model", "--data", "nowhere"], 4, "nowhere is not there"),
        (["--model", "model", "--checkpoints"], 4, "is no run"),
        (["--model", "model", "--fail-under", "grammar=3"], 2, "not scored here"),
        (["--model", "model", "--fail-under", "overall=101"], 9, "below the threshold"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_exit_code(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert electra(*arguments) == code
    assert said in capsys.readouterr().err


def test_the_real_sets_are_67_of_1000_pairs(data_folder: Path) -> None:
    pairs = load_pairs(str(data_folder / "blimp"))
    assert len(pairs.sets) == 67
    assert all(len(one) == 1000 for one in pairs.sets)
    assert len({one.phenomenon for one in pairs.sets}) == 13
