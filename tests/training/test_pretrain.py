"""The stage in one process: what is written, what continues, what is refused."""

import json
import math
import shutil
import signal

import pytest
import torch
from toy_run import (
    Notes,
    comparable_metrics,
    make_settings,
    make_shards,
    make_vocabulary,
    train,
    weights_sha256,
)

from electra_cli.data.rows import Rows
from electra_cli.distributed import Ranks
from electra_cli.errors import (
    CorruptError,
    DivergedError,
    ExitCode,
    InputError,
    InterruptedRunError,
    PreemptedError,
    ProjectError,
)
from electra_cli.training import checkpoint
from electra_cli.training.samples import open_samples
from electra_cli.training.signals import StopRequest

SHORT = {"pretrain__steps": 12, "pretrain__save_every": 5, "pretrain__heldout_every": 6}
BRIEF = {
    "pretrain__steps": 3,
    "pretrain__save_every": 2,
    "pretrain__micro_batch_size": 8,
    "pretrain__heldout_rows": 8,
}


class Interfere(Notes):
    """Calls `act` when `step` steps are done; a resumed run counts on from where it starts."""

    def __init__(self, step, act) -> None:
        super().__init__()
        self._left, self._act = step, act

    def advance(self, amount=1, *, note="") -> None:
        self._left -= amount
        if self._left == 0:
            self._act()


