"""Product quantization (Jégou et al., *Product Quantization for Nearest Neighbor Search*, 2011)."""

from __future__ import annotations

import numpy as np

from compcodes.quantizers._training import Floats, Report
from compcodes.quantizers.quantizer import Quantizer
from compcodes.quantizers.subspaces import SubspaceQuantizer, edges, kmeans

__all__ = ["ProductQuantizer"]


@Quantizer.register
class ProductQuantizer(SubspaceQuantizer):
    """k-means in each of M runs of consecutive dimensions.

    In the terms of the paper: codebooks that are zero outside their own dimensions. If M does not divide d, the first
    codebooks have one more dimension.

    Parameters
    ----------
    n_codebooks : int, default 8
        M, 1 to 256 and at most d: the number of bytes of a code.
    n_codewords : int, default 256
        K, 2 to 256.
    max_iter : int, default 25
        The most iterations of k-means.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None, default 0
        Seed. The same seed and data give the same model, for any number of threads.
    n_jobs : int, optional
        Threads; all cores by default.

    Attributes
    ----------
    codebooks_ : (M, K, d) float32
        Read-only.
    history_ : list of dict
        "iteration" and "objective", the mean squared error of the training vectors, which never rises.
    n_features_in_ : int
        The length d of the vectors.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 18)).astype(np.float32)
    >>> q = cc.ProductQuantizer(n_codebooks=4, n_codewords=32).fit(X)
    >>> q.encode(X).shape
    (2000, 4)
    >>> (q.codebooks_ != 0).any(axis=1).sum(axis=1)
    array([5, 5, 4, 4])
    >>> scores, ids = cc.Index(q).add(X).search(X[:2], k=5)
    """

    method = "product"

    def _learn(self, X: Floats, seed: int, report: Report | None) -> tuple[Floats, list[float]]:
        M, K, d = self.n_codebooks, self.n_codewords, X.shape[1]
        words, objectives = kmeans(X, M, K, self.max_iter, seed, self.n_jobs, report)
        codebooks = np.zeros((M, K, d), np.float32)
        for book, (first, last), word in zip(codebooks, edges(d, M), words, strict=True):
            book[:, first:last] = word
        return codebooks, objectives

    def _span(self, codebooks: Floats) -> tuple[list[int], Floats | None]:
        M, _, d = codebooks.shape
        return [last - first for first, last in edges(d, M)], None
