"""One search over several indexes, whose models may differ: candidates of each, compared by the vectors themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._arrays import as_count, as_queries
from compcodes.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from compcodes.index import Index

__all__ = ["Together", "search_together"]


class Together(NamedTuple):
    """Results of several indexes in one order."""

    scores: NDArray[np.float32]
    indexes: NDArray[np.int64]
    ids: NDArray[Any]


def search_together(
    indexes: Sequence[Index[Any]],
    Q: ArrayLike,
    k: int = 10,
    *,
    rerank: Sequence[Any],
    n_candidates: int | None = None,
    **options: Any,
) -> Together:
    """Find the k best vectors for each query in several indexes together.

    Scores by code of different models are not comparable. So each index provides candidates, and all of these are
    compared by exact scores.

    Parameters
    ----------
    indexes : sequence of Index
        They must have the same metric and dimension d; their models may differ otherwise, as with shards that were
        trained separately, or with an old model and a new one.
    Q : (nq, d) or (d,)
        Queries; one vector is one query.
    k : int, default 10
        How many to find. May exceed the number of vectors.
    rerank : sequence
        For each index, the `rerank` argument of `Index.search`: its vectors, or a function from ids to vectors.
    n_candidates : int, optional
        How many candidates each index provides per query; 10 · k by default.
    **options
        For each index, a sequence of ``rerank_ids``, ``filter`` or ``exclude``, as in `Index.search`; an entry of None
        means none.

    Returns
    -------
    Exact scores, best first; −inf if there are fewer than k vectors.
        Exact scores, best first; −inf where there are fewer than k vectors.
    indexes : (nq, k) int64
        The number of the index that holds the vector; −1 if there are fewer than k vectors. Ties go to the earlier
        index.
    ids : (nq, k) int64
        Its id there, −1 if there are fewer than k vectors; objects if an index has keys, with None for missing ones.

    Raises
    ------
    ValueError
        Indexes of different metrics or dimensions, or other arguments not one per index; otherwise as in
        `Index.search`.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float32)
    >>> X /= np.linalg.norm(X, axis=1, keepdims=True)  # so that each vector is its own best match
    >>> old, new = X[:2000], X[2000:]
    >>> shards = [cc.Index(cc.ProductQuantizer(4, 32).fit(part)).add(part) for part in (old, new)]
    >>> found = cc.search_together(shards, X[[7, 2007]], k=1, rerank=[old, new])
    >>> found.indexes.tolist(), found.ids.tolist()
    ([[0], [1]], [[7], [7]])
    """
    if len(indexes) == 0:
        raise ArgumentValueError("indexes", "is empty: want at least one")
    for name, values in {"rerank": rerank, **options}.items():
        if not isinstance(values, Sequence) or len(values) != len(indexes):
            raise ArgumentValueError(name, f"want one for each of {len(indexes)} indexes, in a list")
    if unknown := set(options) - {"rerank_ids", "filter", "exclude"}:
        raise ArgumentTypeError(sorted(unknown)[0], "is no option: want rerank_ids, filter or exclude")
    first = indexes[0]
    for at, index in enumerate(indexes):
        mine, others = (index.metric, index.dimension), (first.metric, first.dimension)
        if mine != others:
            have = "[{}] is of metric {!r} and {} dimensions".format(at, *mine)
            raise ArgumentValueError("indexes", "{}, indexes[0] of {!r} and {}: want the same".format(have, *others))
        if rerank[at] is None:
            raise ArgumentValueError("rerank", f"[{at}] is None: want the vectors, or a function from ids to vectors")
    k = as_count("k", k)
    queries = as_queries(Q, first.dimension)
    found: list[tuple[NDArray[np.float32], NDArray[Any]]] = []
    for at, index in enumerate(indexes):
        given = {name: values[at] for name, values in options.items()}
        found.append(index.search(queries, k, rerank=rerank[at], n_candidates=n_candidates, **given))
    scores = np.concatenate([scores for scores, _ in found], axis=1)
    has_keys = any(index.has_keys for index in indexes)
    ids = np.concatenate([ids.astype(object) if has_keys else ids for _, ids in found], axis=1)
    nothing = [None if index.has_keys else -1 for index in indexes]
    missing = np.concatenate([ids == none for none, (_, ids) in zip(nothing, found, strict=True)], axis=1)
    places = np.repeat(np.arange(len(indexes)), k)[None, :] * np.ones((len(queries), 1), dtype=np.int64)
    places[missing] = -1
    if has_keys:
        ids[missing] = None
    # Stable: ties go to the earlier index; missing results come last.
    order = np.lexsort((-scores.astype(np.float64), missing), axis=1)[:, :k]
    scores, places, ids = (np.take_along_axis(array, order, 1) for array in (scores, places, ids))
    return Together(scores, places, ids)
