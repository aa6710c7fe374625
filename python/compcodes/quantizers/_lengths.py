"""Vectors so long beside the others that these cannot be told apart."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core

__all__ = ["LengthWarning", "warn_of_lengths"]

TIMES = 30.0
"""So long that a codeword for the vector is none for any other; lengths of the sets that were tried spread over 6 times
their mean."""
FEW = 10
SHARE = 1000


class LengthWarning(UserWarning):
    """A few vectors to train on are many times as long as all others, whose codes will be worse for it."""


def warn_of_lengths(X: NDArray[Any], n_jobs: int | None) -> None:
    """Warn of rows of `X` (n, d) that are far longer than those of which there are a few: 10, or a thousandth."""
    few = max(FEW, len(X) // SHARE)
    if len(X) <= 2 * few:
        return
    norms = _core.norms(X, None, n_jobs)
    usual = np.partition(norms, -few)[-few]
    row = int(norms.argmax())
    if norms[row] > TIMES * usual > 0:
        count = int((norms > TIMES * usual).sum())
        those, out = (f" and {count - 1} more are up to", "them") if count > 1 else (" is", "it")
        warnings.warn(
            f"row {row} of X{those} {norms[row] / usual:.3g} times as long as nearly all others, whose codes "
            f"suffer: train without {out}",
            LengthWarning,
            stacklevel=4,
        )
