"""Vectors in lists, as training sees them: those of this process, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.training.shards import Base, Floats, Local, Report

__all__ = ["Divided", "Whole", "based"]


class Divided(Protocol):
    """Vectors as lists are trained on them: `Local`, or those that a cluster holds."""

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""

    def sample(self, rows: NDArray[np.int64]) -> Floats:
        """Copy rows by position."""

    def here(self, count: int, seed: int, n_jobs: int | None) -> Local:
        """Bring at most `count` rows, drawn by weight, to this process."""

    def norm_moments(self) -> tuple[float, float]:
        """Return mean and standard deviation of the lengths."""

    def assigned(self, made: _core.Lists, report: Report | None) -> Any:
        """Find the list of each row."""

    def list_sizes(self, listed: Any) -> NDArray[np.int64]:
        """Count the rows of each list."""

    def lists_at(self, listed: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lists of some rows, which ascend."""

    def based(self, listed: Any) -> Any:
        """Return the same vectors, with approximations that start from the centroids of their lists."""


@dataclass(frozen=True)
class Whole:
    """Vectors of this process."""

    shards: Local

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        return self.shards.shape

    def sample(self, rows: NDArray[np.int64]) -> Floats:
        """Copy rows by position."""
        return self.shards.sample(rows)

    def here(self, count: int, seed: int, n_jobs: int | None) -> Local:
        """Return at most `count` rows, drawn by weight."""
        return replace(self.shards, base=None).sampled(count, seed)

    def norm_moments(self) -> tuple[float, float]:
        """Return mean and standard deviation of the lengths."""
        norms = _core.norms(self.shards.X, None, self.shards.n_jobs)
        return float(norms.mean()), float(norms.std())

    def assigned(self, made: _core.Lists, report: Report | None) -> Any:
        """Find the list of each row."""
        return made, made.assign(self.shards.X, self.shards.n_jobs, report)[0]

    def list_sizes(self, listed: Any) -> NDArray[np.int64]:
        """Count the rows of each list."""
        made, lists = listed
        return np.bincount(lists, minlength=len(made))

    def lists_at(self, listed: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lists of some rows."""
        found: NDArray[np.int64] = listed[1][rows]
        return found

    def based(self, listed: Any) -> Local:
        """Return the same vectors, with approximations that start from the centroids of their lists."""
        return based(self.shards, *listed)


def based(shards: Local, made: _core.Lists, lists: NDArray[np.int64]) -> Local:
    """Return the same vectors, with approximations that start from the centroids of their lists."""
    return replace(shards, base=Base(made.centroids, lists))
