"""What a run is made of, before its first step: content, engine, networks, manifest."""

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import electra_cli
from electra_cli import durable
from electra_cli.data.drawn import DrawnSamples, open_drawn
from electra_cli.data.shards import ShardSet
from electra_cli.data.vocabulary import Vocabulary
from electra_cli.distributed import Ranks
from electra_cli.errors import InputError, refusal
from electra_cli.kernels.masked_sampling import choose_implementation
from electra_cli.models.backbone import Backbone
from electra_cli.models.sizes import EncoderConfig, discriminator_config, generator_config
from electra_cli.objectives import find
from electra_cli.objectives.base import Losses, Objective, Reads, VocabularyFacts
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.progress import Progress
from electra_cli.project import Project
from electra_cli.settings import ProjectSettings
from electra_cli.training.device import Engine, resolve_engine
from electra_cli.training.figures import Interval
from electra_cli.training.fingerprint import Content, Identity, identify
from electra_cli.training.health import Concern, warnings_before_training
from electra_cli.training.memory import common_micro_batch, micro_batch_for
from electra_cli.training.plan import plan_of, require_plan
from electra_cli.training.run import Run
from electra_cli.training.run_folder import Manifest
from electra_cli.training.samples import Samples, open_samples
from electra_cli.training.step import StepPlan
from electra_cli.training.warm_start import require_same_vocabulary, source_sha256
from electra_cli.training.weights import count_parameters


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was asked for, and by whom."""

    project: Project
    vocabulary: Vocabulary
    shards: ShardSet
    samples: Samples
    identity: Identity
    ranks: Ranks
    progress: Progress

    @property
    def settings(self) -> ProjectSettings:
        """The project's."""
        return self.project.settings

    @property
    def configs(self) -> tuple[EncoderConfig, EncoderConfig]:
        """Sizes of discriminator and generator."""
        sizes = self.vocabulary.size, self.vocabulary.padding_id
        return discriminator_config(self.settings, *sizes), generator_config(self.settings, *sizes)


def make_job(
    project: Project,
    vocabulary: Vocabulary,
    shards: ShardSet,
    progress: Progress,
    ranks: Ranks,
    *,
    reads_samples: bool = True,
) -> Job:
    """Open the rows and hash what the run depends on; InputError where something does not fit.

    `reads_samples` false: frozen models draw, although `[objective]` names what they drew before.
    """
    settings = project.settings
    kind = find(settings.objective.use, project.root)
    reads = kind.reads(settings)
    samples_folder = reads.samples if reads_samples else ""
    drawn = open_drawn(project.resolve(samples_folder)) if samples_folder else None
    content = content_of(project, vocabulary, shards, reads, drawn)
    identity = identify(settings, content)
    if drawn is not None:
        require_plan(drawn, plan_of(identity, kind))
    return Job(
        project=project,
        vocabulary=vocabulary,
        shards=shards,
        samples=replace(open_samples(settings, vocabulary, shards), drawn=drawn),
        identity=identity,
        ranks=ranks,
        progress=progress,
    )


def content_of(
    project: Project,
    vocabulary: Vocabulary,
    shards: ShardSet,
    reads: Reads,
    drawn: DrawnSamples | None,
) -> Content:
    """Hashes of all that the run reads."""
    settings = project.settings
    objective = ""
    file_name, is_own, _ = settings.objective.use.rpartition(":")
    if is_own:
        path = project.resolve(file_name)
        objective = durable.sha256_file(path) if path.is_file() else ""
    init_from = settings.pretrain.init_from
    return Content(
        vocabulary_sha256=vocabulary.sha256,
        shards_sha256=shards.manifest_sha256,
        objective_sha256=objective,
        init_from_sha256=source_sha256(project.resolve(init_from)) if init_from else "",
        models_sha256={
            name: source_sha256(project.resolve(path), key=f"objective.{name}")
            for name, path in reads.models.items()
        },
        samples_sha256="" if drawn is None else drawn.manifest_sha256,
    )


def make_engine(job: Job, manifest: Manifest | None = None) -> Engine:
    """Device, precision and threads; those of the run that continues, as far as they are open."""
    precision = None if manifest is None else manifest.precision
    engine = resolve_engine(job.settings.pretrain, local_rank=job.ranks.local_rank, precision=precision)
    return engine if manifest is None else replace(engine, num_threads=manifest.threads)


