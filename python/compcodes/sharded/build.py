"""Building a sharded index of vectors that fit in no memory: shard by shard, resuming after an interruption."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import as_vectors, check_rows
from compcodes._keys import listed
from compcodes._names import Names
from compcodes.cluster import Workers, again, same_version, share_of_threads
from compcodes.data.files import new_file
from compcodes.data.many import Files, state_of
from compcodes.errors import ArgumentValueError
from compcodes.index import Index
from compcodes.sharded.change import other_shards, take
from compcodes.training.held import block_of
from compcodes.training.sources import is_dask_array

if TYPE_CHECKING:
    from compcodes.sharded.index import ShardedIndex

__all__ = ["Rows", "add_all", "names_of", "rows_of"]

CHUNK = 1 << 26
"""Bytes of vectors that are encoded at a time."""


@dataclass(frozen=True)
class Rows:
    """Vectors that are read from one row up to another."""

    shape: tuple[int, int]
    name: str
    """Identifies the source: an interrupted build only resumes with the same one."""
    between: Callable[[int, int], Any]
    """Returns an object that has blocks for a range of rows, to be passed to a worker."""


def rows_of(X: Any) -> Rows:
    """Return an array, files, or a Dask array as rows to read."""
    if isinstance(X, Files):
        known = {piece.path: state_of(piece.path) for piece in X.pieces()}
        parts = [(p.path, known[p.path], p.first, p.last, p.rows, p.column) for p in X.pieces()]
        digest = hashlib.sha256(repr(parts).encode())
        return Rows(X.shape, f"files {digest.hexdigest()[:16]}", lambda a, b: _OfFiles(X, a, b))
    if is_dask_array(X):
        if X.ndim != 2 or any(n != n for n in X.shape):
            raise ArgumentValueError("X", f"has shape {X.shape}: want (n, d), known: call compute_chunk_sizes()")
        one = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        return Rows(X.shape, f"dask {one.name}", lambda a, b: list(np.ravel(one[a:b].to_delayed())))
    X = as_vectors(X, "X")
    digest = hashlib.sha256(f"{X.shape} {X.dtype}".encode())
    step = max(1, CHUNK // max(1, X.shape[1] * X.itemsize))
    for first in range(0, len(X), step):  # all of them: this takes far less time than encoding them
        digest.update(np.ascontiguousarray(X[first : first + step]).tobytes())
    return Rows(X.shape, f"array {digest.hexdigest()[:16]}", lambda a, b: [X[a:b]])


@dataclass(frozen=True)
class _OfFiles:
    files: Files
    first: int
    last: int

    def blocks(self) -> Iterable[NDArray[Any]]:
        return self.files.blocks(self.first, self.last)


def add_all(
    index: ShardedIndex,
    rows: Rows,
    n_shards: int,
    client: Any,
    report: Callable[[int, int], object] | None,
    names: NDArray[np.int64] | list[Any] | None = None,
) -> None:
    """Add the missing shards of `n_shards`, each a run of rows, whose numbers are the ids by default."""
    n = rows.shape[0]
    if names is not None:
        digest = hashlib.sha256(repr(names).encode() if isinstance(names, list) else names.tobytes())
        rows = replace(rows, name=f"{rows.name} ids {digest.hexdigest()[:16]}")
    n_shards = max(1, min(n_shards, n))  # no shard is empty unless it must be
    bounds = [n * i // n_shards for i in range(n_shards + 1)]
    sources = {(a, b): f"{rows.name} rows {a} to {b} of {n}" for a, b in itertools.pairwise(bounds)}
    have = {shard.source for shard in index.shards}
    if others := have - set(sources.values()):
        raise other_shards(index.path, str(others.pop()))
    state = [index._opened]  # the next id after the last shard that was added

    def left() -> dict[tuple[int, int], str]:
        have = {shard.source for shard in state[0].manifest.shards}
        return {run: source for run, source in sources.items() if source not in have}

    def done() -> int:
        return n - sum(b - a for a, b in left())

    def add(run: tuple[int, int], source: str, path: Path) -> None:
        try:
            state[0] = take(
                index.path,
                state[0],
                path,
                source,
                # Ids that were given are used unchanged; keys have numbers of their own.
                run[0] if names is None or index.has_keys else 0,
                "X" if names is None else "ids",
                order=list(sources.values()),
            )
        finally:
            path.unlink(missing_ok=True)
        if report is not None:
            report(done(), n)

    def own(run: tuple[int, int]) -> Any:
        return None if names is None else names[slice(*run)]

    model = index._opened.manifest.model
    if client is None:
        for run, source in left().items():
            here = done()
            within = None if report is None else lambda rows, here=here: report(here + rows, n)
            add(run, source, _write(index.path, model, index.n_jobs, within, (run[0], rows.between(*run)), own(run)))
        return
    workers, folder = Workers(client), index.path

    def submit(run: tuple[int, int], n_jobs: int | None) -> Any:
        blocks = rows.between(*run)
        arguments = [blocks] if isinstance(blocks, _OfFiles) else blocks
        return workers.submit(_write_there, _core.__version__, folder, model, run[0], own(run), n_jobs, *arguments)

    def on_workers() -> None:
        runs, n_threads = left(), workers.n_threads()
        n_jobs = 1 if len(runs) >= n_threads else None
        todo, going = iter(runs.items()), dict[Any, tuple[tuple[int, int], str]]()
        while True:
            # As many as there are threads: a task that waits for blocks of Dask makes place for others, and each holds
            # a shard in memory.
            for run, source in itertools.islice(todo, n_threads - len(going)):
                going[submit(run, n_jobs)] = run, source
            if not going:
                return
            tasks = list(going)
            task = tasks[next(workers.completed(tasks))]
            add(*going.pop(task), folder / workers.gather([task])[0])

    again(on_workers)  # the remainder


def names_of(ids: Any, n: int, keyed: bool) -> NDArray[np.int64] | list[Any] | None:
    """Check the ids or keys of all rows, before any of them is encoded."""
    if ids is None:
        if keyed:
            raise ArgumentValueError("ids", "is None: give a key for each vector, since keys is True")
        return None
    given = Names(keyed).given(ids, n)  # in the form the core takes
    if isinstance(given, list):
        values: Any = listed(ids)
        seen, again = set(), None
        for key, text in zip(values, given, strict=True):
            if text in seen:
                again = repr(key)
                break
            seen.add(text)
    else:
        values = given
        ascending = np.sort(given)
        doubled = ascending[1:][ascending[1:] == ascending[:-1]]
        if n and ascending[0] < 0:
            raise ArgumentValueError("ids", f"hold {ascending[0]}: want at least 0")
        again = str(doubled[0]) if len(doubled) else None
    if again is not None:
        raise ArgumentValueError("ids", f"hold {again} twice: want another for each vector")
    return values  # type: ignore[no-any-return]


def _write_there(
    version: str, folder: Path, model: str, first: int, names: Any, n_jobs: int | None, *blocks: Any
) -> str:
    """Write a shard, on a worker, with all its threads by default; return the name of the file."""
    same_version(version)
    if not (folder / model).exists():
        raise FileNotFoundError(
            2, "a worker does not see the folder of the index: is it at this path there", str(folder)
        )
    source = blocks[0] if blocks and isinstance(blocks[0], _OfFiles) else blocks
    return _write(folder, model, n_jobs or share_of_threads(), None, (first, source), names).name


def _write(
    folder: Path,
    model: str,
    n_jobs: int | None,
    report: Callable[[int], object] | None,
    vectors: tuple[int, Any],
    names: Any = None,
) -> Path:
    """Write an index of some vectors, starting at a row of the whole, to a new file; `names` are their names."""
    index = Index.load(folder / model, n_jobs)
    start, source = vectors
    blocks: Iterable[Any] = source.blocks() if isinstance(source, _OfFiles) else source
    for block in blocks:
        array = block_of(block.compute() if hasattr(block, "dask") else block)
        step = max(1, CHUNK // max(1, array.shape[1] * array.itemsize))
        for first in range(0, len(array), step):
            chunk, row = array[first : first + step], start + len(index)
            with np.errstate(over="ignore"):  # an error names the row in the whole
                check_rows("X", chunk.astype(np.float32, copy=False), np.arange(row, row + len(chunk)))
            index.add(chunk, None if names is None else names[len(index) : len(index) + len(chunk)])
            if report is not None:
                report(len(index))
    path = new_file(folder)
    try:
        index.save(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
