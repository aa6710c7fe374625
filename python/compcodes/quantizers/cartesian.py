"""Cartesian k-means (Norouzi & Fleet, *Cartesian K-Means*, 2013)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import RandomState
from compcodes.quantizers._training import Doubles, Floats, Report, within
from compcodes.quantizers.opq import eigenvalue_allocation
from compcodes.quantizers.quantizer import Quantizer
from compcodes.quantizers.subspaces import SubspaceQuantizer, edges, kmeans, rotated_back

__all__ = ["CartesianKMeans"]

#: Iterations of k-means after which the two starts are compared.
START = 10
#: Alternations of codewords and rotation for fixed codes: they need only the sums of the vectors of each code.
TURNS = 3


@Quantizer.register
class CartesianKMeans(SubspaceQuantizer):
    """Product quantization after a rotation that is learned with the codes.

    Codes, codewords and rotation are improved in turn: the nearest codewords, the means of their vectors, and the
    rotation that best aligns vectors and approximations (orthogonal Procrustes). The start is the better of the given
    dimensions and eigenvalue allocation (see `OptimizedProductQuantizer`).

    Parameters
    ----------
    n_codebooks, n_codewords, random_state, n_jobs
        As in `ProductQuantizer`.
    max_iter : int, default 50
        Iterations.

    Attributes
    ----------
    codebooks_ : (M, K, d) float32
        Read-only; in the original space, each in a subspace orthogonal to the others.
    history_ : list of dict
        "iteration" and "objective", the mean squared error of the training vectors, which never rises.
    n_features_in_ : int
        The length d of the vectors.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> q = cc.CartesianKMeans(n_codebooks=4, n_codewords=32, max_iter=10).fit(X)
    >>> scores, ids = cc.Index(q).add(X).search(X[:2], k=5)
    """

    method = "cartesian-kmeans"

    def __init__(
        self,
        n_codebooks: int = 8,
        n_codewords: int = 256,
        max_iter: int = 50,
        random_state: RandomState = 0,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(n_codebooks, n_codewords, max_iter, random_state, n_jobs)

    def _learn(self, X: Floats, seed: int, report: Report | None) -> tuple[Floats, list[float]]:
        # Centered, so that the rotation need not preserve the mean. Each codebook gets its part of the mean back.
        mean = X.mean(axis=0, dtype=np.float64)
        X = X - mean.astype(np.float32)
        state = self._start(X, seed)
        objectives = []
        for iteration in range(self.max_iter):
            progress = within(report, iteration, self.max_iter)
            encoder = _core.SubspaceEncoder([c.astype(np.float32) for c in state.words], state.rotation32)
            objectives.append(state.improve(X, encoder.encode(X, self.n_jobs, progress), self.n_jobs))
        codebooks = rotated_back(state.words, state.rotation)
        for book, (first, last) in zip(codebooks, edges(X.shape[1], self.n_codebooks), strict=True):
            own = state.rotation[:, first:last]
            book += own @ (own.T @ mean)
        return codebooks.astype(np.float32), objectives

    def _start(self, X: Floats, seed: int) -> _State:
        """Return rotation and codewords after a few iterations of k-means."""
        found = []
        for rotation in (np.eye(X.shape[1]), eigenvalue_allocation(X, self.n_codebooks)):
            rotated = X @ rotation.astype(np.float32)
            words, objectives = kmeans(rotated, self.n_codebooks, self.n_codewords, START, seed, self.n_jobs, None)
            found.append((objectives[-1], _State(rotation, words, float((X.astype(np.float64) ** 2).sum()))))
        return min(found, key=lambda pair: pair[0])[1]


class _State:
    """Rotation (d, d), codewords (K, d_m) of each subspace, and Σ ‖x‖² of the training vectors."""

    def __init__(self, rotation: Doubles, words: list[Floats], squares: float) -> None:
        self.rotation, self.squares = rotation, squares
        self.words = [book.astype(np.float64) for book in words]

    @property
    def rotation32(self) -> Floats:
        return np.ascontiguousarray(self.rotation, dtype=np.float32)

    def improve(self, X: Floats, codes: NDArray[np.uint8], n_jobs: int | None) -> float:
        """Improve codewords and rotation for `codes`; return the mean squared error."""
        M, K, d = len(self.words), len(self.words[0]), X.shape[1]
        sums = _core.sums(X, codes, K, n_jobs).reshape(M, K, d)
        counts = np.stack([np.bincount(column, minlength=K) for column in codes.T])
        parts = edges(d, M)
        for turn in range(TURNS):
            if turn > 0:
                cross = np.hstack([total.T @ book for total, book in zip(sums, self.words, strict=True)])  # Xᵀ X̄ R
                left, _, right = np.linalg.svd(cross)
                self.rotation = left @ right
            for book, total, count, (first, last) in zip(self.words, sums, counts, parts, strict=True):
                used = count > 0
                book[used] = (total @ self.rotation[:, first:last])[used] / count[used, None]
        explained = sum(float(n @ (book**2).sum(axis=1)) for n, book in zip(counts, self.words, strict=True))
        return max(self.squares - explained, 0.0) / len(X)
