"""The step that a user would write with transformers' classes: the other side of `bench_step.py`.

The same networks, dropout, optimizer and work: mask, generator, sample, discriminator, backward, clip, AdamW;
generator logits for every position [B, S, V], a softmax, torch.multinomial.
"""

# B batch, S sequence, M masked positions, V vocabulary

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from steps import CLS, MASK, PADDING, SEP, StepShape
from torch import Tensor
from torch.nn import functional as F

from electra_cli.models import folder_deberta, folder_electra
from electra_cli.models.sizes import discriminator_config, generator_config


def networks(shape: StepShape) -> tuple[Any, Any]:
    """Generator and discriminator, which share all embeddings."""
    import transformers

    settings = shape.settings()
    large = discriminator_config(settings, shape.vocabulary, PADDING)
    small = generator_config(settings, shape.vocabulary, PADDING)
    if shape.backbone == "deberta":
        kind, config_of = transformers.DebertaV2Config, folder_deberta.config_of
        generator_class, discriminator_class = (
            transformers.DebertaV2ForMaskedLM,
            transformers.DebertaV2ForTokenClassification,
        )
    else:
        kind, config_of = transformers.ElectraConfig, folder_electra.config_of
        generator_class, discriminator_class = (
            transformers.ElectraForMaskedLM,
            transformers.ElectraForPreTraining,
        )
    torch.manual_seed(0)
    generator = generator_class(kind(**config_of(small, generator_class.__name__)))
    discriminator = discriminator_class(
        kind(**config_of(large, discriminator_class.__name__), **_one_logit(shape))
    )
    generator.base_model.embeddings = discriminator.base_model.embeddings
    generator.get_output_embeddings().weight = discriminator.get_input_embeddings().weight
    return generator.train(), discriminator.train()


def _one_logit(shape: StepShape) -> dict[str, object]:
    return {"num_labels": 1} if shape.backbone == "deberta" else {}


def straightforward_step(shape: StepShape, ids_BS: Tensor) -> Callable[[int], None]:
    """One step a call on these rows, padded with `PADDING`."""
    generator, discriminator = networks(shape)
    parameters = list({id(p): p for m in (generator, discriminator) for p in m.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, eps=1e-6, weight_decay=0.01)
    attention_BS = (ids_BS != PADDING).long()
    is_real_BS = ids_BS != PADDING
    candidates_BS = is_real_BS & (ids_BS != CLS) & (ids_BS != SEP)

    def step(number: int) -> None:
        is_masked_BS = (torch.rand(ids_BS.shape) < 0.15) & candidates_BS
        masked_BS = torch.where(is_masked_BS & (torch.rand(ids_BS.shape) < 0.85), MASK, ids_BS)
        with torch.autocast("cpu", dtype=torch.bfloat16) if shape.precision == "bf16" else nullcontext():
            logits_BSV = generator(input_ids=masked_BS, attention_mask=attention_BS).logits
            mlm = F.cross_entropy(logits_BSV[is_masked_BS].float(), ids_BS[is_masked_BS])
            with torch.no_grad():
                probabilities_MV = torch.softmax(logits_BSV[is_masked_BS].float(), dim=-1)
                sampled_M = torch.multinomial(probabilities_MV, 1).squeeze(1)
            corrupted_BS = ids_BS.clone()
            corrupted_BS[is_masked_BS] = sampled_M
            logits_BS = discriminator(input_ids=corrupted_BS, attention_mask=attention_BS).logits
            logits_BS = logits_BS.view(ids_BS.shape).float()
            is_replaced_BS = (corrupted_BS != ids_BS).float()
            rtd = F.binary_cross_entropy_with_logits(logits_BS[is_real_BS], is_replaced_BS[is_real_BS])
        optimizer.zero_grad()
        (mlm + 50 * rtd).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step
