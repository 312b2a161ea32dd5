"""What a collaboration writes about texts is its owner's alone (S04): files 0600, folders 0700."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from collaboration_cases import make_project, request, write_encoder, write_rows
from stub_server import in_schema, serving

from electra_cli.pipeline_collaborate import collaborate, training_files
from electra_cli.pipeline_replay import ReplayRequest, replay
from electra_cli.progress import Silent


@pytest.fixture(autouse=True)
def everybody_may_read() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}


def test_security_S04_what_was_asked_and_answered(tmp_path: Path) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    with serving(lambda call: in_schema("neutral")) as stub:
        collaborate(make_project(tmp_path, stub.base_url), request(tmp_path), Silent())
    names = (".lock", "task.json", "requests.jsonl", "results.json", "answers.tsv", "report.html")
    assert modes(tmp_path / "out") == {"out": 0o700} | dict.fromkeys(names, 0o600)


def test_security_S04_the_default_folder(tmp_path: Path) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    with serving(lambda call: in_schema("neutral")) as stub:
        wanted = replace(request(tmp_path), out=None)
        folder = collaborate(make_project(tmp_path, stub.base_url), wanted, Silent()).folder
    assert set(modes(folder).values()) == {0o600, 0o700}


def test_security_S04_fine_tuning_files(tmp_path: Path) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    training_files(make_project(tmp_path, "https://llm.example/v1"), request(tmp_path))
    assert modes(tmp_path / "out") == {"out": 0o700} | dict.fromkeys(
        ("FT.jsonl", "FT-M.jsonl", "FT-L.jsonl"), 0o600
    )


def test_security_S04_a_replay(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.csv"
    recorded.write_text("gold,m,p\nno,no,0.9 0.1\nyes,yes,0.2 0.8\n")
    wanted = ReplayRequest(
        file=recorded, columns=("m",), encoder_columns=("p",), validation=(), out=tmp_path / "out"
    )
    replay(make_project(tmp_path, "https://llm.example/v1"), wanted)
    assert modes(tmp_path / "out") == {"out": 0o700} | dict.fromkeys(
        (".lock", "results.json", "answers.tsv", "report.html"), 0o600
    )
