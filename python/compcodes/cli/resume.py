"""Building an index piece by piece: encoded pieces are kept next to the output until the index is written.

A build that is killed resumes where it was. The checkpoint is a line of JSON, which tells whether it belongs to the
same model and vectors, followed by the codes, lists and other data of each piece, one after the other.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from compcodes import Index
from compcodes._arrays import numbered
from compcodes.data import Files, many
from compcodes.data.mapped import release
from compcodes.errors import renamed
from compcodes.progress import ProgressLike, staged

__all__ = ["build"]

PIECE = 1 << 18
"""Vectors that are encoded between two checkpoints: a few seconds, or minutes, of work."""


def build(
    index: Index[Any],
    X: NDArray[Any] | Files,
    ids: NDArray[Any] | None,
    sources: list[str],
    output: str,
    progress: ProgressLike,
) -> int:
    """Add vectors to an empty index; return how many a checkpoint next to `output` already had.

    `sources` are the files that the model and the vectors come from, except for those of `Files`.
    """
    n = len(X)
    ends = _ends(X)
    if len(ends) < 2:
        for _, rows in _blocks(X, [0, *ends]):
            index.add(rows, ids, progress=progress)
        return 0
    report = staged(progress, "encode")
    states: list[list[Any]] = [
        [os.path.realpath(name), os.stat(name).st_size, os.stat(name).st_mtime_ns] for name in sources
    ]
    if isinstance(X, Files):
        states += [[path, *many.state_of(path)] for path in dict.fromkeys(piece.path for piece in X.pieces())]
    with Checkpoint(f"{output}.checkpoint", index, ends, states) as checkpoint:
        known = checkpoint.n_rows
        for first, rows in _blocks(X, [known, *(end for end in checkpoint.ends if end > known)]):

            def within(stage: str, done: int, total: int, first: int = first) -> None:
                if report is not None and stage == "encode":
                    report(min(first + done, n - 1), n)

            codes, lists, side = index._encoded(rows, None if report is None else within)
            checkpoint.append(codes, lists, side)
            release(X)
        if report is not None:
            report(n, n)
        first = 0
        for codes, lists, side in checkpoint.pieces():
            own = None if ids is None else ids[first : first + len(codes)]
            with renamed("codes", "X"):
                index._core.add_codes(codes, index._names.new(own, len(codes)), side, index.n_jobs, lists)
            first += len(codes)
    return known


def _ends(X: NDArray[Any] | Files) -> list[int]:
    """The number of the row after each piece between two checkpoints."""
    n = len(X)
    if not isinstance(X, Files):
        return [*range(PIECE, n, PIECE), n]
    # Whole pieces of files, so that each is read once, and as many of small ones as make a large one.
    most = many.PIECE // max(1, X.shape[1] * X.itemsize)
    ends: list[int] = []
    start = end = 0
    for rows in X.piece_sizes()[0]:
        if ends and end + rows - start <= most:
            ends.pop()
        else:
            start = end
        end += rows
        ends.append(end)
    return ends


def _blocks(X: NDArray[Any] | Files, bounds: list[int]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the rows between each bound and the next, and the number of the first."""
    pairs = list(itertools.pairwise(bounds))
    if isinstance(X, Files):
        read = (list(X.blocks(first, end)) for first, end in pairs)
        yield from numbered("X", (rows[0] if len(rows) == 1 else np.concatenate(rows) for rows in read), bounds[0])
    else:
        yield from ((first, X[first:end]) for first, end in pairs)


def forget(output: str) -> None:
    """Remove the checkpoint of an output that was written."""
    Path(f"{output}.checkpoint").unlink(missing_ok=True)


class Checkpoint:
    """A file of pieces that are encoded."""

    def __init__(self, path: str, index: Index[Any], ends: list[int], sources: list[list[Any]]) -> None:
        self.ends, n = ends, ends[-1]
        is_uniform = ends == [*range(ends[0], n, ends[0]), n]
        M = index._shape[0]
        self._parts: list[tuple[str, np.dtype[Any]]] = [("codes", np.dtype((np.uint8, (M,))))]
        if index._quantizer._lists is not None:
            self._parts.append(("lists", np.dtype("<u4")))
        if index._scale or index._residuals:
            self._parts.append(("side", np.dtype("<f4")))
        self._row = sum(dtype.itemsize for _, dtype in self._parts)
        content = {
            "model": hashlib.sha256(index._quantizer._model().to_bytes()).hexdigest(),
            "settings": [str(index.metric), index._scale, index._residuals],
            "n": n,
            "piece": ends[0] if is_uniform else ends,
            "sources": sources,
        }
        header = json.dumps(content).encode() + b"\n"
        self._first = len(header)
        self._file = self._open(path, header)
        rows = (self._file.seek(0, os.SEEK_END) - self._first) // self._row
        n_pieces = bisect_right(ends, rows)
        self.n_rows = ends[n_pieces - 1] if n_pieces else 0
        """How many are encoded, in whole pieces."""
        self._file.seek(self._first + self.n_rows * self._row)
        self._file.truncate()

    @staticmethod
    def _open(path: str, header: bytes) -> BinaryIO:
        """Open a checkpoint for the same inputs, or begin one."""
        try:
            file = open(path, "r+b")  # noqa: SIM115
        except FileNotFoundError:
            file = open(path, "w+b")  # noqa: SIM115
        if file.read(len(header)) != header:
            file.seek(0)
            file.truncate()
            file.write(header)
        return file

    def append(self, *parts: NDArray[Any] | None) -> None:
        """Store one more piece, on disk before the next is begun."""
        given = [part for part in parts if part is not None]
        for part, (_, dtype) in zip(given, self._parts, strict=True):
            self._file.write(np.ascontiguousarray(part, dtype=dtype.base).tobytes())
        self._file.flush()
        os.fsync(self._file.fileno())

    def pieces(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64] | None, NDArray[np.float32] | None]]:
        """Yield all pieces in order: codes, lists, and other data."""
        self._file.seek(self._first)
        for first, end in itertools.pairwise([0, *self.ends]):
            count = end - first
            found: dict[str, Any] = {}
            for name, dtype in self._parts:
                content = self._file.read(count * dtype.itemsize)
                found[name] = np.frombuffer(content, dtype=dtype.base).reshape(count, *dtype.shape)
            lists = found.get("lists")
            yield found["codes"], None if lists is None else lists.astype(np.int64), found.get("side")

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
