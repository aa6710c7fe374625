"""How much time training and encoding take: one word for the parameters that determine it."""

from __future__ import annotations

from typing import NamedTuple

from compcodes import _choices

__all__ = ["EFFORTS", "Effort"]


class Effort(NamedTuple):
    """The parameters that a word for the effort selects."""

    rounds: int
    """Rounds of local search, in encoding."""
    anneal: int
    """Iterations with noise."""
    max_iter: int
    """The most iterations after those."""
    noiseless: int
    """The most iterations if there are none with noise."""

    def of_group(self) -> Effort:
        """Return the effort for each of several groups of codebooks."""
        return self._replace(anneal=self.anneal // 2, max_iter=self.max_iter // 2, noiseless=self.noiseless // 2)


EFFORTS: dict[_choices.Effort, Effort] = {
    "low": Effort(rounds=16, anneal=10, max_iter=4, noiseless=12),
    "default": Effort(rounds=128, anneal=50, max_iter=16, noiseless=24),
    "high": Effort(rounds=512, anneal=100, max_iter=32, noiseless=48),
}
