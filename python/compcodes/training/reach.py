"""How many lists a search needs: measured on queries whose nearest vectors are known."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.training.divided import Divided
from compcodes.training.shards import Doubles, Floats

__all__ = ["list_scores", "measured"]

QUERIES = 500
NEIGHBOURS = 10
BASE = 200_000
"""Vectors among which the nearest ones to queries are searched."""
BONUSES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)
"""Fractions of the spread of a list that are tried as additions to its products."""
RECALL = 0.95
"""The recall that this fraction is chosen for."""
BEST = 5
"""Gaps are below the mean score of this many best lists, as in `index/probing.rs`."""
POINTS = 64
"""Points of the curves that are kept."""
WORSE = 1.02
"""Lists within a gap hold more vectors than the same number for all queries from this ratio on; below it is chance."""


class _Curve(NamedTuple):
    """What the first 1, 2, … lists of queries hold."""

    order: NDArray[np.int64]
    """The lists of each query, the best first."""
    at: NDArray[np.int64]
    """How many lists are ahead of the list of each vector that should be found."""
    recall: Doubles
    """The mean share of what should be found."""
    passed: Doubles
    """The mean share of all vectors."""


def measured(
    shards: Divided,
    listed: Any,
    made: _core.Lists,
    queries: Floats | None,
    metric: str,
    seed: int,
    n_jobs: int | None,
) -> _core.Lists:
    """Return the lists with measurements of how many of them a query needs."""
    rng, n_lists = np.random.default_rng(seed), len(made)
    n = shards.shape[0]
    shares = (shards.list_sizes(listed) / n).astype(np.float32)
    rows = np.sort(rng.choice(n, min(n, BASE), replace=False))
    base, of = shards.sample(rows), shards.lists_at(listed, rows)
    asked: NDArray[np.int64] | None = None
    if queries is None or len(queries) == 0:
        asked = np.sort(rng.choice(len(base), min(len(base), QUERIES), replace=False))
        queries = base[asked]
    elif len(queries) > QUERIES:
        queries = queries[rng.choice(len(queries), QUERIES, replace=False)]
    k = min(NEIGHBOURS + (asked is not None), len(base))
    nearest = _core.exact_search(base, queries, k, metric, n_jobs=n_jobs)[1]
    found = of[nearest]
    if asked is not None and k > 1:  # a row finds itself, which says nothing about other vectors
        kept = nearest != asked[:, None]
        found = np.where(kept, found, -1)
    spread = _spread(made, base, of, n_jobs)
    best: tuple[float, float, _Curve, Doubles] | None = None
    for bonus in BONUSES if metric != "l2" else BONUSES[:1]:
        scores = list_scores(made, queries, metric, bonus * spread)
        curve = _curve(scores, found, shares)
        enough = int(np.searchsorted(curve.recall, RECALL))
        cost = float(curve.passed[min(enough, n_lists - 1)])
        if best is None or cost < best[0]:
            best = cost, bonus, curve, scores
    assert best is not None
    _, bonus, curve, scores = best
    recall = curve.recall
    counts = np.unique(np.geomspace(1, n_lists, POINTS).round().astype(int))
    reach = np.stack([counts, recall[counts - 1]], axis=1)
    reach[-1, 1] = 1.0
    unit = 1.0 if metric == "l2" else np.linalg.norm(queries.astype(np.float64), axis=1)
    bonuses, gaps = (bonus * spread).astype(np.float32), _gaps(scores, found, unit, curve, shares)
    return _core.Lists(made.centroids, made.eta, bonuses, shares, np.ascontiguousarray(reach), True, gaps)


def _spread(made: _core.Lists, base: Floats, of: NDArray[np.int64], n_jobs: int | None) -> Floats:
    """Return the root mean squared distance of a list's vectors from its centroid."""
    zeros = np.zeros((len(base), 1), np.uint8)
    book = np.zeros((1, 1, base.shape[1]), np.float32)
    squares = _core.errors(book, _core.Target(base, made.centroids, of), zeros, 1.0, n_jobs)
    sums, sizes = (np.bincount(of, each, minlength=len(made)) for each in (squares, None))
    overall = math.sqrt(squares.mean()) if len(squares) else 0.0
    spread: Floats = np.where(sizes > 0, np.sqrt(sums / np.maximum(sizes, 1)), overall).astype(np.float32)
    return spread


def list_scores(made: _core.Lists, queries: Floats, metric: str, bonuses: Floats) -> Doubles:
    """Return the scores that select a query's lists, up to rounding; in float64, which fits vectors of any size."""
    centroids, queries = made.centroids.astype(np.float64), queries.astype(np.float64)
    products: Doubles = queries @ centroids.T
    if metric == "l2":
        products -= 0.5 * np.einsum("ij,ij->i", centroids, centroids)
    else:
        products += np.linalg.norm(queries, axis=1)[:, None] * bonuses
    return products


def _curve(scores: Doubles, found: NDArray[np.int64], shares: Floats) -> _Curve:
    """Return the curve for the lists in the order of their scores."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
    known = found >= 0
    at = np.take_along_axis(ranks, np.where(known, found, 0), axis=1)
    hits = np.bincount(at[known], minlength=order.shape[1])
    recall = np.cumsum(hits) / max(1, known.sum())
    return _Curve(order, at, recall, np.cumsum(shares[order].mean(axis=0, dtype=np.float64)))


def _gaps(scores: Doubles, found: NDArray[np.int64], unit: Doubles | float, curve: _Curve, shares: Floats) -> Doubles:
    """Return ascending gaps below the best lists, and the share of what should be found in lists within each.

    They end where their lists would hold more vectors than the same number of lists for all queries, which is then the
    better rule: to find 98% of Gowalla's nearest, a few queries need a gap that makes the others search twice as many.
    """
    best = -np.partition(-scores, min(BEST, scores.shape[1]) - 1, axis=1)[:, :BEST]
    below = (best.mean(axis=1)[:, None] - scores) / np.maximum(unit, np.finfo(np.float32).tiny)[..., None]
    order, at, recall, passed = curve
    below = np.take_along_axis(below, order, axis=1)
    needed = np.where(at > 0, np.take_along_axis(below, at, axis=1), below[:, 0].min())  # the best is always searched
    with np.errstate(over="ignore"):
        ordered = np.sort(needed[found >= 0]).astype(np.float32)  # of which files keep as much
    n = len(ordered)
    if n == 0 or not np.isfinite(ordered).all():
        return np.zeros((0, 2))
    rest = np.concatenate([np.linspace(0.9, 0.1, POINTS // 4), np.geomspace(0.1, 1 / n, POINTS)])
    points = np.unique(np.clip(np.ceil((1 - rest) * n).astype(int) - 1, 0, n - 1))
    points = points[np.append(np.diff(ordered[points]) > 0, True)]
    gaps, held = ordered[points], (points + 1) / n
    searched = np.stack([np.searchsorted(row, gaps, side="right") for row in below]).clip(1)
    cost = np.take_along_axis(np.cumsum(shares[order], axis=1), searched - 1, axis=1).mean(axis=0, dtype=np.float64)
    worse = np.append(cost > WORSE * np.interp(held, recall, passed), True)
    kept = slice(int(worse.argmax()))
    return np.ascontiguousarray(np.stack([gaps[kept], held[kept]], axis=1))
