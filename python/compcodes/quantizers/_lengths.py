"""Vectors so long beside the others that these cannot be told apart."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core

__all__ = ["LengthWarning", "warn_of_lengths"]

TIMES = 30.0
"""So long that a codeword for the vector is none for any other: in the sets that were tried the longest is 1.8 times as
long as what it is compared with."""
FEW, SHARE = 10, 1000
"""That is the tenth longest vector, or the one that a thousandth are longer than."""


class LengthWarning(UserWarning):
    """A few vectors to train on are many times as long as all others, whose codes will be worse for it."""


def warn_of_lengths(X: NDArray[Any], n_jobs: int | None) -> None:
    """Warn of rows of `X` (n, d) far longer than nearly all others: a mistake in the data, as likely as not."""
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
