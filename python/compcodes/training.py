"""Training: codebooks given codes and codes given codebooks, in turn, until the objective settles.

The heavy steps are the compiled core's; here they are put together, and the linear system is solved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_codes, as_vectors, as_weights

__all__ = ["Trained", "Trainer", "normal_equations", "solve"]

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.uint8]
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
    """One training run over `X` (n, d): its parameters, and the steps that share them."""

    X: NDArray[Any]
    n_codebooks: int
    n_codewords: int
    selection: str
    max_iter: int
    tol: float
    ridge: float
    seed: int
    sample_weight: Doubles | None = None
    n_jobs: int | None = None
    report: Report | None = None
    _history: list[dict[str, Any]] = field(default_factory=list)
    _started: float = 0.0

    def run(self, init: str | Floats) -> Trained:
        """Train from `init`: "residual", "random", or codebooks (M, K, d)."""
        self._started = time.perf_counter()
        codebooks, codes = self._start(init)
        errors = _core.errors(codebooks, self.X, codes, self.n_jobs)
        self._record(errors)
        for iteration in range(1, self.max_iter + 1):
            better = self.update(codes, codebooks)
            errors = _core.errors(better, self.X, codes, self.n_jobs)
            # Least squares can raise the objective only by rounding; then there is nothing left to gain.
            if self.objective(errors) > self._history[-1]["objective"]:
                break
            codebooks, _ = _core.reseed(better, self.X, codes, errors, self.selection)
            encoder = _core.Encoder(codebooks, self.selection, self.n_jobs)
            codes, _, errors = encoder.improve(self.X, codes, self.n_jobs, self._within(iteration))
            self._record(errors)
            before, now = (entry["objective"] for entry in self._history[-2:])
            if before - now <= self.tol * before:
                break
        return Trained(codebooks, codes, self._history)

    def _start(self, init: str | Floats) -> tuple[Floats, Codes]:
        sizes = (self.n_codebooks, self.n_codewords, self.selection, self.seed)
        if not isinstance(init, str):
            codebooks = init
        elif init == "random":
            codebooks = _core.random_vectors(self.X, *sizes)
        else:
            codebooks = _core.residual_kmeans(self.X, *sizes, self.n_jobs)
        encoder = _core.Encoder(codebooks, self.selection, self.n_jobs)
        return codebooks, encoder.encode(self.X, self.n_jobs, self._within(0))

    def update(self, codes: Codes, previous: Floats) -> Floats:
        """Best codebooks (M, K, d) for `codes`."""
        M, K, d = previous.shape
        A, b = _core.normal_equations(self.X, codes, K, self.sample_weight, self.n_jobs)
        if self.selection != "group":
            # One codebook: it is used as often as all M places together use it.
            A, b = A.reshape(M, K, M, K).sum(axis=(0, 2)), b.reshape(M, K, d).sum(axis=0)
            previous = previous[:1]
        codebooks = solve(A, b, previous.reshape(-1, d), self.ridge).astype(np.float32)
        return np.ascontiguousarray(np.broadcast_to(codebooks.reshape(-1, K, d), (M, K, d)))

    def objective(self, errors: Doubles) -> float:
        """Mean of `errors` (n,), by weight."""
        return float(np.average(errors, weights=self.sample_weight))

    def _record(self, errors: Doubles) -> None:
        seconds = time.perf_counter() - self._started
        entry = {"iteration": len(self._history), "objective": self.objective(errors), "seconds": seconds}
        self._history.append(entry)

    def _within(self, iteration: int) -> Report | None:
        """Progress of an iteration as progress of the whole."""
        report, whole = self.report, self.max_iter + 1
        if report is None:
            return None
        return lambda done, total: report(iteration * total + done, whole * total)
