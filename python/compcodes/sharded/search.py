"""Searching a sharded index: the shards of one version, here or on a cluster, and then exact scores of the best."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._arrays import as_count, as_ids, as_queries, as_vectors
from compcodes._filters import as_filter
from compcodes._searching import count_candidates, fetched
from compcodes.data.many import Files
from compcodes.errors import ArgumentValueError
from compcodes.progress import ProgressLike, staged
from compcodes.sharded.opened import Choice, Opened

__all__ = ["search"]


def search(
    folder: Path,
    now: Opened,
    Q: ArrayLike,
    k: int,
    *,
    filter: ArrayLike | range | None,
    rerank: Any,
    rerank_ids: ArrayLike | None,
    n_candidates: int | None,
    client: Any,
    n_jobs: int | None,
    progress: ProgressLike,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Answer `ShardedIndex.search` by the version that is open."""
    dim = now.manifest.shape[2]
    queries, k = as_queries(Q, dim), as_count("k", k)
    n_candidates = count_candidates(k, n_candidates, rerank, rerank_ids)
    choice, report = _choice(now, filter, len(queries)), staged(progress, "search")
    if client is not None:
        from compcodes.sharded.cluster import search_on

        wanted = k if rerank is None else min(n_candidates, int(now.starts[-1]))
        scores, ids, positions = search_on(client, folder, now, queries, wanted, choice, report)
        if rerank is None:
            return scores, ids
        candidates, places = now.shards.chosen(positions)
    elif rerank is None:
        scores, ids, _ = now.shards.search(queries, k, *choice.arguments(), n_jobs, report)
        return scores, ids
    else:
        limits = choice.arguments()
        candidates, places = now.shards.candidates(queries, n_candidates, *limits, n_jobs, report)
    row_ids = None
    if callable(rerank):
        vectors = fetched(rerank, np.asarray(candidates.ids(), np.int64), dim)
    elif rerank_ids is not None:
        vectors = as_vectors(rerank, "rerank", dim)
        row_ids = as_ids(rerank_ids, len(vectors), "rerank_ids")
    else:
        # Of an array or of files only the candidates' rows are read.
        rows: Any = rerank if isinstance(rerank, Files) else as_vectors(rerank, "rerank", dim)
        if len(rows) != len(now.shards):
            raise ArgumentValueError(
                "rerank",
                f"has {len(rows)} rows, the index holds {len(now.shards)} vectors: want a row for each of its ids, "
                "in their order",
            )
        vectors = as_vectors(rows[_among_live(now, places)], "rerank", dim)
    scores, found, _ = candidates.rerank(queries, k, vectors, row_ids, n_jobs, report)
    return scores, np.asarray(found, np.int64)


def _choice(now: Opened, filter: ArrayLike | range | None, n_queries: int) -> Choice:
    """Bring a filter to what each shard can tell."""
    if filter is None:
        return Choice()
    allowed = as_filter(filter, "filter", n_queries, False)
    if (isinstance(allowed, tuple) and len(allowed) == 2) or getattr(allowed, "ndim", 1) == 2:
        raise ArgumentValueError("filter", "is one for each query: a sharded index takes one for all of them")
    if isinstance(allowed, tuple) or allowed.dtype != bool:
        return Choice(cast(Any, allowed))
    if len(allowed) != len(now.shards):
        raise ArgumentValueError(
            "filter", f"has {len(allowed)} entries, the index holds {len(now.shards)} vectors: want one for each"
        )
    masks, first = [], 0
    for shard, removed in zip(now.manifest.shards, now.removed, strict=True):
        live = np.ones(shard.vectors, bool)
        live[removed] = False
        count = shard.vectors - len(removed)
        live[live] = allowed[first : first + count]
        masks.append(live)
        first += count
    return Choice(None, tuple(masks)) if masks else Choice()


def _among_live(now: Opened, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where positions that ascend, counted through all shards, are among those that are not removed."""
    gone = [removed + start for removed, start in zip(now.removed, now.starts, strict=False)]
    return positions - np.searchsorted(np.concatenate(gone), positions) if gone else positions
