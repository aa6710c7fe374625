"""Signs of random projections (Charikar, *Similarity Estimation Techniques from Rounding Algorithms*, 2002)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import RandomState, as_codes, as_count, as_queries, as_seed, as_vectors, check_jobs, check_range
from compcodes.errors import ArgumentValueError
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers._training import Report
from compcodes.quantizers.quantizer import Quantizer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RandomHyperplaneHash"]

#: The signs (256, 8) that a byte encodes, its lowest bit first.
SIGNS = (2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") - 1.0).astype(np.float32)


@Quantizer.register
class RandomHyperplaneHash(Quantizer):
    """One bit per random hyperplane: on which side of it a vector lies. The paper's LSH.

    On average, the share of bits in which two vectors differ is their angle over π. Eight signs are a byte, hence a
    code for a codebook with the 256 sums of ± eight directions: decoded, codes approximate the direction of a vector,
    and `Index` compares unencoded queries with codes, the asymmetric way, which is more accurate than comparing bits.

    Parameters
    ----------
    n_bits : int, default 64
        Bits of a code, a multiple of 8, at most 512.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None, default 0
        Seed of the hyperplanes.
    n_jobs : int, optional
        Threads; all cores by default.

    Attributes
    ----------
    codebooks_ : (n_bits / 8, 256, d) float32
        Read-only.
    n_features_in_ : int
        The length d of the vectors.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> q = cc.RandomHyperplaneHash(n_bits=128).fit(X)
    >>> codes = q.encode(X)
    >>> scores, ids = q.search(X[:3], codes, k=5)
    >>> ids[:, 0]
    array([0, 1, 2])
    >>> scores[:, 0]
    array([0., 0., 0.], dtype=float32)
    """

    method = "random-hyperplanes"

    def __init__(
        self,
        n_bits: int = 64,
        random_state: RandomState = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: object = None, *, progress: ProgressLike = None) -> Self:
        """Draw the hyperplanes. Of `X` (n, d) only d matters; `y` is accepted for scikit-learn's pipelines.

        Raises
        ------
        ValueError
            A parameter or argument has a wrong value or shape.
        TypeError
            An array is not of real numbers.
        """
        check_range("n_bits", self.n_bits, 8, 512)
        if self.n_bits % 8:
            raise ArgumentValueError("n_bits", f"is {self.n_bits}: want a multiple of 8")
        check_jobs(self.n_jobs)
        n, d = as_vectors(X, "X").shape
        if n == 0:
            raise ArgumentValueError("X", f"has shape {(n, d)}: want at least one vector")
        normals = np.random.default_rng(as_seed(self.random_state)).standard_normal((self.n_bits // 8, 8, d))
        # The sum of ± normals has the mean √(2/π) n_bits x/‖x‖: with this scale, codes approximate directions.
        self._set((SIGNS @ normals * (np.sqrt(np.pi / 2) / self.n_bits)).astype(np.float32))
        self.history_ = []
        return self

    def _encode(self, X: NDArray[Any], report: Report | None) -> NDArray[np.uint8]:
        codebooks = self._fitted()
        encoder = self._prepared((codebooks,), None, lambda: _encoder(codebooks))
        return encoder.encode(X, self.n_jobs, report)

    def _recipe(self) -> dict[str, Any]:
        return {"signs": True}

    def search(
        self,
        Q: ArrayLike,
        codes: ArrayLike,
        k: int = 10,
        *,
        asymmetric: bool = False,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k codes that are nearest to each query.

        Parameters
        ----------
        Q : (nq, d) or (d,)
            Queries; one vector is one query.
        codes : (n, n_bits / 8) uint8
            Codes as returned by `encode`.
        k : int, default 10
            How many to find. May exceed the number of codes.
        asymmetric : bool, default False
            Compare the queries themselves with the codes, as `Index` does, instead of their bits.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        scores : (nq, k) float32
            Best first: minus the number of bits that differ, or inner products with the decoded codes; −inf if there
            are fewer than k codes.
        positions : (nq, k) int64
            Rows of `codes`, ties to the lower row; −1 if there are fewer than k codes.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            Shapes that do not match, NaN or infinity in `Q`, or k below 1.
        """
        from compcodes.index import Index

        codebooks = self._fitted()
        queries, codes = as_queries(Q, codebooks.shape[2]), as_codes(codes, len(codebooks))
        k = as_count("k", k)
        if asymmetric:
            return Index(self, n_jobs=self.n_jobs).add_codes(codes).search(queries, k, progress=progress)
        bits = self._encode(queries, None)
        return _core.hamming_search(codes, bits, k, self.n_jobs, staged(progress, "search"))


def _encoder(codebooks: NDArray[np.float32]) -> _core.SubspaceEncoder:
    """Encode by codewords that are sign patterns: in the coordinates of the normals, the nearest ± 1 are the signs."""
    normals = codebooks[:, 1 << np.arange(8)] - codebooks[:, :1]
    rotation = np.ascontiguousarray(normals.reshape(-1, codebooks.shape[2]).T)
    return _core.SubspaceEncoder([SIGNS] * len(codebooks), rotation)
