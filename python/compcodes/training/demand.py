"""How often sample queries want each vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core

__all__ = ["demand"]

QUERIES = 8000
"""Of more queries a random part is searched."""
DEPTH = 100
"""Ranks that count."""


def demand(X: NDArray[Any], queries: NDArray[np.float32], seed: int, n_jobs: int | None) -> NDArray[np.float64]:
    """Sum of 1/rank over the queries that have a vector among their best 100 of `X` (n, d); (n,), 1 on average."""
    if len(queries) > QUERIES:
        queries = queries[np.sort(np.random.default_rng(seed).choice(len(queries), QUERIES, replace=False))]
    _, ids = _core.exact_search(X, queries, min(DEPTH, len(X)), n_jobs=n_jobs)
    shares = np.broadcast_to(1 / np.arange(1.0, ids.shape[1] + 1), ids.shape)
    wanted = np.bincount(ids.ravel(), weights=shares.ravel(), minlength=len(X))
    return np.asarray(wanted / wanted.mean())
