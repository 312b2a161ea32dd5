"""The lines of a rehearsed run, for `electra pretrain --dry-run` and `electra check`."""

from typing import TYPE_CHECKING

from electra_cli.commands._safe import compact, duration, size

if TYPE_CHECKING:
    from electra_cli.training.dry_run import DryRun


def lines_of(measured: "DryRun") -> list[str]:
    """One line a fact, marked ✓ or ✗."""
    networks = ", ".join(f"{name} {compact(count)}" for name, count in measured.parameters.items())
    saved = measured.keep_checkpoints * measured.checkpoint_bytes
    smoke = "losses and weights identical" if measured.is_resume_identical else "NOT identical"
    has_room = measured.free_bytes > 2.2 * measured.checkpoint_bytes + saved
    facts = (
        (True, "data", f"{compact(measured.num_tokens)} tokens, {measured.epochs:.2g} passes"),
        (True, "model", f"{networks}, sampler: {measured.sampler}"),
        (
            True,
            "memory",
            f"{size(measured.peak_bytes)} at micro-batch {measured.micro_batch_size} "
            f"({measured.precision}), measured by a step",
        ),
        (
            True,
            "time",
            f"about {duration(measured.total_seconds)} at {compact(measured.tokens_per_second)} tok/s, "
            f"{measured.steps_timed} steps timed",
        ),
        (
            has_room,
            "disk",
            f"{measured.keep_checkpoints} checkpoints × {size(measured.checkpoint_bytes)}, "
            f"{size(measured.free_bytes)} free",
        ),
        (measured.is_resume_identical, "smoke", f"2 steps, save, resume: {smoke}"),
    )
    return [f"{'✓' if is_good else '✗'} {name:<8}{text}" for is_good, name, text in facts]
