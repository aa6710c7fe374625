"""Vectors in blocks that are stored elsewhere: on the workers of a cluster, or in files. They send sums.

`Spread` is to blocks what `Local` is to an array. The same rows are drawn for parts and samples, by their numbers in
the whole, so training gives the same codebooks up to the order in which float64 sums are added up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.errors import ArgumentValueError
from compcodes.training import held as steps
from compcodes.training import losses
from compcodes.training.demand import demand_by, some_of
from compcodes.training.encoders import Pass
from compcodes.training.losses import Objective
from compcodes.training.packing import unpacked
from compcodes.training.shards import (
    Codes,
    Doubles,
    Floats,
    Local,
    Moments,
    Part,
    Report,
    Sums,
    Worst,
    combined,
    drawn_rows,
)

__all__ = ["Engine", "Here", "Spread"]


FAN = 8
"""Sums that one place receives and adds up."""


class Engine(Protocol):
    """Where tasks run."""

    def share(self, value: Any) -> Any:
        """Send a value to each worker that needs it, once."""

    def submit(self, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Call a function, possibly with results of others; return a handle for the result."""

    def gather(self, futures: Sequence[Any], finished: Callable[[int], object] | None = None) -> list[Any]:
        """Wait for results, in order."""

    def places(self) -> list[str | None]:
        """Name the workers: vectors are kept on all of them."""

    def holding(self, unit: bool, n_jobs: int | None, blocks: Sequence[Any]) -> Any:
        """Return a handle for blocks that are read each time they are needed."""

    def keep(self, holdings: Sequence[Any], worker: str | None) -> Any:
        """Read blocks once, and keep them."""


