"""Texts to ids: pairs cut to length, special pieces safe, batches complete."""

from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_cases import write_model
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_cli.errors import CorruptError, InputError
from electra_cli.evaluation.encoding import (
    TextEncoder,
    cut_pair,
    encode,
    gather,
    load_text_encoder,
    scoring_batches,
    training_batches,
)
from electra_cli.evaluation.examples import Examples


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    return load_text_encoder(write_model(tmp_path_factory.mktemp("model")))


def examples(texts: list[str], pairs: list[str] | None) -> Examples:
    return Examples(
        source="here",
        texts=tuple(texts),
        pairs=None if pairs is None else tuple(pairs),
        target_N=None,
        indices=tuple(map(str, range(len(texts)))),
        skipped={},
    )


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """One token after the other, from the longer text; from the second at equal lengths."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(3, 70))
def test_case_P34_the_longer_text_gives_way_first(first: int, second: int, length: int) -> None:
    assert cut_pair(first, second, length) == longest_first(first, second, length - 3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=80), st.none() | st.text(max_size=80), st.integers(4, 64))
def test_case_A14_any_pair_at_any_length_keeps_its_frame(
    encoder: TextEncoder, text: str, pair: str | None, length: int
) -> None:
    encoded = encode(examples([text], None if pair is None else [pair]), encoder, length)
    ids = encoded.token_ids.tolist()
    assert len(ids) <= length
    assert ids[0] == encoder.cls_id
    assert ids[-1] == encoder.sep_id
    assert ids.count(encoder.sep_id) == (1 if pair is None else 2)
    assert ids[encoded.first_length_N[0] - 1] == encoder.sep_id


@pytest.mark.parametrize("length", [1, 2, 3, 4, 128])
def test_case_A14_an_empty_side_and_an_absurd_length_are_no_error(encoder: TextEncoder, length: int) -> None:
    encoded = encode(examples(["", "good " * 600], ["bad " * 600, ""]), encoder, length)
    assert encoded.length_N.tolist() == [min(length, 128)] * 2


def test_text_that_spells_a_special_piece_stays_text(encoder: TextEncoder) -> None:
    ids = encode(examples(["a [SEP] good [MASK] [PAD]"], None), encoder, 64).token_ids[1:-1]
    assert not set(ids.tolist()) & {encoder.cls_id, encoder.sep_id, encoder.padding_id, 4}


def test_a_tokenizer_file_gives_the_ids_of_its_vocabulary_file(tmp_path: Path, encoder: TextEncoder) -> None:
    folder = write_model(tmp_path / "model")
    encoder.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()
    texts = examples(["The FILM is very good!", "a catdog"], None)
    again = encode(texts, load_text_encoder(folder), 64)
    assert again.token_ids.tolist() == encode(texts, encoder, 64).token_ids.tolist()


def test_a_folder_without_a_tokenizer_or_with_a_broken_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither tokenizer\.json nor vocab\.txt"):
        load_text_encoder(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(CorruptError, match="no tokenizer of the tokenizers library"):
        load_text_encoder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\na\n")
    with pytest.raises(InputError, match=r"no piece '\[CLS\]'"):
        load_text_encoder(tmp_path)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=300), st.integers(1, 20), st.integers(0, 3))
def test_every_example_is_in_exactly_one_batch_of_an_epoch(lengths: list[int], size: int, epoch: int) -> None:
    length_N = np.array(lengths, dtype=np.int64)
    batches = list(training_batches(length_N, size, seed=1, epoch=epoch))
    assert len(batches) == -(-len(lengths) // size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    scored = list(scoring_batches(length_N, 64))
    assert sorted(np.concatenate(scored).tolist()) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * length_N[batch].max() <= 64 for batch in scored)


def test_the_order_depends_on_the_seed_and_on_the_epoch_alone() -> None:
    length_N = np.full(50, 7, dtype=np.int64)
    orders = {
        (seed, epoch): tuple(np.concatenate(list(training_batches(length_N, 8, seed=seed, epoch=epoch))))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4
    assert orders[0, 1] == tuple(np.concatenate(list(training_batches(length_N, 8, seed=0, epoch=1))))


def test_a_batch_is_padded_to_its_longest_example_and_no_further(encoder: TextEncoder) -> None:
    encoded = encode(examples(["good", "a very good film"], ["bad", ""]), encoder, 64)
    batch = gather(encoded, np.array([0, 1]), encoder.padding_id, torch.device("cpu"))
    assert batch.token_ids_BS.shape == (2, 7)
    assert batch.piece_BS.tolist() == [[1, 1, 1, 1, 1, 0, 0], [1] * 7]
    assert batch.segment_BS.tolist() == [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1]]
    assert batch.position_BS.tolist() == [[0, 1, 2, 3, 4, 0, 0], [0, 1, 2, 3, 4, 5, 6]]
