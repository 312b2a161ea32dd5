"""A toy project that trains in a second, for tests in this process and in others.

As a program: `python toy_run.py FOLDER [--resume PATH] [table.key=value …]` trains in FOLDER, prints what the
library reports, and exits with the code that the command would.
"""

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from electra_cli.data.shards import Shard, ShardSet
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.errors import ElectraError
from electra_cli.progress import Progress
from electra_cli.project import Project, project_from_settings
from electra_cli.settings import ProjectSettings

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_SIZE = 512


def make_settings(**changes: object) -> ProjectSettings:
    """A 2 × 32 network, dropout on, 40 steps of 8 rows of 32 tokens; `table__key=value` changes one."""
    values: dict[str, dict[str, object]] = {
        "rows": {"sequence_length": 32},
        "model": {"size": "toy"},
        "generator": {"width": 16},
        "optimizer": {"learning_rate": 1e-3},
        "schedule": {"warmup_steps": 10},
        "pretrain": {
            "steps": 40,
            "batch_size": 8,
            "micro_batch_size": 4,
            "log_every": 4,
            "save_every": 20,
            "heldout_every": 10,
            "heldout_rows": 16,
            "device": "cpu",
            "precision": "fp32",
        },
    }
    for key, value in changes.items():
        table, _, name = key.partition("__")
        values.setdefault(table, {})[name] = value
    return ProjectSettings.model_validate(values)


def make_vocabulary(folder: Path, salt: str = "") -> Vocabulary:
    """512 pieces that stand for nothing."""
    pieces = {piece: number for number, piece in enumerate(SPECIALS)}
    pieces |= {f"w{number}{salt}": number for number in range(len(pieces), VOCABULARY_SIZE)}
    tokenizer = Tokenizer(WordPiece(pieces, unk_token="[UNK]"))
    return Vocabulary(
        folder=folder,
        tokenizer=tokenizer,
        size=VOCABULARY_SIZE,
        sha256=hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
        padding_id=0,
        unknown_id=1,
        cls_id=2,
        sep_id=3,
        mask_id=4,
        lowercase=True,
        manifest={},
    )


def make_shards(folder: Path, *, num_parts: int = 60, seed: int = 0) -> ShardSet:
    """Parts of words with a skewed distribution, one training and one held-out shard."""

    def stream(number: int, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.uint16]]":
        random = np.random.default_rng(seed)
        tokens: list[int] = []
        for _ in range(number):
            words = np.minimum(5 + random.geometric(0.02, random.integers(20, 90)), VOCABULARY_SIZE - 1)
            tokens += [2, *words.tolist(), 3]
        return np.array(tokens, dtype=np.uint16)

    train, heldout = stream(num_parts, seed), stream(8, seed + 1000)
    digest = hashlib.sha256(train.tobytes() + heldout.tobytes()).hexdigest()
    return ShardSet(
        folder=folder,
        manifest={},
        manifest_sha256=digest,
        train=(Shard(folder / "shard-00000.arrow", "train", "", num_parts, train),),
        heldout=(Shard(folder / "heldout-00000.arrow", "heldout", "", 8, heldout),),
        num_content_tokens=len(train) + len(heldout) - 2 * (num_parts + 8),
    )


class Notes(Progress):
    """Keeps what it hears; `slow` waits at each step, so that a test can interfere."""

    def __init__(self, *, is_printing: bool = False, slow: float = 0.0) -> None:
        self.lines: list[str] = []
        self.codes: list[str] = []
        self.records: list[Mapping[str, object]] = []
        self._is_printing = is_printing
        self._slow = slow

    def begin(self, task: str, total: int | None = None, unit: str = "") -> None: ...

    def advance(self, amount: int = 1, *, note: str = "") -> None:
        if self._slow:
            time.sleep(self._slow)

    def end(self) -> None: ...

    def message(self, text: str) -> None:
        self._say(text)

    def warning(self, text: str, *, code: str = "") -> None:
        self.codes.append(code)
        self._say(f"warning {code}: {text}")

    def figures(self, kind: str, values: Mapping[str, object]) -> None:
        self.records.append(values)
        if self._is_printing:
            print(f"{kind} {values['step']}", flush=True)

    def _say(self, text: str) -> None:
        self.lines.append(text)
        if self._is_printing:
            print(text, flush=True)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def make_project(folder: Path, settings: ProjectSettings) -> Project:
    return project_from_settings(settings, folder)


def train(folder: Path, settings: ProjectSettings, progress: Progress | None = None, **options: object):
    """Train with the toy vocabulary and shards; `num_parts` and `salt` change those."""
    from electra_cli.training.pretrain import pretrain

    num_parts, salt = int(options.pop("num_parts", 60)), str(options.pop("salt", ""))
    return pretrain(
        make_project(folder, settings),
        make_vocabulary(folder / "vocab", salt),
        make_shards(folder / "shards", num_parts=num_parts),
        progress if progress is not None else Notes(),
        **options,
    )


def comparable_metrics(run: Path) -> list[dict[str, object]]:
    """metrics.jsonl without the clock, floats as hexadecimal."""

    def exact(value: object) -> object:
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, dict):
            return {key: exact(one) for key, one in value.items()}
        return value

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: exact(value) for key, value in line.items() if key != "clock"} for line in lines]


def weights_sha256(run: Path, step: int) -> tuple[str, str]:
    folder = run / "checkpoints" / f"step-{step:08d}"
    return tuple(
        hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "optimizer.safetensors")
    )


def main(arguments: list[str]) -> int:
    from electra_cli.training.signals import handling_signals

    folder, options, slow = Path(arguments[0]), {}, 0.0
    changes: dict[str, object] = {}
    for argument in arguments[1:]:
        key, _, value = argument.partition("=")
        if key == "--resume":
            options["resume"] = Path(value)
        elif key == "--slow":
            slow = float(value)
        elif key == "--num-parts":
            options["num_parts"] = int(value)
        else:
            changes[key.replace(".", "__")] = json.loads(value)
    with handling_signals() as stop:
        try:
            train(folder, make_settings(**changes), Notes(is_printing=True, slow=slow), stop=stop, **options)
        except ElectraError as error:
            print(f"error: {error.message} | {error.hint}", flush=True)
            return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
