"""The training vectors as the training loop sees them: sums, and small samples. So they may lie anywhere.

`Local` holds arrays of this process. Another place for vectors, such as the partitions of a cluster, is another class
with these methods: each partition does what `Local` does, and the results are added up, merged or concatenated.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import check_rows
from compcodes.training import losses
from compcodes.training.demand import demand
from compcodes.training.encoders import Pass
from compcodes.training.heap import release
from compcodes.training.losses import Objective

__all__ = ["Base", "Codes", "Doubles", "Floats", "Local", "Moments", "Part", "Report", "Shards", "Sums", "Worst"]

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = Any
"""Codes of all vectors, in the form the shards keep them: the loop only passes them back."""
Sums: TypeAlias = tuple[Doubles, Doubles]
Worst: TypeAlias = tuple[Doubles, Floats, NDArray[np.uint8]]
Report: TypeAlias = Callable[[int, int], object]


class Moments(Protocol):
    """Weights, mean and spread of vectors."""

    @property
    def weight(self) -> float:
        """Σ w."""

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows that have any."""

    @property
    def deviation(self) -> Doubles:
        """Standard deviation of each dimension, (d,)."""

    @property
    def variance(self) -> float:
        """Mean squared distance to the mean."""


@dataclass(frozen=True)
class Part:
    """Some vectors, their codes, and their row numbers."""

    shards: Shards
    codes: Codes
    rows: Any


class Shards(Protocol):
    """Weighted vectors (n, d)."""

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""

    @property
    def weights(self) -> Doubles | None:
        """The weight of each vector (n,), if they are not all 1."""

    def check(self) -> None:
        """Raise a ValueError that names the first row that is not finite, if any."""

    def only(self, rows: NDArray[np.int64]) -> Shards:
        """Return some vectors, at ascending positions, without weights."""

    def with_weights(self, weights: Doubles | None) -> Shards:
        """Return the same vectors with weights (n,); None leaves those they have."""

    def weighted(self, loss: losses.InnerProduct, objective: Objective, queries: Floats | None, seed: int) -> Shards:
        """Return the same vectors with weights from the loss too: by norm, or by how queries find them."""

    def sampled(self, count: int | None, seed: int) -> Shards:
        """Return at most `count` rows, drawn by weight."""

    def moments(self, directions: Floats | None) -> Moments:
        """Sum up the weights, and mean and spread of the vectors, stretched by `directions`."""

    def sample(self, rows: NDArray[np.int64]) -> Floats:
        """Copy rows by position, in order."""

    def encode(self, coder: Pass, report: Report | None) -> Codes:
        """Choose codes."""

    def renewed(self, coder: Pass, codes: Codes, report: Report | None) -> Codes:
        """Return the better of the present codes and new ones, row by row."""

    def part(self, codes: Codes, n_codewords: int, seed: int, iteration: int) -> Part | None:
        """Return what an iteration with noise trains on (see `_core.part`); None if that is everything."""

    def put(self, codes: Codes, part: Part, own: Codes) -> Codes:
        """Return the codes with those of a part put into their places; overwrites `codes`."""

    def improve(self, coder: Pass, codes: Codes, report: Report | None) -> tuple[Codes, float]:
        """Return improved codes where possible, and Σ w·loss."""

    def loss(self, objective: Objective, codebooks: Floats, codes: Codes) -> float:
        """Sum up w·loss."""

    def equations(self, codes: Codes, n_codewords: int) -> Sums:
        """Sum up both sides of the update's linear system for the plain loss."""

    def sides(self, codes: Codes, n_codewords: int, shared: bool, directions: Floats | None) -> Sums:
        """Sum up the left diagonal and the right side of the system, for vectors stretched by `directions`.

        They are those of the K codewords alone if all places share these.
        """

    def apply(self, codes: Codes, n_codewords: int, P: Doubles, extra: float, directions: Floats | None) -> Doubles:
        """Sum up A P for the inner-product loss: w b (p̄ + extra · u⟨u, p̄⟩)ᵀ."""

    def uses(self, codes: Codes, n_codewords: int, selection: str) -> NDArray[np.uint64]:
        """Count the rows of any weight that use each codeword, (M·K,); for one shared codebook, (K,)."""

    def worst(self, objective: Objective, codebooks: Floats, codes: Codes, count: int) -> Worst:
        """Return errors, vectors (r, d) and codes (r, M) of the `count` rows of any weight with the largest losses."""


@dataclass(frozen=True)
class Base:
    """What approximations start from: rows of `rows` (r, d), by `places` (n,); and the η that weighs errors."""

    rows: Floats
    places: NDArray[np.int64]
    eta: float = 1.0

    def of(self, rows: Any) -> Base:
        """Return the bases of some vectors."""
        return replace(self, places=self.places[rows])


