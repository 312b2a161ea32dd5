"""The pre-training systems that the contract of an objective is run on; a new system adds its line."""

from dataclasses import dataclass, field

Tables = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Case:
    """A system, as the tables of a project file that make it out of a toy run."""

    tables: Tables = field(default_factory=dict)
    coupled_terms: tuple[str, ...] = ()
    """Terms that compare rows with each other, so that micro-batches do not add up to the batch."""


_DEBERTA: Tables = {
    "model": {"backbone": "deberta", "layer_norm_eps": 1e-7},
    "generator": {"width": 0, "depth_fraction": 0.5, "sharing": "gradient-disentangled"},
}

CASES = {
    "electra": Case(),
    "masked_lm": Case({"objective": {"use": "masked_lm"}}),
    "replace_mlm": Case({"objective": {"use": "replace_mlm"}}),
    "coco_lm": Case(
        {"objective": {"use": "coco_lm", "contrast_min_tokens": 8, "vector_size": 16}}, coupled_terms=("scl",)
    ),
    "mcl": Case({"objective": {"use": "mcl"}}),
    "electra-deberta": Case(_DEBERTA),
    "deberta-v3": Case(_DEBERTA | {"objective": {"use": "deberta_v3"}, "masking": {"keep_fraction": 0.0}}),
    "deberta-v3-joint": Case(
        {
            "model": {"backbone": "deberta"},
            "generator": {"width": 0, "sharing": "tied"},
            "objective": {"use": "deberta_v3", "update": "joint"},
        }
    ),
}
