"""An ELECTRA-small training step: ours against the straightforward one written with transformers' classes.

Both do the same work with the same dropout, optimizer, threads and batch of 16 rows × 128 tokens: mask,
generator, sample, discriminator, backward, clip, AdamW. The straightforward step is what a user would write:
generator logits for every position [B, S, V], a softmax, torch.multinomial.
"""

# B batch, S sequence

import argparse
import json
import resource
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from pairing import in_own_process, pair, report
from torch import Tensor
from torch.nn import functional as F

VOCABULARY, ROWS, LENGTH = 30_522, 16, 128
PADDING, CLS, SEP, MASK = 0, 2, 3, 4
WARM_UP, STEPS, REPEATS = 2, 6, 3


def token_ids() -> Tensor:
    """Rows that are full: [CLS] … [SEP]; ids follow a Zipf-like law as text does."""
    generator = torch.Generator().manual_seed(0)
    rank = torch.exp(
        torch.rand((ROWS, LENGTH), generator=generator) * torch.log(torch.tensor(VOCABULARY - 5.0))
    )
    ids_BS = (rank.long() + 4).clamp(5, VOCABULARY - 1)
    ids_BS[:, 0], ids_BS[:, -1] = CLS, SEP
    return ids_BS


def our_step(precision: str) -> Callable[[int], None]:
    """The engine's own step, as `electra pretrain` runs it."""
    from electra_cli.data.batches import Batch
    from electra_cli.distributed import Ranks
    from electra_cli.objectives.base import VocabularyFacts
    from electra_cli.objectives.electra import Electra
    from electra_cli.optimization.update import NetworkUpdate
    from electra_cli.settings import Pretrain, ProjectSettings
    from electra_cli.training.device import resolve_engine
    from electra_cli.training.step import StepPlan, train_step

    settings = ProjectSettings()
    facts = VocabularyFacts(
        size=VOCABULARY, padding_id=PADDING, unknown_id=1, cls_id=CLS, sep_id=SEP, mask_id=MASK
    )
    objective = Electra(settings, facts)
    ids_BS = token_ids()
    batch = Batch(
        token_ids_BS=ids_BS,
        piece_BS=torch.ones_like(ids_BS, dtype=torch.int32),
        position_BS=torch.arange(LENGTH).expand_as(ids_BS).contiguous(),
        segment_BS=torch.zeros_like(ids_BS),
        sample_B=torch.arange(ROWS),
    )
    plan = StepPlan(
        objective=objective,
        forward=objective,
        updates=tuple(NetworkUpdate(objective, update, settings.optimizer) for update in objective.updates),
        engine=resolve_engine(Pretrain(device="cpu", precision=precision)),
        ranks=Ranks(),
        seed=0,
        micro_batch_size=ROWS,
    )
    return lambda step: float(train_step(plan, batch, step=step, learning_rate=1e-4, progress=0.0).loss)


def straightforward_step(precision: str) -> Callable[[int], None]:
    """ElectraForMaskedLM and ElectraForPreTraining with shared embeddings and torch.optim.AdamW."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "embedding_size": 128, "num_hidden_layers": 12}
    small = ElectraConfig(hidden_size=256, intermediate_size=1024, num_attention_heads=4, **sizes)
    narrow = ElectraConfig(hidden_size=64, intermediate_size=256, num_attention_heads=1, **sizes)
    generator, discriminator = ElectraForMaskedLM(narrow), ElectraForPreTraining(small)
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    parameters = list({id(p): p for m in (generator, discriminator) for p in m.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, eps=1e-6, weight_decay=0.01)
    ids_BS = token_ids()
    attention_BS = torch.ones_like(ids_BS)
    candidates_BS = (ids_BS != CLS) & (ids_BS != SEP)
    bf16 = precision == "bf16"

    def step(number: int) -> None:
        is_masked_BS = (torch.rand(ids_BS.shape) < 0.15) & candidates_BS
        masked_BS = torch.where(is_masked_BS & (torch.rand(ids_BS.shape) < 0.85), MASK, ids_BS)
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else nullcontext():
            logits_BSV = generator(input_ids=masked_BS, attention_mask=attention_BS).logits
            mlm = F.cross_entropy(logits_BSV[is_masked_BS].float(), ids_BS[is_masked_BS])
            with torch.no_grad():
                probabilities_MV = torch.softmax(logits_BSV[is_masked_BS].float(), dim=-1)
                sampled_M = torch.multinomial(probabilities_MV, 1).squeeze(1)
            corrupted_BS = ids_BS.clone()
            corrupted_BS[is_masked_BS] = sampled_M
            logits_BS = discriminator(input_ids=corrupted_BS, attention_mask=attention_BS).logits
            rtd = F.binary_cross_entropy_with_logits(logits_BS.float(), (corrupted_BS != ids_BS).float())
        optimizer.zero_grad()
        (mlm + 50 * rtd).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def measure(make_step: Callable[[str], Callable[[int], None]], precision: str) -> dict[str, float]:
    """Tokens a second (median step), and the most memory beyond what the imports took, in MB."""
    import transformers  # noqa: F401  (imported on both sides, so that the base is the same)

    from electra_cli.training import step as _  # noqa: F401

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = make_step(precision)
    seconds = []
    for number in range(WARM_UP + STEPS):
        start = time.perf_counter()
        step(number)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    median = sorted(seconds[WARM_UP:])[STEPS // 2]
    return {"tokens_per_second": ROWS * LENGTH / median, "megabytes": (peak - base) / 1024}


def main() -> None:
    """Print and write the pairings; with arguments, measure one side in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=["ours", "peer"])
    parser.add_argument("--precision", choices=["fp32", "bf16"])
    arguments = parser.parse_args()
    if arguments.side:
        make_step = our_step if arguments.side == "ours" else straightforward_step
        print(json.dumps(measure(make_step, arguments.precision)))
        return
    pairings = []
    for precision in ("fp32", "bf16"):
        sides: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
        for _ in range(REPEATS):
            for side, seen in sides.items():
                seen.append(in_own_process(__file__, "--side", side, "--precision", precision))
        for figure, unit, more in (("tokens_per_second", "tokens/s", True), ("megabytes", "MB", False)):
            ours, peer = ([run[figure] for run in sides[side]] for side in ("ours", "peer"))
            name = "electra-small step" if more else "electra-small step, memory"
            pairings.append(
                pair(
                    name,
                    ours,
                    peer,
                    unit=unit,
                    more_is_better=more,
                    precision=precision,
                    threads=torch.get_num_threads(),
                )
            )
    report("bench-step", pairings)


if __name__ == "__main__":
    main()
