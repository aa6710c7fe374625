"""The lists of a model: how their centroids are trained.

Centroids are those of k-means, under the loss in use: with η an error along x counts more, as it does in the products
that select lists. Lists larger than `LARGE` times the mean are split, at the expense of the smallest, until none is
left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.training.divided import Divided
from compcodes.training.reach import measured
from compcodes.training.shards import Floats, Local, Report, combined

__all__ = ["ListSizes", "train_lists"]

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
        by_norm = _core.weights_by_norm(_core.norms(sample.X, None, n_jobs), 1.0)
        sample = sample.with_weights(combined(by_norm, None, 0.0, sample.weights))
    run = _Run(sample, seed, metric, report)
    made = _core.Lists(_balanced(run, n_lists, eta), eta)
    listed = shards.assigned(made, run.step(ITERATIONS + ROUNDS))
    return measured(shards, listed, made, queries, metric, seed, n_jobs), shards.based(listed)


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
