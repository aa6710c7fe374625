"""Order permutations (Chávez et al., *Effective Proximity Retrieval by Ordering Permutations*, 2008): a curiosity.

A vector is described by the order of its nearest anchors, and vectors with similar orders are assumed to be near each
other. The paper's appendix relates this to M-selection: both store M of K anchors; an order permutation is compared as
an order, a compositional code as the sum of the anchors. Spearman's distance of two orders is nevertheless a sum of M
table entries, so the same index searches them: only the tables differ.

>>> import numpy as np, compcodes as cc
>>> X = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
>>> anchors = X[:32]
>>> codes = order_permutations(X, anchors, length=8)
>>> index = cc.Index(cc.CompositionalCodes.from_codebooks(permutation_codebooks(32, length=8))).add_codes(codes)
>>> scores, ids = index.search(permutation_queries(X[100:103], anchors), k=3)
>>> ids[:, 0]
array([100, 101, 102])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_vectors, check_range
from compcodes.errors import ArgumentValueError

__all__ = ["order_permutations", "permutation_codebooks", "permutation_queries"]


def order_permutations(X: ArrayLike, anchors: ArrayLike, length: int) -> NDArray[np.uint8]:
    """Return the `length` anchors (K, d) nearest to each vector (n, d), the nearest first: codes (n, length).

    Raises
    ------
    ValueError
        Shapes that do not match, more than 256 anchors, or a length beyond them.
    """
    anchors, X = _pair(anchors, X, "X")
    check_range("length", length, 1, min(len(anchors), 64))
    return _core.exact_search(anchors, X, length, "l2")[1].astype(np.uint8)


def permutation_codebooks(n_anchors: int, length: int) -> NDArray[np.float32]:
    """Codebooks (M, K, 2K + 1), M = `length`, for which scores of `permutation_queries` are minus Spearman's distance.

    With ρ(k) the rank of anchor k for the query, codeword k of codebook m, which means that the vector has k in place
    m, represents −(ρ(k) − m)² = −ρ(k)² + 2mρ(k) − m². Ranks and places count from 0.
    """
    check_range("n_anchors", n_anchors, 2, 256)
    check_range("length", length, 1, min(n_anchors, 64))
    codebooks = np.zeros((length, n_anchors, 2 * n_anchors + 1), np.float32)
    anchor, place = np.arange(n_anchors), np.arange(length)[:, None]
    codebooks[:, anchor, anchor] = -1
    codebooks[:, anchor, n_anchors + anchor] = 2 * place
    codebooks[:, :, -1] = -(place**2)
    return codebooks


def permutation_queries(Q: ArrayLike, anchors: ArrayLike) -> NDArray[np.float32]:
    """Return queries (nq, d) for `permutation_codebooks`: squared ranks of the anchors, their ranks, and 1."""
    anchors, Q = _pair(anchors, Q, "Q")
    order = _core.exact_search(anchors, Q, len(anchors), "l2")[1]
    ranks = np.argsort(order, axis=1).astype(np.float32)
    return np.hstack([ranks**2, ranks, np.ones((len(ranks), 1), np.float32)])


def _pair(anchors: ArrayLike, X: ArrayLike, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both as arrays with matching shapes."""
    anchors, X = as_vectors(anchors, "anchors"), as_vectors(X, name)
    check_range("the number of anchors", len(anchors), 2, 256)
    if X.shape[1] != anchors.shape[1]:
        raise ArgumentValueError(name, f"has {X.shape[1]} dimensions, anchors has {anchors.shape[1]}")
    return anchors, X
