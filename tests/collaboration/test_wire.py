"""Whatever an endpoint does, every row ends as a label or a fallback, and is counted once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from collaboration_cases import CLASSES, make_project, read_results, request, write_encoder, write_rows
from stub_server import Call, Reply, Stub, in_schema, serving

from electra_cli.collaboration.asking import OUTSIDE, UNREACHED_IN_A_ROW
from electra_cli.collaboration.ledger import REQUESTS, read_requests
from electra_cli.errors import CorruptError, InputError
from electra_cli.pipeline_collaborate import collaborate, estimate
from electra_cli.pipeline_collaborate_report import CollaborationReport
from electra_cli.progress import Silent

NUM_ROWS = 12
PRICE = [{"model": "stub", "input": 100.0, "output": 1000.0}]
USD_A_CALL = (50 * 100 + 5 * 1000) / 1e6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    return tmp_path


def positive(call: Call) -> Reply:
    return in_schema("positive")


def run(
    folder: Path, stub: Stub, flags: dict[str, object] | None = None, **values: object
) -> CollaborationReport:
    return collaborate(
        make_project(folder, stub.base_url, **values), request(folder, **flags or {}), Silent()
    )


def only(report: CollaborationReport, name: str = "alone") -> Counter[str]:
    """Rows of each status; their number is that of the rows."""
    outcome = next(one.outcome for one in report.results.strategies if one.outcome.name == name)
    counts = Counter(outcome.status_N.tolist())
    assert sum(counts.values()) == NUM_ROWS
    assert outcome.num_calls == counts["label"] + counts["fallback"]
    assert sum(number for _, number in outcome.reasons) == counts["fallback"]
    return counts


def reasons(report: CollaborationReport) -> dict[str, int]:
    return dict(report.results.strategies[1].outcome.reasons)


def test_answers_are_taken_and_what_is_not_asked_keeps_the_encoders_label(folder: Path) -> None:
    with serving(positive) as stub:
        report = run(folder, stub, strategies=["alone", "label", "cascade"], threshold=0.7)
        assert len(stub.calls) == 2 * NUM_ROWS  # the cascade asks what `alone` asked already
        assert all(call.is_constrained for call in stub.calls)
        assert only(report) == only(report, "label") == {"label": NUM_ROWS}
        assert only(report, "cascade") == {"label": 3, "encoder": 9}
        results = read_results(folder / "out")
        cascade = results["strategies"]["cascade"]  # type: ignore[index]
        assert cascade["calls"] == cascade["labels"] + cascade["fallbacks"] == 3
        assert cascade["sources"].keys() == {"cafe", "diner"}
        assert results["ledger"]["requests"] == 24  # type: ignore[index]


def test_the_label_strategy_tells_the_encoders_label_and_alone_does_not(folder: Path) -> None:
    with serving(positive) as stub:
        run(folder, stub, strategies=["alone", "label"])
        hinted = [call for call in stub.calls if "Classifier Decision: " in call.user_text]
        assert len(hinted) == NUM_ROWS
        assert Counter(call.user_text.split("Decision: ")[1].split()[0] for call in hinted).keys() == set(
            CLASSES
        )


def test_a_rerun_asks_nothing(folder: Path) -> None:
    with serving(positive) as stub:
        run(folder, stub)
        again = run(folder, stub)
        assert (len(stub.calls), again.num_requests) == (NUM_ROWS, 0)
        assert only(again) == {"label": NUM_ROWS}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("mixed", OUTSIDE),
        ("POSITIVE (95 %)", OUTSIDE),
        ("positive or negative", OUTSIDE),
        ("On the one hand. " * 600 + "positive", OUTSIDE),
        ('{"classification": "excellent"}', OUTSIDE),
        ("", "empty answer"),
        ("  \n", "empty answer"),
        (None, "empty answer"),
    ],
)
def test_an_answer_outside_the_classes_is_asked_again_then_falls_back(
    folder: Path, answer: str | None, reason: str
) -> None:
    with serving(lambda call: Reply(answer)) as stub:
        report = run(folder, stub, retries=1)
        assert only(report) == {"fallback": NUM_ROWS}
        assert reasons(report) == {reason: NUM_ROWS}
        assert len(stub.calls) == 2 * NUM_ROWS
        reminders = [call for call in stub.calls if "nothing else" in call.user_text]
        assert len(reminders) == NUM_ROWS
        # What was paid for and failed is not bought again.
        assert run(folder, stub, retries=1).num_requests == 0


def test_the_second_answer_counts(folder: Path) -> None:
    def behave(call: Call) -> Reply:
        return Reply("Positive." if "nothing else" in call.user_text else "Hm.")

    with serving(behave) as stub:
        report = run(folder, stub)
        assert only(report) == {"label": NUM_ROWS}
        assert len(stub.calls) == 2 * NUM_ROWS


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=500, raw=b"oops"), "server error (500)"),
        (Reply(status=429, raw=b"{}"), "rate limit (429)"),
        (Reply(status=418, raw=b"{}"), "refused (418)"),
        (Reply("positive", cut=True), "connection cut"),
        (Reply(raw=b"<html>"), "reply is no JSON"),
        (Reply(raw=b"[" * 100_000), "reply is no JSON"),
        (Reply(raw=b"[]"), "empty answer"),
        (Reply(raw=b'{"choices": 3, "usage": "many"}'), "empty answer"),
        (Reply(raw=b'{"choices": [{"message": {"refusal": "no"}}]}'), "model refused"),
    ],
)
def test_a_request_that_brings_nothing_falls_back(folder: Path, reply: Reply, reason: str) -> None:
    with serving(lambda call: reply) as stub:
        report = run(folder, stub, transport_retries=1, retries=0)
        assert only(report) == {"fallback": NUM_ROWS}
        assert reasons(report) == {reason: NUM_ROWS}
        encoder = report.results.strategies[0].outcome.label_N
        assert (report.results.strategies[1].outcome.label_N == encoder).all()


def test_a_time_out_falls_back(folder: Path) -> None:
    with serving(lambda call: Reply("positive", delay=30)) as stub:
        report = run(folder, stub, timeout_seconds=0.3, transport_retries=0, concurrency=12)
        assert reasons(report) == {"timed out": NUM_ROWS}


def test_what_brought_no_reply_is_asked_again_by_the_next_run(folder: Path) -> None:
    with serving(lambda call: Reply(status=503, raw=b"")) as stub:
        run(folder, stub, transport_retries=0)
        stub.behave = positive
        again = run(folder, stub)
        assert again.num_requests == NUM_ROWS
        assert only(again) == {"label": NUM_ROWS}


def test_a_rate_limit_is_waited_out(folder: Path) -> None:
    seen: Counter[str] = Counter()

    def behave(call: Call) -> Reply:
        seen[call.user_text] += 1
        if seen[call.user_text] == 1:
            return Reply(status=429, raw=b"{}", headers={"retry-after": "0.01"})
        return in_schema("positive")

    with serving(behave) as stub:
        assert only(run(folder, stub)) == {"label": NUM_ROWS}
        assert len(stub.calls) == 2 * NUM_ROWS


class Heard(Silent):
    """Keeps what a person would be warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str, *, code: str = "") -> None:
        self.warnings.append(text)


