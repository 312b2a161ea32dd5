"""MCL (Chen et al. 2023, arXiv 2305.03981): ELECTRA's two networks in a curriculum of several courses.

Three courses corrupt a row in three ways: replaced tokens (rtd), swapped tokens (std), inserted tokens (itd).
Two more let both networks work again on what the first round showed: the generator on replacements that the
discriminator caught, the discriminator on its own mistakes. docs/mcl.md lists every detail.
"""

# B batch, S sequence, M slots for chosen positions, E embedding size

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from electra_cli.corruption import put_samples
from electra_cli.corruption_insertions import num_kept
from electra_cli.data.batches import Batch, joined
from electra_cli.errors import refusal
from electra_cli.kernels.masked_sampling import MaskedSample, masked_sample
from electra_cli.models.folders import HFFolder, discriminator_folders, generator_folders
from electra_cli.models.initial import initialise
from electra_cli.models.sizes import discriminator_config
from electra_cli.objectives.base import Losses, Objective, Update, VocabularyFacts, own_settings
from electra_cli.objectives.courses import (
    COURSES,
    INSERTED,
    PURPOSES,
    REPLACED,
    SWAPPED,
    Answer,
    Course,
    Lesson,
    inserted_lesson,
    replaced_lesson,
    swapped_lesson,
)
from electra_cli.objectives.detection import (
    HISTOGRAM,
    detection_figures,
    detection_loss,
    share,
    summarise_detection,
)
from electra_cli.objectives.electra import Discriminator, make_generator
from electra_cli.objectives.masking import RowMasking
from electra_cli.settings import ProjectSettings
from electra_cli.settings_objectives import MCLSettings


