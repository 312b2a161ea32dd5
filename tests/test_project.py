"""The project file: layers, origins, paths, and every problem at once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.errors import ExitCode, Problem, ProjectError, UsageError
from electra_cli.project import (
    Project,
    changed_settings,
    dump_toml,
    load_project,
    project_from_settings,
    recipe_settings,
)
from electra_cli.project_keys import known_keys
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import ElectraSettings


def load(folder: Path, text: str = "", *sets: str, electra_set: str = "") -> Project:
    if text:
        (folder / "project.toml").write_text(text)
    return load_project(None, sets, environ={"ELECTRA_SET": electra_set}, cwd=folder)


def problems_of(folder: Path, text: str, *sets: str, electra_set: str = "") -> tuple[Problem, ...]:
    with pytest.raises(ProjectError) as caught:
        load(folder, text, *sets, electra_set=electra_set)
    assert caught.value.exit_code == ExitCode.PROJECT
    return caught.value.problems


def test_without_a_file_the_defaults_of_electra_small_hold(tmp_path: Path) -> None:
    project = load(tmp_path)
    assert project.path is None
    assert project.root == tmp_path
    assert project.settings == ProjectSettings.model_validate(project.settings.model_dump())
    assert project.settings.pretrain.steps == 1_000_000
    assert project.origins["rows.attend_across_documents"] == "default"


def test_the_recipe_electra_small_is_the_defaults() -> None:
    from_recipe = recipe_settings("electra-small").model_dump()
    plain = ProjectSettings().model_dump()
    # By size these two mean the same; the recipe writes them out.
    from_recipe["evaluate"] |= {"learning_rate": 0.0, "layer_decay": 0.0}
    for name in ElectraSettings.model_fields:
        from_recipe["objective"].pop(name)
    assert from_recipe == plain


def test_acceptance_10_flag_over_variable_over_file_over_recipe(tmp_path: Path) -> None:
    text = '[project]\nrecipe = "electra-base"\n[pretrain]\nsteps = 10\nbatch_size = 20\nsave_every = 30\n'
    project = load(
        tmp_path,
        text,
        "pretrain.steps=1",
        electra_set="pretrain.steps=2 pretrain.batch_size=3",
    )
    pretrain = project.settings.pretrain
    assert (pretrain.steps, pretrain.batch_size, pretrain.save_every) == (1, 3, 30)
    assert project.settings.optimizer.learning_rate == 2e-4
    assert {key: project.origins[key] for key in ("pretrain.steps", "pretrain.batch_size")} == {
        "pretrain.steps": "--set",
        "pretrain.batch_size": "ELECTRA_SET",
    }
    assert project.origins["pretrain.save_every"] == "project.toml line 6"
    assert project.origins["optimizer.learning_rate"] == "recipe electra-base"
    assert project.origins["optimizer.eps"] == "default"


def test_every_setting_has_an_origin(tmp_path: Path) -> None:
    origins = load(tmp_path).origins
    assert {key for key in known_keys() if key.count(".") == 1} <= origins.keys()


def test_pitfall_K24_wrong_types_and_a_typo_are_three_errors(tmp_path: Path) -> None:
    text = '[pretrain]\nbatch_size = "4"\n[vocab]\nlowercase = "False"\n[optimizer]\nlearing_rate = 1\n'
    first, second, third = problems_of(tmp_path, text)
    assert (first.key, first.line) == ("pretrain.batch_size", 2)
    assert first.value == '"4"'
    assert "whole number of at least 1" in first.message
    assert (second.key, second.line) == ("vocab.lowercase", 4)
    assert "true or false" in second.message
    assert (third.key, third.line) == ("optimizer.learing_rate", 6)
    assert "did you mean `learning_rate`?" in third.message


def test_pitfall_K24_relative_paths_start_at_the_project_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "project.toml").write_text('[corpus]\nfiles = ["text/"]\n')
    project = load_project(Path("deep/project.toml"), environ={}, cwd=tmp_path)
    assert project.resolve(project.settings.corpus.files[0]) == folder / "text"
    assert project.vocab_dir == folder / "vocab"
    assert project.origins["corpus.files"] == "deep/project.toml line 2"


def test_paths_of_set_start_at_the_working_directory(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "project.toml").write_text("[pretrain]\nsteps = 5\n")
    sets = [
        'corpus.files=["text/", "hf://owner/name"]',
        "evaluate.data=glue",
        "pretrain.init_from=google/name",
    ]
    project = load_project(folder / "project.toml", sets, environ={}, cwd=tmp_path)
    assert project.settings.corpus.files == [str(tmp_path / "text"), "hf://owner/name"]
    assert project.resolve(project.settings.evaluate.data) == tmp_path / "glue"
    # Nothing of that name lies here, so it may be a name on the Hub.
    assert project.settings.pretrain.init_from == "google/name"
    sets = [
        'corpus.source=[{name="a", files=["x"]}]',
        'evaluate.task=[{name="t", train="t.tsv", dev="d.tsv"}]',
    ]
    project = load_project(folder / "project.toml", sets, environ={}, cwd=tmp_path)
    assert project.settings.corpus.source[0].files == [str(tmp_path / "x")]
    assert project.settings.evaluate.task[0].train == str(tmp_path / "t.tsv")


def test_a_recipe_in_place_starts_at_the_working_directory(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "mine.toml").write_text("[pretrain]\nsteps = 5\n")
    assert load_project(Path("pipelines/mine.toml"), environ={}, cwd=tmp_path).root == tmp_path


@pytest.mark.parametrize(
    ("size", "width", "fraction"),
    [("toy", 16, 0.15), ("tiny", 64, 0.15), ("small", 64, 0.15), ("base", 256, 0.15), ("large", 256, 0.25)],
)
def test_the_size_brings_its_generator_and_masking(
    tmp_path: Path, size: str, width: int, fraction: float
) -> None:
    project = load(tmp_path, f'[model]\nsize = "{size}"\n')
    assert (project.settings.generator.width, project.settings.masking.fraction) == (width, fraction)
    if size in ("base", "large"):
        assert project.origins["generator.width"] == f"default for size {size}"


def test_a_value_of_the_person_wins_over_the_size(tmp_path: Path) -> None:
    project = load(tmp_path, '[model]\nsize = "large"\n[generator]\nwidth = 128\n', "masking.fraction=0.2")
    assert (project.settings.generator.width, project.settings.masking.fraction) == (128, 0.2)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("pretrain.steps=7", "steps", 7),
        ("pretrain.device=cpu", "device", "cpu"),
        ("pretrain.device='cuda:1'", "device", "cuda:1"),
        ("pretrain.init_from=", "init_from", ""),
        ("pretrain.shard_parameters=true", "shard_parameters", True),
    ],
)
def test_a_set_value_is_a_toml_literal_or_a_bare_word(
    tmp_path: Path, text: str, key: str, value: object
) -> None:
    assert load(tmp_path, "", text).settings.pretrain.model_dump()[key] == value


@pytest.mark.parametrize("text", ["pretrain.steps", "=3", "pre train.steps=3", "corpus.files=[1", 'a.b="x'])
def test_a_malformed_set_is_a_usage_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        load(tmp_path, "", text)


def test_a_set_value_cannot_smuggle_in_other_settings(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "", 'project.name="x"\nproject.seed = 9')
    assert problem.key == "project.name"


def test_a_wrong_set_names_its_source(tmp_path: Path) -> None:
    first, second = problems_of(tmp_path, "", "pretrain.stepz=1", electra_set="rows.sequence_length=2")
    assert {first.source, second.source} == {"--set", "ELECTRA_SET"}
    assert "did you mean `steps`?" in first.message + second.message
    assert "at least 8 and at most 65,536" in first.message + second.message


def test_ELECTRA_SET_is_split_by_shell_rules(tmp_path: Path) -> None:
    project = load(tmp_path, electra_set="""corpus.files='["a b/", "c/"]' pretrain.steps=4""")
    assert project.settings.corpus.files == ["a b/", "c/"]
    with pytest.raises(ProjectError, match="ELECTRA_SET"):
        load(tmp_path, electra_set="corpus.files='[")


def test_whole_numbers_are_taken_where_numbers_are_meant(tmp_path: Path) -> None:
    settings = load(tmp_path, "[optimizer]\nlearning_rate = 1\nbetas = [0, 0]\n").settings
    assert settings.optimizer.learning_rate == 1.0
    assert isinstance(settings.optimizer.learning_rate, float)


@pytest.mark.parametrize(
    ("entry", "key", "words"),
    [
        ("[pretrain]\nsteps = -1", "pretrain.steps", "at least 1"),
        ("[pretrain]\nsteps = true", "pretrain.steps", "whole number"),
        ("[pretrain]\nsteps = 1.0", "pretrain.steps", "whole number"),
        ("[pretrain]\nsteps = 1979-05-27", "pretrain.steps", "whole number"),
        ("[pretrain]\nsteps = 100000000000000000000000", "pretrain.steps", "9,223,372,036,854,775,807"),
        ("[optimizer]\neps = nan", "optimizer.eps", "finite"),
        ("[optimizer]\neps = inf", "optimizer.eps", "finite"),
        ("[optimizer]\neps = 1e400", "optimizer.eps", "finite"),
        ("[optimizer]\nbetas = [0.9]", "optimizer.betas", "exactly 2"),
        ("[optimizer]\nbetas = [0.9, nan]", "optimizer.betas.1", "finite"),
        ("[optimizer]\nbetas = [0.9, 1.5]", "optimizer", "betas"),
        ("[masking]\nfraction = 1.0", "masking.fraction", "above 0 and below 1"),
        ('[vocab]\npath = "C:\\new"', "vocab.path", "single quotes"),
        ('[corpus]\ndocument = "lines"', "corpus.document", 'did you mean "line"?'),
        ("[corpus]\nfiles = 'corpus/'", "corpus.files", "a list of texts in quotes"),
        ("[corpus]\nfiles = [1]", "corpus.files.0", "a list of texts in quotes"),
        ('[project]\nname = "../x"', "project.name", "letters, digits"),
        ('[[corpus.source]]\nname = "a"', "corpus.source.0.files", "is missing"),
        (
            "[pretrain]\nbatch_size = 10\nmicro_batch_size = 4",
            "pretrain",
            "no multiple of micro_batch_size = 4",
        ),
        ('[objective]\nuse = "elektra"', "objective.use", "did you mean `electra`?"),
        ("[objective]\ntemperatur = 1.0", "objective.temperatur", "did you mean `temperature`?"),
        ("[objective]\ntemperature = 0", "objective.temperature", "above 0"),
        ("pretrain = 3", "pretrain", "needs a table [pretrain]"),
        ("objective = 3", "objective", "needs a table [objective]"),
        ("[model]\nvocab_size = 3", "model.vocab_size", "the vocabulary decides"),
    ],
)
def test_input_I07_each_wrong_value_is_named_with_line_and_range(
    tmp_path: Path, entry: str, key: str, words: str
) -> None:
    (problem,) = problems_of(tmp_path, entry + "\n")
    assert problem.key == key
    assert words in problem.message
    assert problem.line is not None
    assert problem.source == "project.toml"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xef\xbb\xbf[project]\n", "byte order mark"),
        ("[project]\n".encode("utf-16"), "byte order mark"),
        (b"[project]\nname = 'M\xfcller'\n", "not UTF-8"),
        (b"[pretrain]\nsteps = 1\nsteps = 2\n", "steps"),
        (b"[pretrain]\nsteps = 1\n[pretrain]\n", "pretrain"),
        (b"[pretrain\n", "column"),
        (b"[vocab]\npath = 'a\nb'\n", "column"),
        (b'[vocab]\npath = "C:\\Users\\x"\n', "single quotes"),
        (b"x = " + b"[" * 2000 + b"]" * 2000, "nested"),
        (b"x = " + b"{a=" * 2000 + b"1" + b"}" * 2000, "nested"),
        (b"[pretrain]\nsteps = " + b"9" * 5000, "digits"),
        (b"# " + b"x" * 50_000_000, "50,000,002 bytes"),
    ],
    ids=[
        "bom",
        "utf16",
        "latin1",
        "twice",
        "table-twice",
        "open",
        "newline",
        "backslash",
        "deep",
        "inline",
        "digits",
        "50MB",
    ],
)
def test_input_I07_an_unreadable_file_is_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "project.toml").write_bytes(content)
    with pytest.raises(ProjectError) as caught:
        load(tmp_path)
    error = caught.value
    assert words in error.message + "".join(problem.message for problem in error.problems)
    assert "project.toml" in error.message


def test_input_I07_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("none.toml", ".", "pipe.toml"):
        with pytest.raises(ProjectError):
            load_project(tmp_path / name, environ={})


def test_all_problems_of_a_file_are_told_in_its_order(tmp_path: Path) -> None:
    text = '[project]\nrecipe = "electa"\n[pretrain]\nstepz = 10\nbatch_size = "x"\n[pretran]\nsteps = 3\n'
    assert [problem.line for problem in problems_of(tmp_path, text)] == [2, 4, 5, 6]


@pytest.mark.parametrize(
    "name", ["api_key", "hf_token", "token", "password", "openai-api-key", "client_secret"]
)
def test_security_S04_a_secret_is_refused_and_not_repeated(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path, f'[evaluate]\n{name} = "canary-0123456789"\n')
    assert "looks like a secret" in problem.message
    assert "canary" not in repr(problem)


def test_security_S04_the_value_of_a_known_service_is_a_secret_anywhere(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "", "project.license=hf_abcdefghijklmnop")
    assert "looks like a secret" in problem.message
    assert "hf_abc" not in repr(problem)


def test_security_S04_a_line_that_is_not_toml_is_not_repeated(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, '[vocab]\ntoken "canary-0123456789"\n')
    assert "at token:" in problem.message
    assert "canary" not in repr(problem)


def test_another_objective_does_not_inherit_the_recipe_s_keys(tmp_path: Path) -> None:
    project = load(tmp_path, '[objective]\nuse = "ideas/mine.py:Mine"\nstrength = 2\n')
    assert project.settings.objective.model_extra == {"strength": 2}
    assert project.origins["objective.strength"] == "project.toml line 3"


def test_changed_settings_are_those_that_differ_from_the_recipe(tmp_path: Path) -> None:
    assert changed_settings(load(tmp_path).settings) == {}
    changed = changed_settings(load(tmp_path, "", "pretrain.steps=7", "project.name=x").settings)
    assert changed == {"pretrain.steps": "7"}


def test_a_project_without_a_file_keeps_its_folder(tmp_path: Path) -> None:
    project = project_from_settings(ProjectSettings(), tmp_path)
    assert (project.vocab_dir, project.shards_dir) == (tmp_path / "vocab", tmp_path / "shards")


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
finite = st.floats(min_value=1e-300, max_value=1e300, allow_nan=False)
sources = st.fixed_dictionaries({"name": names, "files": st.lists(words), "weight": finite})
tables = st.fixed_dictionaries(
    {},
    optional={
        "project": st.fixed_dictionaries({}, optional={"name": names, "license": words}),
        "corpus": st.fixed_dictionaries({}, optional={"files": st.lists(words), "source": st.lists(sources)}),
        "optimizer": st.fixed_dictionaries({}, optional={"learning_rate": finite, "eps": finite}),
        "pretrain": st.fixed_dictionaries({}, optional={"steps": st.integers(1, 2**63 - 1)}),
        "objective": st.fixed_dictionaries({}, optional={"temperature": finite}),
        "evaluate": st.fixed_dictionaries(
            {}, optional={"tasks": st.lists(words), "swap_pairs": st.booleans()}
        ),
        "model": st.fixed_dictionaries({}, optional={"size": st.sampled_from(["toy", "base", "large"])}),
    },
)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(values=tables)
def test_property_P29_a_dumped_project_loads_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    folder = tmp_path_factory.mktemp("round")
    original = ProjectSettings.model_validate(values)
    # The recipe fills in the objective's own keys, so the second round is the one that must be exact.
    loaded = load(folder, dump_toml(original)).settings
    assert load(folder, dump_toml(loaded)).settings == loaded
    own = loaded.objective.model_extra or {}
    assert loaded.model_copy(update={"objective": original.objective}) == original
    assert (original.objective.model_extra or {}).items() <= own.items()


@pytest.mark.parametrize(
    "name", ["../x", "/abs", "a/b", "..", ".", "C:\\\\x", "x\\u0000", "x\\n", "x" * 65, ""]
)
def test_security_S02_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "project.toml").write_text(
        f'[project]\nname = "{name}"\n[[evaluate.task]]\nname = "{name}"\n'
        f'[[corpus.source]]\nname = "{name}"\nfiles = ["a"]\n'
    )
    with pytest.raises(ProjectError) as caught:
        load_project(tmp_path / "project.toml", environ={})
    keys = {problem.key for problem in caught.value.problems}
    assert {"project.name", "evaluate.task.0.name", "corpus.source.0.name"} <= keys


def test_a_link_to_nothing_is_no_missing_project(tmp_path: Path) -> None:
    (tmp_path / "project.toml").symlink_to("gone.toml")
    with pytest.raises(ProjectError, match=r"there is no project file project\.toml"):
        load_project(cwd=tmp_path, environ={})


def test_problems_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text('[project]\nname = "x y"\nrecipe = "electa"\nseed = -1\n')
    with pytest.raises(ProjectError) as caught:
        load_project(tmp_path / "project.toml", environ={})
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]


def test_another_size_keeps_what_a_recipe_says_beside_its_size(tmp_path):
    for recipe, width, sharing in (
        ("deberta-v3-xsmall", 0, "gradient-disentangled"),
        ("electra-base", 16, "tied"),
    ):
        sets = (f"project.recipe={recipe}", "model.size=toy")
        found = load_project(None, sets, environ={}, cwd=tmp_path).settings
        assert (found.generator.width, found.generator.sharing) == (width, sharing)
        assert found.masking.keep_fraction == (0.0 if "deberta" in recipe else 0.15)
