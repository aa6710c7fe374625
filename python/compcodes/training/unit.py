"""Rows scaled to length 1 when read, for the metric "cosine", without a copy of the whole."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from compcodes import _core

__all__ = ["unit", "unit_rows"]


class _UnitRows(_core.UnitRows):
    """What training uses of an array (n, d), with its rows scaled to length 1; zero rows are left unchanged.

    The core knows its base class, and scales rows when it reads them.
    """

    ndim = 2
    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        return unit(self.array[rows])


def unit_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Return `X` (n, d) with rows of length 1; slices, rows and chunks of it are computed on access."""
    return cast(NDArray[Any], _UnitRows(X))


def unit(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return the rows of `X` (n, d) scaled to length 1; zero rows stay, those that are not finite become NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.asarray(X, dtype=np.float32).astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        norms[norms == 0] = 1
        scaled: NDArray[np.float32] = (rows / norms[:, None]).astype(np.float32)
    return scaled
