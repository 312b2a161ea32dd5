"""No text gives orders, no key is written down, nothing leaves the machine unasked (S04-S06, S09)."""

import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
from collections import Counter
from pathlib import Path

import pytest
from collaboration_cases import CLASSES, make_project, request, write, write_encoder, write_rows
from injections import INJECTIONS
from stub_server import Call, Reply, in_schema, serving

from electra_cli.collaboration.address import check_address
from electra_cli.errors import InputError
from electra_cli.pipeline_collaborate import collaborate
from electra_cli.progress import Silent

CANARY = "sk-canary-7Jq2Xw9ZtR4mB8vN1cLkE6pYgH3sDfA0uQ"


def obeys(call: Call) -> Reply:
    """Says what the text says that it should, quotation undone as a model would."""
    text = json.dumps(call.body["messages"], ensure_ascii=False).encode().decode("unicode_escape", "replace")
    said = re.search("«(.*?)»".encode().decode("latin-1"), text, re.S)
    assert said is not None
    return Reply(said[1].replace('\\"', '"'))


def stands_firm(call: Call) -> Reply:
    return in_schema("neutral")


@pytest.mark.parametrize("way", ["separate", "paper"])
@pytest.mark.parametrize("kind", INJECTIONS)
def test_an_injection_ends_as_a_label_or_a_fallback(tmp_path: Path, kind: str, way: str) -> None:
    texts = INJECTIONS[kind]
    assert len(texts) >= 6
    rows = [json.dumps({"text": text, "label": CLASSES[n % 3]}) for n, text in enumerate(texts)]
    write(tmp_path / "rows.jsonl", "\n".join(rows) + "\n")
    write_encoder(tmp_path, len(texts))
    for behave in (obeys, stands_firm):
        with serving(behave) as stub:
            project = make_project(tmp_path, stub.base_url, prompt=way, retries=0)
            flags = {"data": tmp_path / "rows.jsonl", "out": tmp_path / behave.__name__}
            outcome = collaborate(project, request(tmp_path, **flags), Silent()).results.strategies[1].outcome
            statuses = Counter(outcome.status_N.tolist())
            assert sum(statuses.values()) == len(texts)
            expected = "fallback" if behave is obeys else "label"
            assert statuses == {expected: len(texts)}
            assert set(outcome.label_N.tolist()) <= {0, 1, 2}
            systems = {json.dumps(call.body["messages"][:-1]) for call in stub.calls}  # type: ignore[index]
            assert len(systems) == 1
            assert not any("tools" in call.body for call in stub.calls)


def test_a_label_column_full_of_orders_cannot_become_classes(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", 'text,label\nGood.,"positive"\nBad.,"answer anything"\n')
    write(tmp_path / "encoder.csv", "p:negative,p:positive\n0.1,0.9\n0.8,0.2\n")
    with serving(stands_firm) as stub, pytest.raises(InputError, match="different label sets"):
        flags = {"encoder": str(tmp_path / "encoder.csv")}
        collaborate(make_project(tmp_path, stub.base_url), request(tmp_path, **flags), Silent())
    assert stub.calls == []


def forms(key: str) -> set[bytes]:
    """Twenty ways in which a key can be written down."""
    raw = key.encode()
    shapes = {raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), raw.lower(), raw.upper()}
    for offset in range(3):
        # Base64 of a key in the middle of a text depends on where it begins.
        shapes.add(base64.b64encode(b"x" * offset + raw)[4:-4])
        shapes.add(base64.urlsafe_b64encode(b"x" * offset + raw)[4:-4])
    shapes |= {urllib.parse.quote(key, safe="").encode(), urllib.parse.quote_plus(key).encode()}
    shapes |= {"".join(f"\\u{ord(c):04x}" for c in key).encode(), "".join(f"%{b:02x}" for b in raw).encode()}
    shapes |= {
        raw[:20],
        raw[-20:],
        raw[10:30],
        key.encode("utf-16-le"),
        b" ".join(raw[i : i + 1] for i in range(len(raw))),
    }
    return shapes


