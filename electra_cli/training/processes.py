"""The processes of one run: joining them, and sums over them; one process is alone with what it has."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from electra_cli.distributed import Ranks


@contextmanager
def joined(ranks: Ranks, device: torch.device) -> Iterator[None]:
    """The process group that torchrun's environment describes: nccl on GPUs, gloo elsewhere."""
    if ranks.world_size == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def wait_for_all(ranks: Ranks) -> None:
    """Return when every process has come here."""
    if ranks.world_size > 1:
        dist.barrier()


def shared_text(text: str, ranks: Ranks, device: torch.device) -> str:
    """The first process's text, on every process."""
    if ranks.world_size == 1:
        return text
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    length = torch.tensor(len(content), device=device)
    dist.broadcast(length, src=0)
    if not ranks.is_first:
        content = torch.empty(int(length), dtype=torch.uint8, device=device)
    dist.broadcast(content, src=0)
    return bytes(content.tolist()).decode()


def sum_over_ranks(tensors: Sequence[Tensor], ranks: Ranks) -> None:
    """Replace each tensor by its sum over all processes, in place, in one exchange a dtype."""
    if ranks.world_size == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        group = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        dist.all_reduce(flat)
        offset = 0
        for tensor in group:
            tensor.copy_(flat[offset : offset + tensor.numel()].view_as(tensor))
            offset += tensor.numel()


def largest_over_ranks(value: int, ranks: Ranks, device: torch.device) -> int:
    """The largest of a small number over all processes."""
    if ranks.world_size == 1:
        return value
    tensor = torch.tensor(value, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return int(tensor)