def test_a_person_is_told_why_the_encoder_answered(folder: Path) -> None:
    def behave(call: Call) -> Reply:
        return Reply("Hm.") if "soup" in call.user_text else in_schema("positive")

    heard = Heard()
    with serving(behave) as stub:
        collaborate(make_project(folder, stub.base_url, retries=0), request(folder), heard)
    assert heard.warnings == [f"alone: 1 of 12 calls took the encoder's label ({OUTSIDE}: 1)"]
    assert f"fallbacks of alone: {OUTSIDE}: 1" in (folder / "out" / "report.html").read_text()


def test_where_nobody_listens_nothing_is_paid(folder: Path) -> None:
    with serving(positive) as stub:
        address = stub.base_url
    project = make_project(folder, address, price=PRICE, transport_retries=1)
    report = collaborate(project, request(folder), Silent())
    assert reasons(report) == {"no connection": NUM_ROWS}
    assert (report.num_requests, report.spent) == (2 * NUM_ROWS, 0.0)


@pytest.mark.parametrize(
    "content", [b"no line of ours\n", b"[1]\n", b"3\n", b'{"end": "x", "usd": "much"}\n']
)
@pytest.mark.parametrize("name", ["requests.jsonl", "task.json"])
def test_a_damaged_file_of_answers_is_named_and_force_begins_anew(
    folder: Path, name: str, content: bytes
) -> None:
    if name == "task.json" and content.startswith(b"{"):
        content = b"{" + content
    with serving(positive) as stub:
        run(folder, stub)
        (folder / "out" / name).write_bytes(content)
        with pytest.raises(CorruptError, match=rf"{name}( line 1)? is not what electra wrote"):
            run(folder, stub)
        assert run(folder, stub, {"force": True}).num_requests == NUM_ROWS


