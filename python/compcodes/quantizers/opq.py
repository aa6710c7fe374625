"""Optimized product quantization by eigenvalue allocation (Ge et al., *Optimized Product Quantization*, 2013)."""

from __future__ import annotations

import numpy as np

from compcodes.quantizers._training import Doubles, Floats, Report
from compcodes.quantizers.quantizer import Quantizer
from compcodes.quantizers.subspaces import SubspaceQuantizer, edges, kmeans, rotated_back

__all__ = ["OptimizedProductQuantizer", "eigenvalue_allocation"]


@Quantizer.register
class OptimizedProductQuantizer(SubspaceQuantizer):
    """Product quantization of the principal components, distributed so that all subspaces are equally hard.

    This is the parametric solution, which is best for Gaussian data: independent subspaces with equal products of
    variances. `CartesianKMeans` learns the rotation from the codes instead.

    Parameters
    ----------
    n_codebooks, n_codewords, max_iter, random_state, n_jobs
        As in `ProductQuantizer`.

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
    >>> q = cc.OptimizedProductQuantizer(n_codebooks=4, n_codewords=32).fit(X)
    >>> scores, ids = cc.Index(q).add(X).search(X[:2], k=5)
    """

    method = "optimized-product"

    def _learn(self, X: Floats, seed: int, report: Report | None) -> tuple[Floats, list[float]]:
        rotation = eigenvalue_allocation(X, self.n_codebooks)
        rotated = X @ rotation.astype(np.float32)
        sizes = (self.n_codebooks, self.n_codewords, self.max_iter)
        words, objectives = kmeans(rotated, *sizes, seed, self.n_jobs, report)
        return rotated_back(words, rotation).astype(np.float32), objectives


def eigenvalue_allocation(X: Floats, M: int) -> Doubles:
    """Return the rotation (d, d) whose columns are the principal directions of `X` (n, d), subspace by subspace.

    From the largest variance to the smallest, each goes to the subspace with the smallest product of variances, among
    those that have room.
    """
    d = X.shape[1]
    centered = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centered.T @ centered / len(X))
    sizes = [last - first for first, last in edges(d, M)]
    chosen: list[list[int]] = [[] for _ in range(M)]
    # Only ratios matter: the smallest variance that counts makes all logarithms positive.
    smallest = max(variances[-1] * 1e-12, np.finfo(np.float64).tiny)
    logs = np.log(np.maximum(variances, smallest) / smallest)
    for direction in np.argsort(-variances, kind="stable"):
        room = [m for m in range(M) if len(chosen[m]) < sizes[m]]
        m = min(room, key=lambda m: logs[chosen[m]].sum())
        chosen[m].append(int(direction))
    return directions[:, [direction for own in chosen for direction in own]]
