"""Ids that a frozen model drew before the run, one file after another: written, checked and read again.

`samples/` holds `drawn-00000.arrow`, … for the samples of a run in their order, `heldout.arrow` for its
held-out rows, and manifest.json. Each file is Arrow IPC, uncompressed, one record batch, memory-mapped;
column `ids: fixed_size_list<uint16|uint32>[K]` has K slots for the chosen positions of a row, 2 or 4 bytes
each. The files' headers hold the plan that they belong to, so that unfinished work is known as such.
"""

# B batch, K slots of a row

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from electra_cli.data.checked_files import VERIFIED, check_files
from electra_cli.data.checked_manifest import NAME, read_checked, write_manifest
from electra_cli.durable import sha256_file, writing
from electra_cli.errors import CorruptError, InputError

FORMAT = "electra-samples-1"
HELDOUT = "heldout.arrow"
COMMAND = "electra cache-samples"
_LOCK = ".lock"
_FILE = re.compile(r"drawn-\d{5,}\.arrow|heldout\.arrow")
_REBUILD = f"restore the file, or draw again: {COMMAND} --force"

Plan = Mapping[str, Any]
"""Everything that the drawn ids depend on, by dotted setting, as JSON values."""
Int64 = NDArray[np.int64]


def file_name(number: int) -> str:
    """`drawn-00012.arrow`."""
    return f"drawn-{number:05d}.arrow"


