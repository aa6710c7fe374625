"""The quality of codes: exact answers and recall against them, approximation errors, and retrieval scores.

`recall` is the paper's recall@P: the share of the R truly best vectors that are among the first P found. It is also the
recall after the first P are re-ranked with exact inner products and cut to R.

The three errors compare vectors x with their approximations x̄, which may be an array or come in batches, as from
`CompositionalCodes.decode_batches`: they are never in memory all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_count, as_ids, as_vectors, numbered
from compcodes._choices import Metric
from compcodes.data import many
from compcodes.errors import ArgumentValueError
from compcodes.progress import ProgressLike, staged

__all__ = [
    "ground_truth",
    "inner_product_error",
    "mean_average_precision",
    "recall",
    "recall_curve",
    "symmetric_error",
    "ukbench_score",
    "vector_error",
]

Approximations: TypeAlias = ArrayLike | Iterator[NDArray[Any]]

_CHUNK = 4096  # rows that are compared at once
_PAIRS = 1 << 20  # ids that are sorted at once


def ground_truth(
    X: ArrayLike,
    Q: ArrayLike,
    k: int = 100,
    *,
    metric: Metric = "ip",
    n_jobs: int | None = None,
    progress: ProgressLike = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find the k best rows of `X` for each query by comparing it with all of them.

    The scores are computed in float64 from the numbers as float32, for all data that float32 can hold, with the same
    bits on every machine and for any number of threads. Products in float32 only exclude rows, by a proven bound on
    their error: the search takes longer if they cannot tell many rows apart.

    Parameters
    ----------
    X : (n, d)
        Database; may be a memory map or `compcodes.data.Files`; read in chunks.
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
        Best first, rounded from float64; ±inf beyond float32. Padded with −inf where k > n.
    ids : (nq, k) int64
        Rows of `X`, ties (in float64) to the lower one, padded with −1.

    Raises
    ------
    ValueError, TypeError
        Arrays of a wrong shape or dtype, or NaN or infinity in `X` or `Q` (with the row).
    """
    report = staged(progress, "exact search")
    if isinstance(X, many.Files) and len(X):
        return _best_of_files(X, as_vectors(Q, "Q", X.shape[1]), as_count("k", k), metric, n_jobs, report)
    X = as_vectors(X, "X")
    Q = as_vectors(Q, "Q", X.shape[1])
    return _core.exact_search(X, Q, as_count("k", k), metric, n_jobs, report)


