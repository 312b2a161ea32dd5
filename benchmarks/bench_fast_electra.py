"""A training step of Fast-ELECTRA, online and from samples drawn beforehand, against joint ELECTRA.

All three train the same discriminator on the same rows; the generator of the one is the frozen model of the
others. Beside time and memory it prints the matrix products that each saves, as docs/fast-electra.md counts.
"""

# B batch, S sequence

import argparse
import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from pairing import Results, in_own_process, pair

from electra_cli.corruption import num_chosen
from electra_cli.data.batches import Batch
from electra_cli.distributed import Ranks
from electra_cli.models.flops import electra_training, fast_electra_training
from electra_cli.models.folders import generator_folders, write_folder
from electra_cli.models.sizes import discriminator_config, generator_config
from electra_cli.objectives.base import Objective, VocabularyFacts
from electra_cli.objectives.electra import Electra, Generator
from electra_cli.objectives.fast_electra import FastElectra
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.settings import Pretrain, ProjectSettings
from electra_cli.training.device import resolve_engine
from electra_cli.training.step import StepPlan, train_step

FACTS = VocabularyFacts(size=30_522, padding_id=0, unknown_id=1, cls_id=2, sep_id=3, mask_id=4)
ROWS = 16
KINDS = ("joint", "online", "cached")
WARM_UP, STEPS, REPEATS = 2, 6, 3


def settings_of(size: str, use: str) -> ProjectSettings:
    """The size's discriminator with the same generator for every kind."""
    return ProjectSettings.model_validate({"model": {"size": size}, "objective": {"use": use}})


def rows(length: int) -> Batch:
    """Full rows of one piece with random words."""
    ids_BS = torch.randint(5, FACTS.size, (ROWS, length), generator=torch.Generator().manual_seed(0))
    ids_BS[:, 0], ids_BS[:, -1] = FACTS.cls_id, FACTS.sep_id
    return Batch(
        token_ids_BS=ids_BS,
        piece_BS=torch.ones_like(ids_BS, dtype=torch.int32),
        position_BS=torch.arange(length).expand_as(ids_BS).contiguous(),
        segment_BS=torch.zeros_like(ids_BS),
        sample_B=torch.arange(ROWS),
    )


def objective_of(kind: str, size: str) -> Objective:
    """Random weights: they decide neither time nor memory."""
    if kind == "joint":
        return Electra(settings_of(size, "electra"), FACTS)
    objective = FastElectra(settings_of(size, "fast_electra"), FACTS)
    if kind == "online":
        network = Generator(generator_config(objective.settings, FACTS.size, FACTS.padding_id), None)
        with tempfile.TemporaryDirectory(prefix="bench-fast-electra-") as folder:
            write_folder(Path(folder), generator_folders(network.encoder, network.head)["generator"])
            objective.load_frozen({"auxiliary": Path(folder)})
    return objective


def measure(kind: str, size: str) -> dict[str, float]:
    """Tokens a second (median step), and the most memory beyond what the imports took, in MB."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    objective: Objective = objective_of(kind, size).train()
    batch = rows(objective.settings.rows.sequence_length)
    if kind == "cached":
        slots = num_chosen(batch.token_ids_BS.shape[1], objective.settings.masking.fraction)
        batch = replace(batch, drawn_BK=torch.randint(5, FACTS.size, (ROWS, slots)))
    plan = StepPlan(
        objective=objective,
        forward=objective,
        updates=tuple(
            NetworkUpdate(objective, one, objective.settings.optimizer) for one in objective.updates
        ),
        engine=resolve_engine(Pretrain(device="cpu", precision="fp32")),
        ranks=Ranks(),
        seed=0,
        micro_batch_size=ROWS,
    )
    seconds = []
    for step in range(WARM_UP + STEPS):
        started = time.perf_counter()
        float(train_step(plan, batch, step=step, learning_rate=1e-4, progress=0.5).loss)
        seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    median = sorted(seconds[WARM_UP:])[STEPS // 2]
    return {"tokens_per_second": batch.token_ids_BS.numel() / median, "megabytes": (peak - base) / 1024}


def show_products(size: str) -> None:
    """The matrix products of a step relative to joint training."""
    settings = settings_of(size, "electra")
    sizes = FACTS.size, FACTS.padding_id
    both = discriminator_config(settings, *sizes), generator_config(settings, *sizes)
    counted = {
        "sequence_length": settings.rows.sequence_length,
        "masked_fraction": settings.masking.fraction,
    }
    joint = electra_training(*both, **counted)
    for name, auxiliary in (("online", both[1]), ("cached", None)):
        cost = fast_electra_training(both[0], auxiliary, **counted)
        print(f"{name}: {cost / 1e6:.1f} of {joint / 1e6:.1f} million FLOPs a token, -{1 - cost / joint:.1%}")


def main() -> None:
    """Print and write the pairings; with `--kind`, measure one in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="small", choices=["toy", "tiny", "small"])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--kind", choices=KINDS)
    arguments = parser.parse_args()
    if arguments.kind:
        print(json.dumps(measure(arguments.kind, arguments.size)))
        return
    seen: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(arguments.repeats):
        for kind, runs in seen.items():
            runs.append(in_own_process(__file__, "--kind", kind, "--size", arguments.size))
    pairings = []
    for kind in ("online", "cached"):
        for figure, unit, more in (("tokens_per_second", "tokens/s", True), ("megabytes", "MB", False)):
            ours, peer = ([run[figure] for run in seen[side]] for side in (kind, "joint"))
            name = f"fast-electra {arguments.size}, {kind}" + ("" if more else ", memory")
            pairings.append(
                pair(
                    name,
                    ours,
                    peer,
                    unit=unit,
                    more_is_better=more,
                    precision="fp32",
                    threads=torch.get_num_threads(),
                )
            )
    Results("bench-fast-electra").add(*pairings)
    show_products(arguments.size)


if __name__ == "__main__":
    main()
