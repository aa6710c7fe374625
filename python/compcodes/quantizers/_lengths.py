"""Vectors so long that the others can hardly be told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._warn import warn

__all__ = ["LengthWarning", "warn_of_lengths"]

TIMES = 30.0
"""How many times as long as the next shorter vector a vector is, without any in between, when its codewords are of no
use to others. In the data sets that were tried, none is more than 1.5 times as long as the next."""
FEW = 20
"""At most one in this many vectors is considered a mistake."""


class LengthWarning(UserWarning):
    """A few training vectors are many times as long as all others, whose codes will be worse for it."""


def warn_of_lengths(X: NDArray[Any], weights: NDArray[np.float64] | None, n_jobs: int | None) -> None:
    """Warn of a few rows of `X` (n, d) far longer than all others, quite possibly a mistake in the data.

    Any spread of lengths is fine; the criterion is a gap among the largest. Rows of weight 0 do not count.
    """
    norms = _core.norms(X, None, n_jobs)
    if weights is not None:
        norms = norms * (weights > 0)
    most = len(norms) // FEW
    if most == 0:
        return
    longest = np.sort(np.partition(norms, -most - 1)[-most - 1 :])
    gaps = np.flatnonzero(longest[1:] > TIMES * longest[:-1])
    if not len(gaps) or longest[gaps[0]] == 0:
        return
    count, times = most - int(gaps[0]), longest[-1] / longest[gaps[0]]
    those, out = (f" and {count - 1} more are up to", "them") if count > 1 else (" is", "it")
    warn(
        f"row {int(norms.argmax())} of X{those} {times:.3g} times as long as all others, whose codes suffer: train "
        f"without {out}",
        LengthWarning,
    )
