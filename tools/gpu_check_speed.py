"""The figures of `gpu_check.py`: ceilings of the device, the kernel beside its peers, whole training steps.

Letters: M rows, D width, V vocabulary, B batch, S sequence.
"""

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from gpu_check import Finding, Scale
from gpu_check_kernel import autocast, block_sizes, make_inputs
from torch import Tensor
from torch.nn import functional

from electra_cli.kernels.masked_sampling import masked_sample, triton_launch

if TYPE_CHECKING:
    from electra_cli.data.batches import Batch

Call = Callable[[list[Tensor]], None]


def measured(name: str, text: str, **figures: float) -> Finding:
    return Finding(name=name, outcome="measured", text=text, figures=figures)


def seconds_of(scale: Scale, call: Callable[[], None]) -> float:
    """Median of some calls after two that warm up and compile."""
    found = []
    for number in range(scale.pick(12, 3)):
        synchronise(scale)
        started = time.perf_counter()
        call()
        synchronise(scale)
        if number >= 2:
            found.append(time.perf_counter() - started)
    return statistics.median(found)


def synchronise(scale: Scale) -> None:
    if scale.device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(scale: Scale, call: Callable[[], None]) -> int:
    """Device memory that a call needs above what is held already; 0 in a rehearsal."""
    if scale.device != "cuda":
        call()
        return 0
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def matmul_flops(scale: Scale, dtype: torch.dtype) -> float:
    """Operations a second of a large square product: the ceiling that shares refer to."""
    size = scale.pick(8192, 64)
    left, right = (torch.ones(size, size, dtype=dtype, device=scale.device) for _ in range(2))
    return 2 * size**3 / seconds_of(scale, lambda: torch.mm(left, right))


