"""A tokenizer.json is read in one way, whoever names it."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from electra_cli.data.tokenizer_file import read_tokenizer
from electra_cli.errors import CorruptError, InputError


def test_it_neither_cuts_nor_pads_and_takes_no_text_for_a_special_piece(tmp_path: Path) -> None:
    saved = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "[SEP]": 2}, unk_token="[UNK]"))
    saved.pre_tokenizer = Whitespace()
    saved.add_special_tokens(["[SEP]"])
    saved.enable_truncation(4)
    saved.enable_padding(length=4)
    saved.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode("a").ids == [1]
    assert tokenizer.encode("a " * 9).ids == [1] * 9
    assert 2 not in tokenizer.encode("a [SEP]").ids


@pytest.mark.parametrize(
    "content", [b"", b"{", b"{}", b"[]", b'{"model": {}}', b'{"model":' * 5000, b"\xff\xfe{}"]
)
def test_what_is_no_tokenizer_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=r"tokenizer\.json(:| is no tokenizer)") as caught:
        read_tokenizer(path)
    assert caught.value.path == str(path)


def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.json: No such file") as caught:
        read_tokenizer(tmp_path / "none.json", key="collaborate.tokenizer")
    assert caught.value.key == "collaborate.tokenizer"
