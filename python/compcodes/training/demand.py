"""How often sample queries want each vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core

__all__ = ["demand", "demand_by", "some_of"]

QUERIES = 8000
"""If there are more queries, a random part is searched."""
DEPTH = 100
"""Ranks that count."""


def demand(X: NDArray[Any], queries: NDArray[np.float32], seed: int, n_jobs: int | None) -> NDArray[np.float64]:
    """Sum 1/rank over the queries that have a vector among their best 100 of `X` (n, d); (n,), 1 on average."""
    queries = some_of(queries, seed)
    return demand_by(lambda k: _core.exact_search(X, queries, k, n_jobs=n_jobs)[1], len(X))


def some_of(queries: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Return the queries that are searched."""
    if len(queries) <= QUERIES:
        return queries
    return queries[np.sort(np.random.default_rng(seed).choice(len(queries), QUERIES, replace=False))]


def demand_by(search: Callable[[int], NDArray[np.int64]], n: int) -> NDArray[np.float64]:
    """Count, weighted by rank, which of `n` vectors a search finds; `search` maps k to (nq, k) row numbers."""
    ids = search(min(DEPTH, n))
    shares = np.broadcast_to(1 / np.arange(1.0, ids.shape[1] + 1), ids.shape)
    wanted = np.bincount(ids.ravel(), weights=shares.ravel(), minlength=n)
    return np.asarray(wanted / wanted.mean())
