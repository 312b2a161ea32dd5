"""The stage shard-corpus: from the corpus to `shards/`, restartable at any point.

Unfinished work lies in `shards/.work-<fingerprint>/`: one table a finished chunk, one index a bucket, one
record a finished shard. The manifest is written last and makes the shards whole; whoever finds none starts
where the last process stopped. Shards of an older build stay valid until the new one begins to write its own.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

import electra_cli
from electra_cli.data.checked_manifest import NAME, OtherFormatError
from electra_cli.data.corpus import Listing, list_files
from electra_cli.data.listing import is_plain_text, tell_skipped
from electra_cli.data.rows import count_rows, window_size
from electra_cli.data.shard_files import fact, token_type
from electra_cli.data.shard_folder import (
    WORK,
    clear,
    is_whole,
    leave_no_empty_folder,
    publish,
    refuse_foreign,
    retire,
)
from electra_cli.data.shard_manifest import data_card, differences, identity, read_manifest
from electra_cli.data.shard_map import (
    MapJob,
    MapResult,
    Reading,
    chunk_path,
    map_chunk,
    part_bytes,
    read_chunks,
)
from electra_cli.data.shard_pool import Pool, wanted_processes
from electra_cli.data.shard_reduce import (
    IndexJob,
    ShardFacts,
    ShardJob,
    index_bucket,
    index_path,
    num_buckets,
    plan_shards,
    write_shard,
)
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.data.vocabulary_manifest import Inputs
from electra_cli.durable import locked, sha256_file, write_json
from electra_cli.errors import CorruptError, InputError, ProjectError
from electra_cli.progress import Progress, counted
from electra_cli.settings import ProjectSettings

if TYPE_CHECKING:
    from electra_cli.project import Project

_CHUNK_CHARACTERS = (1 << 20, 1 << 24)


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What shard-corpus did."""

    folder: Path
    manifest: Mapping[str, Any]
    is_fresh: bool
    """False: the shards were up to date."""
    processes: int

    def num_rows(self, settings: ProjectSettings) -> int:
        """Rows of one pass over the training shards."""
        rows = settings.rows
        window = window_size(rows.sequence_length, segment_pairs=rows.segment_pairs)
        return sum(
            count_rows(shard["num_stream_tokens"], window)
            for shard in self.manifest["shards"]
            if shard["split"] == "train"
        )


def build_shards(
    project: "Project", vocabulary: Vocabulary, progress: Progress, *, force: bool = False
) -> ShardReport:
    """Cut the project's corpus into shards, or find that they are up to date.

    `InputError`: no text, too little text, shards of another corpus, vocabulary or other settings (without
    `force`), a folder of somebody else, or one that another process is writing to.
    """
    corpus = project.settings.corpus
    if corpus.engine == "ray":
        raise ProjectError(
            'corpus.engine = "ray" is not available in this version of electra-cli',
            key="corpus.engine",
            hint='"local" uses every core of this machine (corpus.processes)',
        )
    listing = list_files(corpus, project.root)
    folder = project.shards_dir
    refuse_foreign(folder)
    try:
        with locked(folder, "electra shard-corpus"):
            return _Build(project, vocabulary, progress, listing).run(force=force)
    finally:
        leave_no_empty_folder(folder)


