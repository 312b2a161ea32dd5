"""The courses of MCL: three ways to corrupt a row, and what a second round makes of the answers."""

# B batch, S sequence, M slots for chosen positions

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from electra_cli.corruption import Chosen, choose_positions, draw, label_replaced, swap_tokens
from electra_cli.corruption_insertions import insert_masks
from electra_cli.data.batches import Batch
from electra_cli.objectives.masking import RowMasking

PURPOSES = ("swapped positions", "swaps", "swap samples", "insertions", "insertion samples")


@dataclass(frozen=True)
class Course:
    """One way to corrupt a row, by the names of its loss terms; an empty name: there is no such term."""

    detect: str
    """The discriminator finds what was changed; also the course's own name."""
    restore: str = ""
    """The generator restores the original."""
    detect_again: str = ""
    restore_again: str = ""

    @property
    def terms(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(filter(None, (self.restore, self.detect, self.restore_again, self.detect_again)))

    @property
    def prefix(self) -> str:
        """Of the names of its figures; the replaced tokens' are ELECTRA's."""
        return "" if self is REPLACED else f"{self.detect}_"


REPLACED = Course("rtd", "mlm", "re_rtd", "re_mlm")
SWAPPED = Course("std", "slm", "re_std", "re_slm")
INSERTED = Course("itd")
COURSES = (REPLACED, SWAPPED, INSERTED)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A batch as a course shows it to the generator."""

    course: Course
    term: str
    """The generator's loss term; empty where it only writes."""
    batch: Batch
    """What is to be restored; for insertions the lengthened rows."""
    chosen: Chosen
    shown_BS: Tensor
    cue_BS: Tensor
    """What the second round shows in place of a token to be restored: [MASK], or the one swapped in."""
    uniform_M: Tensor
    is_inserted_BS: Tensor | None = None
    """Tokens that have no original, so that whatever is written there is a change."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A lesson after both networks: what the generator wrote, and what the discriminator thinks of it."""

    lesson: Lesson
    corrupted_BS: Tensor
    logit_BS: Tensor

    @property
    def is_changed_BS(self) -> Tensor:
        """The discriminator's labels; a token that was guessed right is the original."""
        if self.lesson.is_inserted_BS is not None:
            return self.lesson.is_inserted_BS
        return label_replaced(self.corrupted_BS, self.lesson.batch.token_ids_BS)

    @property
    def is_caught_BS(self) -> Tensor:
        """The paper's cell pos4: changed, and judged so."""
        return self.is_changed_BS & (self.logit_BS.detach() > 0)

    @property
    def is_mistaken_BS(self) -> Tensor:
        """The paper's cells pos2 and pos3: changed and not found, or original and judged changed."""
        is_real_BS = self.lesson.batch.piece_BS > 0
        return is_real_BS & (self.is_changed_BS != (self.logit_BS.detach() > 0))

    @property
    def corrected_BS(self) -> Tensor:
        """The corrupted row in which what was caught is the original again."""
        return torch.where(self.is_caught_BS, self.lesson.batch.token_ids_BS, self.corrupted_BS)

    def caught_alone(self) -> Lesson:
        """The lesson of the second round: the original row, but for what was caught."""
        lesson, chosen, is_caught_BS = self.lesson, self.lesson.chosen, self.is_caught_BS
        return replace(
            lesson,
            term=lesson.course.restore_again,
            chosen=replace(chosen, weight_M=chosen.weight_M * is_caught_BS.flatten()[chosen.index_M]),
            shown_BS=torch.where(is_caught_BS, lesson.cue_BS, lesson.batch.token_ids_BS),
        )


def replaced_lesson(masking: RowMasking, batch: Batch) -> Lesson:
    """ELECTRA's: chosen tokens are hidden."""
    chosen = masking.choose(batch)
    return Lesson(
        course=REPLACED,
        term=REPLACED.restore,
        batch=batch,
        chosen=chosen,
        shown_BS=masking.hide(batch, chosen),
        cue_BS=torch.full_like(batch.token_ids_BS, masking.mask_id),
        uniform_M=masking.uniform(batch, chosen),
    )


def swapped_lesson(masking: RowMasking, batch: Batch) -> Lesson:
    """As many chosen tokens, of a draw of their own, change places among themselves."""
    chosen = choose_positions(
        batch,
        fraction=masking.settings.fraction,
        never_masked=masking.never_masked,
        key=masking.key("swapped positions", batch),
        continuation_V=masking.continuation_V,
    )
    swapped_BS = swap_tokens(batch, chosen, key=masking.key("swaps", batch))
    return Lesson(
        course=SWAPPED,
        term=SWAPPED.restore,
        batch=batch,
        chosen=chosen,
        shown_BS=swapped_BS,
        cue_BS=swapped_BS,
        uniform_M=draw(batch, chosen, key=masking.key("swap samples", batch)),
    )


def inserted_lesson(masking: RowMasking, batch: Batch, *, row_length: int, padding_id: int) -> Lesson:
    """The beginning of each row, with [MASK]s between its tokens."""
    insertion = insert_masks(
        batch,
        row_length=row_length,
        fraction=masking.settings.fraction,
        mask_id=masking.mask_id,
        padding_id=padding_id,
        key=masking.key("insertions", batch),
    )
    longer, inserted = insertion.batch, insertion.inserted
    return Lesson(
        course=INSERTED,
        term=INSERTED.restore,
        batch=longer,
        chosen=inserted,
        shown_BS=longer.token_ids_BS,
        cue_BS=longer.token_ids_BS,
        uniform_M=draw(longer, inserted, key=masking.key("insertion samples", longer)),
        is_inserted_BS=insertion.is_inserted_BS,
    )
