"""Samples drawn before a run: equal to those that the run draws, restartable, and refused to other runs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import toy_run
from toy_run import Notes, comparable_metrics, make_project, make_settings, make_shards, make_vocabulary

from electra_cli.data.drawn import open_drawn
from electra_cli.errors import CorruptError, InputError, ProjectError
from electra_cli.models.folders import write_folder
from electra_cli.objectives.base import VocabularyFacts
from electra_cli.objectives.fast_electra import FastElectra
from electra_cli.objectives.masked_lm import MaskedLM
from electra_cli.training import drawing
from electra_cli.training.checkpoint import load_weights
from electra_cli.training.drawing import DrawnReport, draw_samples
from electra_cli.training.dry_run import dry_run
from electra_cli.training.weights import load_module_tensors

STEPS = {"pretrain__steps": 12, "pretrain__heldout_every": 6, "pretrain__save_every": 12}


def write_auxiliary(folder: Path, *, seed: int = 5, salt: str = "") -> Path:
    """The generator/ of a masked language model over the toy vocabulary."""
    vocabulary = make_vocabulary(folder, salt)
    settings = make_settings(objective__use="masked_lm", project__seed=seed)
    objective = MaskedLM(settings, VocabularyFacts.of(vocabulary))
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.mul_(3.0)
    folder.mkdir(parents=True)
    write_folder(folder, objective.exports()["generator"])
    vocabulary.tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def auxiliary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_auxiliary(tmp_path_factory.mktemp("model") / "generator")


def fast(auxiliary: Path, **changes: object):
    return make_settings(
        **{**STEPS, "objective__use": "fast_electra", "objective__auxiliary": str(auxiliary), **changes}
    )


def draw(root: Path, settings, **options: object) -> DrawnReport:
    options.setdefault("samples_per_file", 24)
    return draw_samples(
        make_project(root, settings),
        make_vocabulary(root / "vocab"),
        make_shards(root / "shards"),
        Notes(),
        root / "samples",
        **options,
    )


@pytest.fixture(scope="module")
def drawn(auxiliary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose samples are drawn."""
    root = tmp_path_factory.mktemp("drawn")
    draw(root, fast(auxiliary))
    return root


def test_a_cached_run_equals_an_online_run_to_the_bit(auxiliary, drawn, tmp_path):
    """Same micro-batches on the same machine, so not even a rounding tie differs."""
    online = toy_run.train(tmp_path, fast(auxiliary)).folder
    cached = toy_run.train(drawn, fast(auxiliary, objective__samples="samples")).folder
    assert comparable_metrics(cached) == comparable_metrics(online)
    assert toy_run.weights_sha256(cached, 12) == toy_run.weights_sha256(online, 12)
    figures = [line for line in comparable_metrics(cached) if line["kind"] == "heldout"]
    assert len(figures) == 2 and all(set(line["losses"]) == {"rtd"} for line in figures)


