"""What the ladder compares: its file of cells, and how many steps a budget of counted FLOPs buys each."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tomli
from pydantic import Field, ValidationError

from electra_cli.data.vocabulary import Vocabulary
from electra_cli.project import load_project
from electra_cli.settings_base import Count, CountOrZero, Settings, Share

MEASUREMENTS, CHECKPOINTS, LINES = 5, 10, 50
"""How often a run is measured on held-out rows, saved, and logged, about."""


class Cell(Settings):
    """One system, trained from one seed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    """Of its result's file."""
    system: str
    """Its row in the table; cells of one row differ in their seed alone."""
    seed: int = Field(0, ge=0)
    """Seed of pre-training."""
    set: list[str] = Field(default_factory=list)
    """Settings over the project file, as `--set` takes them."""
    auxiliary: str = ""
    """The cell whose generator is the frozen model of this one."""


class Ladder(Settings):
    """The file of cells."""

    budget: float = Field(gt=0)
    """Counted FLOPs of a cell's pre-training."""
    warmup_fraction: Share
    """Share of the steps with rising learning rate."""
    tasks: list[str] = Field(default_factory=list)
    """Fine-tuned on, in the order of the table."""
    seeds: Count
    """Fine-tuning runs a task."""
    limit: CountOrZero = 0
    """Most examples of each split; 0: all."""
    fine_tuning: list[str] = Field(default_factory=list)
    """Settings of it over the project file, as `--set` takes them."""
    pairs: CountOrZero = 0
    """Most minimal pairs of each set; 0: all."""
    results: str = Field("results", pattern=r"^[a-z][a-z0-9-]*$")
    """Folder of the JSONs, beside the file."""
    cell: list[Cell] = Field(min_length=1)
    """In the order in which they are run."""

    def named(self, name: str) -> Cell:
        """The cell of this name; SystemExit lists the known ones."""
        for cell in self.cell:
            if cell.name == name:
                return cell
        raise SystemExit(f"there is no cell {name}; there are {', '.join(cell.name for cell in self.cell)}")


def read_ladder(path: Path) -> Ladder:
    """The cells of a file. SystemExit says what is wrong with it."""
    try:
        ladder = Ladder.model_validate(tomli.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomli.TOMLDecodeError, ValidationError) as error:
        raise SystemExit(f"{path}: {error}") from error
    twice = [name for name, number in Counter(cell.name for cell in ladder.cell).items() if number > 1]
    if twice:
        raise SystemExit(f"{path}: there are two cells {twice[0]}")
    for cell in ladder.cell:
        if cell.auxiliary and ladder.named(cell.auxiliary).auxiliary:
            raise SystemExit(f"{path}: {cell.name} waits for {cell.auxiliary}, which waits for another cell")
    return ladder


def settings_sha256(ladder: Ladder, cell: Cell, project_file: Path, budget: float) -> str:
    """Hash of all that decides what a cell trains, but for the text."""
    content = {
        "project": tomli.loads(project_file.read_text(encoding="utf-8")),
        "set": cell.set,
        "seed": cell.seed,
        "auxiliary": cell.auxiliary,
        "warmup_fraction": ladder.warmup_fraction,
        "budget": budget,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def steps_for(budget: float, flops_per_token: float, tokens_per_step: int) -> int:
    """The number of steps whose cost is nearest to the budget, at least one."""
    return max(1, round(budget / (flops_per_token * tokens_per_step)))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A cell at a budget."""

    cell: Cell
    flops_per_token: float
    """Counted, for each place of a row."""
    tokens_per_step: int
    """Places of all rows of a step."""
    steps: int
    sets: tuple[str, ...]
    """All settings over the project file."""

    @property
    def flops(self) -> float:
        """What the steps cost; within half a step of the budget."""
        return self.flops_per_token * self.tokens_per_step * self.steps

    @property
    def flags(self) -> list[str]:
        """`sets` for a command line."""
        return [word for one in self.sets for word in ("--set", one)]


def plan_cell(
    ladder: Ladder,
    cell: Cell,
    budget: float,
    *,
    project_file: Path,
    corpus: Path,
    vocabulary: Vocabulary,
    auxiliary: Path | None,
) -> Plan:
    """Steps and settings of a cell; `auxiliary`: its frozen model's folder. ElectraError as a command."""
    # They import torch, which a ladder that has nothing to do does without.
    from electra_cli.models.masked_lm_folders import load_masked_lm
    from electra_cli.objectives.costs import training_flops

    sets = [
        *cell.set,
        f"project.name={cell.name}",
        f"project.seed={cell.seed}",
        f"corpus.files={json.dumps([str(corpus)])}",
    ]
    if auxiliary is not None:
        sets.append(f"objective.auxiliary={json.dumps(str(auxiliary))}")
    settings = load_project(project_file, sets, environ={}).settings
    flops_per_token = training_flops(
        settings,
        vocabulary_size=vocabulary.size,
        padding_id=vocabulary.padding_id,
        auxiliary=None if auxiliary is None else load_masked_lm(auxiliary).config,
    )
    tokens_per_step = settings.rows.sequence_length * settings.pretrain.batch_size
    steps = steps_for(budget, flops_per_token, tokens_per_step)
    sets += [
        f"pretrain.steps={steps}",
        f"schedule.warmup_steps={round(ladder.warmup_fraction * steps)}",
        f"pretrain.heldout_every={max(1, -(-steps // MEASUREMENTS))}",
        f"pretrain.save_every={max(1, steps // CHECKPOINTS)}",
        f"pretrain.log_every={max(1, steps // LINES)}",
    ]
    return Plan(
        cell=cell,
        flops_per_token=flops_per_token,
        tokens_per_step=tokens_per_step,
        steps=steps,
        sets=tuple(sets),
    )