def test_an_endpoint_that_is_gone_is_not_asked_for_ever(folder: Path) -> None:
    write_rows(folder, 60)
    write_encoder(folder, 60)
    with serving(lambda call: Reply(status=500, raw=b"")) as stub:
        with pytest.raises(InputError, match=f"{UNREACHED_IN_A_ROW} questions in a row"):
            run(folder, stub, transport_retries=0, concurrency=1)
        assert UNREACHED_IN_A_ROW <= len(stub.calls) <= UNREACHED_IN_A_ROW + 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(status=401, raw=b"{}"), "refused the key"),
        (Reply(status=403, raw=b"{}"), "refused the key"),
        (Reply(status=404, raw=b"{}"), "knows no model"),
        (Reply(status=429, raw=b'{"error": {"code": "insufficient_quota"}}'), "quota"),
    ],
)
def test_what_stays_wrong_stops_the_command(folder: Path, reply: Reply, message: str) -> None:
    with serving(lambda call: reply) as stub:
        with pytest.raises(InputError, match=message):
            run(folder, stub, concurrency=2)
        assert len(stub.calls) <= 4


def test_answers_before_a_stop_are_kept(folder: Path) -> None:
    with serving(positive) as stub:
        stub.behave = lambda call: positive(call) if len(stub.calls) <= 5 else Reply(status=401, raw=b"{}")
        with pytest.raises(InputError):
            run(folder, stub, concurrency=1)
        stub.behave = positive
        assert run(folder, stub, concurrency=1).num_requests == NUM_ROWS - 5


def test_an_endpoint_without_schemas_is_asked_without(folder: Path) -> None:
    def behave(call: Call) -> Reply:
        return Reply(status=400, raw=b"{}") if call.is_constrained else Reply("Classification: neutral")

    with serving(behave) as stub:
        report = run(folder, stub, concurrency=1)
        assert only(report) == {"label": NUM_ROWS}
        assert sum(call.is_constrained for call in stub.calls) == 1


@pytest.mark.parametrize(("constrain", "constrained"), [("rules", False), ("schema", True)])
def test_the_constraint_can_be_chosen(folder: Path, constrain: str, constrained: bool) -> None:
    with serving(positive) as stub:
        run(folder, stub, constrain=constrain)
        assert {call.is_constrained for call in stub.calls} == {constrained}


def test_a_refused_schema_that_was_insisted_on_falls_back(folder: Path) -> None:
    with serving(lambda call: Reply(status=400, raw=b"{}")) as stub:
        report = run(folder, stub, constrain="schema")
        assert reasons(report) == {"refused (400)": NUM_ROWS}
        assert len(stub.calls) == NUM_ROWS


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(folder: Path, status: int) -> None:
    with serving(positive) as elsewhere:
        target = {"location": f"{elsewhere.base_url}/chat/completions"}
        with serving(lambda call: Reply(status=status, raw=b"", headers=target)) as stub:
            assert only(run(folder, stub)) == {"fallback": NUM_ROWS}
        assert elsewhere.calls == []


def test_a_proxy_gets_nothing_that_is_for_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(positive) as proxy, serving(positive) as stub:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.base_url.removesuffix("/v1"))
        run(folder, stub)
        assert proxy.calls == []


@pytest.mark.parametrize("limit", [0.0, 0.02, 0.11, 0.5])
def test_the_limit_is_never_passed_and_a_larger_one_goes_on(folder: Path, limit: float) -> None:
    with serving(positive) as stub:
        with pytest.raises(InputError, match="could be passed"):
            run(folder, stub, {"max_usd": limit}, price=PRICE)
        sent = len(stub.calls)
        assert sent * USD_A_CALL <= limit
        kept = read_requests(folder / "out" / REQUESTS)
        assert kept.spent == pytest.approx(sent * USD_A_CALL)
        assert len(kept.answers) == sent
        report = run(folder, stub, {"max_usd": 100.0}, price=PRICE)
        assert len(stub.calls) == NUM_ROWS
        assert report.spent == pytest.approx(NUM_ROWS * USD_A_CALL)


def test_a_limit_needs_a_price_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    project = make_project(folder, "https://llm.example/v1")
    with pytest.raises(InputError, match="needs a price"):
        collaborate(project, request(folder, max_usd=1.0, may_upload=True), Silent())