class Here:
    """The process itself: tasks run when they are submitted."""

    def share(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Call the function."""
        return function(*(one() if isinstance(one, _Later) else one for one in arguments))

    def gather(self, futures: Sequence[Any], finished: Callable[[int], object] | None = None) -> list[Any]:
        """Return results."""
        if finished is not None:
            for i in range(len(futures)):
                finished(i)
        return list(futures)

    def places(self) -> list[str | None]:
        """Name the single place."""
        return [None]

    def holding(self, unit: bool, n_jobs: int | None, blocks: Sequence[Any]) -> Any:
        """Return an object that reads blocks when they are needed."""
        return _Later(unit, n_jobs, blocks)

    def keep(self, holdings: Sequence[Any], worker: str | None) -> Any:
        """Read blocks."""
        return steps.joined(*(one() if isinstance(one, _Later) else one for one in holdings))


@dataclass(frozen=True)
class _Later:
    unit: bool
    n_jobs: int | None
    blocks: Sequence[Any]

    def __call__(self) -> steps.Held:
        blocks = (one.compute() if hasattr(one, "dask") else one for one in self.blocks)
        return steps.hold(_core.__version__, self.unit, self.n_jobs, *blocks)


@dataclass(frozen=True)
class Listed:
    """The centroids of vectors in lists, and handles for the lists of the rows until they are stored with them."""

    centroids: Floats
    places: tuple[Any, ...] = ()
    eta: float = 1.0


@dataclass(frozen=True)
class Spread:
    """Weighted vectors in blocks. Each entry of `held` is a handle for a `Held` with the number of rows in `sizes`."""

    engine: Engine
    held: tuple[Any, ...]
    sizes: tuple[int, ...]
    dim: int
    weights: Doubles | None = None
    kept: bool = False
    """Whether they are in the memory of workers, one task for each."""
    checked: bool = False
    """Whether all are known to be finite."""
    base: Listed | None = None
    """The base of vectors in lists."""

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        return sum(self.sizes), self.dim

    def check(self) -> None:
        """Raise a ValueError that names the first row that is not finite, if any."""
        if self.checked:
            return
        wrong = self._gather([self.engine.submit(steps.first_wrong, held) for held in self.held])
        for start, row in zip(self._starts(), wrong, strict=False):
            if row >= 0:
                raise ArgumentValueError("X", f"row {start + row} holds NaN, an infinity or a value beyond float32")

    def only(self, rows: NDArray[np.int64]) -> Spread:
        """Return some vectors, at ascending positions, without weights."""
        return self._taken(rows, None)

    def with_weights(self, weights: Doubles | None) -> Spread:
        """Return the same vectors with other weights (n,)."""
        if weights is None:
            return self
        pieces = np.split(weights, self._starts()[1:-1])
        if not self.kept:
            return replace(self, weights=weights)
        held = tuple(self.engine.submit(steps.weighed, *pair) for pair in zip(self.held, pieces, strict=True))
        return replace(self, held=held, weights=weights)

    def weighted(self, loss: losses.InnerProduct, objective: Objective, queries: Floats | None, seed: int) -> Spread:
        """Return the same vectors with weights from the loss too: by norm, or by how queries find them."""
        by_norm = None
        if loss.weight_power:
            directions = objective.directions
            norms = self._gather([self.engine.submit(steps.norms, held, directions) for held in self.held])
            by_norm = _core.weights_by_norm(np.concatenate(norms), loss.weight_power)
        wanted = None
        if queries is not None and loss.demand:
            asked = some_of(queries, seed)
            wanted = demand_by(lambda k: self._nearest(asked, k), self.shape[0])
        base = None if self.base is None else replace(self.base, eta=objective.eta)
        weighted = self.with_weights(combined(by_norm, wanted, loss.demand or 0.0, self.weights))
        return replace(weighted, base=base)

    def _nearest(self, queries: Floats, k: int) -> NDArray[np.int64]:
        shared = self.engine.share(queries)
        found = self._gather([self.engine.submit(steps.nearest, held, shared, k) for held in self.held])
        scores = np.concatenate([scores for scores, _ in found], axis=1)
        ids = [ids + start for (_, ids), start in zip(found, self._starts(), strict=False)]
        return steps.best(scores, np.concatenate(ids, axis=1), k)[1]

    def sampled(self, count: int | None, seed: int) -> Spread:
        """Return at most `count` rows, drawn by weight, in the memory of the workers: see `Local.sampled`."""
        drawn = drawn_rows(self.shape[0], self.weights, count, seed)
        if drawn is None:
            return self._brought()
        rows, weights = drawn
        taken = self._taken(rows, None)
        if self.base is not None:
            own = zip(self.base.places, self._split(rows), strict=True)
            places = tuple(self.engine.submit(steps.places_at, *pair) for pair in own)
            taken = replace(taken, base=replace(self.base, places=places))
        return taken._brought(weights)

    def here(self, count: int, seed: int, n_jobs: int | None) -> Local:
        """Bring at most `count` rows, drawn by weight, to this process."""
        drawn = drawn_rows(self.shape[0], self.weights, count, seed)
        rows, weights = (np.arange(self.shape[0]), self.weights) if drawn is None else drawn
        return Local(self.sample(rows), weights, n_jobs)

    def norm_moments(self) -> tuple[float, float]:
        """Return mean and standard deviation of the lengths."""
        sums = self._gather([self.engine.submit(steps.norm_sums, held) for held in self.held])
        mean, square = np.sum(sums, axis=0) / self.shape[0]
        return float(mean), float(np.sqrt(max(0.0, square - mean * mean)))

    def assigned(self, made: _core.Lists, report: Report | None) -> Listed:
        """Find the list of each row, which stays where the row is."""
        centroids = made.centroids
        shared = self.engine.share(centroids)
        tasks = [self.engine.submit(steps.assign, held, shared, made.eta) for held in self.held]
        return Listed(centroids, self._watched(tasks, report))

    def list_sizes(self, listed: Listed) -> NDArray[np.int64]:
        """Count the rows of each list."""
        n_lists = len(listed.centroids)
        counts = self._gather([self.engine.submit(steps.list_sizes, own, n_lists) for own in listed.places])
        return np.asarray(sum(counts))

    def lists_at(self, listed: Listed, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lists of some rows, which ascend."""
        tasks = [(own, at) for own, at in zip(listed.places, self._split(rows), strict=True) if len(at)]
        return np.concatenate(self._gather([self.engine.submit(steps.places_at, *task) for task in tasks])).astype(
            np.int64
        )

    def based(self, listed: Listed) -> Spread:
        """Return the same vectors, with approximations that start from the centroids of their lists."""
        return replace(self, base=listed)

    def _brought(self, weights: Doubles | None = None) -> Spread:
        """Return all rows in as many runs as there are workers, each in the memory of one."""
        weights = self.weights if weights is None else weights
        places, bounds = self.engine.places(), [0]
        ends = np.cumsum(self.sizes)
        for place in range(1, len(places)):
            bounds.append(max(bounds[-1], int(np.searchsorted(ends, ends[-1] * place / len(places), side="right"))))
        bounds.append(len(self.sizes))
        runs = [slice(*pair) for pair in itertools.pairwise(bounds) if pair[0] < pair[1]]
        held = tuple(self.engine.keep(self.held[run], places[i % len(places)]) for i, run in enumerate(runs))
        sizes, base = tuple(sum(self.sizes[run]) for run in runs), self.base
        if base is not None:
            held = self._placed(held, [base.places[run] for run in runs])
            base = replace(base, places=())
        return replace(self, held=held, sizes=sizes, weights=None, kept=True, base=base).with_weights(weights)

    def _placed(self, held: Sequence[Any], places: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Store rows together with the lists that they are in."""
        assert self.base is not None
        centroids, eta = self.engine.share(self.base.centroids), self.base.eta
        pairs = zip(held, places, strict=True)
        return tuple(self.engine.submit(steps.placed, one, centroids, eta, *own) for one, own in pairs)

    def moments(self, directions: Floats | None) -> Moments:
        """Sum up the weights, and mean and spread of the vectors, stretched by `directions`."""
        n, rows = self.shape[0], _core.moment_rows(self.shape[0], self.weights)
        weights = None if self.weights is None else self.weights[rows]
        seen = _core.Moments(self.sample(rows), weights, directions)
        if self.weights is None:
            return _Moments(float(n), n, seen)
        return _Moments(float(self.weights.sum()), int(np.count_nonzero(self.weights)), seen)

    def sample(self, rows: NDArray[np.int64]) -> Floats:
        """Copy rows by position, in order."""
        order = np.argsort(rows, kind="stable")
        tasks = [(held, own) for held, own in zip(self.held, self._split(rows[order]), strict=True) if len(own)]
        pieces = self._gather([self.engine.submit(steps.sample, *task) for task in tasks])
        ordered = np.concatenate(pieces) if pieces else np.zeros((0, self.dim), np.float32)
        found = np.empty_like(ordered)
        found[order] = ordered
        return found

    def encode(self, coder: Pass, report: Report | None) -> Codes:
        """Choose codes."""
        shared = self.engine.share(coder)
        return self._watched([self.engine.submit(steps.encode, held, shared) for held in self.held], report)

    def renewed(self, coder: Pass, codes: Codes, report: Report | None) -> Codes:
        """Return the better of the present codes and new ones, row by row."""
        shared = self.engine.share(coder)
        tasks = [self.engine.submit(steps.renewed, held, shared, own) for held, own in self._with(codes)]
        return self._watched(tasks, report)

    def part(self, codes: Codes, n_codewords: int, seed: int, iteration: int) -> Part | None:
        """Return what an iteration with noise trains on (see `_core.part`); None if that is everything."""
        drawn = _core.part(self.shape[0], self.weights, n_codewords, seed, iteration)
        if drawn is None:
            return None
        rows, weights = drawn
        split = self._split(rows)
        own = tuple(self.engine.submit(steps.take_codes, *pair) for pair in zip(codes, split, strict=True))
        return Part(self._taken(rows, weights), own, split)

    def _taken(self, rows: NDArray[np.int64], weights: Doubles | None) -> Spread:
        split = self._split(rows)
        sizes = tuple(map(len, split))
        pieces = [None] * len(split) if weights is None else np.split(weights, np.cumsum(sizes)[:-1])
        tasks = zip(self.held, split, pieces, strict=True)
        held = tuple(self.engine.submit(steps.take, *task) for task in tasks)
        return replace(self, held=held, sizes=sizes, weights=weights, kept=True)

    def put(self, codes: Codes, part: Part, own: Codes) -> Codes:
        """Return the codes with those of a part put into their places; overwrites `codes`."""
        tasks = zip(codes, part.rows, own, strict=True)
        return tuple(self.engine.submit(steps.put, *task) for task in tasks)

    def improve(self, coder: Pass, codes: Codes, report: Report | None) -> tuple[Codes, float]:
        """Return improved codes where possible, and Σ w·loss."""
        shared = self.engine.share(coder)
        tasks = [self.engine.submit(steps.improve, held, shared, own) for held, own in self._with(codes)]
        losses = [self.engine.submit(steps.loss_of, task) for task in tasks]
        return tuple(tasks), float(sum(self._gather(losses, report)))

    def loss(self, objective: Objective, codebooks: Floats, codes: Codes) -> float:
        """Sum up w·loss."""
        shared = self.engine.share(codebooks)
        return float(sum(self._sums(steps.loss, codes, lambda held, own: (held, objective, shared, own))))

    def equations(self, codes: Codes, n_codewords: int) -> Sums:
        """Sum up both sides of the update's linear system for the plain loss."""
        found = self._added(steps.equations, codes, lambda held, own: (held, own, n_codewords))
        numbers, b = steps.added(*found)
        return unpacked(numbers, len(b) // n_codewords, n_codewords), b

    def sides(self, codes: Codes, n_codewords: int, shared: bool, directions: Floats | None) -> Sums:
        """Sum up the left diagonal and the right side of the system, for vectors stretched by `directions`."""
        found = self._added(steps.sides, codes, lambda held, own: (held, own, n_codewords, shared, directions))
        uses, b = steps.added(*found)
        return uses, b

    def apply(self, codes: Codes, n_codewords: int, P: Doubles, extra: float, directions: Floats | None) -> Doubles:
        """Sum up A P for the inner-product loss: w b (p̄ + extra · u⟨u, p̄⟩)ᵀ."""
        shared = self.engine.share(P)
        found = self._added(steps.apply, codes, lambda held, own: (held, own, n_codewords, shared, extra, directions))
        return np.asarray(steps.added(*found))

    def uses(self, codes: Codes, n_codewords: int, selection: str) -> NDArray[np.uint64]:
        """Count the rows of any weight that use each codeword, (M·K,); for one shared codebook, (K,)."""
        found = self._sums(steps.uses, codes, lambda held, own: (held, own, n_codewords, selection))
        return np.asarray(sum(found[1:], found[0]))

    def worst(self, objective: Objective, codebooks: Floats, codes: Codes, count: int) -> Worst:
        """Return errors, vectors (r, d) and codes (r, M) of the `count` rows of any weight with the largest losses."""
        shared = self.engine.share(codebooks)
        found = self._sums(steps.worst, codes, lambda held, own: (held, objective, shared, own, count))
        return steps.merged_worst(found, count, (self.dim, len(codebooks)))

    def _sums(self, step: Callable[..., Any], codes: Codes, arguments: Callable[[Any, Any], tuple[Any, ...]]) -> Any:
        return self._gather([self.engine.submit(step, *arguments(held, own)) for held, own in self._with(codes)])

    def _added(self, step: Callable[..., Any], codes: Codes, arguments: Callable[[Any, Any], tuple[Any, ...]]) -> Any:
        """Return sums, no more than `FAN`: with more workers they are added up on these, in a tree."""
        tasks = [self.engine.submit(step, *arguments(held, own)) for held, own in self._with(codes)]
        while len(tasks) > FAN:
            groups = [tasks[first : first + FAN] for first in range(0, len(tasks), FAN)]
            tasks = [self.engine.submit(steps.added, *group) for group in groups]
        return self._gather(tasks)

    def _with(self, codes: Codes) -> list[tuple[Any, Any]]:
        return list(zip(self.held, codes, strict=True))

    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum((0, *self.sizes))

    def _split(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Distribute rows, at ascending positions, to those who hold them."""
        starts = self._starts()
        bounds = np.searchsorted(rows, starts)
        return [rows[a:b] - start for a, b, start in zip(bounds, bounds[1:], starts, strict=False)]

    def _watched(self, tasks: list[Any], report: Report | None) -> Codes:
        """Wait until all are done, without fetching the results."""
        self._gather([self.engine.submit(_done, task) for task in tasks], report)
        return tuple(tasks)

    def _gather(self, tasks: list[Any], report: Report | None = None) -> list[Any]:
        if report is None:
            return self.engine.gather(tasks)
        done: list[int] = []

        def finished(task: int) -> None:
            done.append(self.sizes[task])
            report(sum(done), self.shape[0])

        return self.engine.gather(tasks, finished)


@dataclass(frozen=True)
class _Moments:
    """Mean and spread of a sample, and the weight of all rows."""

    weight: float
    rows: int
    seen: _core.Moments

    @property
    def mean_weight(self) -> float:
        return self.weight / self.rows

    @property
    def deviation(self) -> Doubles:
        return self.seen.deviation

    @property
    def variance(self) -> float:
        return self.seen.variance


def _done(_: Any) -> None:
    """Represent a result that stays where it is."""
