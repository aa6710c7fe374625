"""The residuals from a trunk, for the groups: decoded on the fly. A copy would be as large as the vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.training.shards import Codes, Doubles, Floats, Local, drawn_rows

__all__ = ["Rest"]

NUMBERS = 1 << 21
"""Numbers of vectors that are decoded at once."""


@dataclass(frozen=True)
class Rest:
    """Vectors minus their decoded codes for these codebooks, and minus the centroids of their lists."""

    vectors: Local
    codebooks: Floats
    codes: Codes

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        return self.vectors.shape

    def of(self, rows: Any) -> Rest:
        """Return the residuals of some vectors."""
        return Rest(self.vectors.of(rows), self.codebooks, self.codes[rows])

    def rows(self, rows: Any) -> Floats:
        """Compute the residuals of some vectors, (r, d)."""
        left: Floats = np.asarray(self.vectors.X[rows]).astype(np.float32)
        left -= self._given(rows)
        return left

    def drawn(self, count: int, seed: int) -> tuple[NDArray[np.int64], Doubles | None]:
        """Draw at most `count` vectors by weight: return which, and their weights."""
        n, weights = self.shape[0], self.vectors.weights
        return drawn_rows(n, weights, count, seed) or (np.arange(n), weights)

    def rotated(self, basis: Floats) -> Floats:
        """Compute the residuals of all vectors, times `basis` (d, w)."""
        return self._turned(self.rows, basis)

    def given(self, basis: Floats) -> Floats:
        """Compute what is subtracted from all vectors, times `basis` (d, w)."""
        return self._turned(self._given, basis)

    def _given(self, rows: Any) -> Floats:
        given: Floats = _core.decode(self.codebooks, self.codes[rows], self.vectors.n_jobs)
        if self.vectors.base is not None:
            given += self.vectors.base.rows[self.vectors.base.places[rows]]
        return given

    def _turned(self, part: Callable[[slice], Floats], basis: Floats) -> Floats:
        n, d = self.shape
        turned, step = np.empty((n, basis.shape[1]), np.float32), max(NUMBERS // d, 1)
        for first in range(0, n, step):
            rows = slice(first, first + step)
            turned[rows] = _core.rotated(part(rows), basis, self.vectors.n_jobs)
        return turned
