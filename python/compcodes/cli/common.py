"""What several subcommands need: checks before long work, and how numbers are written."""

from __future__ import annotations

import errno
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import FilterWarning, Index, LengthWarning, MetricWarning, Quantizer, ShardedIndex
from compcodes.data import Files, load, load_queries, open_many
from compcodes.data.files import check_regular, file_of, with_column
from compcodes.data.many import files_of, is_many, paths_of
from compcodes.errors import ArgumentError
from compcodes.sharded.index import is_sharded

__all__ = [
    "Stopwatch",
    "UsageError",
    "amount",
    "called",
    "check_output",
    "check_overwriting",
    "cluster_of",
    "duration",
    "key_text",
    "load_index",
    "load_model",
    "load_some",
    "load_vectors",
    "number_of_results",
    "sizes",
    "table",
    "written",
]

_MOST_RESULTS = 2**31  # 24 GB of scores and ids


class UsageError(Exception):
    """A command line that makes no sense."""


class Stopwatch:
    """Measures the time of a block: ``with Stopwatch() as watch: …; watch.seconds``."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


@contextmanager
def called(names: Mapping[str, str]) -> Iterator[None]:
    """Make errors about an argument use the user's name for it: an option or a file."""
    try:
        yield
    except ArgumentError as error:
        name = names.get(error.argument)
        if name is None:
            raise
        raise (UsageError if name.startswith("-") else ValueError)(error.told(name)) from error


def load_model(path: str, jobs: int | None) -> Quantizer:
    """Load a model that uses this many threads."""
    check_regular(path)
    quantizer = Quantizer.load(path)
    quantizer.n_jobs = jobs
    return quantizer


def load_index(path: str, jobs: int | None) -> Index:
    """Load an index that uses this many threads."""
    check_regular(path)
    return Index.load(path, n_jobs=jobs)


def open_index(path: str, jobs: int | None) -> Index | ShardedIndex:
    """Load an index, or open a folder of shards."""
    return ShardedIndex.open(path, jobs) if is_sharded(path) else load_index(path, jobs)


def load_vectors(path: str, column: str | None = None) -> NDArray[Any] | Files:
    """Open a file of vectors, or many: a folder or a pattern. `column` names the column of Parquet files."""
    if is_many(path):
        return files_of(path, column, "--column")
    return load(with_column(path, column))


def load_some(path: str) -> NDArray[Any]:
    """Load queries, or a single one, from one file, or from several that fit in memory."""
    return np.asarray(open_many(path)) if is_many(path) else load_queries(path)


_WARNINGS = (FilterWarning, LengthWarning, MetricWarning)


@contextmanager
def noted(prefix: str = "") -> Iterator[dict[str, str]]:
    """Collect the package's warnings as part of a result that `enter` prints, with a prefix before each."""
    notes: dict[str, str] = {}
    with warnings.catch_warnings(record=True) as caught:
        for kind in _WARNINGS:
            warnings.simplefilter("always", kind)
        yield notes
    for one in caught:
        if issubclass(one.category, _WARNINGS):
            said = [notes["warning"]] if notes else []
            notes["warning"] = "; ".join([*said, f"{prefix}{one.message}"])
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


@contextmanager
def cluster_of(address: str | None) -> Iterator[Any]:
    """Connect to a Dask cluster by the address of its scheduler; None without one."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs dask; run: pip install 'compcodes[dask]'") from None
    with Client(address) as client:  # type: ignore[no-untyped-call]
        yield client


@contextmanager
def written(path: str) -> Iterator[None]:
    """Make errors in writing an output, such as a full disk, name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), path) from None


def check_output(path: str, *endings: str) -> None:
    """Reject a path that could not be written, before the work is done rather than after."""
    if endings and Path(path).suffix.lower() not in endings:
        raise ValueError(f"{path}: the file is written as {' or '.join(endings)}: give a name with that extension")
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, a file name is needed", path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "the folder cannot be written to", str(folder))


def check_overwriting(outputs: Mapping[str, str | None], inputs: Iterable[str | None]) -> None:
    """Reject outputs, by option, that would replace an input or each other."""
    seen = {path: "an input" for path in inputs if path is not None}
    for option, output in outputs.items():
        if output is None:
            continue
        for path, role in seen.items():
            if any(_same_file(output, file) for file in _files_of(path)):
                raise UsageError(f"{option} {output}: this file is also {role}, and would be overwritten")
        seen[output] = f"that of {option}"


def _files_of(path: str) -> list[str]:
    name = file_of(path)
    if "://" in name or not is_many(name):
        return [name]
    try:
        return paths_of(name)
    except ValueError:  # reading the folder reports that it is empty
        return []


def _same_file(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them does not exist
        return os.path.realpath(a) == os.path.realpath(b)


def number_of_results(option: str, asked: int, n_vectors: int, n_queries: int) -> int:
    """Return how many results `option` asks for per query: no more than there are vectors."""
    k = max(min(asked, n_vectors), 1)
    if k * n_queries > _MOST_RESULTS:
        raise UsageError(f"{option} {asked}: {k:,} answers to each of {n_queries:,} queries are too many to hold")
    return k


def duration(seconds: float) -> str:
    """Write a time in a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def amount(n_bytes: float) -> str:
    """Write a size in a suitable unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def loss_text(loss: Mapping[str, Any]) -> str:
    """Return name and parameters of a `loss_`."""
    parameters = (f"{name} {value:g}" for name, value in loss.items() if name != "name" and value is not None)
    return ", ".join([loss["name"], *parameters])


def sizes(result: dict[str, Any]) -> str:
    """Say how much space the codes of a result take."""
    return f"{result['bytes_per_vector']} bytes each, {amount(result['bytes'])} in all"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def key_text(key: object) -> str:
    """Write a key as files of results have it; an empty text for none."""
    return "" if key is None else key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