def ceilings(scale: Scale) -> list[Finding]:
    """Matmul in three precisions and the speed of a copy."""
    source = torch.ones(scale.pick(2**28, 2**10), device=scale.device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * 4 / seconds_of(scale, lambda: target.copy_(source))
    figures = {"copy_bytes_per_second": copied}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        figures[f"matmul_flops_{str(dtype).removeprefix('torch.')}"] = matmul_flops(scale, dtype)
    text = f"bfloat16 {figures['matmul_flops_bfloat16'] / 1e12:.1f} TFLOP/s, copy {copied / 1e9:.0f} GB/s"
    return [measured("ceilings", text, **figures)]


def ours(inputs: list[Tensor]) -> None:
    masked_sample(*inputs, implementation="triton").loss_sum.backward()


def unfused(inputs: list[Tensor]) -> None:
    """What one writes without a kernel."""
    hidden_MD, table_VD, bias_V, target_M, _, _ = inputs
    logits_MV = functional.linear(hidden_MD, table_VD, bias_V).float()
    loss = functional.cross_entropy(logits_MV, target_M, reduction="sum")
    torch.multinomial(logits_MV.detach().softmax(1), 1)
    loss.backward()


def linear_cross_entropy(inputs: list[Tensor]) -> None:
    """torch's own fused loss; the sample still needs the logits."""
    hidden_MD, table_VD, bias_V, target_M, _, _ = inputs
    loss = functional.linear_cross_entropy(hidden_MD, table_VD, target_M, linear_bias=bias_V, reduction="sum")
    loss.backward()
    _sample_apart(inputs)


def liger(inputs: list[Tensor]) -> None:
    """Liger's fused loss; the sample still needs the logits."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    hidden_MD, table_VD, bias_V, target_M, _, _ = inputs
    loss = LigerFusedLinearCrossEntropyLoss(reduction="sum")(table_VD, hidden_MD, target_M, bias_V)
    loss.backward()
    _sample_apart(inputs)


def _sample_apart(inputs: list[Tensor]) -> None:
    with torch.no_grad():
        logits_MV = functional.linear(*inputs[:3]).float()
        torch.multinomial(logits_MV.softmax(1), 1)


def peers() -> dict[str, Call]:
    """Who is there; Liger needs a GPU besides."""
    found: dict[str, Call] = {"softmax + multinomial": unfused}
    if hasattr(functional, "linear_cross_entropy"):
        found["linear_cross_entropy + multinomial"] = linear_cross_entropy
    if importlib.util.find_spec("liger_kernel") is not None and torch.cuda.is_available():
        found["Liger + multinomial"] = liger
    return found


def kernel_time(scale: Scale) -> list[Finding]:
    """Forward, backward and one sample a row under bf16 autocast: time, memory, share of the ceiling."""
    shapes = [(1_200, 128, 30_522), (5_000, 128, 30_522), (5_000, 768, 128_100)]
    ceiling = matmul_flops(scale, torch.bfloat16)
    findings = []
    for rows, width, vocabulary in [(5, 16, 130)] if scale.is_rehearsal else shapes:
        inputs = make_inputs(scale, rows, width, vocabulary)
        for one in inputs[:3]:
            one.requires_grad_()

        def call(who: Call, inputs: list[Tensor] = inputs) -> None:
            for one in inputs[:3]:
                one.grad = None
            with autocast(scale, torch.bfloat16):
                who(inputs)

        mine = seconds_of(scale, lambda: call(ours))
        mine_bytes = peak_bytes(scale, lambda: call(ours))
        # Three products are the least that the work needs; recomputed ones are not counted.
        needed = 6 * rows * width * vocabulary
        shape = f"{rows:,} × {width} × {vocabulary:,}"
        share = needed / mine / ceiling
        text = f"{mine * 1e3:.2f} ms, {mine_bytes / 1e6:.0f} MB, {share:.0%} of the matmul ceiling"
        figures = {"seconds": mine, "bytes": mine_bytes, "needed_flops": needed, "ceiling_share": share}
        findings.append(measured(f"kernel {shape}", text, **figures))
        for name, who in peers().items():
            findings.append(_beside(scale, f"{name} {shape}", lambda who=who: call(who), mine))
    return findings


def _beside(scale: Scale, name: str, call: Callable[[], None], mine: float) -> Finding:
    """A peer's figures; where it refuses these inputs or runs out of memory, its own words."""
    try:
        theirs, their_bytes = seconds_of(scale, call), peak_bytes(scale, call)
    except RuntimeError as error:
        return Finding(name=name, outcome="not done", text=str(error).splitlines()[0][:200])
    text = f"{theirs * 1e3:.2f} ms, {their_bytes / 1e6:.0f} MB: {theirs / mine:.2f} × our time"
    return measured(name, text, seconds=theirs, bytes=their_bytes, ratio=theirs / mine)


def block_size_times(scale: Scale) -> list[Finding]:
    """What other block sizes would cost, forward and backward, in bf16."""
    inputs = make_inputs(scale, scale.pick(5_000, 5), 128, scale.pick(30_522, 130))
    findings = []
    for blocks in (triton_launch.HALF_BLOCKS, *block_sizes(scale)):
        layer = triton_launch.Layer.prepare(*inputs[:3], 0, torch.bfloat16, blocks)

        def call(layer: triton_launch.Layer = layer) -> None:
            _, peak_M, log_total_M, _ = triton_launch.forward(layer, inputs[3], inputs[5], None, 1.0)
            triton_launch.gradients(layer, inputs[3], inputs[4], peak_M, log_total_M, hidden=True, table=True)

        seconds = seconds_of(scale, call)
        findings.append(measured(f"blocks {blocks}", f"{seconds * 1e3:.2f} ms", seconds=seconds))
    return findings


def steps(scale: Scale) -> list[Finding]:
    """200 steps of ELECTRA-small and -base on made-up text, each a whole step of the engine."""
    findings = []
    ceiling = matmul_flops(scale, torch.bfloat16)
    sizes = [("small", 128, 128), ("base", 32, 512)]
    for size, rows, length in [("toy", 2, 16)] if scale.is_rehearsal else sizes:
        count, tokens, flops, first, last, seconds = _train(scale, size, rows, length)
        share = flops * tokens / seconds / ceiling
        text = (
            f"{count} steps of {rows} × {length}: {tokens / seconds:,.0f} tokens/s, MFU {share:.1%}, "
            f"loss {first:.2f} → {last:.2f}"
        )
        is_right = last < first or scale.is_rehearsal
        findings.append(
            Finding(
                name=f"ELECTRA-{size}",
                outcome="passed" if is_right else "failed",
                text=text,
                figures={"tokens_per_second": tokens / seconds, "mfu": share, "last_loss": last},
            )
        )
    return findings


def _train(scale: Scale, size: str, rows: int, length: int) -> tuple[int, int, float, float, float, float]:
    """Steps, tokens and seconds of those after the first ten; FLOPs a token; first and last loss."""
    from electra_cli.distributed import Ranks
    from electra_cli.models.flops import electra_training
    from electra_cli.objectives.base import VocabularyFacts
    from electra_cli.objectives.electra import Electra
    from electra_cli.optimization.update import NetworkUpdate
    from electra_cli.settings import Pretrain, ProjectSettings
    from electra_cli.training.device import computing, resolve_engine
    from electra_cli.training.step import StepPlan, train_step

    settings = ProjectSettings.model_validate(
        {"model": {"size": size}, "rows": {"sequence_length": length}, "optimizer": {"learning_rate": 1e-4}}
    )
    vocabulary = scale.pick(30_522, 64)
    facts = VocabularyFacts(size=vocabulary, padding_id=0, unknown_id=1, cls_id=2, sep_id=3, mask_id=4)
    engine = resolve_engine(Pretrain(device=scale.device, precision="bf16", compile=_compiling(scale)))
    objective = Electra(settings, facts, sampler="triton").to(scale.device).train()
    plan = StepPlan(
        objective=objective,
        forward=torch.compile(objective) if engine.is_compiled else objective,
        updates=tuple(NetworkUpdate(objective, update, settings.optimizer) for update in objective.updates),
        engine=engine,
        ranks=Ranks(),
        seed=0,
        micro_batch_size=rows,
    )
    num_steps, warm_up = scale.pick(200, 2), scale.pick(10, 1)
    losses, started = [], 0.0
    with computing(engine):
        for step in range(num_steps):
            if step == warm_up:
                synchronise(scale)
                started = time.perf_counter()
            batch = _batch(step, rows, length, vocabulary)
            losses.append(train_step(plan, batch, step=step, learning_rate=1e-4, progress=0.0).loss)
        synchronise(scale)
    seconds = time.perf_counter() - started
    configs = (objective.discriminator.encoder.config, objective.generator.encoder.config)
    flops = electra_training(*configs, sequence_length=length, masked_fraction=settings.masking.fraction)
    tokens = (num_steps - warm_up) * rows * length
    return num_steps, tokens, flops, float(losses[0]), float(losses[-1]), seconds


def _compiling(scale: Scale) -> str:
    return "off" if scale.is_rehearsal else "auto"


def _batch(step: int, rows: int, length: int, vocabulary: int) -> "Batch":
    """Full rows of ids whose frequencies fall as in text."""
    from electra_cli.data.batches import Batch

    generator = torch.Generator().manual_seed(step)
    rank_BS = torch.rand(rows, length, generator=generator) * torch.log(torch.tensor(vocabulary - 5.0))
    ids_BS = (rank_BS.exp().long() + 4).clamp(5, vocabulary - 1)
    ids_BS[:, 0], ids_BS[:, -1] = 2, 3
    return Batch(
        token_ids_BS=ids_BS,
        piece_BS=torch.ones_like(ids_BS, dtype=torch.int32),
        position_BS=torch.arange(length).expand_as(ids_BS).contiguous(),
        segment_BS=torch.zeros_like(ids_BS),
        sample_B=torch.arange(step * rows, (step + 1) * rows),
    )


SPEED_CHECKS: dict[str, Callable[[Scale], list[Finding]]] = {
    "ceilings": ceilings,
    "kernel time": kernel_time,
    "block sizes": block_size_times,
    "steps": steps,
}
