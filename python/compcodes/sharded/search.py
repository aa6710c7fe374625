"""Searching a sharded index: the shards of one version, here or on a cluster, then exact scores of the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_count, as_queries, as_vectors, check_rows
from compcodes._filters import FilterLike, warn_of_unknown
from compcodes._searching import Above, Found, as_floors, as_limits, as_reach, count_candidates, fetched
from compcodes.data.many import Files
from compcodes.errors import ArgumentValueError
from compcodes.progress import ProgressLike, staged
from compcodes.sharded.opened import Opened

if TYPE_CHECKING:
    from compcodes.sharded.cluster import OnCluster

__all__ = ["above", "search"]


def search(
    folder: Path,
    now: Opened,
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
    client: Any,
    n_jobs: int | None,
    progress: ProgressLike,
) -> Found:
    """Answer `ShardedIndex.search` with the version that is open."""
    dim = now.manifest.shape[2]
    queries, k = as_queries(Q, dim), as_count("k", k)
    n_candidates = count_candidates(k, n_candidates, rerank, rerank_ids)
    if certify and not now.manifest.residuals:
        raise ArgumentValueError("certify", 'goes with an index of metric "ip" that was made with residuals=True')
    if certify and rerank is None:
        raise ArgumentValueError("certify", "goes with rerank: give the vectors to compare with")
    reach = as_reach(now.manifest.n_lists is not None, n_probe, recall, certify)
    limits, report = as_limits(now, filter, exclude, len(queries)), staged(progress, "search")
    warn_of_unknown(*limits, now.contains)
    shards = _where(folder, now, client)
    if rerank is None:
        scores, positions = shards.search(queries, k, *limits, n_jobs, report, *reach)
        return scores, now.named(positions)
    candidates, places = shards.candidates(queries, n_candidates, certify, *limits, n_jobs, report, *reach)
    row_ids = None
    if callable(rerank):
        wanted = candidates.ids()
        vectors = fetched(rerank, now.names.read(wanted, (len(wanted),)), dim)
    elif rerank_ids is not None:
        vectors = as_vectors(rerank, "rerank", dim)
        row_ids = now.names.given(rerank_ids, len(vectors), "rerank_ids")
    else:
        # Only the candidates' rows of an array or of files are read.
        rows: Any = rerank if isinstance(rerank, Files) else as_vectors(rerank, "rerank", dim)
        if len(rows) != len(now.shards):
            raise ArgumentValueError(
                "rerank",
                f"has {len(rows)} rows, the index holds {len(now.shards)} vectors: want a row for each of its ids, "
                "in their order; rows of other vectors too, as of those that were removed, need rerank_ids, their ids",
            )
        chosen = _among_live(now, places)
        vectors = as_vectors(rows[chosen], "rerank", dim)
        with np.errstate(over="ignore"):  # an error names the row in the whole
            check_rows("rerank", vectors.astype(np.float32, copy=False), chosen)
    scores, found, certified = candidates.rerank(queries, k, vectors, row_ids, n_jobs, report)
    names = now.names.read(found, scores.shape)
    return (scores, names, certified) if certify else (scores, names)


def above(
    folder: Path,
    now: Opened,
    Q: ArrayLike,
    score: ArrayLike,
    *,
    filter: FilterLike,
    exclude: FilterLike,
    client: Any,
    n_jobs: int | None,
    progress: ProgressLike,
) -> Above:
    """Answer `ShardedIndex.search_above` with the version that is open."""
    queries = as_queries(Q, now.manifest.shape[2])
    floors, report = as_floors(score, len(queries)), staged(progress, "search")
    limits = as_limits(now, filter, exclude, len(queries))
    warn_of_unknown(*limits, now.contains)
    indptr, positions, scores = _where(folder, now, client).search_above(queries, floors, *limits, n_jobs, report)
    return Above(indptr, now.named(np.asarray(positions, np.int64)), scores)


def _where(folder: Path, now: Opened, client: Any) -> _core.Shards | OnCluster:
    """Return the object that searches."""
    if client is None:
        return now.shards
    from compcodes.sharded.cluster import OnCluster

    return OnCluster(client, folder, now)


def _among_live(now: Opened, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ascending positions, numbered through all shards, renumbered among those that are not removed."""
    gone = [removed + start for removed, start in zip(now.removed, now.starts, strict=False)]
    return positions - np.searchsorted(np.concatenate(gone), positions) if gone else positions
