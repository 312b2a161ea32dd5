"""The zip that the GLUE leaderboard takes: eleven tab-separated files of predictions."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from electra_cli import durable
from electra_cli.errors import InputError
from electra_cli.evaluation.examples import Examples
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.predict import predict
from electra_cli.evaluation.saved import load_fine_tuned
from electra_cli.evaluation.sources import load_test
from electra_cli.evaluation.tasks import GLUE, Split
from electra_cli.progress import Progress

SUBMITTED = ("cola", "sst2", "mrpc", "stsb", "mnli", "qnli", "qqp", "rte", "wnli")
"""Tasks that a submission needs a fine-tuned model of; MNLI's also answers AX."""

_MODEL_OF = {"ax": "mnli"}
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def load_test_files(
    place: Place, official_rows: Mapping[str, int] | None = None
) -> dict[str, dict[Split, Examples]]:
    """Every official test file, by task, each with the number of rows that the leaderboard expects.

    `official_rows` replaces the numbers by name of the file in the zip. Raises InputError for a file that is
    missing or has another number of rows: the leaderboard refuses such a zip.
    """
    loaded: dict[str, dict[Split, Examples]] = {}
    for name in (*SUBMITTED, "ax"):
        loaded[name] = load_test(GLUE[name], place)
        for split, examples in loaded[name].items():
            wanted = (official_rows or {}).get(split.result, split.official_rows)
            if len(examples) != wanted:
                raise InputError(
                    f"{examples.source} has {len(examples):,} rows; the leaderboard expects {wanted:,} "
                    f"in {split.result}.tsv",
                    path=examples.source,
                    hint="--submit needs GLUE's own test files",
                )
            if len(set(examples.indices)) != len(examples):
                raise InputError(
                    f"{examples.source}: an index occurs twice; the leaderboard needs one answer a row",
                    path=examples.source,
                )
    return loaded


def write_submission(
    models: Path,
    tests: Mapping[str, Mapping[Split, Examples]],
    out: Path,
    arithmetic: Arithmetic,
    progress: Progress,
) -> int:
    """Answer every test file with the model of its task below `models`, write the zip, return its files."""
    buffer = io.BytesIO()
    progress.begin("answer test sets", sum(len(of) for of in tests.values()), "files")
    count = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, splits in tests.items():
            model = load_fine_tuned(models / _MODEL_OF.get(name, name))
            for split, examples in splits.items():
                answers = predict(model, examples, arithmetic)
                lines = ["index\tprediction"]
                lines += [
                    f"{number}\t{answer}"
                    for number, answer in zip(examples.indices, answers.names, strict=True)
                ]
                assert len(lines) == len(examples) + 1
                entry = zipfile.ZipInfo(f"{split.result}.tsv", _ZIP_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, "\n".join(lines) + "\n")
                count += 1
                progress.advance(note=split.result)
    progress.end()
    durable.write_bytes(out, buffer.getvalue())
    return count
