"""Training files equal the paper's to the byte; examples are the nearest of the training split."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from collaboration_cases import CLASSES, make_project, request, write, write_rows
from stub_server import in_schema, serving
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from electra_cli.collaboration.prompts import Message
from electra_cli.collaboration.retrieval import nearest
from electra_cli.collaboration.tokens import TokenCounter, load_counter, most_tokens
from electra_cli.errors import CorruptError, InputError
from electra_cli.pipeline_collaborate import collaborate, training_files
from electra_cli.progress import Silent

sys.path.append(str(Path(__file__).parent.parent / "evaluation"))


def test_the_papers_validation_files_come_out_to_the_byte(tmp_path: Path, data_folder: Path) -> None:
    """Sizes that the provider reported for the uploaded files of 5,421 examples."""
    sentiment = data_folder / "sentiment"
    wanted = request(
        tmp_path,
        data=sentiment / "merged" / "val_all.csv.gz",
        encoder=f"{sentiment / 'llm-recordings' / 'val-electra.csv.gz'}:EB:p",
    )
    files = {
        one.variant: one for one in training_files(make_project(tmp_path, "http://127.0.0.1/v1"), wanted)
    }
    assert files["FT"].num_bytes == files["FT"].path.stat().st_size == 3_253_015
    assert files["FT-L"].num_bytes == 3_939_665
    assert {one.num_examples for one in files.values()} == {5421}
    # The paper's training split has 54.2 tokens an example in FT-M; an estimate may be off by a quarter.
    assert files["FT-M"].num_tokens / 5421 == pytest.approx(54.2, rel=0.25)


def test_training_files_hold_chats_that_end_in_the_gold_label(tmp_path: Path) -> None:
    write_rows(tmp_path)
    files = training_files(make_project(tmp_path, "http://127.0.0.1/v1"), request(tmp_path, encoder=""))
    # Without an encoder there is no label to show.
    assert [one.variant for one in files] == ["FT", "FT-M"]
    for one in files:
        chats = [json.loads(line)["messages"] for line in one.path.read_text().splitlines()]
        assert [chat[-1] for chat in chats[:2]] == [
            {"role": "assistant", "content": "negative"},
            {"role": "assistant", "content": "neutral"},
        ]
    assert chats[0][1]["content"] == "The soup was cold."


def test_nearest_is_the_largest_cosine_and_ties_keep_their_order() -> None:
    example_ED = np.array([[1, 0], [0, 2], [3, 3], [0, 1]], dtype=np.float32)
    state_ND = np.array([[0, 5], [2, 1.9]], dtype=np.float32)
    assert nearest(state_ND, example_ED, [range(4)], 3) == [(1, 3, 2), (2, 0, 1)]
    assert nearest(state_ND, example_ED, [[0, 1], [], [2, 3]], 1) == [(1, 3), (0, 2)]


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, fine-tuned on two classes."""
    from evaluation_cases import make_project as evaluation_project
    from evaluation_cases import write_model

    from electra_cli.evaluation.glue import evaluate
    from electra_cli.evaluation.request import Request

    folder = tmp_path_factory.mktemp("encoder")
    for name in ("train", "dev"):
        lines = [
            f"the film is {'good' if n % 2 else 'bad'} {n},{'pos' if n % 2 else 'neg'}" for n in range(16)
        ]
        write(folder / f"{name}.csv", "text,label\n" + "\n".join(lines) + "\n")
    task = {"name": "films", "train": "train.csv", "dev": "dev.csv", "epochs": 1}
    project = evaluation_project(folder, seeds=1, task=[task])
    model = write_model(folder / "model")
    evaluate(project, model, Request(tasks=("films",), save_models=True, out=folder / "out"), Silent())
    return folder


def test_a_fine_tuned_folder_answers_and_finds_examples_of_the_training_split(
    fine_tuned: Path, tmp_path: Path
) -> None:
    encoder = fine_tuned / "out" / "fine_tuned" / "films"
    rows = write(tmp_path / "rows.csv", "text,label\nthe film is good 3,pos\na very bad plot,neg\n")
    with serving(lambda call: in_schema("pos")) as stub:
        project = make_project(
            tmp_path, stub.base_url, strategies=["examples", "balanced-examples", "cascade"], num_examples=3
        )
        wanted = request(
            tmp_path,
            data=rows,
            encoder=str(encoder),
            examples=fine_tuned / "train.csv",
            validation=str(fine_tuned / "dev.csv"),
        )
        report = collaborate(project, wanted, Silent())
        assert [one.outcome.name for one in report.results.strategies][
            1:
        ] == project.settings.collaborate.strategies
        shown = [call.user_text for call in stub.calls]
        nearest_three = [text for text in shown if text.count("\n- ") == 3]
        balanced = [text for text in shown if text.count("\n- pos") == 2 and text.count("\n- neg") == 2]
        assert (len(nearest_three), len(balanced)) == (2, 2)
        for text in shown:
            if "Review:" in text and "\n- " in text:
                # The first row is also a training text, and never its own example.
                assert '"the film is good 3"' not in text.split("Review:")[0]
        with pytest.raises(InputError, match="is the data to classify"):
            collaborate(project, replace(wanted, examples=rows), Silent())
        turned = write(tmp_path / "turned.csv", "text,label\na very bad plot,neg\nthe film is good 3,pos\n")
        with pytest.raises(InputError, match="is also to be classified"):
            collaborate(project, replace(wanted, examples=turned), Silent())
        with pytest.raises(InputError, match="different label sets") as caught:
            other = write(tmp_path / "other.csv", "text,label\nx,happy\ny,sad\n")
            collaborate(project, replace(wanted, data=other), Silent())
        assert "happy, sad" in caught.value.message and "neg, pos" in caught.value.message


def test_a_tokenizer_counts_and_no_count_passes_the_bound(tmp_path: Path) -> None:
    pieces = {"[UNK]": 0, "good": 1, "film": 2}
    path = tmp_path / "words.json"
    Tokenizer(WordLevel(pieces, unk_token="[UNK]")).save(str(path))
    assert load_counter(path).text("good") == 1
    counter = TokenCounter()
    for text in ("", "good film", "日本語のテキスト", "é" * 50, "\x00\x01"):
        chat = (Message("system", "s"), Message("user", text))
        assert counter.chat(chat) <= most_tokens(chat)
    with pytest.raises(CorruptError):
        load_counter(write(tmp_path / "tokenizer.json", "{}"))
    with pytest.raises(InputError):
        load_counter(tmp_path / "nothing.json")


def test_answers_that_an_evaluation_kept_serve_as_an_encoder(tmp_path: Path) -> None:
    from electra_cli.evaluation.answers_file import StoredAnswers, write_answers

    write_rows(tmp_path, 3)
    kept = StoredAnswers(
        task="t",
        split="dev",
        classes=CLASSES,
        examples_sha256="",
        model="m",
        indices=("0", "1", "2"),
        sources=("", "", ""),
        labels=CLASSES,
        predictions=CLASSES,
        probability_NC=np.full((3, 3), 0.1, np.float32) + 0.7 * np.eye(3, dtype=np.float32),
        state_ND=np.zeros((3, 4), np.float32),
    )
    write_answers(tmp_path / "dev.arrow", kept)
    with serving(lambda call: in_schema("neutral")) as stub:
        wanted = request(tmp_path, encoder=str(tmp_path / "dev.arrow"))
        report = collaborate(make_project(tmp_path, stub.base_url), wanted, Silent())
    assert report.results.strategies[0].macro_f1 == 1.0
    assert report.results.strategies[1].agreement == pytest.approx(1 / 3)