def make_run(job: Job, engine: Engine, manifest: Manifest | None = None) -> Run:
    """The networks with their initial weights, on the device, and a run at step 0 over them."""
    settings = job.settings
    objective = make_objective(job, engine)
    forward: Callable[..., Losses] = torch.compile(objective) if engine.is_compiled else objective
    updates = tuple(
        NetworkUpdate(objective, update, settings.optimizer, is_loss_scaled=engine.precision == "fp16")
        for update in objective.updates
    )
    plan = StepPlan(
        objective=objective,
        forward=forward,
        updates=updates,
        engine=engine,
        ranks=job.ranks,
        seed=settings.project.seed,
        micro_batch_size=micro_batch_size(job, objective, engine, manifest),
    )
    return Run(
        plan=plan,
        settings=settings,
        fingerprint=job.identity.fingerprint,
        vocabulary_sha256=job.vocabulary.sha256,
        interval=Interval(engine.sum_dtype),
    )


def make_objective(job: Job, engine: Engine) -> Objective:
    """The networks with their initial weights and the frozen models that they need, on the device.

    InputError where a frozen model has another vocabulary or does not fit.
    """
    settings = job.settings
    sampler_of(job, engine)
    facts = VocabularyFacts.of(job.vocabulary, whole_word=settings.masking.whole_word)
    kind = find(settings.objective.use, job.project.root)
    objective = kind(settings, facts, sampler=settings.pretrain.sampler)
    folders = {name: job.project.resolve(path) for name, path in kind.reads(settings).models.items()}
    for name, folder in folders.items():
        require_same_vocabulary(folder, job.vocabulary, key=f"objective.{name}")
    objective.load_frozen(folders)
    for module in objective.modules():
        if isinstance(module, Backbone):
            module.recomputes_layers = settings.pretrain.activation_checkpointing
    return objective.to(engine.device).train()


def sampler_of(job: Job, engine: Engine) -> tuple[str, str]:
    """The sampling kernel that serves here, and why; ProjectError where the wanted one cannot."""
    try:
        return choose_implementation(job.settings.pretrain.sampler, engine.device)
    except ValueError as error:
        message = f"pretrain.sampler: {error}"
        raise refusal("pretrain.sampler", message, hint='sampler = "auto" takes what runs here') from error


def micro_batch_size(job: Job, objective: Objective, engine: Engine, manifest: Manifest | None = None) -> int:
    """Rows of a forward pass: as set, as the run began, or by the memory rule."""
    batch_size, world_size = job.settings.pretrain.batch_size, job.ranks.world_size
    if batch_size % world_size:
        raise InputError(
            f"pretrain.batch_size = {batch_size} is no multiple of the {world_size} processes",
            key="pretrain.batch_size",
            hint=f"{-(-batch_size // world_size) * world_size} would fit",
        )
    rows = batch_size // world_size
    wanted = manifest.micro_batch_size if manifest else job.settings.pretrain.micro_batch_size
    if wanted:
        size = common_micro_batch(wanted, rows)
    else:
        size = micro_batch_for(
            rows,
            configs=job.configs * objective.num_passes,
            sequence_length=job.settings.rows.sequence_length,
            num_parameters=sum(parameter.numel() for parameter in objective.parameters()),
            engine=engine,
            recomputes_layers=job.settings.pretrain.activation_checkpointing,
        )
    if size < objective.smallest_micro_batch:
        raise refusal(
            "pretrain.micro_batch_size",
            f'objective.use = "{job.settings.objective.use}" needs {objective.smallest_micro_batch} rows a '
            f"micro-batch, here one has {size} (pretrain.batch_size = {batch_size}, {world_size} processes)",
            hint="set a larger pretrain.micro_batch_size, which pretrain.batch_size has to be a multiple of",
        )
    return size


def concerns_of(job: Job) -> list[Concern]:
    """What can be said before the first step."""
    return warnings_before_training(
        job.settings,
        hidden_size=job.configs[0].hidden_size,
        num_rows=job.samples.rows.num_rows,
        num_tokens=job.shards.num_content_tokens,
    )


def make_manifest(job: Job, run: Run) -> Manifest:
    """What is written down of a new run."""
    engine = run.plan.engine
    return Manifest(
        name=job.settings.project.name,
        created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        fingerprint=job.identity.fingerprint,
        vocabulary_sha256=job.vocabulary.sha256,
        shards_sha256=job.shards.manifest_sha256,
        values=dict(job.identity.values),
        device=torch.cuda.get_device_name(engine.device)
        if engine.device.type == "cuda"
        else str(engine.device),
        precision=engine.precision,
        threads=engine.num_threads,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        micro_batch_size=run.plan.micro_batch_size,
        parameters=count_parameters(run.plan.objective),
        versions={
            "electra-cli": electra_cli.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "platform": f"{sys.platform} {platform.machine()}",
        },
        git=git_commit(job.project.root),
    )


def git_commit(folder: Path) -> str:
    """Commit of the repository that holds the project, and whether anything is changed; empty without one."""
    try:
        commit = _git(folder, "rev-parse", "--short", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit} ({'changed' if changed else 'clean'})"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=True
    )
    return done.stdout.strip()