def only_run(folder):
    (run,) = [one for one in (folder / "runs").iterdir() if one.is_dir() and not one.is_symlink()]
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """12 steps in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    result = train(folder, make_settings(**SHORT))
    assert result.state == "finished"
    return result.folder


@pytest.fixture(scope="module")
def brief_folder(tmp_path_factory):
    """A project with a finished run of 3 steps."""
    folder = tmp_path_factory.mktemp("brief")
    train(folder, make_settings(**BRIEF))
    return folder


@pytest.fixture
def brief(tmp_path, brief_folder):
    """A copy of that run, in a project of its own."""
    shutil.copytree(brief_folder / "runs", tmp_path / "runs", symlinks=True)
    return only_run(tmp_path)


def test_the_run_folder_is_complete(undisturbed):
    names = {entry.name for entry in undisturbed.iterdir()} - {".lock"}
    assert names == {
        "project.toml",
        "resolved.toml",
        "manifest.json",
        "status.json",
        "metrics.jsonl",
        "log.txt",
        "checkpoints",
    }
    assert (undisturbed.parent / "latest").resolve() == undisturbed.resolve()
    assert json.loads((undisturbed / "status.json").read_text())["state"] == "finished"
    assert [step for step, _ in checkpoint.numbered(undisturbed / "checkpoints")] == [12, 10, 5]
    manifest = json.loads((undisturbed / "manifest.json").read_text())
    assert manifest["threads"] == torch.get_num_threads()
    assert manifest["micro_batch_size"] == 4
    assert manifest["parameters"].keys() == {"generator", "discriminator"}


def test_metrics_have_the_promised_keys(undisturbed):
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    figures = {"sampled_accuracy", "replaced_fraction", "disc_auc", "disc_precision", "disc_recall"}
    position = {"kind", "step", "epoch", "samples", "tokens", "loss", "losses", "clock"}
    train_lines = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train_lines] == [4, 8, 12]
    for line in train_lines:
        assert line.keys() == position | figures | {"lr", "grad_norm", "skipped_steps"}
        assert line["losses"].keys() == {"mlm", "rtd"}
        assert line["grad_norm"].keys() == {"generator", "discriminator"}
        assert line["clock"].keys() == {
            "seconds",
            "tokens_per_second",
            "data_wait_fraction",
            "peak_bytes",
            "eta_seconds",
        }
        assert line["clock"]["eta_seconds"] >= 0
        assert line["samples"] == 8 * line["step"]
        assert line["loss"] == pytest.approx(line["losses"]["mlm"] + 50 * line["losses"]["rtd"], rel=1e-6)
    heldout = [line for line in lines if line["kind"] == "heldout"]
    assert [line["step"] for line in heldout] == [6, 12]
    assert all(line.keys() == position | figures for line in heldout)


def test_the_loss_starts_at_chance_and_falls(tmp_path):
    settings = make_settings(
        pretrain__steps=30,
        pretrain__log_every=15,
        pretrain__micro_batch_size=8,
        pretrain__heldout_every=100,
        optimizer__learning_rate=5e-3,
    )
    train(tmp_path, settings)
    lines = [json.loads(line) for line in (only_run(tmp_path) / "metrics.jsonl").read_text().splitlines()]
    first, last = [line for line in lines if line["kind"] == "train"]
    assert last["losses"]["mlm"] < first["losses"]["mlm"] < math.log(512) + 0.1


@pytest.mark.parametrize(("step", "number"), [(1, signal.SIGTERM), (6, signal.SIGINT), (9, signal.SIGTERM)])
def test_pitfall_K15_a_signal_saves_and_the_same_command_continues_with_equal_bits(
    tmp_path, undisturbed, step, number
):
    stop = StopRequest()
    error = {signal.SIGINT: InterruptedRunError, signal.SIGTERM: PreemptedError}[number]
    settings = make_settings(**SHORT)
    with pytest.raises(error) as raised:
        train(tmp_path, settings, Interfere(step, lambda: setattr(stop, "signal", number)), stop=stop)
    assert raised.value.exit_code == (130 if number == signal.SIGINT else 75)
    run = only_run(tmp_path)
    assert checkpoint.numbered(run / "checkpoints")[0][0] == step
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == ("interrupted" if number == signal.SIGINT else "preempted")
    assert status["exit_code"] == raised.value.exit_code
    notes = Notes()
    assert train(tmp_path, settings, notes).state == "finished"
    assert f"continuing runs/{run.name} from step {step}" in notes.text
    assert comparable_metrics(run) == comparable_metrics(undisturbed)
    assert weights_sha256(run, 12) == weights_sha256(undisturbed, 12)


def test_pitfall_K16_step_a_million_begins_without_reading_what_lies_before(tmp_path, monkeypatch):
    vocabulary, shards = make_vocabulary(tmp_path), make_shards(tmp_path)
    samples = open_samples(make_settings(**SHORT), vocabulary, shards)
    num_read, plain = [0], Rows.read

    def counted(rows, row_R, sample_R):
        num_read[0] += len(row_R)
        return plain(rows, row_R, sample_R)

    monkeypatch.setattr(Rows, "read", counted)
    stream = samples.stream(8 * 1_000_000, Ranks(), pin_memory=False)
    assert next(stream).sample_B.tolist() == list(range(8_000_000, 8_000_008))
    # One batch, and some that are fetched ahead.
    assert 8 <= num_read[0] <= 8 * 100
    stream.close()


def test_stop_file_saves_and_ends(tmp_path):
    def touch():
        (only_run(tmp_path) / "STOP").touch()

    result = train(tmp_path, make_settings(**SHORT), Interfere(7, touch))
    assert (result.state, result.step) == ("stopped", 7)
    assert not (result.folder / "STOP").exists()
    assert checkpoint.numbered(result.folder / "checkpoints")[0][0] == 7
    assert train(tmp_path, make_settings(**SHORT)).state == "finished"


def test_save_file_saves_and_goes_on(tmp_path, undisturbed):
    def touch():
        (only_run(tmp_path) / "SAVE").touch()

    result = train(tmp_path, make_settings(**SHORT), Interfere(7, touch))
    assert result.state == "finished"
    assert not (result.folder / "SAVE").exists()
    assert 7 in [step for step, _ in checkpoint.numbered(result.folder / "checkpoints")]
    assert weights_sha256(result.folder, 12) == weights_sha256(undisturbed, 12)


def test_pitfall_K17_a_finished_run_is_left_alone(tmp_path, brief):
    settings, run = make_settings(**BRIEF), brief
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    notes = Notes()
    result = train(tmp_path, settings, notes)
    assert (result.state, result.folder, result.is_fresh) == ("finished", run, False)
    assert "already finished" in notes.text and "3/3" in notes.text
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_free_settings_may_change(tmp_path):
    stop = StopRequest()
    with pytest.raises(PreemptedError):
        act = Interfere(4, lambda: setattr(stop, "signal", signal.SIGTERM))
        train(tmp_path, make_settings(**SHORT), act, stop=stop)
    changed = SHORT | {"project__name": "other", "pretrain__log_every": 3, "pretrain__save_every": 7}
    notes = Notes()
    assert train(tmp_path, make_settings(**changed), notes).state == "finished"
    assert "from step 4" in notes.text


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"optimizer__learning_rate": 2e-3}, "optimizer.learning_rate"),
        ({"pretrain__steps": 4}, "pretrain.steps"),
        ({"project__seed": 1}, "project.seed"),
    ],
)
def test_changed_settings_begin_a_new_run_and_are_listed(tmp_path, brief, change, key):
    notes = Notes()
    second = train(tmp_path, make_settings(**(BRIEF | change)), notes).folder
    assert second != brief and second.name > brief.name
    assert key in notes.text and brief.name in notes.text
    # More steps alone: the older run could have them.
    assert ("--resume" in notes.text) == (key == "pretrain.steps")
    assert (tmp_path / "runs" / "latest").resolve() == second.resolve()


def test_resume_refuses_a_fatal_difference_with_both_values(tmp_path, brief):
    with pytest.raises(InputError) as raised:
        train(tmp_path, make_settings(**BRIEF, optimizer__learning_rate=2e-3), resume=brief)
    assert raised.value.exit_code == ExitCode.INPUT
    line = next(line for line in raised.value.message.splitlines() if "optimizer.learning_rate" in line)
    assert line.split() == ["optimizer.learning_rate", "0.001", "0.002"]


@pytest.mark.parametrize("options", [{"salt": "x"}, {"num_parts": 59}])
def test_other_vocabulary_or_shards_are_another_run(tmp_path, brief, options):
    with pytest.raises(InputError, match="content"):
        train(tmp_path, make_settings(**BRIEF), resume=brief, **options)


def test_pitfall_K17_steps_may_grow_with_resume(tmp_path, brief):
    run = brief
    longer = make_settings(**(BRIEF | {"pretrain__steps": 5}))
    notes = Notes()
    result = train(tmp_path, longer, notes, resume=run)
    assert (result.folder, result.step, result.state) == (run, 5, "finished")
    assert "pretrain.steps grows from 3 to 5" in notes.text and "from step 3" in notes.text
    assert train(tmp_path, longer).is_fresh is False


def test_steps_may_not_shrink_below_what_is_done(tmp_path, brief):
    with pytest.raises(InputError, match="3 steps"):
        train(tmp_path, make_settings(**(BRIEF | {"pretrain__steps": 2})), resume=brief)


def test_a_run_goes_on_with_layers_computed_again_and_ends_equal(tmp_path, undisturbed):
    stop = StopRequest()
    settings = make_settings(**SHORT)
    with pytest.raises(PreemptedError):
        train(tmp_path, settings, Interfere(4, lambda: setattr(stop, "signal", signal.SIGTERM)), stop=stop)
    run = only_run(tmp_path)
    again = make_settings(**(SHORT | {"pretrain__activation_checkpointing": True}))
    assert train(tmp_path, again).folder == run
    assert comparable_metrics(run) == comparable_metrics(undisturbed)
    assert weights_sha256(run, 12) == weights_sha256(undisturbed, 12)


def test_force_begins_a_new_run(tmp_path, brief):
    second = train(tmp_path, make_settings(**BRIEF), force_new=True).folder
    assert brief != second
    assert weights_sha256(brief, 3) == weights_sha256(second, 3)


def test_a_damaged_newest_checkpoint_falls_back_and_ends_equal(tmp_path, undisturbed):
    stop = StopRequest()
    settings = make_settings(**SHORT)
    with pytest.raises(PreemptedError):
        train(tmp_path, settings, Interfere(11, lambda: setattr(stop, "signal", signal.SIGTERM)), stop=stop)
    run = only_run(tmp_path)
    path = run / "checkpoints" / "step-00000011" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    notes = Notes()
    assert train(tmp_path, settings, notes).state == "finished"
    assert "damaged-checkpoint" in notes.codes and "from step 10" in notes.text
    assert comparable_metrics(run) == comparable_metrics(undisturbed)
    assert weights_sha256(run, 12) == weights_sha256(undisturbed, 12)


def test_a_finished_run_with_a_damaged_end_is_trained_to_its_end_again(tmp_path, undisturbed):
    run = tmp_path / "runs" / undisturbed.name
    shutil.copytree(undisturbed, run)
    path = run / "checkpoints" / "step-00000012" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    notes = Notes()
    result = train(tmp_path, make_settings(**SHORT), notes)
    assert (result.folder, result.state, result.is_fresh) == (run, "finished", True)
    assert "damaged-checkpoint" in notes.codes and "from step 10" in notes.text
    assert weights_sha256(run, 12) == weights_sha256(undisturbed, 12)


def test_a_request_left_by_a_process_that_is_gone_stops_nothing(tmp_path):
    stop = StopRequest()
    settings = make_settings(**SHORT)
    with pytest.raises(PreemptedError):
        train(tmp_path, settings, Interfere(3, lambda: setattr(stop, "signal", signal.SIGTERM)), stop=stop)
    (only_run(tmp_path) / "STOP").touch()
    result = train(tmp_path, settings)
    assert (result.state, result.step) == ("finished", 12)


def test_a_run_without_any_valid_checkpoint_is_refused(tmp_path):
    stop = StopRequest()
    settings = make_settings(**SHORT)
    with pytest.raises(PreemptedError):
        train(tmp_path, settings, Interfere(3, lambda: setattr(stop, "signal", signal.SIGTERM)), stop=stop)
    (only_run(tmp_path) / "checkpoints" / "step-00000003" / "state.json").write_bytes(b"{}")
    with pytest.raises(CorruptError, match=r"state\.json"):
        train(tmp_path, settings)


def test_a_broken_off_measurement_is_made_up_for(tmp_path, undisturbed, monkeypatch):
    """SIGTERM while the held-out rows are measured: the run ends at once, and ends equal."""
    from electra_cli.training import loop

    stop, measure = StopRequest(), loop.measure

    def interrupted(*arguments, **options):
        stop.signal = signal.SIGTERM
        return measure(*arguments, **options)

    monkeypatch.setattr(loop, "measure", interrupted)
    settings = make_settings(**SHORT)
    with pytest.raises(PreemptedError):
        train(tmp_path, settings, stop=stop)
    monkeypatch.undo()
    run = only_run(tmp_path)
    assert not any(line["kind"] == "heldout" for line in comparable_metrics(run))
    train(tmp_path, settings)
    assert comparable_metrics(run) == comparable_metrics(undisturbed)
    assert weights_sha256(run, 12) == weights_sha256(undisturbed, 12)


BROKEN = """
import torch
from dataclasses import replace
from electra_cli.objectives.electra import Electra

