"""Codebooks in orthogonal subspaces: what product quantizers have in common."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import RandomState, as_seed, check_jobs, check_range
from compcodes.errors import ArgumentValueError
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers._training import (
    Doubles,
    Floats,
    Report,
    history,
    lengths_differ,
    seeds,
    training_sample,
    within,
)
from compcodes.quantizers.quantizer import Quantizer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SubspaceQuantizer", "edges", "kmeans", "rotated_back", "spans"]


class SubspaceQuantizer(Quantizer):
    """A quantizer of M codebooks, each in a subspace of its own; see `ProductQuantizer` for parameters.

    The nearest codeword in each subspace is then the best code.
    """

    _known: tuple[Floats, tuple[list[int], Floats | None]] | None = None

    def __init__(
        self,
        n_codebooks: int = 8,
        n_codewords: int = 256,
        max_iter: int = 25,
        random_state: RandomState = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_codebooks = n_codebooks
        self.n_codewords = n_codewords
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: object = None, *, progress: ProgressLike = None) -> Self:
        """Learn the codebooks.

        Parameters
        ----------
        X : (n, d) array of any real type
            Training vectors, d ≥ M. If there are more than 256 · K, a random sample is used.
        y : ignored
            Accepted for scikit-learn's pipelines.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        Quantizer
            Itself. After an error or Ctrl-C the model is unchanged.

        Raises
        ------
        ValueError
            A parameter or argument has a wrong value or shape; NaN or infinity in a training vector, with the row.
        TypeError
            An array is not of real numbers.
        """
        check_range("n_codebooks", self.n_codebooks, 1, 256)
        check_range("n_codewords", self.n_codewords, 2, 256)
        check_range("max_iter", self.max_iter, 1)
        check_jobs(self.n_jobs)
        seed = as_seed(self.random_state)
        sample = training_sample(X, self.n_codewords, seed)
        if sample.shape[1] < self.n_codebooks:
            raise ArgumentValueError(
                "n_codebooks",
                f"is {self.n_codebooks}: vectors of {sample.shape[1]} dimensions have no more subspaces "
                f"(n_features={sample.shape[1]})",
            )
        codebooks, objectives = self._learn(sample, seed, staged(progress, "fit"))
        if not np.isfinite(codebooks).all():
            raise ArgumentValueError("X", "has values too large to be squared in float64")
        self._set(codebooks)
        self._lengths_differ = lengths_differ(sample)
        self.history_ = history(objectives)
        self._subspaces()
        return self

    def _learn(self, X: Floats, seed: int, report: Report | None) -> tuple[Floats, list[float]]:
        """Return codebooks (M, K, d) and the objective after each iteration."""
        raise NotImplementedError

    def _encode(self, X: NDArray[Any], report: Report | None) -> NDArray[np.uint8]:
        codebooks = self._fitted()
        encoder = self._prepared((codebooks,), None, lambda: self._encoder(codebooks))
        return encoder.encode(X, self.n_jobs, report)

    def _encoder(self, codebooks: Floats) -> _core.SubspaceEncoder:
        return _core.SubspaceEncoder.of(codebooks, *self._subspaces())

    def _subspaces(self) -> tuple[list[int], Floats | None]:
        """Return the dimensions of each subspace, and a basis of them all; found once, and stored in files."""
        codebooks = self._fitted()
        if self._known is None or self._known[0] is not codebooks:
            self._known = (codebooks, self._span(codebooks))
        return self._known[1]

    def _span(self, codebooks: Floats) -> tuple[list[int], Floats | None]:
        return spans(codebooks)

    def _recipe(self) -> dict[str, Any]:
        return {"subspaces": self._subspaces()}

    def _follow(self, model: _core.Model) -> None:
        if model.subspaces is not None:
            self._known = (self._fitted(), model.subspaces)


def edges(d: int, M: int) -> list[tuple[int, int]]:
    """Return the first dimension of each subspace, and the end. If M does not divide d, the first ones are larger."""
    sizes = [d // M + (m < d % M) for m in range(M)]
    return list(itertools.pairwise([0, *itertools.accumulate(sizes)]))


def kmeans(
    X: Floats, M: int, K: int, max_iter: int, seed: int, n_jobs: int | None, report: Report | None
) -> tuple[list[Floats], list[float]]:
    """Run k-means in each of M runs of consecutive dimensions: codewords (K, d_m), and the objective by iteration."""
    words, histories = [], []
    for m, ((first, last), own_seed) in enumerate(zip(edges(X.shape[1], M), seeds(seed, M), strict=True)):
        centroids, objectives = _core.kmeans(X[:, first:last], K, max_iter, own_seed, n_jobs, within(report, m, M))
        words.append(centroids)
        histories.append(objectives)
    length = max(map(len, histories))  # one that converged before the others keeps its last value
    return words, [sum(h[min(i, len(h) - 1)] for h in histories) for i in range(length)]


def rotated_back(words: list[Floats] | list[Doubles], rotation: Doubles) -> Doubles:
    """Return codebooks (M, K, d) whose codewords are `words` (K, d_m) in dimensions of X · `rotation`."""
    parts = zip(words, edges(rotation.shape[1], len(words)), strict=True)
    return np.stack([book @ rotation[:, first:last].T for book, (first, last) in parts])


def spans(codebooks: Floats) -> tuple[list[int], Floats]:
    """Return the dimensions of each codebook's span about its mean, and orthonormal bases of all spans (d, Σ d_m).

    Which codeword is nearest depends only on the vector's part in that span. So the codebooks alone determine how to
    encode, wherever they come from.
    """
    bases = []
    for book in codebooks.astype(np.float64):
        _, values, directions = np.linalg.svd(book - book.mean(axis=0), full_matrices=False)
        bases.append(directions[: max(1, np.count_nonzero(values > 1e-6 * values[0]))].T)
    return [basis.shape[1] for basis in bases], np.hstack(bases).astype(np.float32)
