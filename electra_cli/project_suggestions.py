"""Which setting was meant: the nearest known name for one that does not exist."""

from collections.abc import Iterable, Sequence

# Names from other tools and habits, in no table's own spelling.
_ALIASES = {
    "lr": "optimizer.learning_rate",
    "beta1": "optimizer.betas",
    "beta2": "optimizer.betas",
    "epsilon": "optimizer.eps",
    "max_grad_norm": "optimizer.clip_norm",
    "grad_clip": "optimizer.clip_norm",
    "max_steps": "pretrain.steps",
    "num_steps": "pretrain.steps",
    "num_train_steps": "pretrain.steps",
    "total_steps": "pretrain.steps",
    "train_batch_size": "pretrain.batch_size",
    "warmup": "schedule.warmup_steps",
    "num_warmup_steps": "schedule.warmup_steps",
    "lr_schedule": "schedule.decay",
    "max_length": "rows.sequence_length",
    "seq_len": "rows.sequence_length",
    "seq_length": "rows.sequence_length",
    "max_seq_length": "rows.sequence_length",
    "mask_prob": "masking.fraction",
    "mask_fraction": "masking.fraction",
    "mlm_probability": "masking.fraction",
    "layers": "model.num_layers",
    "num_hidden_layers": "model.num_layers",
    "heads": "model.num_heads",
    "num_attention_heads": "model.num_heads",
    "intermediate_size": "model.feed_forward_size",
    "hidden": "model.hidden_size",
    "gen_weight": "objective.generator_weight",
    "disc_weight": "objective.discriminator_weight",
    "lower_case": "vocab.lowercase",
    "do_lower_case": "vocab.lowercase",
    "vocab_size": "vocab.size",
    "num_seeds": "evaluate.seeds",
}


def distance(left: str, right: str) -> int:
    """Number of single edits between two names: insert, delete, replace, or swap two neighbours."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, character in enumerate(left, start=1):
        older, before, row = before, row, [i]
        for j, other in enumerate(right, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (character != other))
            if i > 1 and j > 1 and character == right[j - 2] and left[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def plain(name: str) -> str:
    """A name without the differences that people do not see: case and the kind of dash."""
    return name.replace("-", "_").replace(" ", "_").lower()


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names at the smallest distance: at most two edits, or a third of the name."""
    wanted = plain(name)
    most = max(2, len(wanted) // 3)
    distances = {
        candidate: distance(wanted, plain(candidate))
        for candidate in known
        if abs(len(candidate) - len(wanted)) <= most
    }
    smallest = min(distances.values(), default=most + 1)
    if smallest > most or smallest >= max(len(wanted), 2):
        return ()
    equal = [candidate for candidate, edits in distances.items() if edits == smallest]
    # Of equally near names those with the same first letter and the more similar length come first.
    return tuple(sorted(equal, key=lambda c: (c[:1] != wanted[:1], abs(len(c) - len(wanted)), c)))


def suggest_key(table: str, name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Which of the `known` dotted keys the key `name` in `table` was meant to be, the best first.

    A name in the same table comes as it is written there, one of another table with its table in front.
    """
    own = [key.removeprefix(f"{table}.") for key in known if _table_of(key) == table]
    near = nearest(name, own)
    if near and distance(plain(name), plain(near[0])) <= 1:
        return near
    elsewhere = [key for key in known if key.rpartition(".")[2] == plain(name)]
    if elsewhere:
        return tuple(elsewhere)
    alias = _ALIASES.get(plain(name), "")
    if alias in known:
        return (alias.removeprefix(f"{table}."),)
    if near:
        return near
    inside = [key for key in own if set(plain(name).split("_")) >= set(key.split("_"))]
    if inside:
        return (max(inside, key=len),)
    far = nearest(name, {key.rpartition(".")[2] for key in known})
    return tuple(key for key in known if key.rpartition(".")[2] in far and _table_of(key) != table)


def did_you_mean(names: Sequence[str], *, quoted: bool = True) -> str:
    """`did you mean `steps`?`, or nothing."""
    if not names:
        return ""
    shown = [f"`{name}`" if quoted else name for name in names[:3]]
    return f"did you mean {' or '.join(shown)}?"


def _table_of(key: str) -> str:
    return key.rpartition(".")[0]