def _best_of_files(
    X: many.Files, Q: NDArray[Any], k: int, metric: Metric, n_jobs: int | None, report: Callable[[int, int], Any] | None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Search files a piece at a time, each together with the best found before it.

    The vectors of the best are kept: rounded scores would not determine the order of all of them.
    """
    rows, vectors = np.zeros(0, np.int64), np.zeros((0, X.shape[1]), X.dtype)
    waiting: list[NDArray[Any]] = []
    for first, block in numbered("X", X.blocks()):
        waiting.append(block)
        end = first + len(block)
        n_waiting = sum(map(len, waiting))
        # Small pieces are combined, so that the best before them are not compared again for each.
        if end < len(X) and n_waiting * block[:1].nbytes < max(many.PIECE, vectors.nbytes):
            continue
        rows = np.concatenate([rows, np.arange(end - n_waiting, end)])
        vectors = np.concatenate([vectors, *waiting])
        scores, found = _core.exact_search(vectors, Q, k, metric, n_jobs, None)
        ids = np.where(found < 0, -1, rows[found])
        kept = np.unique(found[found >= 0])  # ascending, so that ties still go to the lower row
        rows, vectors, waiting = rows[kept], vectors[kept], []
        if report is not None:
            report(end, len(X))
    return scores, ids


def recall(ids: ArrayLike, true_ids: ArrayLike, R: int = 10, P: int = 100) -> float:
    """Share of the true R best that are among the first P found, averaged over the queries.

    Parameters
    ----------
    ids : (nq, ≥ P) int, or keys
        What a search returned, best first.
    true_ids : (nq, ≥ R) int, or keys
        What it should have returned, best first, as from `ground_truth`. Both must be ids, or both keys: an array of
        strings or of objects, as an index with keys returns them, or of integers if keys are integers. Rows, as from
        `ground_truth`, become keys by ``keys[true_ids]``.

    Returns
    -------
    float
        From 0 to 1; NaN without queries. Padding (−1, or None among keys) is ignored: if fewer than R answers exist,
        the share is of those that do.

    Raises
    ------
    ValueError
        The two differ in their number of queries, or have fewer columns than R and P require; or one holds ids and the
        other keys.

    Examples
    --------
    >>> recall([["tea", "cup", "jam"]], [["cup", "pot"]], R=2, P=3)
    0.5
    """
    return float(recall_curve(ids, true_ids, R=R, P=P)[-1])


def recall_curve(ids: ArrayLike, true_ids: ArrayLike, R: int = 10, P: int | None = None) -> NDArray[np.float64]:
    """Compute recall@1, …, recall@P in one pass.

    Returns
    -------
    (P,) float64
        Entry p − 1 is ``recall(ids, true_ids, R, p)``. `P` is all columns of `ids` by default.
    """
    found, true = _named_alike(ids, true_ids)
    R, P = as_count("R", R), found.shape[1] if P is None else as_count("P", P)
    if len(found) != len(true):
        raise ArgumentValueError(
            "ids", f"has {len(found)} queries, true_ids has {len(true)}: they must be the same queries"
        )
    if not 1 <= R <= true.shape[1]:
        raise ArgumentValueError("R", f"must be from 1 to the {true.shape[1]} columns of true_ids, got {R}")
    if not 1 <= P <= found.shape[1]:
        raise ArgumentValueError("P", f"must be from 1 to the {found.shape[1]} columns of ids, got {P}")
    sought = true[:, :R]
    hits = np.zeros(P, np.int64)
    rows = max(1, _PAIRS // (P + R))
    for first in range(0, len(found), rows):
        hits += _first_hits(found[first : first + rows, :P], sought[first : first + rows])
    n_sought = np.count_nonzero(sought != -1)
    return np.cumsum(hits) / n_sought if n_sought else np.full(P, np.nan)


def _first_hits(found: NDArray[np.int64], sought: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, for each column of `found`, the true ids that are in no column before it."""
    names, numbers = np.unique(np.concatenate([found, sought], axis=1), return_inverse=True)
    # Offset by row, so that an id in another row is another number.
    numbers = numbers.reshape(len(found), -1) + np.arange(len(found))[:, None] * len(names)
    P = found.shape[1]
    each, first = np.unique(numbers[:, :P], return_index=True)
    return np.bincount(first[np.isin(each, numbers[:, P:][sought != -1])] % P, minlength=P)


def vector_error(X: ArrayLike, approximations: Approximations) -> float:
    """Mean squared error of the approximation, E[‖x − x̄‖²]: the paper's VAE.

    Parameters
    ----------
    X : (n, d)
        The vectors; read in chunks.
    approximations : (n, d) array, or iterator over (b, d) arrays
        x̄ of each row of `X`, in the same order.

    Raises
    ------
    ValueError
        The two do not match, or are empty.

    Examples
    --------
    >>> vector_error([[3.0, 4.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]])
    13.0
    """
    total, n = 0.0, 0
    for _, x, error in _errors(as_vectors(X, "X"), approximations):
        total += float(np.vdot(error, error))
        n += len(x)
    return total / n


def inner_product_error(X: ArrayLike, approximations: Approximations, Q: ArrayLike, true_ids: ArrayLike) -> float:
    """Average |⟨q, x⟩ − ⟨q, x̄⟩| over each query and its true best vectors: the paper's IPAE, for the best 100.

    Parameters
    ----------
    X, approximations
        As for `vector_error`.
    Q : (nq, d)
        Queries.
    true_ids : (nq, R) int
        Rows of `X`, as from `ground_truth`; −1 is left out.

    Raises
    ------
    Arguments do not match, or there is no pair to compare.
        Arguments do not belong together, or there is no pair to compare.
    """
    X = as_vectors(X, "X")
    Q = as_vectors(Q, "Q", X.shape[1])
    true = _id_array("true_ids", true_ids)
    if len(true) != len(Q):
        raise ArgumentValueError("true_ids", f"has {len(true)} queries, Q has {len(Q)}: they must be the same queries")
    if true.size and not -1 <= true.min() <= true.max() < len(X):
        raise ArgumentValueError(
            "true_ids", f"range from {true.min()} to {true.max()}: want rows of the {len(X)} of X, or -1"
        )
    query, column = np.nonzero(true != -1)
    if len(query) == 0:
        raise ArgumentValueError("true_ids", "names no vector: there is nothing to compare")
    row = true[query, column]
    order = np.argsort(row, kind="stable")
    query, row = query[order], row[order]
    total = 0.0
    for first, _, error in _errors(X, approximations):
        begin, end = np.searchsorted(row, (first, first + len(error)))
        for start in range(begin, end, _CHUNK):
            part = slice(start, min(start + _CHUNK, end))
            off = np.einsum("ij,ij->i", Q[query[part]].astype(np.float64), error[row[part] - first])
            total += float(np.abs(off).sum())
    return total / len(row)


def symmetric_error(X: ArrayLike, approximations: Approximations) -> float:
    """Mean of (⟨x, y⟩ − ⟨x̄, ȳ⟩)² over all n² pairs of vectors: the paper's IPAE for compressed training data.

    Parameters
    ----------
    X, approximations
        As for `vector_error`.

    Raises
    ------
    ValueError
        The two do not match, or are empty.

    Notes
    -----
    With E = X − X̄, the matrix of all n² differences is E·Xᵀ + X̄·Eᵀ, and its squared norm is a sum of products of (d,
    d) matrices. So it takes O(n d²), in float64 and without cancellation if E is small.

    Examples
    --------
    >>> symmetric_error([[2.0], [1.0]], [[1.0], [1.0]])  # (4 − 1)², (2 − 1)² twice, and 0
    2.75
    """
    X = as_vectors(X, "X")
    d, n = X.shape[1], 0
    xx, ex, ee = (np.zeros((d, d)) for _ in range(3))
    for _, x, error in _errors(X, approximations):
        xx += x.T @ x
        ex += error.T @ x
        ee += error.T @ error
        n += len(x)
    decoded = xx - ex - ex.T + ee  # X̄ᵀX̄
    squares = np.vdot(ee, xx) + np.vdot(ee, decoded) + 2 * np.vdot(ex - ee, ex.T)
    return max(float(squares), 0.0) / n**2


def mean_average_precision(
    ids: ArrayLike, relevant: Sequence[ArrayLike], *, query_ids: ArrayLike | None = None
) -> float:
    """Mean over the queries of the area under precision over recall: MAP by the protocol of the Holidays images.

    Between two relevant results the area is a trapezium: at each, precision counts once with it and once without.

    Parameters
    ----------
    ids : (nq, P) int
        What was found, best first; −1 is padding. Relevant ids that are missing count as never found.
    relevant : sequence of nq arrays of int
        The relevant ids of each query, in any order; at least one.
    query_ids : (nq,) int, optional
        If queries are members of the database: their ids, which are removed from the results before these are judged.

    Returns
    -------
    float
        From 0 to 1; NaN without queries.

    Raises
    ------
    ValueError
        Lengths differ, a query has no relevant id, or is relevant to itself.

    Examples
    --------
    >>> mean_average_precision([[7, 3, 5, 9]], [[7, 5]])  # (1 + 1) / 2, and (1/2 + 2/3) / 2, each of recall 1/2
    0.7916666666666666
    """
    found = _id_array("ids", ids)
    if len(relevant) != len(found):
        raise ArgumentValueError(
            "relevant", f"has {len(relevant)} queries, ids has {len(found)}: they must be the same queries"
        )
    own = None if query_ids is None else as_ids(query_ids, len(found))
    total = 0.0
    for query, (row, sought) in enumerate(zip(found, relevant, strict=True)):
        wanted = np.unique(np.asarray(sought, dtype=np.int64))
        if len(wanted) == 0:
            raise ArgumentValueError("relevant", f"[{query}] is empty: want at least one id")
        row = row[row != -1]
        if own is not None:
            if own[query] in wanted:
                raise ArgumentValueError("relevant", f"[{query}] holds the query itself, {own[query]}")
            row = row[row != own[query]]
        _, first = np.unique(row, return_index=True)  # an id that comes again is not found again
        rank = np.flatnonzero(np.isin(row[np.sort(first)], wanted))
        hits = np.arange(len(rank))
        before = np.where(rank > 0, hits / np.maximum(rank, 1), 1.0)
        total += float((before + (hits + 1) / (rank + 1)).sum()) / 2 / len(wanted)
    return total / len(found) if len(found) else float("nan")


def ukbench_score(ids: ArrayLike, groups: ArrayLike, query_groups: ArrayLike | None = None) -> float:
    """Mean number of the first four found that show the query's object: the score of the UKBench images, 0 to 4.

    Parameters
    ----------
    ids : (nq, ≥ 4) int
        What was found, best first: rows of `groups`; −1 is padding.
    groups : (n,) int
        The object that each vector of the database shows.
    query_groups : (nq,) int, optional
        The object of each query. By default query i is vector i of the database, as in UKBench, where a query that
        finds itself counts.

    Returns
    -------
    float
        NaN without queries.

    Raises
    ------
    ValueError
        Shapes that do not fit, or ids that are not rows of `groups`.

    Examples
    --------
    >>> ukbench_score([[0, 1, 2, 3], [1, 4, 0, 5]], [0, 0, 0, 0, 1, 1], [0, 0])
    3.0
    """
    found = _id_array("ids", ids)
    if found.shape[1] < 4:
        raise ArgumentValueError("ids", f"has {found.shape[1]} columns: want the first 4 at least")
    labels = np.asarray(groups)
    if labels.ndim != 1:
        raise ArgumentValueError("groups", f"has shape {labels.shape}: want (n,)")
    own = labels if query_groups is None else np.asarray(query_groups)
    if own.shape != (len(found),):
        name = "groups" if query_groups is None else "query_groups"
        raise ArgumentValueError(
            name, f"has shape {own.shape}, ids has {len(found)} queries: they must be the same queries"
        )
    first = found[:, :4]
    if first.size and not -1 <= first.min() <= first.max() < len(labels):
        raise ArgumentValueError(
            "ids", f"range from {first.min()} to {first.max()}: want rows of the {len(labels)} of groups"
        )
    if not first.size:
        return float("nan")
    return float(((labels[first] == own[:, None]) & (first != -1)).sum(axis=1).mean())


def _errors(
    X: NDArray[Any], approximations: Approximations
) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
    """Yield first row, vectors x and errors x − x̄ of one chunk after another."""
    if len(X) == 0:
        raise ArgumentValueError("X", f"has shape {X.shape}: there is nothing to compare")
    first = 0
    for batch in _batches(approximations):
        end = first + len(batch)
        if batch.shape[1] != X.shape[1] or end > len(X):
            rows = f"{end} rows or more" if end > len(X) else f"{batch.shape[1]} columns"
            raise ArgumentValueError(
                "approximations", f"have {rows}, X has shape {X.shape}: there must be one of each row"
            )
        for start in range(0, len(batch), _CHUNK):
            part = batch[start : start + _CHUNK].astype(np.float64)
            x = X[first + start : first + start + len(part)].astype(np.float64)
            yield first + start, x, x - part
        first = end
    if first != len(X):
        raise ArgumentValueError(
            "approximations", f"have {first} rows, X has shape {X.shape}: there must be one of each row"
        )


def _batches(approximations: Approximations) -> Iterator[NDArray[Any]]:
    if isinstance(approximations, Iterator):
        for batch in approximations:
            yield as_vectors(batch, "approximations")
    else:
        yield as_vectors(approximations, "approximations")


def _named_alike(ids: ArrayLike, true_ids: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both as ids, with keys replaced by numbers: the same number for the same key, and −1 for None."""
    found, true = _names("ids", ids), _names("true_ids", true_ids)
    are_ids = [array.dtype.kind in "iu" for array in (found, true)]
    if all(are_ids):
        return found, true
    if any(are_ids):  # keys may be integers
        have, keys, lack = ("true_ids", true, "ids") if are_ids[0] else ("ids", found, "true_ids")
        if not any(key is None or isinstance(key, (int, np.integer)) for key in keys.flat):
            raise ArgumentValueError(have, f"holds keys, {lack} does not: want keys in both, such as keys[{lack}]")
    numbers: dict[object, int] = {None: -1}
    try:
        for array in (found, true):
            for key in array.flat:
                numbers.setdefault(key, len(numbers))
    except TypeError as error:
        raise ArgumentValueError("ids", f"and true_ids must be 2-D arrays of ids or keys ({error})") from None
    found, true = (
        np.array([numbers[key] for key in array.flat], np.int64).reshape(array.shape) for array in (found, true)
    )
    return found, true


def _names(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return ids as an array of integers, or keys as one of objects or strings."""
    if isinstance(value, tuple) and [np.ndim(one) for one in value if isinstance(one, np.ndarray)] == [2, 2]:
        raise ArgumentValueError(name, "is a tuple (scores, ids): pass its second")
    rows = value if isinstance(value, (list, tuple)) else []
    if rows and all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        if len({len(row) for row in rows}) > 1:
            raise ArgumentValueError(name, "has rows of different lengths: pad them with -1, or None among keys")
        array = np.empty((len(rows), len(rows[0])), dtype=object)
        for at, row in enumerate(rows):
            for column, key in enumerate(row):  # one by one: numpy would take tuples for rows
                array[at, column] = key
        if all(isinstance(one, (int, float, np.number)) for one in array.flat):
            array = np.asarray(array.tolist())
    else:
        array = np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in "iuOUST":
        raise ArgumentValueError(name, f"must be a 2-D array of ids or keys, got shape {array.shape} of {array.dtype}")
    return array


def _id_array(name: str, ids: ArrayLike) -> NDArray[Any]:
    array = np.asarray(ids)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ArgumentValueError(name, f"must be a 2-D array of integers, got shape {array.shape} of {array.dtype}")
    return array
