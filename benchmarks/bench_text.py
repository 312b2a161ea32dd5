"""Text to shards: `electra shard-corpus` against `datasets.map` with the same tokenizer, two processes each.

The corpus is `corpus-bench` of the test data where ELECTRA_TEST_DATA names it, else the documentation of the
installed Python packages. The peer does what a user would write: load the lines, tokenize them in batches in
two processes, write the result. Ours also drops duplicates, holds rows out, and hashes every shard.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairing import Results, in_own_process, pair, say

PROCESSES, REPEATS = 2, 2
SETTINGS = ("vocab.size=8192", f"corpus.processes={PROCESSES}")


def electra(*arguments: str, cwd: Path) -> None:
    """Run a command; stop the benchmark with its output when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "electra_cli", *arguments, *(f"--set={setting}" for setting in SETTINGS)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def write_corpus(folder: Path) -> None:
    """Fill `folder` with text files."""
    data = os.environ.get("ELECTRA_TEST_DATA")
    if data:
        import gzip

        folder.mkdir()
        for path in sorted((Path(data) / "corpus-bench").glob("*.txt.gz")):
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    else:
        from electra_cli.data.installed_docs import write_installed_docs

        write_installed_docs(folder, folder.parent / "task")


def with_datasets(corpus: Path, tokenizer_file: Path, out: Path) -> None:
    """The straightforward way."""
    import datasets
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    lines = datasets.load_dataset(
        "text",
        data_files=[str(path) for path in sorted(corpus.iterdir())],
        split="train",
        cache_dir=str(out / "cache"),
    )
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenized = lines.map(
        lambda batch: {"input_ids": [encoded.ids for encoded in tokenizer.encode_batch(batch["text"])]},
        batched=True,
        num_proc=PROCESSES,
        remove_columns=["text"],
    )
    tokenized.save_to_disk(str(out / "tokenized"))


def main() -> None:
    """Print and write the pairings; with arguments, run the peer in this process."""
    if len(sys.argv) > 1:
        start = time.perf_counter()
        with_datasets(*map(Path, sys.argv[1:]))
        print(json.dumps({"seconds": time.perf_counter() - start}))
        return
    ours, peer = [], []
    with tempfile.TemporaryDirectory(prefix="electra-bench-text-") as scratch:
        project = Path(scratch)
        write_corpus(project / "corpus")
        megabytes = sum(path.stat().st_size for path in (project / "corpus").iterdir()) / 1e6
        electra("build-vocab", "corpus", cwd=project)
        for _ in range(REPEATS):
            shutil.rmtree(project / "shards", ignore_errors=True)
            start = time.perf_counter()
            electra("shard-corpus", "corpus", cwd=project)
            ours.append(megabytes / (time.perf_counter() - start))
            out = project / "datasets"
            shutil.rmtree(out, ignore_errors=True)
            tokenizer_file = project / "vocab" / "tokenizer.json"
            seen = in_own_process(__file__, str(project / "corpus"), str(tokenizer_file), str(out))
            # The start of Python is in ours; the peer's clock starts after it.
            peer.append(megabytes / seen["seconds"])
            say(f"text, turn {len(peer)} of {REPEATS}: ours {ours[-1]:.2f}, peer {peer[-1]:.2f} MB/s")
    line = pair(
        f"text to shards, {megabytes:.0f} MB",
        ours,
        peer,
        unit="MB/s",
        more_is_better=True,
        precision="-",
        threads=PROCESSES,
    )
    Results("bench-text").add(line)


if __name__ == "__main__":
    main()
