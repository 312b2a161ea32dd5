"""The benchmarks run, at toy size; the profile accounts for all of a step."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"

MODULES = ("pairing", "steps", "peers", "bench_step", "profile_step")


@pytest.fixture
def benchmarks(monkeypatch, tmp_path) -> dict[str, ModuleType]:
    """The scripts as modules, writing into a folder of the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = {name: __import__(name) for name in MODULES}
    monkeypatch.setattr(found["pairing"], "RESULTS", tmp_path)
    yield found
    for name in MODULES:
        del sys.modules[name]


@pytest.mark.parametrize("side", ["ours", "peer"])
@pytest.mark.parametrize("name", ["electra-small, 64 short texts", "deberta-xsmall, 4 × 128"])
def test_both_sides_of_a_step_can_be_measured(benchmarks, name, side):
    pytest.importorskip("transformers")
    step = benchmarks["bench_step"]
    case = step.CASES[name]
    generator = {**case.shape.generator, "width": 0}
    toy = replace(case.shape, size="toy", vocabulary=300, length=32, rows=6, generator=generator)
    figures = step.measure(side, replace(case, shape=toy, steps=1))
    assert figures["tokens_per_second"] > 0


def test_packed_short_texts_hold_the_tokens_of_the_padded_ones(benchmarks):
    step = benchmarks["bench_step"]
    case = step.CASES["electra-small, 64 short texts"]
    toy = replace(case, shape=replace(case.shape, size="toy", vocabulary=300))
    padded, packed = step.padded(toy), step.our_step(toy).batch
    assert sorted(padded[padded > 0].tolist()) == sorted(packed.token_ids_BS[packed.piece_BS > 0].tolist())
    assert int((packed.position_BS == 0)[packed.piece_BS > 0].sum()) == len(padded)
    assert (packed.piece_BS > 0).float().mean() > 0.9


def test_the_profile_accounts_for_all_of_a_step(benchmarks):
    profile = benchmarks["profile_step"]
    shape = benchmarks["steps"].StepShape(size="toy", rows=4, length=32, vocabulary=300)
    found = profile.measure(shape, 2)
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    names = {part.name for part in found.parts}
    assert {"attention: products", "optimizer", "masking", "embeddings"} <= names
    assert 0 < found.share_of_limit < 1
    assert profile.markdown(found).count("\n| ") == len(found.parts) + 1


def test_results_are_whole_after_each_pairing_and_can_be_continued(benchmarks, tmp_path):
    pairing = benchmarks["pairing"]
    line = pairing.pair(
        "a", [2.0, 4.0], [1.0, 1.0], unit="tokens/s", more_is_better=True, precision="fp32", threads=1
    )
    assert (line.ratio, line.spread) == (3.0, pytest.approx(2 / 3))
    pairing.Results("bench-a").add(line)
    assert [one["name"] for one in json.loads((tmp_path / "bench-a.json").read_text())] == ["a"]
    assert "| a | fp32, 1 | 3.0 | 1.0 | tokens/s | 3.00 × | 67%, 2 |" in (tmp_path / "bench-a.md").read_text()
    again = pairing.Results("bench-a", continues=True)
    assert again.has("a", "fp32", 1) and not again.has("a", "bf16", 1)
    assert not pairing.Results("bench-a").has("a", "fp32", 1)


def test_results_get_into_their_slots_and_other_slots_stay(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER.parent / "tools"))
    import performance_tables

    (tmp_path / "bench-a.md").write_text("| a |\n|---|\n| 1 |\n", encoding="utf-8")
    slots = "".join(f"<!-- results: {name} -->\nold\n<!-- end of {name} -->\n" for name in ("bench-a", "b"))
    text, names = performance_tables.filled(slots, tmp_path, "a processor")
    assert names == ["bench-a"]
    assert "a processor.\n\n| a |\n|---|\n| 1 |\n\n<!-- end of bench-a -->" in text
    assert "<!-- results: b -->\nold\n<!-- end of b -->" in text
    page = performance_tables.PAGE.read_text(encoding="utf-8")
    assert [slot[2] for slot in performance_tables.SLOT.finditer(page)] == [
        "profile", "bench-kernel", "bench-step", "bench-passes", "bench-text", "bench-cost",
    ]  # fmt: skip