class Broken(Electra):
    def forward(self, batch, update, progress, carry=None):
        losses = super().forward(batch, update, progress, carry)
        is_bad = torch.isin(batch.sample_B // 8, torch.tensor({steps})).any()
        factor = torch.where(is_bad, float("{value}"), 1.0)
        return replace(losses, sums={{name: value * factor for name, value in losses.sums.items()}})
"""


def train_broken(folder, steps, value, **changes):
    (folder / "broken.py").write_text(BROKEN.format(steps=steps, value=value))
    settings = make_settings(**(SHORT | {"objective__use": "broken.py:Broken"} | changes))
    notes = Notes()
    return train(folder, settings, notes), notes


def test_single_bad_steps_are_skipped_and_counted(tmp_path):
    result, _ = train_broken(tmp_path, [3, 4, 7], "nan")
    assert result.state == "finished"
    lines = [line for line in comparable_metrics(result.folder) if line["kind"] == "train"]
    assert [line["skipped_steps"] for line in lines] == [1, 3, 3]
    assert all(line["loss"] is not None for line in lines)
    weights = checkpoint.load_weights(result.folder)
    assert all(torch.isfinite(value).all() for value in weights.tensors.values())


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_four_bad_steps_in_a_row_end_the_run(tmp_path, value):
    with pytest.raises(DivergedError) as raised:
        train_broken(tmp_path, [7, 8, 9, 10], value)
    assert raised.value.exit_code == ExitCode.DIVERGED
    assert "step 10" in raised.value.message and "step-00000010" in raised.value.message
    run = only_run(tmp_path)
    crash = json.loads((run / "crash" / "step-10.json").read_text())
    assert crash["samples"] == list(range(80, 88))
    assert crash["skipped_recently"] == [7, 8, 9, 10]
    assert json.loads((run / "status.json").read_text())["exit_code"] == 7
    # Nothing moved since step 7: the state in the crash folder is that before the first bad step.
    before = checkpoint.load(run / "crash" / crash["state_before"])
    saved = checkpoint.load(run / "checkpoints" / "step-00000010")
    assert all(torch.equal(before.model[name], saved.model[name]) for name in saved.model)
    assert all(torch.isfinite(value).all() for value in saved.model.values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    with pytest.raises(DivergedError, match=r"finite|loss became nan"):
        train(
            tmp_path,
            make_settings(**(SHORT | {"optimizer__learning_rate": 1e38, "schedule__warmup_steps": 0})),
        )
    for file in tmp_path.rglob("model.safetensors"):
        tensors = checkpoint.load(file.parent).model.values()
        assert all(torch.isfinite(value).all() for value in tensors)


def test_micro_batches_change_nothing_but_rounding(tmp_path):
    runs = {}
    for micro in (8, 4, 2):
        folder = tmp_path / str(micro)
        folder.mkdir()
        settings = make_settings(
            **(BRIEF | {"pretrain__log_every": 1, "pretrain__micro_batch_size": micro}),
            model__dropout=0.0,
            model__attention_dropout=0.0,
        )
        runs[micro] = train(folder, settings).folder
    losses = {
        micro: [
            line["loss"]
            for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
            if "loss" in line
        ]
        for micro, run in runs.items()
    }
    for micro in (4, 2):
        assert losses[micro] == pytest.approx(losses[8], rel=1e-5)


def test_a_float16_run_is_refused_on_a_cpu(tmp_path):
    with pytest.raises(InputError, match="fp16"):
        train(tmp_path, make_settings(pretrain__precision="fp16"))
    assert not (tmp_path / "runs").exists()


def test_an_unknown_sampler_is_a_project_error(tmp_path):
    with pytest.raises(ProjectError, match="triton"):
        train(tmp_path, make_settings(pretrain__sampler="triton"))
    assert not (tmp_path / "runs").exists()


def test_warnings_are_in_the_metrics_too(tmp_path):
    notes = Notes()
    train(tmp_path, make_settings(**(BRIEF | {"schedule__warmup_steps": 3})), notes)
    assert notes.codes == ["warmup", "corpus"]
    warnings = [line for line in comparable_metrics(only_run(tmp_path)) if line["kind"] == "warning"]
    assert [line["code"] for line in warnings] == notes.codes


def test_an_own_run_can_be_started_from(tmp_path, brief):
    notes = Notes()
    second = train(
        tmp_path, make_settings(**BRIEF, pretrain__init_from=str(brief), optimizer__learning_rate=0.0), notes
    ).folder
    assert "all weights of step 3" in notes.text and "optimizer and schedule are fresh" in notes.text
    old, new = checkpoint.load_weights(brief).tensors, checkpoint.load_weights(second).tensors
    assert all(torch.equal(old[name], new[name]) for name in old)


def test_starting_from_a_run_of_another_vocabulary_is_refused(tmp_path, brief):
    with pytest.raises(InputError, match="vocabulary"):
        train(tmp_path, make_settings(**BRIEF, pretrain__init_from=str(brief)), salt="x")


def test_starting_from_a_run_with_another_generator_says_what_is_fresh(tmp_path, brief):
    notes = Notes()
    train(tmp_path, make_settings(**BRIEF, pretrain__init_from=str(brief), generator__width=8), notes)
    assert "newly initialised: generator" in notes.text


def test_starting_from_a_short_position_table_is_refused(tmp_path, brief):
    settings = make_settings(**BRIEF, pretrain__init_from=str(brief), rows__sequence_length=640)
    with pytest.raises(InputError) as raised:
        train(tmp_path, settings)
    assert "512" in raised.value.message and "640" in raised.value.message