class _Build:
    """One run of the stage, under the folder's lock."""

    def __init__(
        self, project: "Project", vocabulary: Vocabulary, progress: Progress, listing: Listing
    ) -> None:
        self._settings = project.settings
        self._folder = project.shards_dir
        self._vocabulary = vocabulary
        self._progress = progress
        self._listing = listing
        self._sources = list(dict.fromkeys(file.source for file in listing.files))
        self._processes = wanted_processes(project.settings.corpus, listing)
        self._dtype = token_type(vocabulary.size)
        self._reading = Reading()

    def run(self, *, force: bool) -> ShardReport:
        """Build, or find that nothing is to be done."""
        folder = self._folder
        inputs = Inputs(self._listing.files, self._vocabulary.folder, self._processes)
        wanted = identity(self._settings, self._vocabulary.sha256, inputs.facts)
        there = self._existing(force)
        if there is not None and not force:
            found = differences(there, wanted)
            if found:
                raise InputError(
                    f"{folder.name}/ was built from other settings or text:\n  " + "\n  ".join(found),
                    path=folder,
                    hint="electra shard-corpus --force builds them again",
                )
            if is_whole(folder, there):
                clear(folder)
                return self._report(there, is_fresh=False)
            self._progress.message("shards are missing or cut short: building them again")
        work = folder / f"{WORK}{_fingerprint(wanted)}"
        tell_skipped(self._listing, self._progress)
        if clear(folder, keep=work.name):
            self._progress.message("continuing where an earlier shard-corpus stopped")
        try:
            manifest = self._build(work, wanted, inputs)
        except (InputError, CorruptError):
            # Other text is needed, so nothing of this work can serve again.
            shutil.rmtree(work, ignore_errors=True)
            raise
        publish(folder, manifest, data_card(manifest, self._settings))
        return self._report(manifest, is_fresh=True)

    def _build(self, work: Path, wanted: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
        with Pool(self._processes) as pool:
            mapped = self._map(pool, work)
            inputs.check_unchanged()
            jobs, dropped_tokens = self._reduce(pool, work, mapped)
            self._check_size(jobs)
            shards = self._write(pool, work, jobs)
        return self._manifest(wanted, mapped, shards, dropped_tokens)

    def _existing(self, force: bool) -> Mapping[str, Any] | None:
        if not (self._folder / NAME).exists():
            return None
        try:
            return read_manifest(self._folder)[0]
        except (CorruptError, OtherFormatError):
            if force:
                return None
            raise

    def _map(self, pool: Pool, work: Path) -> list[MapResult]:
        progress, reading = self._progress, self._reading
        is_plain = all(map(is_plain_text, self._listing.files))
        progress.begin("tokenize", self._listing.num_bytes if is_plain else None, "B")
        started = time.monotonic()
        results: list[MapResult] = []
        num_tokens = num_bytes = 0
        for result in pool.run(map_chunk, self._map_jobs(work)):
            results.append(result)
            num_tokens += result.num_tokens
            rate = num_tokens / max(1e-3, time.monotonic() - started)
            progress.advance(
                max(0, reading.num_bytes - num_bytes),
                note=f"{reading.num_files:,}/{counted(len(self._listing.files), 'file')}  "
                f"{rate / 1e6:.2f} M tok/s  {pool.processes} process{'es' * (pool.processes > 1)}",
            )
            num_bytes = max(num_bytes, reading.num_bytes)
        progress.end()
        if not any(result.num_parts for result in results):
            raise InputError(
                f"{self._shown_files()} holds no text: 0 documents with a token, in "
                f"{counted(len(self._listing.files), 'file')}",
                key="corpus.files",
                hint="check corpus.files and corpus.text_column",
            )
        return results

    def _shown_files(self) -> str:
        corpus = self._settings.corpus
        return ", ".join(corpus.files if not corpus.source else (s.name for s in corpus.source))

    def _map_jobs(self, work: Path) -> Iterator[MapJob]:
        # Enough chunks to keep all processes busy, not so many that opening their tables takes time.
        smallest, largest = _CHUNK_CHARACTERS
        chunk_size = min(largest, max(smallest, self._listing.num_bytes // 2048))
        for chunk in read_chunks(
            self._listing,
            self._settings.corpus,
            self._reading,
            chunk_size=chunk_size,
            part_bytes=part_bytes(self._listing),
        ):
            out = chunk_path(work, chunk.number)
            yield MapJob(
                number=chunk.number,
                chunk=None if out.exists() else chunk,
                vocabulary_folder=self._vocabulary.folder,
                vocabulary_sha256=self._vocabulary.sha256,
                out=out,
            )

    def _reduce(
        self, pool: Pool, work: Path, mapped: list[MapResult]
    ) -> tuple[list[ShardJob], dict[str, int]]:
        corpus, tally = self._settings.corpus, self._reading.tally
        buckets = num_buckets(sum(result.num_parts for result in mapped))
        jobs = [
            IndexJob(
                bucket=bucket,
                num_buckets=buckets,
                num_chunks=len(mapped),
                drop_duplicates=corpus.drop_duplicates,
                work=work,
            )
            for bucket in range(buckets)
            if not index_path(work, bucket).exists()
        ]
        self._progress.begin("order", len(jobs), "buckets")
        for _ in pool.run(index_bucket, jobs):
            self._progress.advance()
        self._progress.end()
        paths = [index_path(work, bucket) for bucket in range(buckets)]
        tally.drop("duplicates", sum(fact(path, "duplicates") for path in paths))
        tally.drop("no token", sum(result.num_empty for result in mapped))
        plan = plan_shards(
            work,
            self._folder,
            buckets,
            num_sources=len(self._sources),
            heldout_fraction=corpus.heldout_fraction,
            shard_bytes=corpus.shard_bytes,
            dtype=self._dtype,
        )
        return plan, {"duplicates": sum(fact(path, "duplicate_tokens") for path in paths)}

    def _check_size(self, jobs: list[ShardJob]) -> None:
        """Refuse a corpus that does not fill one row, in all or from one of its sources."""
        rows = self._settings.rows
        needed = window_size(rows.sequence_length, segment_pairs=rows.segment_pairs)
        for number, source in enumerate(self._sources):
            mine = [job for job in jobs if job.split == "train" and job.source == number]
            tokens = sum(job.num_tokens - 2 * job.num_parts for job in mine)
            if tokens < needed:
                name = f"the source {source}" if len(self._sources) > 1 else "the corpus"
                raise InputError(
                    f"{name} comes to {tokens} tokens to train on; one row of rows.sequence_length = "
                    f"{rows.sequence_length} needs {needed}",
                    key="corpus.files",
                    hint="add text, or make rows.sequence_length smaller",
                )

    def _write(self, pool: Pool, work: Path, jobs: list[ShardJob]) -> list[ShardFacts]:
        retire(self._folder)
        done = {job.file: facts for job in jobs if (facts := self._finished(work, job)) is not None}
        self._progress.begin("write", len(jobs), "shards")
        self._progress.advance(len(done))
        for facts in pool.run(write_shard, [job for job in jobs if job.file not in done]):
            write_json(work / f"{facts.file}.json", asdict(facts))
            done[facts.file] = facts
            self._progress.advance()
        self._progress.end()
        return [done[job.file] for job in jobs]

    def _finished(self, work: Path, job: ShardJob) -> ShardFacts | None:
        """The record of a shard that an interrupted run finished, if its file still is what it says."""
        path, record = self._folder / job.file, work / f"{job.file}.json"
        if not record.is_file() or not path.is_file():
            return None
        facts = ShardFacts(**json.loads(record.read_text(encoding="utf-8")))
        return facts if sha256_file(path) == facts.sha256 else None

    def _manifest(
        self,
        wanted: Mapping[str, Any],
        mapped: list[MapResult],
        shards: list[ShardFacts],
        dropped_tokens: dict[str, int],
    ) -> dict[str, Any]:
        num_parts = sum(shard.num_parts for shard in shards)
        num_stream_tokens = sum(shard.num_stream_tokens for shard in shards)
        num_content_tokens = num_stream_tokens - 2 * num_parts
        read = sum(result.num_tokens for result in mapped)
        assert num_content_tokens == read - sum(dropped_tokens.values()), "a token was lost"
        tally = self._reading.tally
        return {
            "format": wanted["format"],
            "vocab_sha256": wanted["vocab_sha256"],
            "dtype": self._dtype,
            "num_documents": self._reading.num_documents,
            "num_parts": num_parts,
            "num_content_tokens": num_content_tokens,
            "num_stream_tokens": num_stream_tokens,
            "dropped": dict(sorted(tally.dropped.items())),
            "dropped_tokens": {reason: count for reason, count in dropped_tokens.items() if count},
            "repaired": dict(sorted(tally.repaired.items())),
            "skipped": {reason: len(names) for reason, names in sorted(self._listing.skipped.items())},
            "settings": wanted["settings"],
            "inputs": wanted["inputs"],
            "shards": [{**asdict(shard), "source": self._sources[shard.source]} for shard in shards],
        }

    def _report(self, manifest: Mapping[str, Any], *, is_fresh: bool) -> ShardReport:
        return ShardReport(
            folder=self._folder, manifest=manifest, is_fresh=is_fresh, processes=self._processes
        )


def _fingerprint(wanted: Mapping[str, Any]) -> str:
    """Names the work of this build: another version of the code may cut chunks in another way."""
    made_by = [electra_cli.__version__, tokenizers.__version__]
    return hashlib.sha256(json.dumps([made_by, wanted], sort_keys=True).encode()).hexdigest()[:16]
