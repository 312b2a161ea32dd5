"""What a vocabulary's cleaning does to the scripts of a text, in plain words, before it is too late."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from electra_cli.settings import Vocab

WORTH_A_WARNING = 0.001


@dataclass(frozen=True)
class ScriptFigures:
    """Counts of characters that do not come through as they stand."""

    num_letters: int
    num_changed_letters: int
    """Letters that lose a mark with `strip_accents` (ş → s)."""
    num_dropped_marks: int
    """Combining marks that are dropped with `strip_accents`: vowels in Thai, Hindi or Arabic."""
    num_split_syllables: int
    """Hangul syllables that fall into single letters with `strip_accents`."""
    num_dropped_characters: int
    """Control, format, private and unassigned characters and U+FFFD, which cleaning always drops."""
    examples: tuple[str, ...]
    """The most frequent changed letters."""

    @property
    def changed_fraction(self) -> float:
        """Share of the letters that change or lose a mark."""
        changed = self.num_changed_letters + self.num_dropped_marks + self.num_split_syllables
        return changed / self.num_letters if self.num_letters else 0.0


def script_figures(characters: Mapping[str, int]) -> ScriptFigures:
    """Count what removal of accents and cleaning do to these characters."""
    letters = marks = syllables = dropped = 0
    changed: Counter[str] = Counter()
    for character, count in characters.items():
        category = unicodedata.category(character)
        if category == "Mn":
            marks += count
        elif category[0] == "C" or character == "\ufffd":
            dropped += count
        elif category[0] == "L":
            letters += count
            decomposed = unicodedata.normalize("NFD", character)
            if "\uac00" <= character <= "\ud7a3":
                syllables += count
            elif any(unicodedata.category(c) == "Mn" for c in decomposed):
                changed[character] += count
    examples = tuple(sorted(changed, key=lambda c: (-changed[c], c))[:5])
    return ScriptFigures(letters, sum(changed.values()), marks, syllables, dropped, examples)


def script_warnings(
    figures: ScriptFigures, settings: Vocab, num_characters: int
) -> Iterator[tuple[str, str]]:
    """(code, text) of each thing that changes more than 0.1 % of the letters or characters."""
    keep = "vocab.strip_accents = false keeps them"
    share = figures.changed_fraction
    if settings.strip_accents and share > WORTH_A_WARNING:
        if figures.num_changed_letters:
            there = " ".join(figures.examples)
            yield (
                "accents",
                f"strip_accents changes {100 * share:.1f} % of the letters (such as {there}): {keep}",
            )
        if figures.num_dropped_marks > WORTH_A_WARNING * figures.num_letters:
            yield (
                "marks",
                f"strip_accents drops {figures.num_dropped_marks:,} combining marks, which are vowels in "
                f"scripts such as Thai, Devanagari or Arabic: {keep}",
            )
        if figures.num_split_syllables > WORTH_A_WARNING * figures.num_letters:
            yield (
                "hangul",
                f"strip_accents splits {figures.num_split_syllables:,} Hangul syllables into letters: "
                f"{keep} whole",
            )
    if figures.num_dropped_characters > WORTH_A_WARNING * num_characters:
        yield (
            "dropped-characters",
            f"cleaning drops {figures.num_dropped_characters:,} control, format, private-use or unassigned "
            "characters, as BERT's does",
        )
