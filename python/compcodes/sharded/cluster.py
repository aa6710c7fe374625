"""Searching a sharded index on the workers of a Dask cluster.

Each worker searches a run of neighbouring shards, and the results are merged. How many lists a query searches depends
on how many vectors it may find in them, over all shards. So workers are told the number of lists, and if the first
lists turn out to hold fewer than k vectors, the workers count the vectors in the others.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.cluster import Workers, again, same_version, share_of_threads
from compcodes.errors import ArgumentValueError
from compcodes.sharded import manifest as manifests
from compcodes.sharded.manifest import Manifest
from compcodes.sharded.opened import Known, Opened, open_shards

__all__ = ["OnCluster"]

Placed: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores and positions, (nq, k)."""
Floats: TypeAlias = NDArray[np.float32]
Report: TypeAlias = Callable[[int, int], object]

SHARES = 64
"""Shares of indexes that a worker keeps open: those requested last."""
_OPEN: dict[tuple[str, int, int], Known] = {}


class OnCluster:
    """The shards of a folder, searched by workers; the methods are those of `_core.Shards`.

    The same worker gets the same run of shards each time, since it has them open; if it is gone, another one does.
    """

    def __init__(self, client: Any, folder: Path, now: Opened) -> None:
        self.workers = Workers(client)
        self.path, self.now = os.fspath(folder), now
        sizes = [shard.vectors for shard in now.manifest.shards]
        self.cuts = _cuts(sizes, len(self.workers.addresses()))
        self.starts = [int(now.starts[cut.start]) for cut in self.cuts]
        live = np.cumsum([0] + [shard.vectors - shard.n_removed for shard in now.manifest.shards])
        self.live = [(int(live[cut.start]), int(live[cut.stop])) for cut in self.cuts]

    def search(
        self,
        queries: Floats,
        k: int,
        filter: Any,
        exclude: Any,
        n_jobs: int | None,
        report: Report | None,
        n_probe: int | None = None,
        recall: float | None = None,
    ) -> Placed:
        """Find the k best: scores and positions."""
        limits, n_lists = (filter, exclude), self.now.manifest.n_lists
        ends = self.now.shards.probes(queries, n_probe, recall, n_jobs)
        if ends is None or (ends == n_lists).all() or not self.cuts:
            return self._best("search", queries, k, limits, report, (n_lists,))
        scores, positions = self._best("search", queries, k, limits, report, (None, None, ends))
        short = np.flatnonzero((positions < 0).any(axis=1))
        if len(short):
            some, limits = queries[short], (_of_queries(filter, short), _of_queries(exclude, short))
            counts = np.cumsum(sum(self._ask("list_counts", some, (), limits, None)[0]), axis=1, dtype=np.int64)
            ends = np.maximum(ends[short], (counts < k).sum(axis=1) + 1)
            again = self._best("search", some, k, limits, None, (None, None, ends))
            scores[short], positions[short] = again
        return scores, positions

    def search_above(
        self,
        queries: Floats,
        floors: Floats,
        filter: Any,
        exclude: Any,
        n_jobs: int | None,
        report: Report | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Find all that reach a score: where the results of each query begin, positions and scores."""
        found, unrounded = self._ask("search_above", queries, (floors,), (filter, exclude), report)
        rows = [np.repeat(np.arange(len(queries)), np.diff(starts)) for starts, _, _ in found]
        row = np.concatenate([np.zeros(0, np.int64), *rows])
        none = np.zeros(0, np.int64), np.zeros(0, np.float32)
        positions = np.concatenate([none[0], *(own + at for (_, own, _), at in zip(found, self.starts, strict=True))])
        scores = np.concatenate([none[1], *(own for _, _, own in found)])
        order = np.lexsort((positions, -np.concatenate([none[1], *unrounded]), row))
        starts = np.searchsorted(row[order], np.arange(len(queries) + 1))
        return starts.astype(np.int64), positions[order], scores[order]

    def candidates(
        self,
        queries: Floats,
        n: int,
        certify: bool,
        filter: Any,
        exclude: Any,
        n_jobs: int | None,
        report: Report | None,
        n_probe: int | None = None,
        recall: float | None = None,
    ) -> tuple[_core.Candidates, NDArray[np.int64]]:
        """Find what should be compared exactly, and its positions."""
        n = min(n, int(self.now.starts[-1]))
        if not certify:
            positions = self.search(queries, n, filter, exclude, n_jobs, report, n_probe, recall)[1]
            return self.now.shards.chosen(queries, positions)
        limits = filter, exclude
        bounds, bounded = self._best("search_bounds", queries, n + 1, limits, report)
        positions = self._best("search", queries, n, limits, report, (self.now.manifest.n_lists,))[1]
        return self.now.shards.chosen(queries, positions, bounds, bounded)

    def _best(
        self, call: str, queries: Floats, k: int, limits: tuple[Any, Any], report: Report | None, more: Any = ()
    ) -> Placed:
        found, unrounded = self._ask(call, queries, (k,), limits, report, more)
        placed = [
            (scores, np.where(positions < 0, positions, positions + start))
            for (scores, positions), start in zip(found, self.starts, strict=True)
        ]
        none = np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1, np.int64)
        return _merged([*placed, none], [*unrounded, none[0]], k)

    def _ask(
        self,
        call: str,
        queries: Floats,
        first: tuple[Any, ...],
        limits: tuple[Any, Any],
        report: Report | None,
        more: tuple[Any, ...] = (),
    ) -> tuple[list[Any], list[Any]]:
        """Let each worker search its shards: what they find, and by what that is ordered."""
        for limit, name in zip(limits, ("filter", "exclude"), strict=True):
            if _is_mask(limit) and limit.shape[-1] != len(self.now.shards):
                raise ArgumentValueError(
                    name, f"has {limit.shape[-1]} entries, the index holds {len(self.now.shards)} vectors"
                )
        counting = None if report is None else _counting(report, len(queries), self.live)
        answers = again(lambda: self.workers.gather(self._asked(call, (queries, first, more), limits), counting))
        return [found for found, _ in answers], [unrounded for _, unrounded in answers]

    def _asked(self, call: str, arguments: Any, limits: tuple[Any, Any]) -> list[Any]:
        here = self.workers.addresses()
        shared = self.workers.share(arguments)
        return [
            self.workers.submit(
                _answer,
                _core.__version__,
                self.path,
                self.now.manifest,
                cut,
                call,
                shared,
                tuple(_of_vectors(limit, *live) for limit in limits),
                worker=here[i % len(here)],
            )
            for i, (cut, live) in enumerate(zip(self.cuts, self.live, strict=True))
        ]


def _answer(
    version: str, path: str, manifest: Manifest, cut: slice, call: str, shared: Any, limits: tuple[Any, Any]
) -> Any:
    """Search some shards, on a worker: what is found, and its scores before they are rounded."""
    same_version(version)
    share = path, cut.start, cut.stop
    before = _OPEN.pop(share, {})
    try:
        _, shards, now = open_shards(Path(path), manifest, cut, before)
        if now.keys() - before.keys():
            _check_same(Path(path), manifest, cut)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno,
            "a worker does not see this file: is the folder at this path there, and the index fresh?",
            error.filename,
        ) from None
    _OPEN[share] = now
    while len(_OPEN) > SHARES:
        _OPEN.pop(next(iter(_OPEN)), None)
    queries, first, more = shared
    threads: tuple[Any, ...] = (share_of_threads(),) if call == "list_counts" else (share_of_threads(), None)
    found = getattr(shards, call)(queries, *first, *limits, *threads, *more)
    if call == "list_counts":
        return found, None
    if call == "search_above":
        starts, positions, scores = found
        rows = np.repeat(np.arange(len(queries)), np.diff(starts))
    else:
        scores, positions = found
        rows = np.repeat(np.arange(len(queries)), positions.shape[1])
    unrounded = shards.unrounded(queries, rows, np.ravel(positions), *threads[:1])
    return found, scores if unrounded is None else unrounded.reshape(scores.shape)


def _check_same(folder: Path, manifest: Manifest, cut: slice) -> None:
    """Refuse the shards of another index that has taken the place of the one that the client opened."""
    here = {shard.file: shard.crc32 for shard in manifests.read(folder).shards}
    for shard in manifest.shards[cut]:
        if here.get(shard.file, shard.crc32) != shard.crc32:
            raise ValueError(f"{folder}: another index than the one that was opened is at this path now: open it again")


def _merged(found: list[Placed], unrounded: list[NDArray[Any]], k: int) -> Placed:
    """Return the k best of several searches: by score before rounding, ties to the lower position."""
    scores, positions = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
    # Missing results come last even among scores of −∞.
    places = np.where(positions < 0, np.iinfo(np.int64).max, positions)
    order = np.lexsort((places, -np.concatenate(unrounded, axis=1)), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(positions, order, axis=1)


def _of_vectors(limit: Any, first: int, last: int) -> Any:
    """Return a filter restricted to some of the vectors that are not removed: the corresponding part of masks."""
    return limit[..., first:last] if _is_mask(limit) else limit


def _is_mask(limit: Any) -> bool:
    return isinstance(limit, np.ndarray) and limit.dtype == np.bool_


def _of_queries(limit: Any, rows: NDArray[np.int64]) -> Any:
    """Return a filter restricted to some of the queries."""
    if isinstance(limit, tuple) and len(limit) == 2:  # where the names of each query begin, and all of them
        starts, names = limit
        names = names if isinstance(names, np.ndarray) else list(names)
        parts = [names[starts[row] : starts[row + 1]] for row in rows]
        ends = np.cumsum([0] + [len(part) for part in parts])
        joined = np.concatenate(parts) if isinstance(names, np.ndarray) else list(itertools.chain(*parts))
        return ends.astype(np.int64), joined
    return limit[rows] if getattr(limit, "ndim", 1) == 2 else limit


def _cuts(sizes: list[int], parts: int) -> list[slice]:
    """Cut shards of these sizes into runs of about the same total size, none of them empty."""
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


def _counting(report: Report, queries: int, live: list[tuple[int, int]]) -> Callable[[int], object]:
    """Return progress in vectors times queries, as for a search on one machine."""
    sizes = [(last - first) * queries for first, last in live]
    done: list[int] = []

    def finished(part: int) -> object:
        done.append(sizes[part])
        return report(sum(done), max(1, sum(sizes)))

    return finished
