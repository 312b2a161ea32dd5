"""How the stages find each other's output, and what the status board says of it."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from electra_cli.errors import InputError
from electra_cli.pipeline import (
    STAGES,
    ensure_shards,
    ensure_vocabulary,
    evaluation_model,
    export_run,
    newest_run,
    refuse_to_replace,
)
from electra_cli.pipeline_runs import compare_runs, find_runs, last_record, named_run, run_facts
from electra_cli.pipeline_status import Condition, StageState, next_command, stage_states
from electra_cli.progress import Silent
from electra_cli.project import Project, load_project


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def project_in(folder: Path, *sets: str) -> Project:
    return load_project(None, sets, environ={}, cwd=folder)


def make_vocabulary(folder: Path, sha256: str = "v1", **settings: object) -> None:
    inputs = []
    for name in ("corpus/a.txt", "corpus/z.txt"):
        write(folder / name, f"some text of {name}\n")
        inputs.append({"path": name, "bytes": (folder / name).stat().st_size, "sha256": "x"})
    manifest = {"size": 30_522, "sha256": {"tokenizer.json": sha256}, "settings": settings, "inputs": inputs}
    write(folder / "vocab" / "manifest.json", manifest)


def make_shards(folder: Path, vocabulary: str = "v1") -> None:
    write(folder / "shards" / "manifest.json", {"vocab_sha256": vocabulary, "num_content_tokens": 1234})


def make_run(
    folder: Path,
    name: str,
    *,
    state: str = "finished",
    steps: Sequence[int] = (20,),
    exported: int | None = None,
) -> Path:
    run = folder / "runs" / name
    write(run / "manifest.json", {"vocabulary_sha256": "v1", "versions": {"torch": "2.13"}})
    write(run / "status.json", {"state": state, "step": max(steps, default=0), "steps": 20})
    for step in steps:
        write(run / "checkpoints" / f"step-{step:08d}" / "MANIFEST.json", {})
    if exported is not None:
        write(run / "export" / "encoder" / "config.json", {})
        write(run / "export" / "export.json", {"step": exported})
    return run


def conditions(folder: Path, *sets: str) -> tuple[StageState, ...]:
    return stage_states(project_in(folder, *sets))


def test_the_stages_stand_in_pipeline_order() -> None:
    assert [stage.command for stage in STAGES] == [
        "electra build-vocab",
        "electra shard-corpus",
        "electra pretrain",
        "electra export",
        "electra eval-glue",
    ]
    for before, after in pairwise(STAGES):
        assert any(read.startswith(before.writes[:5]) for read in after.reads)


def test_an_empty_project_begins_with_the_vocabulary(tmp_path: Path) -> None:
    states = conditions(tmp_path)
    assert {state.condition for state in states} == {Condition.MISSING}
    assert next_command(states) == "electra build-vocab"


def test_each_stage_that_is_there_moves_the_next_command_on(tmp_path: Path) -> None:
    make_vocabulary(tmp_path)
    assert next_command(conditions(tmp_path)) == "electra shard-corpus"
    make_shards(tmp_path)
    assert next_command(conditions(tmp_path)) == "electra pretrain"
    run = make_run(tmp_path, "1-a")
    assert next_command(conditions(tmp_path)) == "electra export"
    make_run(tmp_path, "1-a", exported=20)
    assert next_command(conditions(tmp_path)) == "electra eval-glue"
    write(run / "evaluate" / "glue" / "results.json", {"checkpoint_step": 20, "tasks": {"mnli-m": {}}})
    states = conditions(tmp_path)
    assert {state.condition for state in states} == {Condition.CURRENT}
    assert next_command(states) == ""
    assert "30,522 pieces" in states[0].detail


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("setting", "vocab.size was 30522, is 100"),
        ("new", "corpus/b.txt is not in it"),
        ("gone", "corpus/z.txt is gone"),
        ("size", "corpus/a.txt changed"),
    ],
)
def test_a_vocabulary_of_other_text_or_settings_is_stale(tmp_path: Path, change: str, words: str) -> None:
    make_vocabulary(tmp_path, size=30_522)
    make_shards(tmp_path)
    if change == "new":
        write(tmp_path / "corpus" / "b.txt", "more text\n")
    if change == "gone":
        (tmp_path / "corpus" / "z.txt").unlink()
    if change == "size":
        write(tmp_path / "corpus" / "a.txt", "some more text\n")
    states = conditions(tmp_path, *(["vocab.size=100"] if change == "setting" else []))
    assert (states[0].condition, states[0].detail) == (Condition.STALE, words)
    # What was made from it is no better.
    assert states[1].condition is Condition.STALE
    assert next_command(states) == "electra build-vocab --force"


def test_pitfall_K3_shards_of_another_vocabulary_are_stale(tmp_path: Path) -> None:
    make_vocabulary(tmp_path, "v2")
    make_shards(tmp_path, "v1")
    state = conditions(tmp_path)[1]
    assert (state.condition, state.detail) == (Condition.STALE, "made with another vocabulary")


def test_an_interrupted_run_is_unfinished_and_an_old_export_stale(tmp_path: Path) -> None:
    make_vocabulary(tmp_path)
    make_shards(tmp_path)
    make_run(tmp_path, "1-a", state="interrupted", steps=(5, 10), exported=5)
    states = conditions(tmp_path)
    assert (states[2].condition, states[2].detail) == (
        Condition.UNFINISHED,
        "1-a, interrupted at step 10 of 20",
    )
    assert states[3].condition is Condition.STALE
    assert next_command(states) == "electra pretrain"


def test_the_newest_run_is_the_last_by_name_that_has_a_checkpoint(tmp_path: Path) -> None:
    old = make_run(tmp_path, "1-a")
    make_run(tmp_path, "2-b", state="running", steps=())
    (tmp_path / "runs" / "latest").symlink_to("2-b")
    assert [run.path.name for run in find_runs(tmp_path / "runs")] == ["2-b", "1-a"]
    assert newest_run(project_in(tmp_path)) == old


def test_a_checkpoint_stands_for_its_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, "1-a", steps=(5, 10))
    assert run_facts(run / "checkpoints" / "step-00000005").path == run
    assert run_facts(run).checkpoint_step == 10
    with pytest.raises(InputError, match="no manifest"):
        run_facts(tmp_path)


def test_pitfall_K30_what_is_missing_is_named_with_its_command(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for call, command in (
        (lambda: ensure_vocabulary(project, Silent(), build=False), "electra build-vocab"),
        (lambda: ensure_shards(project, Silent(), build=False), "electra build-vocab"),
        (lambda: newest_run(project), "electra pretrain"),
        (lambda: export_run(project, None, None, Silent()), "electra pretrain"),
        (lambda: evaluation_model(project, None, Silent()), "electra pretrain"),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert command in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_model_to_evaluate_is_the_newest_export(tmp_path: Path) -> None:
    make_run(tmp_path, "1-a", exported=20)
    newer = make_run(tmp_path, "2-b", exported=20)
    make_run(tmp_path, "3-c", state="running", steps=(5,))
    assert evaluation_model(project_in(tmp_path), None, Silent()) == newer / "export" / "encoder"


def test_a_named_model_may_be_a_folder_an_export_or_a_run(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    run = make_run(tmp_path, "1-a", exported=20)
    encoder = run / "export" / "encoder"
    for named in (encoder, run / "export", run):
        assert evaluation_model(project, named, Silent()) == encoder
    for wrong in (tmp_path / "nowhere", tmp_path / "runs"):
        with pytest.raises(InputError, match="--model"):
            evaluation_model(project, wrong, Silent())


def test_security_S11_no_output_goes_where_it_would_destroy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "work" / "project"
    (root / "corpus" / "deep").mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (root / "link").symlink_to(root / "corpus")
    project = project_in(root)
    for wrong in (
        Path("/"),
        tmp_path / "home",
        Path("~"),
        tmp_path / "repository",
        root,
        root.parent,
        root / "corpus",
        root / "corpus" / "deep",
        root / "link",
        root / "deep" / "..",
    ):
        with pytest.raises(InputError, match="nothing is written there"):
            refuse_to_replace(wrong, project)
    refuse_to_replace(root / "out", project)
    # Nobody has that name, and a link that leads to itself leads nowhere.
    (root / "loop").symlink_to("loop")
    for strange in (Path("~nobody-of-that-name/x"), root / "loop"):
        refuse_to_replace(strange, project)
    # A name that only begins like the corpus is another folder.
    refuse_to_replace(root / "corpus_export", project)


def test_the_last_record_of_a_kind_is_found_among_broken_lines(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", '{"kind": "heldout", "step": 1}\n{"kind": "heldout", "step": 2}\n{"ki')
    assert last_record(tmp_path, "heldout") == {"kind": "heldout", "step": 2}
    assert last_record(tmp_path / "none", "heldout") == {}


def test_two_runs_are_compared_by_settings_and_last_figures(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, name) for name in ("1-a", "2-b")]
    for number, run in enumerate(runs):
        write(run / "resolved.toml", f"[pretrain]\nsteps = {number}\nbatch_size = 8\n")
        record = {"kind": "heldout", "step": 20, "losses": {"mlm": 4.0 + number}, "clock": {}}
        write(run / "metrics.jsonl", json.dumps(record) + "\n")
    comparison = compare_runs(*runs)
    assert comparison.settings == {"pretrain.steps": (0, 1)}
    assert comparison.figures == {"step": (20, 20), "mlm": (4.0, 5.0)}
    assert named_run(tmp_path / "runs", Path("1-a")) == runs[0]
    with pytest.raises(InputError):
        named_run(tmp_path / "runs", Path("nope"))
