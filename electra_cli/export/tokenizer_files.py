"""The tokenizer's files of an exported folder; written by us, for loading libraries add litter to theirs."""

from pathlib import Path

from electra_cli import durable
from electra_cli.data.vocabulary import Vocabulary, tokenizer_class


def write_tokenizer(folder: Path, vocabulary: Vocabulary, *, model_type: str, model_max_length: int) -> None:
    """tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt (for old tools)."""
    is_modern = model_type == "modernbert"
    durable.write_bytes(folder / "tokenizer.json", (vocabulary.folder / "tokenizer.json").read_bytes())
    pieces = {
        "pad_token": vocabulary.padding_id,
        "unk_token": vocabulary.unknown_id,
        "cls_token": vocabulary.cls_id,
        "sep_token": vocabulary.sep_id,
        "mask_token": vocabulary.mask_id,
    }
    # transformers gives ModernBERT no other class, and the model takes no token types.
    class_name = "PreTrainedTokenizerFast" if is_modern else tokenizer_class(vocabulary)
    config: dict[str, object] = {"tokenizer_class": class_name}
    config |= {name: vocabulary.tokenizer.id_to_token(piece_id) for name, piece_id in pieces.items()}
    config |= {
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", *([] if is_modern else ["token_type_ids"]), "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        "do_lower_case": vocabulary.lowercase,
    }
    durable.write_json(folder / "tokenizer_config.json", config)
    vocab_txt = vocabulary.folder / "vocab.txt"
    if vocab_txt.is_file():
        durable.write_bytes(folder / "vocab.txt", vocab_txt.read_bytes())