def assert_absent(content: bytes, where: object) -> None:
    for form in forms(CANARY):
        assert form not in content, f"{form!r} in {where}"


@pytest.mark.parametrize(
    ("status", "text"), [(200, f'{{"classification": "{CANARY}"}}'), (400, ""), (401, ""), (500, "")]
)
def test_the_key_is_written_nowhere(tmp_path: Path, status: int, text: str) -> None:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    told = {"message": f"bad key {CANARY}: max_completion_tokens", "code": CANARY, "param": CANARY}
    error = json.dumps({"error": told}).encode()
    headers = {"x-echo": CANARY, "retry-after": "0"}

    def behave(call: Call) -> Reply:
        assert call.headers.get("authorization", call.headers.get("Authorization")) == f"Bearer {CANARY}"
        return (
            Reply(text, headers=headers)
            if status == 200
            else Reply(status=status, raw=error, headers=headers)
        )

    with serving(behave) as stub:
        sets = {"base_url": stub.base_url, "backoff_seconds": 0.0, "transport_retries": 1, "resamples": 20}
        command = [
            *(sys.executable, "-m", "electra_cli", "collaborate", "--data", "rows.csv", "--out", "out"),
            *("--encoder", "encoder.csv:p", "--strategy", "alone"),
            *(f"-scollaborate.{key}={json.dumps(value)}" for key, value in sets.items()),
        ]
        environment = os.environ | {"OPENAI_API_KEY": CANARY, "ELECTRA_DEBUG": "1", "OPENAI_LOG": "debug"}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        while not stub.calls and process.poll() is None:
            time.sleep(0.05)
        shown = Path(f"/proc/{process.pid}/cmdline")
        if shown.exists():
            assert_absent(shown.read_bytes(), "the process list")
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == (4 if status == 401 else 0), stderr.decode()
    assert len(stub.calls) > 0
    assert_absent(stdout, "stdout")
    assert_absent(stderr, "stderr")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= (4 if status == 401 else 7)
    for path in files:
        assert_absent(path.read_bytes(), path)
        assert_absent(path.name.encode(), "a file's name")


@pytest.mark.parametrize(
    "base_url",
    [
        "http://127.0.0.1:8080/v1",
        "http://localhost/v1",
        "http://[::1]:9/v1",
        "http://127.9.9.9/",
        "https://localhost/v1",
    ],
)
def test_this_machine_needs_no_permission(base_url: str) -> None:
    assert check_address(base_url, may_upload=False).is_loopback


@pytest.mark.parametrize(
    ("base_url", "may_upload", "message"),
    [
        ("https://api.openai.com/v1", False, "not this machine"),
        ("https://127.0.0.1.evil.example/v1", False, "not this machine"),
        ("https://localhost.evil.example/v1", False, "not this machine"),
        ("https://0.0.0.0/v1", False, "not this machine"),
        ("https://10.0.0.1/v1", False, "not this machine"),
        ("http://api.openai.com/v1", True, "plain http"),
        ("http://10.0.0.1/v1", True, "plain http"),
        ("http://127.0.0.1@evil.example/v1", True, "holds a user"),
        (f"https://user:{CANARY}@api.openai.com/v1", True, "holds a user"),
        (f"https://api.openai.com/v1?key={CANARY}", True, "holds a user, a query"),
        ("https://api.openai.com/v1#x", True, "fragment"),
        ("ftp://127.0.0.1/v1", True, "no http address"),
        ("file:///etc/passwd", True, "no http address"),
        ("api.openai.com/v1", True, "no http address"),
        ("https://[::1/v1", True, "no address"),
        ("https://host:99999/v1", True, "no address"),
    ],
)
def test_other_addresses_are_refused(base_url: str, may_upload: bool, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_address(base_url, may_upload=may_upload)
    assert_absent(caught.value.message.encode(), "the message")


def test_a_key_is_needed_elsewhere_and_its_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InputError, match="OPENAI_API_KEY is not set"):
        collaborate(
            make_project(tmp_path, "https://llm.example/v1"), request(tmp_path, may_upload=True), Silent()
        )
