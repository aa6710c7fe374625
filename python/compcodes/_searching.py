"""Search requests: their arguments, checked, and the core's answers to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._arrays import as_count, as_numbers, as_queries, as_vectors, check_rows
from compcodes._filters import FilterLike, Searched, as_filter, warn_of_unknown
from compcodes.data.many import Files
from compcodes.errors import ArgumentError, ArgumentTypeError, ArgumentValueError
from compcodes.progress import ProgressLike, staged

if TYPE_CHECKING:
    from compcodes.index import Index

__all__ = [
    "Above",
    "Found",
    "above",
    "as_floors",
    "as_limits",
    "as_reach",
    "count_candidates",
    "fetched",
    "search",
]


Found: TypeAlias = (
    tuple[NDArray[np.float32], NDArray[Any]] | tuple[NDArray[np.float32], NDArray[Any], NDArray[np.bool_]]
)
"""Scores, names and, if requested, for which queries the results are certified."""


class Above(NamedTuple):
    """All results above a score: those of query i are ``ids[indptr[i]:indptr[i + 1]]``, best first.

    ``scipy.sparse.csr_array((scores, ids, indptr))`` makes a matrix of them, for an index without keys.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[Any]
    scores: NDArray[np.float32]


def search(
    index: Index[Any],
    Q: ArrayLike,
    k: int,
    *,
    filter: FilterLike,
    exclude: FilterLike,
    rerank: Any,
    rerank_ids: ArrayLike | None,
    n_candidates: int | None,
    n_probe: int | None,
    recall: float | None,
    certify: bool,
    progress: ProgressLike,
) -> Found:
    """Answer `Index.search`."""
    core, dim, jobs = index._core, index.dimension, index.n_jobs
    queries, k = as_queries(Q, dim), as_count("k", k)
    n_candidates = count_candidates(k, n_candidates, rerank, rerank_ids)
    if certify and not index._residuals:
        raise ArgumentValueError("certify", 'goes with an index of metric "ip" that was made with residuals=True')
    if certify and rerank is None:
        raise ArgumentValueError("certify", "goes with rerank: give the vectors to compare with")
    reach = as_reach(index._quantizer._lists is not None, n_probe, recall, certify)
    limits, report = as_limits(index, filter, exclude, len(queries)), staged(progress, "search")
    warn_of_unknown(*limits, core.contains)

    def answer(scores: NDArray[np.float32], names: Any, certified: Any = None) -> Found:
        ids = index._names.read(names, scores.shape)
        return (scores, ids, certified) if certify else (scores, ids)

    if rerank is None:
        return answer(*core.search(queries, k, None, n_candidates, *limits, jobs, report, *reach))
    if callable(rerank):
        candidates = core.candidates(queries, n_candidates, certify, *limits, jobs, report, *reach)
        wanted = candidates.ids()
        vectors = fetched(rerank, index._names.read(wanted, (len(wanted),)), dim)  # while the index may change
        return answer(*candidates.rerank(queries, k, vectors, None, jobs, report))
    if isinstance(rerank, Files) and rerank_ids is None:
        core.search(queries[:0], k, np.broadcast_to(np.float32(0), rerank.shape), n_candidates)  # may they be read so?
        names = core.ids()
        candidates = core.candidates(queries, n_candidates, certify, *limits, jobs, report, *reach)
        vectors = _rows_of_files(rerank, names, candidates.ids(), dim)
        return answer(*candidates.rerank(queries, k, vectors, None, jobs, report))
    vectors = as_vectors(rerank, "rerank", dim)
    if rerank_ids is not None:
        row_ids = index._names.given(rerank_ids, len(vectors), "rerank_ids")
        candidates = core.candidates(queries, n_candidates, certify, *limits, jobs, report, *reach)
        return answer(*candidates.rerank(queries, k, vectors, row_ids, jobs, report))
    if certify:
        return answer(*core.search_certified(queries, k, vectors, n_candidates, *limits, jobs, report))
    return answer(*core.search(queries, k, vectors, n_candidates, *limits, jobs, report, *reach))


def above(
    index: Index[Any],
    Q: ArrayLike,
    score: ArrayLike,
    *,
    filter: FilterLike,
    exclude: FilterLike,
    progress: ProgressLike,
) -> Above:
    """Answer `Index.search_above`."""
    queries = as_queries(Q, index.dimension)
    each, report = as_floors(score, len(queries)), staged(progress, "search")
    limits = as_limits(index, filter, exclude, len(queries))
    warn_of_unknown(*limits, index._core.contains)
    indptr, names, scores = index._core.search_above(queries, each, *limits, index.n_jobs, report)
    return Above(indptr, index._names.read(names, scores.shape), scores)


