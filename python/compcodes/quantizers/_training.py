"""What training has in common across methods: the sample of training vectors, seeds, progress and history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._arrays import as_vectors, check_rows
from compcodes.errors import ArgumentValueError

__all__ = ["Doubles", "Floats", "Report", "history", "lengths_differ", "seeds", "training_sample", "within"]

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Report: TypeAlias = Callable[[int, int], object]

#: Training vectors per codeword; more of them improve nothing.
PER_CODEWORD = 256
#: At most this many numbers are sampled (256 MB), but at least one vector per codeword.
NUMBERS = 1 << 26


def training_sample(X: ArrayLike, n_codewords: int, seed: int) -> Floats:
    """Return all rows of `X` as float32, or 256 · K of them, drawn at random and in order."""
    X = as_vectors(X, "X")
    n, d = X.shape
    if n == 0 or d == 0:
        raise ArgumentValueError("X", f"has shape {X.shape}: training needs at least one vector")
    limit = min(PER_CODEWORD * n_codewords, max(NUMBERS // d, n_codewords))
    rows = np.arange(n) if n <= limit else np.sort(np.random.default_rng(seed).choice(n, limit, replace=False))
    with np.errstate(over="ignore"):  # values that float32 cannot hold become infinite, and are rejected as such
        sample = np.ascontiguousarray(X[rows] if n > limit else X, dtype=np.float32)
    check_rows("X", sample, rows)
    return sample


def lengths_differ(X: Floats) -> bool:
    """Whether vectors that are not zero, which no scaling changes, differ in length by more than 1 %."""
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    lengths = lengths[lengths > 0]
    return bool(len(lengths) and lengths.max() - lengths.min() > 0.01 * lengths.mean())


def seeds(seed: int, n: int) -> list[int]:
    """Return n independent seeds."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(n, np.uint64)]


def within(report: Report | None, stage: int, stages: int) -> Report | None:
    """Return progress of one stage as progress of the whole."""
    if report is None:
        return None
    return lambda done, total: report(stage * total + done, stages * total)


def history(objectives: list[float]) -> list[dict[str, Any]]:
    """Return objectives in the form of `history_`."""
    return [{"iteration": i, "objective": float(objective)} for i, objective in enumerate(objectives)]
