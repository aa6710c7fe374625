"""Training: codebooks given codes and codes given codebooks, in turn, until the objective settles.

The heavy steps are the compiled core's; here they are put together, and the linear system is solved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_codes, as_vectors, as_weights, check_rows
from compcodes.training import losses
from compcodes.training.demand import demand

__all__ = ["Trained", "Trainer", "normal_equations", "solve"]

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.uint8]
Sums: TypeAlias = tuple[Doubles, Doubles]
Report: TypeAlias = Callable[[int, int], object]


def normal_equations(
    X: ArrayLike,
    codes: ArrayLike,
    n_codewords: int = 256,
    *,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> tuple[Doubles, Doubles]:
    """Assemble the linear system A D = b whose solution are the best codebooks for given codes.

    With B the (M·K, n) matrix of which codewords each vector uses, A = B Bᵀ and b = (X Bᵀ)ᵀ (Du & Wang,
    "Update the dictionary"). Both are sums over vectors: those of shards add up to those of the whole.

    Parameters
    ----------
    X : (n, d) real
        Vectors; read a chunk at a time.
    codes : (n, M) uint8
        Their codes.
    n_codewords : int
        K; every code is below it.
    sample_weight : (n,), optional
        Weight of each vector, 1 by default.
    n_jobs : int, optional
        Threads, all cores by default. The result does not depend on it.

    Returns
    -------
    A : (M·K, M·K) float64
        How often two codewords are used together, by weight.
    b : (M·K, d) float64
        Sum of the vectors that use a codeword, by weight.

    Raises
    ------
    ValueError
        Shapes that do not fit, a code that is not below K, a row of `X` that is not finite, a negative weight.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.array([[1.0], [2.0], [4.0]], dtype=np.float32)
    >>> A, b = cc.normal_equations(X, np.array([[0], [1], [1]], dtype=np.uint8), n_codewords=2)
    >>> A.tolist(), b.tolist()
    ([[1.0, 0.0], [0.0, 2.0]], [[1.0], [6.0]])
    """
    X = as_vectors(X, "X")
    codes = as_codes(codes, np.shape(codes)[1] if np.ndim(codes) == 2 else -1)
    weights = None if sample_weight is None else as_weights(sample_weight, len(X))
    return _core.normal_equations(X, codes, n_codewords, weights, n_jobs)


def solve(A: Doubles, b: Doubles, previous: ArrayLike, ridge: float) -> Doubles:
    """Solve A D = b for the codebooks nearest the previous ones.

    A is always singular: shifting one codebook by a vector and another by its negative changes no sum of
    codewords, so its rank is at most M·K − M + 1, and less where codewords are unused. The proximal term
    λ‖D − D_previous‖² makes the solution unique; a ridge toward zero would instead shrink rarely used codewords,
    and with them the longest vectors.

    Parameters
    ----------
    A : (p, p) float64
    b : (p, d) float64
        As `normal_equations` returns them.
    previous : (p, d)
        The codebooks at hand, one codeword a row.
    ridge : float
        λ, as a share of the mean diagonal entry of A: of the mean use of a codeword.

    Returns
    -------
    (p, d) float64
    """
    previous = np.asarray(previous, dtype=np.float64)
    change = b - A @ previous  # solving for the change loses fewer digits than solving for D
    regular = A.copy()
    diagonal = np.einsum("ii->i", regular)
    diagonal += ridge * (diagonal.mean() or 1.0)
    return previous + np.linalg.solve(regular, change)


@dataclass(frozen=True)
class Trained:
    """What training gives."""

    codebooks: Floats
    codes: Codes
    history: list[dict[str, Any]]


@dataclass
class Trainer:
    """One training run over `X` (n, d): its parameters, and the steps that share them.

    Errors count more along the `directions` (r, d) of the loss, if any. `passes` is the number of passes over `X` that
    progress is measured by, where it is not that of `run`.
    """

    X: NDArray[Any]
    n_codebooks: int
    n_codewords: int
    selection: str
    max_iter: int
    tol: float
    ridge: float
    seed: int
    shrinkage: float = 0.0
    encoder: tuple[str, int] = ("greedy", 0)
    eta: float = 1.0
    anneal: int = 0
    sample_weight: Doubles | None = None
    directions: Floats | None = None
    n_jobs: int | None = None
    report: Report | None = None
    passes: int | None = None
    _history: list[dict[str, Any]] = field(default_factory=list, init=False)
    _started: float = field(default=0.0, init=False)
    _stage: int = field(default=0, init=False)

    def with_loss(
        self,
        loss: losses.Loss,
        sample_weight: Doubles | None,
        queries: Floats | None = None,
        directions: Floats | None = None,
    ) -> Trainer:
        """Return the same trainer for another loss; rows count by `sample_weight` and by what the loss says.

        Its metric is that of the queries, or that of `directions` if these are given.
        """
        if not isinstance(loss, losses.InnerProduct):
            return replace(self, eta=1.0, sample_weight=sample_weight)
        if queries is not None and len(queries) == 0:
            queries = None
        if queries is not None and loss.metric:
            directions = losses.directions(queries, loss.metric)
            directions = directions if len(directions) else None
        weights = losses.row_weights(losses.norms(self.X, directions), loss.weight_power or 0.0)
        if queries is not None and loss.demand:
            wanted = demand(self.X, queries, self.seed, self.n_jobs)
            weights = (1 - loss.demand) * (1.0 if weights is None else weights) + loss.demand * wanted
        if weights is not None and sample_weight is not None:
            weights *= sample_weight
        weights = sample_weight if weights is None else weights
        return replace(self, eta=loss.eta or 1.0, sample_weight=weights, directions=directions)

    def sampled(self, count: int | None) -> Trainer:
        """Return the same trainer for at most `count` rows, drawn by weight; in order, which a memory map reads well.

        Half of the draw is even and half by weight: a few rows that hold most of the weight (the longest vectors, or
        those that queries find) are then all in the sample, and no row that is drawn counts more than twice as much
        as in an even draw.
        """
        if count is None or len(self.X) <= count:
            return self
        weights, rng = self.sample_weight, np.random.default_rng(self.seed)
        if weights is None:
            rows = np.sort(rng.choice(len(self.X), count, replace=False))
            return replace(self, X=_taken(self.X, rows))
        rows = np.flatnonzero(weights)
        if len(rows) > count:
            chances = _chances(1 + weights[rows] / weights[rows].mean(), count)
            # Systematic sampling: a grid of random offset over the chances, end to end in random order.
            order = rng.permutation(len(rows))
            ends = np.cumsum(chances[order])
            drawn = np.searchsorted(ends, (rng.random() + np.arange(count)) * (ends[-1] / count))
            drawn = np.sort(order[drawn])
            rows, weights = rows[drawn], weights / weights.mean()
            return replace(self, X=_taken(self.X, rows), sample_weight=weights[rows] / chances[drawn])
        return replace(self, X=_taken(self.X, rows), sample_weight=weights[rows])

    def run(self, init: str | Floats) -> Trained:
        """Train from `init`: "residual", "random", or codebooks (M, K, d)."""
        self._started = time.perf_counter()
        codebooks, codes = self._start(init)
        codebooks, codes = self._annealed(codebooks, codes)
        errors = self.errors(codebooks, codes)
        self._record(errors)
        for _ in range(self.max_iter):
            better = self.update(codes, codebooks, self.pull(errors))
            better, _ = _core.reseed(better, self.X, codes, self.errors(better, codes), self.selection)
            better_codes, errors = self.improve(better, codes)
            before, now = self._history[-1]["objective"], self.objective(errors)
            # The pull of the codewords to their mean can cost more than new codes gain: then the rest is overfitting.
            if now > before:
                break
            codebooks, codes = better, better_codes
            self._record(errors)
            if before - now <= self.tol * before:
                break
        return Trained(codebooks, codes, self._history)

    @property
    def sizes(self) -> tuple[int, int, str, int]:
        """What the core's starts take: M, K, the scheme and the seed."""
        return self.n_codebooks, self.n_codewords, self.selection, self.seed

    def _start(self, init: str | Floats) -> tuple[Floats, Codes]:
        if not isinstance(init, str):
            codebooks = init
        elif init == "random":
            codebooks = _core.random_vectors(self.X, *self.sizes)
        else:
            codebooks = self.start()
        return codebooks, self.coder(codebooks).encode(self.X, self.n_jobs, self.within())

    def start(self) -> Floats:
        """Return codebooks (M, K, d) by residual k-means."""
        return _core.residual_kmeans(self.X, *self.sizes, self.n_jobs, directions=self.directions)

    def _annealed(self, codebooks: Floats, codes: Codes) -> tuple[Floats, Codes]:
        """Alternate with noise on the codebooks while encoding, less and less of it.

        Codes that are best for the codebooks at hand hold these where they are; noise lets both move on to a
        better optimum (Martinez et al., *LSQ++*, 2018, there "SR-D"). The objective may rise meanwhile, so
        this is part of the start.
        """
        for noise in self.noise(self.anneal):
            codebooks = self.update(codes, codebooks, self.pull(self.errors(codebooks, codes)))
            codebooks, _ = _core.reseed(codebooks, self.X, codes, self.errors(codebooks, codes), self.selection)
            codes, _ = self.improve((codebooks + noise).astype(np.float32), codes)
        return codebooks, codes

    def noise(self, iterations: int) -> Iterator[Doubles]:
        """Yield what to add to the codebooks in each of so many iterations: less and less, and nothing in the last."""
        rng = np.random.default_rng(self.seed)
        books = 1 if self.selection != "group" else self.n_codebooks
        for iteration in range(iterations):
            temperature = (1 - (iteration + 1) / iterations) ** 0.5
            shape = books, self.n_codewords, self.X.shape[1]
            yield temperature / self.n_codebooks * self.spread * rng.standard_normal(shape)

    @cached_property
    def spread(self) -> Doubles:
        """The standard deviation of each dimension, by weight, from at most some 20,000 rows."""
        return self._deviation(None)

    @cached_property
    def variance(self) -> float:
        """The mean loss of approximating all vectors by their mean, but for η."""
        return float((self._deviation(self.directions) ** 2).sum())

    def _deviation(self, directions: Floats | None) -> Doubles:
        rows = slice(None, None, max(1, len(self.X) // 20_000))
        sample = np.asarray(self.X[rows], dtype=np.float64)
        if directions is not None:
            sample = sample + (sample @ directions.T) @ directions
        weights = None if self.sample_weight is None else self.sample_weight[rows]
        if weights is not None and not weights.any():
            weights = None
        mean = np.average(sample, axis=0, weights=weights)
        return np.sqrt(np.average((sample - mean) ** 2, axis=0, weights=weights))

    def pull(self, errors: Doubles) -> float:
        """Weight of the pull of codewords to the mean of their codebook, in the unit of A's diagonal.

        Where codewords are normal about the mean, and what they leave of a vector is too, the best weight is the
        ratio of the two variances: of what is left (the loss) and of what one of M codebooks holds (an M-th of the
        data's). It is `shrinkage` times that. So it vanishes where the codes are nearly exact, and beside the
        vectors that use a codeword where these are many.
        """
        if self.shrinkage == 0 or not 0 < self.variance < np.inf:
            return 0.0
        ratio = min(self.objective(errors) / self.variance, 1.0)
        mean = 1.0 if self.sample_weight is None else float(self.sample_weight.mean())
        return self.shrinkage * self.n_codebooks * ratio * mean

    def coder(self, codebooks: Floats) -> _core.Encoder:
        """Return the encoder for the next pass; each pass has random numbers of its own."""
        seed = (self.seed + 0x9E3779B97F4A7C15 * self._stage) % 2**64
        return _core.Encoder(
            codebooks, self.selection, self.eta, self.encoder, seed, self.n_jobs, directions=self.directions
        )

    def improve(self, codebooks: Floats, codes: Codes) -> tuple[Codes, Doubles]:
        """Better codes (n, M) where there are any, and the loss of each row."""
        codes, _, errors = self.coder(codebooks).improve(self.X, codes, self.n_jobs, self.within())
        return codes, errors

    def update(self, codes: Codes, previous: Floats, pull: float = 0.0, past: Sums | None = None) -> Floats:
        """Best codebooks (M, K, d) for `codes`; better ones, for a loss that has no closed form.

        `pull` is the weight of a pull of codewords to the mean of their codebook, `past` the sums of vectors seen
        before.
        """
        M, K, d = previous.shape
        if self.eta > 1:
            return _core.descend(
                self.X,
                codes,
                previous,
                self.eta,
                self.ridge,
                self.selection,
                self.sample_weight,
                self.n_jobs,
                shrink=pull,
                past=past,
                directions=self.directions,
            )
        A, b = self.sums(codes)
        if past is not None:
            A, b = A + past[0], b + past[1]
        books = 1 if self.selection != "group" else M
        start = previous[:books].reshape(-1, d).astype(np.float64)
        if pull > 0:
            uses = np.einsum("ii->i", A).reshape(books, K, 1)
            means = (uses * start.reshape(books, K, d)).sum(axis=1) / uses.sum(axis=1)
            A, b = A + pull * np.eye(len(A)), b + pull * np.repeat(means, K, axis=0)
        codebooks = solve(A, b, start, self.ridge).astype(np.float32)
        return np.ascontiguousarray(np.broadcast_to(codebooks.reshape(-1, K, d), (M, K, d)))

    def sums(self, codes: Codes) -> Sums:
        """The two sides of the normal equations; of one codebook where the M are one."""
        M, K, d = self.n_codebooks, self.n_codewords, self.X.shape[1]
        A, b = _core.normal_equations(self.X, codes, K, self.sample_weight, self.n_jobs)
        if self.selection != "group":
            # It is used as often as all M places together use it.
            A, b = A.reshape(M, K, M, K).sum(axis=(0, 2)), b.reshape(M, K, d).sum(axis=0)
        return A, b

    def errors(self, codebooks: Floats, codes: Codes) -> Doubles:
        """Loss of each row (n,)."""
        return _core.errors(codebooks, self.X, codes, self.eta, self.n_jobs, directions=self.directions)

    def objective(self, errors: Doubles) -> float:
        """Mean of `errors` (n,), by weight."""
        return float(np.average(errors, weights=self.sample_weight))

    def _record(self, errors: Doubles) -> None:
        seconds = time.perf_counter() - self._started
        entry = {
            "iteration": len(self._history),
            "objective": self.objective(errors),
            "seconds": seconds,
            "vectors": len(self.X),
        }
        self._history.append(entry)

    def within(self) -> Report | None:
        """Progress of a pass over the vectors as progress of the whole."""
        report, stage = self.report, self._stage
        stages = self.passes or self.anneal + self.max_iter + 1
        self._stage += 1
        if report is None:
            return None
        return lambda done, total: report(stage * total + done, stages * total)


def _taken(X: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Copy `rows` of `X` as they are stored. An error names the row of `X`, not that of the copy."""
    taken = np.asarray(X[rows])
    with np.errstate(over="ignore"):
        check_rows("X", taken.astype(np.float32, copy=False), rows)
    return taken


def _chances(shares: Doubles, count: int) -> Doubles:
    """Probabilities in proportion to `shares`, but at most 1, whose sum is `count` (fewer than there are shares)."""
    chances: Doubles = shares * (count / shares.sum())
    while (chances > 1).any():
        certain = chances >= 1
        chances[certain] = 1
        chances[~certain] *= (count - certain.sum()) / chances[~certain].sum()
    return chances
