"""The samples of a run: rows of the shards in keyed order, and the fixed held-out rows."""

from collections.abc import Iterator
from dataclasses import dataclass

from electra_cli.data.batches import Batch, BatchStream, heldout_batches
from electra_cli.data.drawn import DrawnSamples
from electra_cli.data.order import SampleOrder, source_weights
from electra_cli.data.rows import Rows
from electra_cli.data.shards import Shard, ShardSet
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.distributed import Ranks
from electra_cli.errors import InputError
from electra_cli.settings import ProjectSettings


@dataclass(frozen=True)
class Samples:
    """Where the batches of a run come from."""

    rows: Rows
    order: SampleOrder
    heldout: Rows
    batch_size: int
    heldout_rows: int
    drawn: DrawnSamples | None = None
    """What a frozen model drew beforehand."""

    def stream(self, first_sample: int, ranks: Ranks, *, pin_memory: bool) -> BatchStream:
        """Batches from sample `first_sample` on; resuming is asking for the next one."""
        return BatchStream(
            self.rows,
            self.order,
            batch_size=self.batch_size,
            first_sample=first_sample,
            ranks=ranks,
            drawn=self.drawn,
            pin_memory=pin_memory,
        )

    def heldout_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same held-out rows every time, with masks of their own."""
        wanted = min(self.heldout_rows, self.heldout.num_rows)
        return heldout_batches(self.heldout, num_rows=wanted, batch_size=batch_size, drawn=self.drawn)

    def epochs(self, samples: int) -> float:
        """Passes over the rows that `samples` make."""
        return samples / self.rows.num_rows


def open_samples(settings: ProjectSettings, vocabulary: Vocabulary, shards: ShardSet) -> Samples:
    """Rows of the project's length over the shards; InputError where they do not fill one row."""

    def rows_of(some: tuple[Shard, ...]) -> Rows:
        return Rows(
            some,
            sequence_length=settings.rows.sequence_length,
            padding_id=vocabulary.padding_id,
            cls_id=vocabulary.cls_id,
            sep_id=vocabulary.sep_id,
            segment_pairs=settings.rows.segment_pairs,
            attend_across_documents=settings.rows.attend_across_documents,
            seed=settings.project.seed,
        )

    rows = rows_of(shards.train)
    if rows.num_rows == 0:
        raise InputError(
            f"{shards.folder} holds {shards.num_content_tokens:,} tokens, which fill no row of "
            f"{settings.rows.sequence_length}",
            path=shards.folder,
            hint=f"at least {settings.rows.sequence_length} tokens of text are needed",
        )
    return Samples(
        rows=rows,
        order=SampleOrder(settings.project.seed, rows, source_weights(settings.corpus, dict(rows.sources))),
        heldout=rows_of(shards.heldout),
        batch_size=settings.pretrain.batch_size,
        heldout_rows=settings.pretrain.heldout_rows,
    )
