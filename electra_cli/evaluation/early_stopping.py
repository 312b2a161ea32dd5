"""Which epoch of a run was the best, and when to stop looking for a better one."""

from torch import Tensor, nn


class BestEpoch:
    """Keeps the weights of the epoch with the best score; a copy on the CPU, as large as the network."""

    def __init__(self, module: nn.Module, *, patience: int, least_gain: float) -> None:
        self._module, self._patience, self._least_gain = module, patience, least_gain
        self._state: dict[str, Tensor] = {}
        self.score: float | None = None
        self.epoch = 0
        """Number of the best epoch, from 1; 0 before the first that has a score."""

    def hear(self, epoch: int, score: float | None) -> None:
        """Take the score of a finished epoch (from 1); `None` counts as no gain."""
        if score is None or (self.score is not None and score <= self.score + self._least_gain):
            return
        self.score, self.epoch = score, epoch
        self._state = {
            name: value.detach().cpu().clone() for name, value in self._module.state_dict().items()
        }

    def is_over(self, epoch: int) -> bool:
        """Whether `patience` epochs up to this one brought no better score."""
        return epoch - self.epoch >= self._patience

    def restore(self) -> None:
        """Give the network the weights of the best epoch; as it is where none had a score."""
        if self._state:
            self._module.load_state_dict(self._state)
