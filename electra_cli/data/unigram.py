"""A Unigram vocabulary from word counts, by `sentencepiece` on one thread.

The trainer of `tokenizers` adds up probabilities in the order of a hash map: ten processes gave ten different
vocabularies. That of `sentencepiece` gives the same bytes every time; pieces and scores are all that a
Unigram model is. It is an extra, for those who want this kind of vocabulary.
"""

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path

from electra_cli.durable import write_text
from electra_cli.errors import InputError

_MARK = "▁"
_OWN_PIECES = 3
"""Pieces that sentencepiece adds for itself: unknown, begin and end."""


def unigram_scores(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log probabilities, the most probable first.

    words: counts of words that begin with `▁` where a blank stood before them.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise InputError(
            'vocab.kind = "unigram" needs sentencepiece: the trainer of tokenizers gives another vocabulary '
            "every time",
            key="vocab.kind",
            hint='pip install "electra-cli[unigram]", or take "wordpiece" or "bpe"',
        ) from error
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.tsv"
        lines = (f"{word.removeprefix(_MARK)}\t{count}\n" for word, count in words.items() if word != _MARK)
        write_text(path, "".join(lines))
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=str(path),
                input_format="tsv",
                model_writer=model,
                model_type="unigram",
                vocab_size=size + _OWN_PIECES,
                hard_vocab_limit=False,
                character_coverage=1.0,
                normalization_rule_name="identity",
                shuffle_input_sentence=False,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise InputError(
                f"sentencepiece cannot learn a Unigram vocabulary from this text: {error}",
                key="vocab.kind",
                hint="give it more text, or another vocab.size",
            ) from error
    learned = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [
        (learned.id_to_piece(number), learned.get_score(number))
        for number in range(len(learned))
        if not (learned.is_control(number) or learned.is_unknown(number))
    ]