def test_two_or_four_bytes_a_masked_position(drawn):
    found = open_drawn(drawn / "samples")
    assert found.manifest["slots"] == 5 and found.manifest["num_samples"] == 96
    first = drawn / "samples" / "drawn-00000.arrow"
    with pa.memory_map(str(first)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    assert batch.num_rows == 24 and str(batch.column("ids").type).startswith("fixed_size_list<item: uint16")
    assert [path.name for path in sorted((drawn / "samples").glob("*.arrow"))] == [
        *(f"drawn-0000{number}.arrow" for number in range(4)),
        "heldout.arrow",
    ]


def test_other_micro_batches_draw_the_same_but_for_rounding_ties(auxiliary, drawn, tmp_path):
    draw(tmp_path, fast(auxiliary, pretrain__micro_batch_size=1))
    one, other = open_drawn(drawn / "samples"), open_drawn(tmp_path / "samples")
    sample_B = np.arange(96)
    ties = int((one.ids_of(sample_B) != other.ids_of(sample_B)).sum())
    # Logits differ by 1e-6; of 480 draws among 512 ids less than one in a thousand lies so near a boundary.
    assert ties <= 2


def test_the_ids_of_samples_come_in_any_order(drawn):
    found = open_drawn(drawn / "samples")
    whole = found.ids_of(np.arange(96))
    some = np.array([95, 0, 24, 23, 50])
    assert np.array_equal(found.ids_of(some), whole[some])


def test_a_stopped_drawing_goes_on_behind_the_last_whole_file(auxiliary, drawn, tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    written: list[str] = []
    write = drawing.drawn.write_drawn

    def stopping(path: Path, *arguments: object, **options: object) -> None:
        if len(written) == 3:
            raise Stopped
        written.append(path.name)
        write(path, *arguments, **options)

    monkeypatch.setattr(drawing.drawn, "write_drawn", stopping)
    with pytest.raises(Stopped):
        draw(tmp_path, fast(auxiliary))
    with pytest.raises(InputError, match="there are no drawn samples"):
        open_drawn(tmp_path / "samples")
    assert written == ["heldout.arrow", "drawn-00000.arrow", "drawn-00001.arrow"]
    written.clear()
    report = draw(tmp_path, fast(auxiliary))
    assert report.is_fresh and written == ["heldout.arrow", "drawn-00002.arrow", "drawn-00003.arrow"]
    assert not draw(tmp_path, fast(auxiliary)).is_fresh
    for path in sorted((drawn / "samples").glob("*.arrow")):
        assert path.read_bytes() == (tmp_path / "samples" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("changes", "key", "values"),
    [
        ({"pretrain__steps": 13}, "pretrain.steps", ("12", "13")),
        ({"pretrain__batch_size": 16}, "pretrain.batch_size", ("8", "16")),
        ({"pretrain__heldout_rows": 8}, "pretrain.heldout_rows", ("16", "8")),
        ({"project__seed": 3}, "project.seed", ("0", "3")),
        ({"masking__fraction": 0.2}, "masking.fraction", ("0.15", "0.2")),
        ({"rows__sequence_length": 16}, "rows.sequence_length", ("32", "16")),
        ({"objective__initial_temperature": 3.0}, "objective.initial_temperature", ("2.0", "3.0")),
        ({"objective__temperature_schedule": "linear"}, "objective.temperature_schedule", ("linear",)),
    ],
)
def test_another_plan_is_refused_with_both_values(auxiliary, drawn, changes, key, values):
    settings = fast(auxiliary, objective__samples="samples", **changes)
    with pytest.raises(InputError) as caught:
        toy_run.train(drawn, settings)
    line = next(line for line in caught.value.message.splitlines() if line.split()[0] == key)
    assert all(value in line for value in values)
    assert caught.value.exit_code == 4
    # Nor may the command write over it.
    with pytest.raises(InputError, match="samples of another plan"):
        draw(drawn, fast(auxiliary, **changes))


def test_other_content_is_refused(auxiliary, drawn, tmp_path):
    other = write_auxiliary(tmp_path / "generator", seed=6)
    settings = fast(other, objective__samples="samples")
    with pytest.raises(InputError, match=r"content\.auxiliary"):
        toy_run.train(drawn, settings)
    with pytest.raises(InputError, match=r"content\.shards"):
        toy_run.train(drawn, fast(auxiliary, objective__samples="samples"), num_parts=61)


def test_what_the_draws_do_not_depend_on_may_differ(auxiliary, drawn):
    """A smaller, otherwise trained discriminator reads the same samples."""
    settings = fast(
        auxiliary,
        objective__samples="samples",
        objective__discriminator_weight=50.0,
        model__num_layers=1,
        optimizer__learning_rate=3e-3,
    )
    assert toy_run.train(drawn, settings).step == 12


def test_a_damaged_file_is_named(auxiliary, tmp_path):
    draw(tmp_path, fast(auxiliary))
    path = tmp_path / "samples" / "drawn-00002.arrow"
    content = bytearray(path.read_bytes())
    content[-300] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=r"drawn-00002\.arrow is damaged"):
        toy_run.train(tmp_path, fast(auxiliary, objective__samples="samples"))
    report = draw(tmp_path, fast(auxiliary), force=True)
    assert report.is_fresh and report.num_samples == 96


def test_foreign_files_are_left_alone(auxiliary, tmp_path):
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        draw(tmp_path, fast(auxiliary), force=True)
    assert (tmp_path / "samples" / "thesis.tex").read_text() == "mine"


def test_an_objective_that_trains_its_generator_has_nothing_to_draw(tmp_path):
    with pytest.raises(
        ProjectError, match=r'objective\.use = "electra" samples from a network that it trains'
    ):
        draw(tmp_path, make_settings(**STEPS))


def test_an_auxiliary_of_another_vocabulary_is_refused_before_the_first_step(tmp_path):
    other = write_auxiliary(tmp_path / "generator", salt="x")
    with pytest.raises(InputError, match=r"objective\.auxiliary: .*is another vocabulary") as caught:
        toy_run.train(tmp_path, fast(other))
    assert not (tmp_path / "runs").exists() and caught.value.exit_code == 4


def test_an_auxiliary_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"objective\.auxiliary: .* holds no weights"):
        toy_run.train(tmp_path, fast(tmp_path / "nothing"))
    with pytest.raises(ProjectError, match=r"objective\.auxiliary is empty"):
        toy_run.train(tmp_path, make_settings(**STEPS, objective__use="fast_electra"))


@pytest.mark.parametrize("samples", ["", "samples"])
def test_the_rehearsal_keeps_the_contract_online_and_from_samples(auxiliary, drawn, samples):
    settings = fast(auxiliary, objective__samples=samples)
    seen = dry_run(
        make_project(drawn, settings),
        make_vocabulary(drawn / "vocab"),
        make_shards(drawn / "shards"),
        Notes(),
    )
    assert seen.contract.breaches == () and seen.contract.without_gradient == ()
    assert seen.is_resume_identical
    assert ("auxiliary" in seen.parameters) == (samples == "")


def test_a_checkpoint_is_exported_without_the_auxiliary(auxiliary, drawn):
    run = toy_run.train(drawn, fast(auxiliary, objective__samples="samples"))
    weights = load_weights(run.folder)
    objective = FastElectra(weights.settings, VocabularyFacts.of(make_vocabulary(drawn)))
    load_module_tensors(objective, weights.tensors, "a checkpoint")
    assert set(objective.exports()) == {"encoder", "discriminator"}
