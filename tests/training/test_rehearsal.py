"""`dry_run`: measured by real steps, nothing written."""

from toy_run import Notes, make_project, make_settings, make_shards, make_vocabulary

from electra_cli.pipeline_check import rehearsal_findings
from electra_cli.training.dry_run import dry_run


def test_a_rehearsal_measures_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("electra_cli.training.dry_run._MOST_STEPS", 2)
    settings = make_settings(schedule__warmup_steps=40, pretrain__micro_batch_size=2)
    measured = dry_run(
        make_project(tmp_path, settings), make_vocabulary(tmp_path), make_shards(tmp_path), Notes()
    )
    assert list(tmp_path.iterdir()) == []
    assert measured.is_resume_identical
    assert measured.parameters.keys() == {"generator", "discriminator"}
    assert measured.steps_timed == 2
    assert measured.seconds_per_step > 0 and measured.total_seconds == 40 * measured.seconds_per_step
    # Weights and two moments in float32; the shared table lies there once.
    assert 12 * 40_000 < measured.checkpoint_bytes < 12 * 200_000
    assert measured.epochs == 40 * 8 / measured.num_rows
    assert {concern.code for concern in measured.concerns} == {"warmup", "corpus"}
    findings = rehearsal_findings(measured)
    assert len(findings) == 7 and all(finding.is_good for finding in findings)