@dataclass(frozen=True)
class Local:
    """Vectors in memory or memory-mapped, read a chunk at a time; `weights` (n,) are 1 if not given.

    With a `base`, codewords approximate the residuals, and sums are over these; errors count along the vectors.
    """

    X: NDArray[Any]
    weights: Doubles | None = None
    n_jobs: int | None = None
    base: Base | None = None

    @property
    def target(self) -> Any:
        """Return the target that codes are chosen for."""
        return self.X if self.base is None else _core.Target(self.X, self.base.rows, self.base.places)

    def rest(self, eta: float = 1.0, directions: Floats | None = None) -> Any:
        """Return what codewords should add up to, for the core: weighed by η, stretched along `directions`."""
        if self.base is None:
            return self.X
        return _core.RestRows(self.X, self.base.rows, self.base.places, eta, directions)

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        n, d = self.X.shape
        return n, d

    def check(self) -> None:
        """Raise a ValueError that names the first row that is not finite, if any."""
        _core.norms(self.X, None, self.n_jobs)

    def weighted(self, loss: losses.InnerProduct, objective: Objective, queries: Floats | None, seed: int) -> Local:
        """Return the same vectors with weights from the loss too: by norm, or by how queries find them."""
        norms = _core.norms(self.X, objective.directions, self.n_jobs)
        by_norm = _core.weights_by_norm(norms, loss.weight_power or 0.0)
        wanted = demand(self.X, queries, seed, self.n_jobs) if queries is not None and loss.demand else None
        base = None if self.base is None else replace(self.base, eta=objective.eta)
        weighted = self.with_weights(combined(by_norm, wanted, loss.demand or 0.0, self.weights))
        return replace(weighted, base=base)

    def of(self, rows: NDArray[np.int64]) -> Local:
        """Return a copy of some vectors, at ascending positions, in their stored type."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, X=_taken(self.X, rows), weights=weights, base=self._base_of(rows))

    def only(self, rows: NDArray[np.int64]) -> Local:
        """Return some vectors, at ascending positions, without weights; they are not copied."""
        return replace(self, X=cast(NDArray[Any], _OnlyRows(self.X, rows)), weights=None, base=self._base_of(rows))

    def with_weights(self, weights: Doubles | None) -> Local:
        """Return the same vectors with weights (n,); None leaves those they have."""
        return self if weights is None else replace(self, weights=weights)

    def sampled(self, count: int | None, seed: int) -> Local:
        """Return at most `count` rows, drawn by weight; in order, which suits memory maps.

        Half of the draw is uniform and half by weight: a few rows that hold most of the weight (the longest vectors, or
        those that queries find) are then all in the sample, and no row that is drawn counts more than twice as much as
        in a uniform draw.
        """
        drawn = drawn_rows(len(self.X), self.weights, count, seed)
        if drawn is None:
            return self
        rows, weights = drawn
        return replace(self.of(rows), weights=weights)

    def _base_of(self, rows: Any) -> Base | None:
        return None if self.base is None else self.base.of(rows)

    def moments(self, directions: Floats | None) -> Moments:
        """Sum up the weights, and mean and spread of the vectors, stretched by `directions`."""
        return _core.Moments(self.rest(), self.weights, directions, self.n_jobs)

    def sample(self, rows: NDArray[np.int64]) -> Floats:
        """Copy rows by position, in order."""
        taken = _taken(self.X, rows)
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(taken, dtype=np.float32)
            return vectors if self.base is None else vectors - self.base.rows[self.base.places[rows]]

    def encode(self, coder: Pass, report: Report | None) -> Codes:
        """Choose codes."""
        release()
        return coder.build(self.n_jobs).encode(self.target, self.n_jobs, report)

    def renewed(self, coder: Pass, codes: Codes, report: Report | None) -> Codes:
        """Return the better of the present codes and new ones, row by row."""
        new = self.encode(coder, report)
        before, after = (self._errors(coder.objective, coder.codebooks, each) for each in (codes, new))
        return np.where((after < before)[:, None], new, codes)

    def part(self, codes: Codes, n_codewords: int, seed: int, iteration: int) -> Part | None:
        """Return what an iteration with noise trains on (see `_core.part`); None if that is everything."""
        drawn = _core.part(len(self.X), self.weights, n_codewords, seed, iteration)
        if drawn is None:
            return None
        rows, weights = drawn
        X = _core.SomeRows(self.X, rows) if _in_memory(self.X) else _taken(self.X, rows)
        own = replace(self, X=cast(NDArray[Any], X), weights=weights, base=self._base_of(rows))
        return Part(own, codes[rows], rows)

    def put(self, codes: Codes, part: Part, own: Codes) -> Codes:
        """Return the codes with those of a part put into their places; overwrites `codes`."""
        codes[part.rows] = own
        return codes

    def improve(self, coder: Pass, codes: Codes, report: Report | None) -> tuple[Codes, float]:
        """Return improved codes where possible, and Σ w·loss."""
        release()
        codes, _, errors = coder.build(self.n_jobs).improve(self.target, codes, self.n_jobs, report)
        return codes, self.total(errors)

    def loss(self, objective: Objective, codebooks: Floats, codes: Codes) -> float:
        """Sum up w·loss."""
        return self.total(self._errors(objective, codebooks, codes))

    def equations(self, codes: Codes, n_codewords: int) -> Sums:
        """Sum up both sides of the update's linear system for the plain loss."""
        release()
        return _core.normal_equations(self.rest(), codes, n_codewords, self.weights, self.n_jobs)

    def sides(self, codes: Codes, n_codewords: int, shared: bool, directions: Floats | None) -> Sums:
        """Sum up the left diagonal and the right side of the system, for vectors stretched by `directions`."""
        release()
        if self.base is not None:  # weighed when read: the side of this loss is not that of the plain one
            rest = self.rest(self.base.eta, directions)
            return _core.sides(rest, codes, n_codewords, shared, self.weights, self.n_jobs)
        return _core.sides(self.X, codes, n_codewords, shared, self.weights, self.n_jobs, directions=directions)

    def apply(self, codes: Codes, n_codewords: int, P: Doubles, extra: float, directions: Floats | None) -> Doubles:
        """Sum up A P for the inner-product loss: w b (p̄ + extra · u⟨u, p̄⟩)ᵀ."""
        return _core.apply(self.X, codes, n_codewords, P, extra, self.weights, self.n_jobs, directions=directions)

    def uses(self, codes: Codes, n_codewords: int, selection: str) -> NDArray[np.uint64]:
        """Count the rows of any weight that use each codeword, (M·K,); for one shared codebook, (K,)."""
        return _core.uses(codes, n_codewords, selection, self.weights)

    def worst(self, objective: Objective, codebooks: Floats, codes: Codes, count: int) -> Worst:
        """Return errors, vectors (r, d) and codes (r, M) of the `count` rows of any weight with the largest losses."""
        errors = self._errors(objective, codebooks, codes)
        if self.weights is not None:
            errors[self.weights == 0] = 0
        return _core.worst(self.rest(), codes, errors, count)

    def _errors(self, objective: Objective, codebooks: Floats, codes: Codes) -> Doubles:
        return _core.errors(codebooks, self.target, codes, objective.eta, self.n_jobs, directions=objective.directions)

    def total(self, errors: Doubles) -> float:
        """Sum up w·error; overwrites `errors`."""
        if self.weights is not None:
            errors *= self.weights
        return float(errors.sum())


