"""A misspelled setting is answered with the one that was meant."""

import string
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from electra_cli.errors import ProjectError
from electra_cli.project import load_project
from electra_cli.project_keys import known_keys, tables
from electra_cli.project_problems import unknown_key
from electra_cli.project_suggestions import distance, nearest

KEYS = tuple(known_keys())
LETTERS = string.ascii_lowercase + "_-"


def edits(name: str) -> list[str]:
    """Every name one edit away: a letter less, more, other, or two neighbours swapped."""
    found = {name[:i] + name[i + 1 :] for i in range(len(name))}
    found |= {name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in range(len(name) - 1)}
    for letter in LETTERS:
        found |= {name[:i] + letter + name[i:] for i in range(len(name) + 1)}
        found |= {name[:i] + letter + name[i + 1 :] for i in range(len(name))}
    return sorted(found - {name, ""})


def value_for(key: str) -> object:
    """A value of the kind that the key takes."""
    allowed = known_keys()[key].allowed
    if allowed == "a list of tables":
        return [{"name": "x"}]
    if allowed.startswith("a list"):
        return ["x"]
    return {"a whole": 3, "a number": 0.5, "true or ": True}.get(allowed[:8].rstrip(), "x")


def suggested(table: str, name: str, value: object) -> list[str]:
    message = unknown_key(f"{table}.{name}", value, "electra")
    return message.partition("did you mean ")[2].split("`")[1:2] if "did you mean" in message else []


@settings(max_examples=400, derandomize=True, deadline=None)
@given(key=st.sampled_from(KEYS), data=st.data())
def test_case_D18_one_edit_is_always_understood(key: str, data: st.DataObject) -> None:
    table, _, name = key.rpartition(".")
    typo = data.draw(st.sampled_from(edits(name)))
    assume(f"{table}.{typo}" not in KEYS)
    message = unknown_key(f"{table}.{typo}", value_for(key), "electra")
    if {name, typo} & {"test", "text"}:
        # One letter apart and of one kind: both are named.
        assert f"`{name}`" in message
    else:
        assert suggested(table, typo, value_for(key)) == [name], message


def test_case_D18_nineteen_of_twenty_with_two_edits_are_understood() -> None:
    right = total = 0
    for number, key in enumerate(KEYS):
        table, _, name = key.rpartition(".")
        once = edits(name)
        for i in range(8):
            twice = edits(once[(7919 * (i + 1) + number) % len(once)])
            typo = twice[(104_729 * (i + 3) + number) % len(twice)]
            if typo == name or f"{table}.{typo}" in KEYS:
                continue
            total += 1
            right += suggested(table, typo, value_for(key)) == [name]
    assert total > 600
    assert right / total >= 0.97


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("pretrain.num-steps", "`steps`"),
        ("pretrain.max_steps", "`steps`"),
        ("pretrain.Batch-Size", "`batch_size`"),
        ("optimizer.lr", "`learning_rate`"),
        ("optimizer.learnig_rate", "`learning_rate`"),
        ("model.steps", "`steps` in `[pretrain]`"),
        ("pretrain.learning_rate", "`learning_rate` in `[optimizer]`"),
        ("masking.mask_prob", "`fraction`"),
        ("model.seq_length", "`sequence_length` in `[rows]`"),
        ("objective.disc_weight", "`discriminator_weight`"),
        ("corpus.source.0.wieght", "`weight`"),
    ],
)
def test_habits_and_wrong_tables_are_understood(key: str, meant: str) -> None:
    assert meant in unknown_key(key, 1, "electra")


@pytest.mark.parametrize("table", [name for name in tables() if "." not in name])
def test_a_misspelled_table_is_understood(table: str) -> None:
    for typo in edits(table)[::17]:
        assert f"did you mean `[{table}]`" in unknown_key(typo, {}, "electra")


def test_a_foreign_table_is_recognised_by_its_content() -> None:
    message = unknown_key("training", {"steps": 1, "batch_size": 2, "save_every": 3}, "electra")
    assert "`[pretrain]`" in message


def test_a_key_outside_of_tables_is_sent_to_its_table() -> None:
    assert "`steps` in `[pretrain]`" in unknown_key("steps", 3, "electra")


def test_nonsense_lists_what_there_is_and_guesses_nothing() -> None:
    message = unknown_key("masking.qqqqqqqqqq", 1, "electra")
    assert "did you mean" not in message
    assert "fraction, keep_fraction, whole_word" in message


def test_pitfall_K4_vocab_size_of_the_model_is_explained() -> None:
    assert "the vocabulary decides" in unknown_key("model.vocab_size", 30522, "electra")


@pytest.mark.parametrize(
    ("left", "right", "edits_between"),
    [
        ("steps", "steps", 0),
        ("stepz", "steps", 1),
        ("setps", "steps", 1),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
    ],
)
def test_distance_counts_edits(left: str, right: str, edits_between: int) -> None:
    assert distance(left, right) == distance(right, left) == edits_between


def test_nearest_gives_up_on_distant_names() -> None:
    assert nearest("zzzz", ["steps", "size"]) == ()


def test_a_wrong_recipe_is_answered_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text('[project]\nrecipe = "electa"\n')
    with pytest.raises(ProjectError) as caught:
        load_project(None, cwd=tmp_path, environ={})
    assert "did you mean `electra-small`?" in caught.value.problems[0].message
