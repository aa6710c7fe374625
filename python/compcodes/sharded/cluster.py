"""Searching a sharded index on the workers of a Dask cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.cluster import Workers, same_version, share_of_threads
from compcodes.sharded.manifest import Manifest
from compcodes.sharded.opened import Choice, Known, Opened, open_shards

__all__ = ["search_on"]

Found: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Scores, ids and positions, (nq, k)."""

SHARES = 64
"""Shares of indexes that a worker keeps open: those it was last asked for."""
_OPEN: dict[tuple[str, int, int], Known] = {}


def search_on(
    client: Any,
    folder: Path,
    now: Opened,
    queries: NDArray[np.float32],
    k: int,
    choice: Choice,
    report: Callable[[int, int], object] | None,
) -> Found:
    """Search the shards in as many runs of neighbours as there are workers, and merge what they find.

    The same worker is asked for the same run each time, so that it has the shards open; where it is gone, another one.
    """
    workers = Workers(client)
    addresses = workers.addresses()
    cuts = _cuts([shard.vectors for shard in now.manifest.shards], len(addresses))
    path, model = os.path.abspath(folder), now.manifest
    with_queries = workers.share(queries)
    futures = [
        workers.submit(_search, _core.__version__, path, model, cut, with_queries, k, choice.of(cut), worker=address)
        for cut, address in zip(cuts, addresses, strict=False)
    ]
    found: list[Found] = workers.gather(futures, None if report is None else _counting(report, len(queries), cuts, now))
    if not found:
        return (
            np.full((len(queries), k), -np.inf, np.float32),
            np.full((len(queries), k), -1, np.int64),
            np.full((len(queries), k), -1, np.int64),
        )
    return merged(found, k)


def merged(found: list[Found], k: int) -> Found:
    """Return the k best of several searches: by score, and of equal scores the lower position."""
    scores, ids, positions = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
    # What is missing comes last even among scores of −∞.
    places = np.where(positions < 0, np.iinfo(np.int64).max, positions)
    order = np.lexsort((places, -scores), axis=1)[:, :k]
    return tuple(np.take_along_axis(array, order, axis=1) for array in (scores, ids, positions))  # type: ignore[return-value]


def _search(
    version: str,
    path: str,
    manifest: Manifest,
    cut: slice,
    queries: NDArray[np.float32],
    k: int,
    choice: Choice,
) -> Found:
    """Search some shards, on a worker."""
    same_version(version)
    folder = Path(path)
    share = path, cut.start, cut.stop
    try:
        _, shards, now = open_shards(folder, manifest, cut, _OPEN.pop(share, {}))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno,
            "a worker does not see this file: is the folder at this path there, and the index fresh?",
            error.filename,
        ) from None
    _OPEN[share] = now
    while len(_OPEN) > SHARES:
        _OPEN.pop(next(iter(_OPEN)), None)
    scores, ids, positions = shards.search(queries, k, *choice.arguments(), share_of_threads())
    start = sum(shard.vectors for shard in manifest.shards[: cut.start])
    return scores, ids, np.where(positions < 0, positions, positions + start)


def _cuts(sizes: list[int], parts: int) -> list[slice]:
    """Cut shards of so many vectors into runs of about the same number, none of them empty."""
    if not sizes:
        return []
    parts = max(1, min(parts, len(sizes)))
    ends, total = np.cumsum(sizes), max(1, sum(sizes))
    bounds = [0]
    for part in range(1, parts):
        at = int(np.searchsorted(ends, total * part / parts)) + 1
        bounds.append(min(max(at, bounds[-1] + 1), len(sizes) - (parts - part)))
    bounds.append(len(sizes))
    return [slice(first, last) for first, last in itertools.pairwise(bounds)]


def _counting(
    report: Callable[[int, int], object], queries: int, cuts: list[slice], now: Opened
) -> Callable[[int], object]:
    """Progress in vectors times queries, as a search on one machine has it."""
    sizes = [sum(shard.vectors for shard in now.manifest.shards[cut]) * queries for cut in cuts]
    done: list[int] = []

    def finished(part: int) -> object:
        done.append(sizes[part])
        return report(sum(done), max(1, sum(sizes)))

    return finished