def test_money_that_may_have_been_spent_counts(folder: Path) -> None:
    """A reply without counts, a cut connection: the most that the request can cost."""
    for behave in (lambda call: Reply("positive", usage=None), lambda call: Reply("positive", cut=True)):
        out = {"out": folder / f"out{id(behave)}"}
        with serving(behave) as stub:
            report = run(folder, stub, out, price=PRICE, transport_retries=0, max_tokens=10)
            most = [
                (sum(len(m["content"].encode()) for m in call.body["messages"]) * 100 + 10_000) / 1e6  # type: ignore[attr-defined]
                for call in stub.calls
            ]
            assert report.spent >= sum(most)


def test_a_refused_request_costs_nothing(folder: Path) -> None:
    with serving(lambda call: Reply(status=500, raw=b"")) as stub:
        assert run(folder, stub, price=PRICE, transport_retries=0).spent == 0.0


def test_a_dry_run_sends_nothing_and_knows_what_is_kept(folder: Path) -> None:
    with serving(positive) as stub:
        project = make_project(
            folder, stub.base_url, strategies=["alone", "cascade"], threshold=0.7, price=PRICE
        )
        before = estimate(project, request(folder), Silent())
        assert [(one.calls, one.kept) for one in before] == [(12, 0), (3, 3)]
        assert stub.calls == []
        assert not (folder / "out").exists()
        report = collaborate(project, request(folder), Silent())
        assert 0 < before[0].usd <= before[0].most_usd
        assert report.spent <= before[0].most_usd
        assert [one.kept for one in estimate(project, request(folder), Silent())] == [12, 3]


def test_a_dry_run_needs_neither_key_nor_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    project = make_project(folder, "https://llm.example/v1")
    assert estimate(project, request(folder), Silent())[0].calls == NUM_ROWS


Change = Callable[[Path], dict[str, object]]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("model", {"model": "other"}),
        ("prompt", {"prompt": "paper"}),
        ("temperature", {"temperature": 0.5}),
        ("wording", {"noun": "tweet"}),
    ],
)
def test_the_answers_of_another_task_are_refused(folder: Path, name: str, values: dict[str, object]) -> None:
    with serving(positive) as stub:
        run(folder, stub)
        with pytest.raises(InputError, match=rf"another task:\n  {name}: .* there, .* here"):
            run(folder, stub, **values)
        assert len(stub.calls) == NUM_ROWS
        assert run(folder, stub, {"force": True}, **values).num_requests == NUM_ROWS


def test_the_answers_beside_another_encoder_are_refused(folder: Path) -> None:
    with serving(positive) as stub:
        run(folder, stub)
        changed = (folder / "encoder.csv").read_text().replace("0.900000", "0.900001")
        (folder / "encoder.csv").write_text(changed)
        with pytest.raises(InputError, match=r"encoder: .* there, .* here"):
            run(folder, stub)


def test_an_encoder_with_other_classes_is_refused_with_both_sets(folder: Path) -> None:
    (folder / "encoder.csv").write_text("p\n" + "0.5 0.5\n" * NUM_ROWS)
    with serving(positive) as stub, pytest.raises(InputError) as caught:
        run(folder, stub)
    assert "2 probabilities" in caught.value.message
    assert "negative, neutral, positive" in caught.value.message


def test_texts_that_are_empty_or_long_are_asked_like_any_other(folder: Path) -> None:
    long = "word " * 2_500
    lines = ["sentence,label,source", ",neutral,a", '" ",neutral,a', f"{long},positive,a"]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "encoder.csv").write_text("p\n" + "0.2 0.3 0.5\n" * 3)
    with serving(positive) as stub:
        report = run(folder, stub, {"classes": CLASSES})
        assert report.results.strategies[1].outcome.count("label") == 3
        assert any(long in call.user_text for call in stub.calls)


def test_without_labels_there_are_answers_but_no_scores(folder: Path) -> None:
    (folder / "rows.csv").write_text("text\n" + "".join(f"row {n}\n" for n in range(3)))
    (folder / "encoder.csv").write_text("p:no,p:yes\n0.2,0.8\n0.9,0.1\n0.5,0.5\n")
    with serving(lambda call: in_schema("yes")) as stub:
        report = run(folder, stub, {"encoder": str(folder / "encoder.csv")})
    one = report.results.strategies[1]
    assert (one.macro_f1, one.interval, one.agreement) == (None, None, pytest.approx(1 / 3))
    assert report.results.comparisons == ()
    answers = (folder / "out" / "answers.tsv").read_text().splitlines()
    assert answers[1].split("\t")[-2:] == ["yes", "label"]
