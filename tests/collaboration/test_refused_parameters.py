"""Models that take other parameters than most: asked as they want, once found out, or named in the error."""

import json
from pathlib import Path

import pytest
from collaboration_cases import make_project, request, write_encoder, write_rows
from stub_server import Behaviour, Call, Reply, Stub, in_schema, serving

from electra_cli.collaboration.ledger import REQUESTS, read_requests
from electra_cli.errors import InputError
from electra_cli.pipeline_collaborate import collaborate
from electra_cli.pipeline_collaborate_report import CollaborationReport
from electra_cli.progress import Silent

NUM_ROWS = 12
OTHER = "max_completion_tokens"
PRICE = [{"model": "stub", "input": 100.0, "output": 1000.0}]
USD_A_CALL = (50 * 100 + 5 * 1000) / 1e6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path)
    write_encoder(tmp_path)
    return tmp_path


def refusal(**error: object) -> Reply:
    return Reply(status=400, raw=json.dumps({"error": error}).encode())


NAMED = refusal(param="max_tokens", code="unsupported_parameter", message="Unsupported parameter.")
IN_WORDS = refusal(param=None, message="'max_tokens' is not supported. Use 'max_completion_tokens' instead.")


def reasoning(refused: Reply) -> Behaviour:
    def behave(call: Call) -> Reply:
        return refused if "max_tokens" in call.body else in_schema("positive")

    return behave


def run(folder: Path, stub: Stub, **values: object) -> CollaborationReport:
    return collaborate(make_project(folder, stub.base_url, **values), request(folder), Silent())


def is_answered(report: CollaborationReport) -> bool:
    return report.results.strategies[1].outcome.count("label") == NUM_ROWS


@pytest.mark.parametrize("refused", [NAMED, IN_WORDS])
def test_a_model_that_takes_only_the_other_limit_is_asked_with_it(folder: Path, refused: Reply) -> None:
    with serving(reasoning(refused)) as stub:
        report = run(folder, stub, concurrency=1, price=PRICE, max_tokens=77)
        assert is_answered(report)
        # Found out once; the schema, which was not at fault, stays.
        assert ["max_tokens" in call.body for call in stub.calls] == [True] + [False] * NUM_ROWS
        assert {call.body.get(OTHER) for call in stub.calls[1:]} == {77}
        assert all(call.is_constrained for call in stub.calls)
        # The refused request is counted, and cost nothing.
        kept = read_requests(folder / "out" / REQUESTS)
        assert kept.num_requests == report.num_requests == NUM_ROWS + 1
        assert sum(answer.requests for answer in kept.answers.values()) == NUM_ROWS + 1
        assert report.spent == kept.spent == pytest.approx(NUM_ROWS * USD_A_CALL)


def test_several_at_a_time_find_it_out_without_loss(folder: Path) -> None:
    with serving(reasoning(NAMED)) as stub:
        assert is_answered(run(folder, stub, concurrency=6))
        assert NUM_ROWS < len(stub.calls) <= NUM_ROWS + 6


def test_the_name_of_the_limit_is_no_other_task(folder: Path) -> None:
    """What the server takes changes no answer, so answers that are there stay good."""
    with serving(reasoning(NAMED)) as stub:
        run(folder, stub)
        stub.behave = lambda call: in_schema("positive")
        assert run(folder, stub).num_requests == 0


def test_a_model_that_takes_neither_limit_is_not_asked_for_ever(folder: Path) -> None:
    with serving(lambda call: NAMED) as stub:
        report = run(folder, stub, concurrency=1)
        assert dict(report.results.strategies[1].outcome.reasons) == {"refused (400)": NUM_ROWS}
        # With the first limit, with the other, without the schema; then both forms of each question.
        assert len(stub.calls) == 3 + 2 * (NUM_ROWS - 1)


def test_a_model_without_schemas_and_with_the_other_limit_is_asked_as_it_wants(folder: Path) -> None:
    def behave(call: Call) -> Reply:
        if "max_tokens" in call.body:
            return NAMED
        return refusal(param="response_format") if call.is_constrained else Reply("positive")

    with serving(behave) as stub:
        assert is_answered(run(folder, stub, concurrency=1))
        assert len(stub.calls) == NUM_ROWS + 2


def test_a_temperature_that_the_model_does_not_take_is_named(folder: Path) -> None:
    with serving(lambda call: refusal(param="temperature", code="unsupported_value")) as stub:
        with pytest.raises(InputError, match="stub takes no temperature of 0 ") as caught:
            run(folder, stub, concurrency=1)
        assert caught.value.key == "collaborate.temperature"
        assert len(stub.calls) == 1
        kept = read_requests(folder / "out" / REQUESTS)
        assert (kept.spent, kept.num_unfinished) == (0.0, 0)


def test_an_answer_that_the_limit_cut_off_is_told_as_such(folder: Path) -> None:
    cut = {"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}
    with serving(lambda call: Reply(raw=json.dumps(cut).encode())) as stub:
        report = run(folder, stub, retries=0)
    assert dict(report.results.strategies[1].outcome.reasons) == {"no answer within max_tokens": NUM_ROWS}
