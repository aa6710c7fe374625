"""The lists of a model: centroids, and how many of them a search needs.

Centroids are those of k-means, under the loss in use: with η an error along x counts more, as it does in the products
that select lists. Lists larger than `LARGE` times the mean are split, at the expense of the smallest, until none is
left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.training.shards import Base, Doubles, Floats, Local, Report

__all__ = ["Divided", "ListSizes", "Whole", "based", "train_lists"]

PER_LIST = 128
"""Vectors per list that centroids are trained on."""
ITERATIONS = 10
LARGE = 2.5
"""Multiple of the mean size from which on a list is split: what is added later may make it even larger."""
ROUNDS = 24
"""Rounds of splitting."""
ETA = 4.0
"""The most that an error along x counts in choosing lists: with more, vectors join centroids of other directions for
the sake of length."""
UNEQUAL = 0.1
"""Standard deviation over mean of the norms from which on an error along x counts more: it finds less if all vectors
have the same length."""
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
PIECE = 1 << 14
"""Vectors that are converted at once."""


@dataclass(frozen=True)
class ListSizes:
    """How many lists to make of n vectors: a given number, or as many as hold `size` each."""

    n_lists: int | str | None = None
    size: int | None = None

    def of(self, n: int) -> int:
        """Return the number of lists for n vectors; √n by default, so that choosing takes about as long as scanning."""
        if self.size is not None:
            return max(1, min(n, round(n / self.size)))
        if isinstance(self.n_lists, str) or self.n_lists is None:
            return max(1, min(n, round(math.sqrt(n))))
        return self.n_lists


@dataclass(frozen=True)
class _Run:
    """What all steps of training lists share."""

    shards: Local
    seed: int
    metric: str
    report: Report | None

    @property
    def n_jobs(self) -> int | None:
        return self.shards.n_jobs

    def step(self, done: int) -> Callable[[int, int], object] | None:
        """Return progress of one of the steps as progress of the whole."""
        report, steps = self.report, ITERATIONS + ROUNDS + 2
        return report and (lambda part, of: report(done * of + part, steps * of))


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


def train_lists(
    shards: Divided,
    n_lists: int,
    eta: float,
    metric: str,
    queries: Floats | None,
    seed: int,
    n_jobs: int | None,
    report: Report | None,
) -> tuple[_core.Lists, Any]:
    """Return the lists for weighted vectors, and the same vectors approximated from the centroids of their lists.

    `eta` is that of the loss; `queries` (nq, d) are used to measure how many lists to search, or rows of the data if
    there are none.
    """
    mean, deviation = shards.norm_moments()
    varied = deviation > UNEQUAL * mean and metric == "ip"
    eta = min(eta, ETA) if varied else 1.0
    sample = shards.here(PER_LIST * n_lists, seed, n_jobs)
    if varied and sample.shape == shards.shape:
        sample = sample.with_weights(_core.weights_by_norm(_core.norms(sample.X, None, n_jobs), 1.0))
    run = _Run(sample, seed, metric, report)
    made = _core.Lists(_balanced(run, n_lists, eta), eta)
    listed = shards.assigned(made, run.step(ITERATIONS + ROUNDS))
    return _measured(run, shards, listed, made, queries), shards.based(listed)


def _balanced(run: _Run, n_lists: int, eta: float) -> Floats:
    """Return centroids of lists of about equal size."""
    shards, n = run.shards, run.shards.shape[0]
    rng = np.random.default_rng(run.seed)
    X, weights = shards.X, shards.weights
    chances = None if weights is None else weights / weights.sum()
    if chances is not None and np.count_nonzero(chances) < n_lists:
        chances = None
    # Weights can leave fewer vectors than there are lists.
    centroids = shards.sample(np.sort(rng.choice(n, n_lists, replace=n < n_lists, p=chances)))
    for iteration in range(ITERATIONS + ROUNDS):
        made = _core.Lists(centroids, eta)
        lists, _ = made.assign(X, run.n_jobs, run.step(iteration))
        sizes = np.bincount(lists, minlength=n_lists)
        large = np.flatnonzero(sizes > max(LARGE * n / n_lists, 1))
        if iteration >= ITERATIONS and len(large) == 0:
            break
        centroids = made.updated(X, lists, weights, run.n_jobs)
        if iteration < 2:
            large = large[:0]
        _split(shards, centroids, lists, sizes, large, rng)
    return centroids


def _split(
    shards: Local,
    centroids: Floats,
    lists: NDArray[np.int64],
    sizes: NDArray[np.int64],
    large: NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """Move centroids of empty lists, and of the smallest, into the large ones."""
    mean = sizes.mean()
    order = np.argsort(sizes, kind="stable")
    empty = order[: int((sizes == 0).sum())]
    if len(large) == 0 and len(empty):
        large = order[::-1][: len(empty)]
    # As many as are needed for each to have about the mean size.
    wanted = np.repeat(large, np.maximum(np.ceil(sizes[large] / mean).astype(int) - 1, 1))
    wanted = wanted[np.argsort(-sizes[wanted], kind="stable")]
    few = order[(sizes[order] < mean / 2)][: max(len(empty), len(order) // 4)]
    count = min(len(wanted), len(few))
    if count == 0:
        return
    by_list = np.argsort(lists, kind="stable")
    ends = np.cumsum(sizes)
    rows = np.array([by_list[ends[big] - 1 - rng.integers(sizes[big])] for big in wanted[:count]])
    vectors = shards.sample(np.sort(rows))[np.argsort(np.argsort(rows))]
    # Halfway to its old centroid: so it takes a part of the list, and not just one vector.
    centroids[few[:count]] = vectors / 2 + centroids[wanted[:count]] / 2


def _measured(run: _Run, shards: Divided, listed: Any, made: _core.Lists, queries: Floats | None) -> _core.Lists:
    """Return the lists with measurements of how many of them a query needs."""
    rng, n_lists = np.random.default_rng(run.seed), len(made)
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
    nearest = _core.exact_search(base, queries, k, run.metric, n_jobs=run.n_jobs)[1]
    found = of[nearest]
    if asked is not None and k > 1:  # a row finds itself, which says nothing about other vectors
        kept = nearest != asked[:, None]
        found = np.where(kept, found, -1)
    spread = _spread(made, base, of, run.n_jobs)
    best: tuple[float, float, Any, Doubles] | None = None
    for bonus in BONUSES if run.metric != "l2" else BONUSES[:1]:
        scores = _scores(made, queries, run.metric, bonus * spread)
        curve = _curve(scores, found, shares)
        enough = int(np.searchsorted(curve[1], RECALL))
        cost = float(curve[2][min(enough, n_lists - 1)])
        if best is None or cost < best[0]:
            best = cost, bonus, curve, scores
    assert best is not None
    _, bonus, curve, scores = best
    recall = curve[1]
    counts = np.unique(np.geomspace(1, n_lists, POINTS).round().astype(int))
    reach = np.stack([counts, recall[counts - 1]], axis=1)
    reach[-1, 1] = 1.0
    unit = 1.0 if run.metric == "l2" else np.linalg.norm(queries.astype(np.float64), axis=1)
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


def _scores(made: _core.Lists, queries: Floats, metric: str, bonuses: Floats) -> Doubles:
    """Return the scores that select a query's lists, up to rounding; in float64, which fits vectors of any size."""
    centroids, queries = made.centroids.astype(np.float64), queries.astype(np.float64)
    products: Doubles = queries @ centroids.T
    if metric == "l2":
        products -= 0.5 * np.einsum("ij,ij->i", centroids, centroids)
    else:
        products += np.linalg.norm(queries, axis=1)[:, None] * bonuses
    return products