class MCL(Objective):
    """Joint training of generator and discriminator over all courses, in one update."""

    def __init__(
        self, settings: ProjectSettings, vocabulary: VocabularyFacts, *, sampler: str = "auto"
    ) -> None:
        """ProjectError for a sharing, masking or length that does not go with the courses, or no course."""
        super().__init__(settings, vocabulary, sampler=sampler)
        own = own_settings(settings.objective, MCLSettings)
        self.temperature = own.temperature
        self.terms = {term: weight for term, weight in own.weights.items() if weight}
        if not self.terms:
            raise refusal("objective.rtd_weight", "every weight of [objective] is 0: there is no course left")
        self.courses = tuple(course for course in COURSES if self._has(*course.terms))
        if INSERTED in self.courses:
            _refuse_short_rows(settings)
        self.updates = (Update(name="mcl", networks=("discriminator", "generator"), terms=self.terms),)
        self.num_passes = len(self.courses) + sum(
            self._has(course.detect_again, course.restore_again) for course in self.courses
        )
        self.discriminator = Discriminator(
            discriminator_config(settings, vocabulary.size, vocabulary.padding_id)
        )
        self.generator = make_generator(settings, vocabulary, self.discriminator.encoder)
        self.masking = RowMasking(settings, vocabulary, *PURPOSES)
        initialise(self, seed=settings.project.seed, std=settings.model.init_std)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Chosen positions for the generator's terms, real tokens for the discriminator's.

        What a network got right or wrong is a 0/1 weight within these, so no count depends on a prediction.
        """
        counts: dict[str, Tensor] = {}
        for lesson in self._lessons(batch):
            course, num_chosen = lesson.course, lesson.chosen.weight_M.sum()
            num_real = (lesson.batch.piece_BS > 0).sum().float()
            counts |= {course.restore: num_chosen, course.restore_again: num_chosen}
            counts |= {course.detect: num_real, course.detect_again: num_real}
        return {term: counts[term] for term in self.terms}

    def forward(self, batch: Batch, update: str, progress: Tensor, carry: object = None) -> Losses:
        """The sums of one micro-batch: two rounds, each with all its courses in one batch a network."""
        lessons = self._lessons(batch)
        samples = self._write(lessons)
        answers = self._examine(lessons, samples)
        sums = {lesson.term: sample.loss_sum for lesson, sample in zip(lessons, samples, strict=True)}
        figures: dict[str, Tensor] = {}
        for lesson, sample in zip(lessons, samples, strict=True):
            figures |= _generator_figures(lesson, sample)
        for answer in answers:
            is_real_BS = answer.lesson.batch.piece_BS > 0
            facts = answer.logit_BS, answer.is_changed_BS, is_real_BS
            sums[answer.lesson.course.detect] = detection_loss(*facts)
            figures |= {answer.lesson.course.prefix + k: v for k, v in detection_figures(*facts).items()}
        sums |= self._restore_again(answers) | self._detect_again(answers)
        return Losses(sums={term: sums[term] for term in self.terms}, figures=figures)

    def summarise(self, figures: Mapping[str, Tensor]) -> dict[str, float | None]:
        """ELECTRA's figures of the replaced tokens; the other courses' begin with `std_` and `itd_`."""
        found: dict[str, float | None] = {}
        for course in self.courses:
            start = course.prefix
            if course.restore:
                right, chosen = figures[f"{start}num_sampled_right"], figures[f"{start}num_chosen"]
                found[f"{start}sampled_accuracy"] = share(float(right), float(chosen))
            if self._is_examined(course):
                detected = summarise_detection({HISTOGRAM: figures[start + HISTOGRAM]})
                found |= {start + name: value for name, value in detected.items()}
        return found

    def exports(self) -> dict[str, HFFolder]:
        """The discriminator with and without its head, and the generator."""
        return {
            **discriminator_folders(self.discriminator.encoder, self.discriminator.head),
            **generator_folders(self.generator.encoder, self.generator.head),
        }

    def _has(self, *terms: str) -> bool:
        return any(term in self.terms for term in terms)

    def _is_examined(self, course: Course) -> bool:
        return self._has(course.detect, course.detect_again, course.restore_again)

    def _lessons(self, batch: Batch) -> list[Lesson]:
        """The first round, one lesson an active course."""
        makers: dict[Course, Callable[[], Lesson]] = {
            REPLACED: lambda: replaced_lesson(self.masking, batch),
            SWAPPED: lambda: swapped_lesson(self.masking, batch),
            INSERTED: lambda: inserted_lesson(
                self.masking,
                batch,
                row_length=self.settings.rows.sequence_length,
                padding_id=self.vocabulary.padding_id,
            ),
        }
        return [makers[course]() for course in self.courses]

    def _write(self, lessons: list[Lesson]) -> list[MaskedSample]:
        """The generator over all lessons at once; each lesson's loss and samples."""
        rows = joined([lesson.batch for lesson in lessons])
        starts = range(0, rows.token_ids_BS.numel(), lessons[0].shown_BS.numel())
        index_M = torch.cat([one.chosen.index_M + start for one, start in zip(lessons, starts, strict=True)])
        state_ME = self.generator(torch.cat([lesson.shown_BS for lesson in lessons]), rows, index_M)
        states = state_ME.split([len(lesson.chosen.index_M) for lesson in lessons])
        return [self._sample(lesson, state) for lesson, state in zip(lessons, states, strict=True)]

    def _sample(self, lesson: Lesson, state_ME: Tensor) -> MaskedSample:
        chosen = lesson.chosen
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._has(lesson.term)):
            return masked_sample(
                state_ME,
                self.generator.encoder.embeddings.word_VE,
                self.generator.head.bias_V,
                chosen.target_M,
                chosen.weight_M,
                lesson.uniform_M,
                temperature=self.temperature,
                # As in ELECTRA: a sampled [PAD] would train a row of the table that has to stay untrained.
                forbidden_M=torch.full_like(chosen.target_M, self.vocabulary.padding_id),
                implementation=self.sampler,
            )

    def _judge(self, lessons: list[Lesson], corrupted: list[Tensor]) -> list[Tensor]:
        """The discriminator over all lessons at once; each lesson's logits [B, S]."""
        rows = joined([lesson.batch for lesson in lessons])
        logit_BS: Tensor = self.discriminator(torch.cat(corrupted), rows)
        return list(logit_BS.chunk(len(lessons)))

    def _examine(self, lessons: list[Lesson], samples: list[MaskedSample]) -> list[Answer]:
        """What was written into the rows, before the discriminator."""
        written = [
            (lesson, put_samples(lesson.batch.token_ids_BS, lesson.chosen, sample.sampled_M))
            for lesson, sample in zip(lessons, samples, strict=True)
            if self._is_examined(lesson.course)
        ]
        if not written:
            return []
        logits = self._judge([lesson for lesson, _ in written], [one_BS for _, one_BS in written])
        return [
            Answer(lesson=lesson, corrupted_BS=corrupted_BS, logit_BS=logit_BS)
            for (lesson, corrupted_BS), logit_BS in zip(written, logits, strict=True)
        ]

    def _restore_again(self, answers: list[Answer]) -> dict[str, Tensor]:
        """The generator once more, where only what was caught is hidden."""
        lessons = [one.caught_alone() for one in answers if self._has(one.lesson.course.restore_again)]
        if not lessons:
            return {}
        samples = self._write(lessons)
        return {lesson.term: sample.loss_sum for lesson, sample in zip(lessons, samples, strict=True)}

    def _detect_again(self, answers: list[Answer]) -> dict[str, Tensor]:
        """The discriminator once more over its mistakes, where what it caught is the original again."""
        again = [one for one in answers if self._has(one.lesson.course.detect_again)]
        if not again:
            return {}
        logits = self._judge([one.lesson for one in again], [one.corrected_BS for one in again])
        return {
            one.lesson.course.detect_again: detection_loss(logit_BS, one.is_changed_BS, one.is_mistaken_BS)
            for one, logit_BS in zip(again, logits, strict=True)
        }


def _generator_figures(lesson: Lesson, sample: MaskedSample) -> dict[str, Tensor]:
    if not lesson.course.restore:
        return {}
    chosen, start = lesson.chosen, lesson.course.prefix
    is_right_M = (sample.sampled_M == chosen.target_M) * chosen.weight_M
    return {f"{start}num_chosen": chosen.weight_M.sum(), f"{start}num_sampled_right": is_right_M.sum()}


def _refuse_short_rows(settings: ProjectSettings) -> None:
    """Rows so short that the share of inserted tokens rounds to none."""
    length, fraction = settings.rows.sequence_length, settings.masking.fraction
    kept = num_kept(length, fraction)
    if round(kept * fraction) < 1:
        raise refusal(
            "rows.sequence_length",
            f"rows.sequence_length = {length} leaves {kept} tokens between which "
            f"masking.fraction = {fraction:g} inserts none",
            hint="longer rows, a larger fraction, or objective.itd_weight = 0",
        )
