"""A system whose loss compares rows with each other is refused where a micro-batch has only one."""

from pathlib import Path

import pytest
from toy_run import Notes, make_project, make_settings, make_shards, make_vocabulary

from electra_cli.distributed import Ranks
from electra_cli.errors import ProjectError
from electra_cli.training.start import make_engine, make_job, make_run


def micro_batch_size(folder: Path, **changes: object) -> int:
    settings = make_settings(objective__use="coco_lm", objective__vector_size=8, **changes)
    vocabulary, shards = make_vocabulary(folder), make_shards(folder, num_parts=5)
    job = make_job(make_project(folder, settings), vocabulary, shards, Notes(), Ranks())
    return make_run(job, make_engine(job)).plan.micro_batch_size


@pytest.mark.parametrize(
    "changes",
    [{"pretrain__micro_batch_size": 1}, {"pretrain__micro_batch_size": 0, "pretrain__batch_size": 1}],
)
def test_one_row_is_refused_before_the_first_step_with_both_values(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(ProjectError) as caught:
        micro_batch_size(tmp_path, **changes)
    assert caught.value.key == "pretrain.micro_batch_size" and caught.value.exit_code == 3
    assert "needs 2 rows" in caught.value.message and "has 1" in caught.value.message


def test_two_rows_or_no_contrast_are_taken(tmp_path: Path) -> None:
    assert micro_batch_size(tmp_path, pretrain__micro_batch_size=2) == 2
    assert micro_batch_size(tmp_path, pretrain__micro_batch_size=1, objective__contrast_weight=0.0) == 1
