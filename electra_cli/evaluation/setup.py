"""What all runs of one evaluation share, and what identifies each of them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from torch import Tensor

from electra_cli.evaluation.classifier import Classifier, num_outputs_of
from electra_cli.evaluation.finetune import Recipe
from electra_cli.evaluation.kept import fingerprint
from electra_cli.evaluation.layer_rates import choose_rates
from electra_cli.evaluation.precision import Arithmetic
from electra_cli.evaluation.sources import TaskData
from electra_cli.evaluation.subject import Start, Subject
from electra_cli.evaluation.tasks import Task
from electra_cli.settings import Evaluate
from electra_cli.settings_protocols import PROTOCOLS, Protocol

_METHOD = 2
"""Raised when the same settings come to mean another computation; finished runs of older ones stay aside."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings, model and machine."""

    settings: Evaluate
    subject: Subject
    arithmetic: Arithmetic
    start: Start | None

    @property
    def max_length(self) -> int:
        """Longest input in tokens: the setting, or the model's positions where it has fewer."""
        return min(self.settings.sequence_length, self.subject.max_length)

    @property
    def protocol(self) -> Protocol:
        """The conventions of the runs."""
        return PROTOCOLS[self.settings.protocol]

    def recipe(self, task: Task) -> Recipe:
        """The settings of a run; the learning rates by size where they are left open."""
        return Recipe(
            epochs=task.epochs or self.protocol.epochs,
            batch_size=self.settings.batch_size,
            rates=choose_rates(self.settings, self.subject.encoder.config),
            weight_decay=self.settings.weight_decay,
            warmup_fraction=self.settings.warmup_fraction,
            dropout=self.settings.dropout,
            sequence_length=self.max_length,
            protocol=self.protocol,
        )

    def is_swapped(self, task: Task) -> bool:
        """Whether the training pairs come in both orders."""
        return task.is_unordered and self.settings.swap_pairs

    def initial(self, task: Task) -> Mapping[str, Tensor]:
        """Encoder weights that a task's runs start from; `--init-from` does not serve its own task."""
        start = self._start_of(task)
        return self.subject.initial if start is None else start.initial

    def _start_of(self, task: Task) -> Start | None:
        return None if self.start is None or self.start.facts.task.name == task.name else self.start

    def classifier(self, task: Task) -> Classifier:
        """The encoder with a head for the task. All classifiers share the one encoder."""
        protocol, settings = self.protocol, self.settings
        dropout = settings.dropout if protocol.head_dropout is None else protocol.head_dropout
        classifier = Classifier(self.subject.encoder, num_outputs_of(task), dropout, protocol.head)
        return classifier.to(self.arithmetic.device)

    def key(self, data: TaskData, seed: int | None) -> str:
        """Identity of a run: the same key, the same outcome. `None`: of all seeds together."""
        task = data.task
        start = self._start_of(task)
        return fingerprint(
            {
                "method": _METHOD,
                "model": self.subject.sha256,
                "start": None if start is None else start.sha256,
                "data": data.sha256,
                "splits": list(data.dev),
                "classes": list(task.classes),
                "metrics": [task.metric, *task.other_metrics, task.positive],
                "recipe": asdict(self.recipe(task)),
                "swapped": self.is_swapped(task),
                "arithmetic": self.arithmetic_name,
                "seed": seed,
            }
        )

    @property
    def arithmetic_name(self) -> str:
        """`fp32 on cpu`."""
        return f"{self.arithmetic.name} on {self.arithmetic.device.type}"

    def facts(self) -> dict[str, object]:
        """The settings that results.json records, and by which results may stand together."""
        facts: dict[str, object] = asdict(self.recipe(_ANY))
        facts.pop("epochs")
        conventions = asdict(self.protocol)
        for name in ("name", "defaults"):
            conventions.pop(name)
        facts["protocol"] = conventions | {"betas": list(self.protocol.betas)}
        facts |= {"swap_pairs": self.settings.swap_pairs}
        facts["init_from"] = None if self.start is None else self.start.sha256
        return facts


_ANY = Task(name="any", title="any", metric="accuracy", text=("text",))