def id_type(vocabulary_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smaller of the two types that holds every id."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def write_drawn(path: Path, ids_BK: Int64, sample_B: Int64, *, vocabulary_size: int, plan: Plan) -> None:
    """Write the ids of consecutive samples, or of the held-out rows with these numbers."""
    values = pa.array(ids_BK.astype(id_type(vocabulary_size)).reshape(-1))
    columns = {"ids": pa.FixedSizeListArray.from_arrays(values, ids_BK.shape[1])}
    if path.name == HELDOUT:
        columns["row"] = pa.array(sample_B)
    facts = {"plan": json.dumps(plan), "first": str(int(sample_B[0]) if len(sample_B) else 0)}
    batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(facts)
    with writing(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


@dataclass(frozen=True, kw_only=True)
class DrawnFile:
    """One file, memory-mapped."""

    plan: Plan
    first: int
    """Number of its first sample."""
    ids_BK: NDArray[np.uint16] | NDArray[np.uint32]
    row_B: Int64 | None
    """Numbers of the held-out rows; `None` where samples are consecutive."""


def map_drawn(path: Path) -> DrawnFile:
    """Open one file; `CorruptError` where it is none that `write_drawn` wrote."""
    damaged = CorruptError(f"{path} is no file that {COMMAND} wrote", path=path, hint=_REBUILD)
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            facts: dict[bytes, bytes] = reader.schema.metadata or {}
            batch = reader.get_batch(0)
        plan, first = json.loads(facts[b"plan"]), int(facts[b"first"])
        column = batch.column("ids")
        flat = column.flatten().to_numpy(zero_copy_only=True)
        rows = batch.column("row").to_numpy(zero_copy_only=True) if path.name == HELDOUT else None
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, ValueError) as error:
        raise damaged from error
    if not isinstance(plan, dict) or not pa.types.is_fixed_size_list(column.type):
        raise damaged
    return DrawnFile(
        plan=plan, first=first, ids_BK=flat.reshape(len(batch), column.type.list_size), row_B=rows
    )


@dataclass(frozen=True, kw_only=True)
class DrawnSamples:
    """A finished folder: the ids of every sample of a run, and of its held-out rows."""

    folder: Path
    manifest: Mapping[str, Any]
    manifest_sha256: str
    samples_per_file: int
    _open: dict[str, DrawnFile] = field(default_factory=dict, repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """What the ids depend on."""
        plan: Plan = self.manifest["plan"]
        return plan

    def ids_of(self, sample_B: Int64) -> Int64:
        """The ids [B, K] of samples in any order.

        Beyond the plan, where a stream looks ahead, come those of its beginning.
        """
        number_B, place_B = np.divmod(sample_B % self.manifest["num_samples"], self.samples_per_file)
        ids_BK = np.empty((len(sample_B), self.manifest["slots"]), dtype=np.int64)
        for number in np.unique(number_B).tolist():
            here = number_B == number
            ids_BK[here] = self._file(file_name(number)).ids_BK[place_B[here]]
        return ids_BK

    def heldout_ids_of(self, row_B: Int64) -> Int64:
        """The ids [B, K] of held-out rows."""
        stored = self._file(HELDOUT)
        assert stored.row_B is not None
        place_B = np.searchsorted(stored.row_B, row_B)
        assert np.array_equal(stored.row_B[place_B], row_B)
        return stored.ids_BK[place_B].astype(np.int64)

    def _file(self, name: str) -> DrawnFile:
        if name not in self._open:
            self._open[name] = map_drawn(self.folder / name)
        return self._open[name]


def open_drawn(folder: Path, *, verify: bool = False) -> DrawnSamples:
    """Open what `write_manifest_of` finished; sizes and hashes are checked as those of shards are.

    `InputError` where there is nothing finished, `CorruptError` where a file is damaged.
    """
    manifest, sha256 = read_checked(
        folder, wanted_format=FORMAT, nothing="there are no drawn samples", command=COMMAND
    )
    for facts in manifest["files"]:
        if not _FILE.fullmatch(facts["file"]):
            raise CorruptError(
                f"{folder / NAME} names {facts['file']!r}, which is no file of it", path=folder
            )
    check_files(folder, manifest["files"], rebuild=_REBUILD, verify=verify)
    return DrawnSamples(
        folder=folder,
        manifest=manifest,
        manifest_sha256=sha256,
        samples_per_file=manifest["samples_per_file"],
    )


def finish(
    folder: Path, *, plan: Plan, slots: int, samples_per_file: int, num_samples: int, made_with: Plan
) -> None:
    """Write the manifest over the files that lie in the folder; it comes last and makes them whole."""
    names = [file_name(number) for number in range(-(-num_samples // samples_per_file))]
    files = [
        {"file": name, "sha256": sha256_file(folder / name), "bytes": (folder / name).stat().st_size}
        for name in (*names, HELDOUT)
    ]
    content = {
        "format": FORMAT,
        "plan": dict(plan),
        "slots": slots,
        "samples_per_file": samples_per_file,
        "num_samples": num_samples,
        "made_with": dict(made_with),
        "files": files,
    }
    write_manifest(folder, content)


def finished_plan(folder: Path) -> Plan | None:
    """The plan of a finished folder; `None` without a manifest."""
    return open_drawn(folder).plan if (folder / NAME).is_file() else None


def unfinished_plan(folder: Path) -> Plan | None:
    """The plan that the files of a folder without manifest were begun with; `None` where there are none."""
    for path in sorted(folder.glob("*.arrow")):
        return map_drawn(path).plan
    return None


def is_drawn(path: Path, plan: Plan, first: int, num_samples: int) -> bool:
    """Whether a file of this plan is there and whole."""
    if not path.is_file():
        return False
    found = map_drawn(path)
    return (
        found.plan == plan and len(found.ids_BK) == num_samples and (num_samples == 0 or found.first == first)
    )


def clear(folder: Path) -> None:
    """Remove every file of an older build, the manifest first."""
    for name in (
        NAME,
        VERIFIED,
        *(path.name for path in folder.glob("*.arrow") if _FILE.fullmatch(path.name)),
    ):
        (folder / name).unlink(missing_ok=True)


def refuse_foreign(folder: Path) -> None:
    """`InputError` where the folder holds anything that we did not write."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is no folder", path=folder, hint="name another one with --out")
    entries: Sequence[str] = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    foreign = [
        name
        for name in entries
        if not (name in (NAME, VERIFIED, _LOCK) or name.startswith(".tmp-") or _FILE.fullmatch(name))
    ]
    if foreign:
        raise InputError(
            f"{folder} holds files that {COMMAND} did not write: {', '.join(foreign[:5])}",
            path=folder,
            hint="name another folder with --out; nothing was changed",
        )