def count_candidates(k: int, n_candidates: int | None, rerank: object, rerank_ids: ArrayLike | None) -> int:
    """Return how many vectors are compared exactly per query, if there are vectors to compare with."""
    if isinstance(rerank, Mapping):
        raise ArgumentTypeError(
            "rerank",
            f"is a {type(rerank).__name__}: want rows of vectors with rerank_ids=, the id of each, or a function from "
            "ids to their vectors, such as lambda ids: np.stack([vectors[id] for id in ids])",
        )
    if rerank is None and n_candidates is not None:
        raise ArgumentValueError("n_candidates", "goes with rerank: give the vectors to compare with")
    if rerank_ids is not None and (rerank is None or callable(rerank)):
        raise ArgumentValueError("rerank_ids", "goes with rerank: give an array that has these ids' vectors as rows")
    count = 10 * k if n_candidates is None else as_count("n_candidates", n_candidates)
    if count < k:
        raise ArgumentValueError("n_candidates", f"is {count}: want at least k, {k}")
    return count


def fetched(rerank: Callable[[NDArray[Any]], ArrayLike], ids: NDArray[Any], dim: int) -> NDArray[Any]:
    """Ask a callable for the vectors of candidates."""
    returned = rerank(ids.copy())
    try:
        rows = as_vectors(returned, "rerank", dim)
        check_rows("rerank", rows)
    except ArgumentError as error:
        of_row = error.problem.startswith("row ")
        raise type(error)("rerank", f"returned{':' if of_row else ' something that'} {error.problem}") from None
    if len(rows) != len(ids):
        raise ArgumentValueError(
            "rerank", f"returned {len(rows)} rows for {len(ids)} ids: want one for each, in their order"
        )
    return rows


def _rows_of_files(files: Files, names: Any, wanted: Any, dim: int) -> NDArray[Any]:
    """Read only the vectors of the candidates, `wanted`; `names` are those of all rows."""
    if isinstance(names, list):
        number = {name: row for row, name in enumerate(names)}
        rows = np.array([number.get(name, -1) for name in wanted], dtype=np.int64)
    else:
        order = np.argsort(names, kind="stable")
        rows = order[np.searchsorted(names, wanted, sorter=order).clip(max=len(order) - 1)] if len(order) else order
        rows = np.where(names[rows] == wanted, rows, -1)
    if (rows < 0).any():
        raise ArgumentValueError("rerank", "has no row for a vector that was added meanwhile")
    vectors = as_vectors(files[rows], "rerank", dim)
    with np.errstate(over="ignore"):  # an error names the row in the whole
        check_rows("rerank", vectors.astype(np.float32, copy=False), rows)
    return vectors


def as_floors(score: ArrayLike, n_queries: int) -> NDArray[np.float32]:
    """Return the least score of each query, for the core."""
    floors = np.asarray(as_numbers("score", score), dtype=np.float64)
    if floors.ndim > 1 or (floors.ndim == 1 and len(floors) != n_queries):
        raise ArgumentValueError(
            "score", f"has shape {floors.shape}: want a number, or one for each of {n_queries} queries"
        )
    if not np.isfinite(floors).all():
        raise ArgumentValueError("score", "holds NaN or an infinity: want finite numbers")
    return _rounded_up(np.broadcast_to(floors, n_queries))


def as_reach(
    has_lists: bool, n_probe: int | None, recall: float | None, certify: bool
) -> tuple[int | None, float | None]:
    """Return how many lists to search, for the core."""
    for name, value in (("n_probe", n_probe), ("recall", recall)):
        if value is not None and not has_lists:
            raise ArgumentValueError(name, "goes with an index of lists, which this is not: fit the model with some")
        if value is not None and certify:
            raise ArgumentValueError(name, "and certify are both given: what is proven takes all lists")
    if n_probe is not None and recall is not None:
        raise ArgumentValueError("recall", "and n_probe are both given: want one of them")
    if recall is not None:
        if isinstance(recall, bool) or not isinstance(recall, (int, float, np.integer, np.floating)):
            raise ArgumentTypeError("recall", f"is {recall!r}: want a number from 0 to 1")
        if not 0 <= recall <= 1:
            raise ArgumentValueError("recall", f"is {recall}: want 0 to 1")
    return None if n_probe is None else as_count("n_probe", n_probe), recall


def as_limits(index: Searched, filter: FilterLike, exclude: FilterLike, n_queries: int) -> tuple[Any, Any]:
    """Return what a search is limited to and what it must not find, for the core."""
    allowed = None if filter is None else as_filter(filter, "filter", n_queries, index)
    return allowed, None if exclude is None else as_filter(exclude, "exclude", n_queries, index)


def _rounded_up(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the least float32 that are at least these: the same float32 scores are above them."""
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32)
    rounded = np.where(rounded < scores, np.nextafter(rounded, np.float32(np.inf)), rounded)
    limits = np.finfo(np.float32)
    return np.clip(rounded, limits.min, limits.max).astype(np.float32)