class _OnlyRows(_core.SomeRows):
    """What training uses of an array (n, d), of some rows of it; the core knows its base class."""

    ndim = 2

    def __init__(self, array: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self._rows = rows

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        taken: NDArray[Any] = self.array[self._rows[rows]]
        return taken


def combined(by_norm: Doubles | None, wanted: Doubles | None, share: float, own: Doubles | None) -> Doubles | None:
    """Combine weights by norm, by demand for a `share`, and of their own; return None if all count alike."""
    weights = by_norm
    if wanted is not None:
        weights = (1 - share) * (1.0 if weights is None else weights) + share * wanted
    if weights is not None and own is not None:
        weights *= own
        if not weights.any():  # the remaining ones have length zero, or nearly so
            return own
    return own if weights is None else weights


def drawn_rows(
    n: int, weights: Doubles | None, count: int | None, seed: int
) -> tuple[NDArray[np.int64], Doubles | None] | None:
    """Draw at most `count` of `n` rows by weight (see `Local.sampled`): which, and their weights. None: all."""
    if count is None or n <= count:
        return None
    rng = np.random.default_rng(seed)
    if weights is None:
        return np.sort(rng.choice(n, count, replace=False)), None
    rows = np.flatnonzero(weights)
    if len(rows) <= count:
        return rows, weights[rows]
    chances = _chances(1 + weights[rows] / weights[rows].mean(), count)
    # Systematic sampling: a grid with a random offset over the probabilities, laid end to end in random order.
    order = rng.permutation(len(rows))
    ends = np.cumsum(chances[order])
    drawn = np.searchsorted(ends, (rng.random() + np.arange(count)) * (ends[-1] / count))
    drawn = np.sort(order[drawn])
    rows, weights = rows[drawn], weights / weights.mean()
    return rows, weights[rows] / chances[drawn]


def _taken(X: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Copy `rows` of `X` in their stored type. An error names the row of `X`, not that of the copy."""
    taken = np.asarray(X[rows])
    with np.errstate(over="ignore"):
        check_rows("X", taken.astype(np.float32, copy=False), rows)
    return taken


def _in_memory(X: NDArray[Any]) -> bool:
    """Whether rows are read as fast as from a copy: true for arrays, except those mapped from a file."""
    part: object = X
    while isinstance(part, np.ndarray):  # also a memmap that was computed from another, as by `astype`
        part = part.base
    return isinstance(X, np.ndarray) and not isinstance(part, mmap.mmap)


def _chances(shares: Doubles, count: int) -> Doubles:
    """Return probabilities proportional to `shares`, at most 1, whose sum is `count` (fewer than the shares)."""
    chances: Doubles = shares * (count / shares.sum())
    while (chances > 1).any():
        certain = chances >= 1
        chances[certain] = 1
        chances[~certain] *= (count - certain.sum()) / chances[~certain].sum()
    return chances