def _curve(scores: Doubles, found: NDArray[np.int64], shares: Floats) -> tuple[Any, Doubles, Doubles]:
    """Return, for the first 1, 2, … lists, the mean share of what should be found, and of all vectors."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
    known = found >= 0
    at = np.take_along_axis(ranks, np.where(known, found, 0), axis=1)
    hits = np.bincount(at[known], minlength=order.shape[1])
    recall = np.cumsum(hits) / max(1, known.sum())
    return order, recall, np.cumsum(shares[order].mean(axis=0, dtype=np.float64))


def _gaps(
    scores: Doubles, found: NDArray[np.int64], unit: Doubles | float, curve: tuple[Any, Doubles, Doubles], shares: Floats
) -> Doubles:
    """Return ascending gaps below the best lists, and the share of what should be found in lists within each.

    They end where their lists would hold more vectors than the same number of lists for all queries, which is then the
    better rule: to find 98% of Gowalla's nearest, a few queries need a gap that makes the others search twice as many.
    """
    best = -np.partition(-scores, min(BEST, scores.shape[1]) - 1, axis=1)[:, :BEST]
    below = (best.mean(axis=1)[:, None] - scores) / np.maximum(unit, np.finfo(np.float32).tiny)[..., None]
    order, recall, passed = curve
    below = np.take_along_axis(below, order, axis=1)
    ranks = np.argsort(order, axis=1)
    known, at = found >= 0, np.take_along_axis(ranks, np.where(found >= 0, found, 0), axis=1)
    needed = np.where(at > 0, np.take_along_axis(below, at, axis=1), below[:, 0].min())  # the best is always searched
    with np.errstate(over="ignore"):
        ordered = np.sort(needed[known]).astype(np.float32)  # of which files keep as much
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


def based(shards: Local, made: _core.Lists, lists: NDArray[np.int64]) -> Local:
    """Return the same vectors, with approximations that start from the centroids of their lists."""
    return replace(shards, base=Base(made.centroids, lists))
