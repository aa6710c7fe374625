"""How good a search is: exact answers, and recall against them.

The measure is the paper's recall@P: the share of the R truly best vectors that stand among the first P found.
It is also the share that is right after the first P are re-ranked with exact inner products and cut to R.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_vectors
from compcodes.progress import ProgressLike, staged

__all__ = ["ground_truth", "recall", "recall_curve"]


def ground_truth(
    X: ArrayLike,
    Q: ArrayLike,
    k: int = 100,
    *,
    metric: str = "ip",
    n_jobs: int | None = None,
    progress: ProgressLike = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find the k best rows of `X` for each query by comparing it with all of them.

    Parameters
    ----------
    X : (n, d)
        Database, may be a memory map; read in chunks.
    Q : (nq, d)
        Queries.
    k : int
    metric : {"ip", "cosine", "l2"}, default "ip"
        Inner product, cosine, or minus the squared Euclidean distance.
    n_jobs : int, optional
        Threads; all cores by default.
    progress : callable or True, optional

    Returns
    -------
    scores : (nq, k) float32
        Best first, padded with −inf where k > n.
    ids : (nq, k) int64
        Rows of `X`, ties to the lower one, padded with −1.
    """
    X = as_vectors(X, "X")
    Q = as_vectors(Q, "Q", X.shape[1])
    return _core.exact_search(X, Q, k, metric, n_jobs, staged(progress, "exact search"))


def recall(ids: ArrayLike, true_ids: ArrayLike, R: int = 10, P: int = 100) -> float:
    """Share of the true R best that are among the first P found, averaged over the queries.

    Parameters
    ----------
    ids : (nq, ≥ P) int
        What a search returned, best first.
    true_ids : (nq, ≥ R) int
        What it should have returned, best first, as from `ground_truth`.

    Returns
    -------
    float
        From 0 to 1; NaN without queries. Padding (−1) is neither sought nor found: where fewer than R answers
        exist, the share is of those that do.

    Raises
    ------
    ValueError
        If the two differ in their number of queries, or have fewer columns than R and P ask for.
    """
    return float(recall_curve(ids, true_ids, R=R, P=P)[-1])


def recall_curve(ids: ArrayLike, true_ids: ArrayLike, R: int = 10, P: int | None = None) -> NDArray[np.float64]:
    """Compute recall@1, …, recall@P in one pass.

    Returns
    -------
    (P,) float64
        Entry p − 1 is ``recall(ids, true_ids, R, p)``. `P` is all columns of `ids` by default.
    """
    found = _id_array("ids", ids)
    true = _id_array("true_ids", true_ids)
    P = found.shape[1] if P is None else P
    if len(found) != len(true):
        raise ValueError(f"ids has {len(found)} queries, true_ids has {len(true)}: they must be the same queries")
    if not 1 <= R <= true.shape[1]:
        raise ValueError(f"R must be from 1 to the {true.shape[1]} columns of true_ids, got {R}")
    if not 1 <= P <= found.shape[1]:
        raise ValueError(f"P must be from 1 to the {found.shape[1]} columns of ids, got {P}")
    sought = true[:, :R]
    hits = np.zeros(P, np.int64)
    for found_row, sought_row in zip(found[:, :P], sought, strict=True):
        wanted, first = np.unique(found_row, return_index=True)
        hits += np.bincount(first[np.isin(wanted, sought_row[sought_row != -1])], minlength=P)
    n_sought = np.count_nonzero(sought != -1)
    return np.cumsum(hits) / n_sought if n_sought else np.full(P, np.nan)


def _id_array(name: str, ids: ArrayLike) -> NDArray[Any]:
    array = np.asarray(ids)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be a 2-D array of integers, got shape {array.shape} of {array.dtype}")
    return array
