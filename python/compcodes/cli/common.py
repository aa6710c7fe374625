"""What several subcommands need: checks before long work, and how numbers are written."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compcodes import CompositionalCodes

__all__ = [
    "Stopwatch",
    "UsageError",
    "amount",
    "check_output",
    "duration",
    "load_model",
    "sizes",
    "table",
]


class UsageError(Exception):
    """A command line that makes no sense."""


class Stopwatch:
    """Measures the block it is opened for: ``with Stopwatch() as watch: …; watch.seconds``."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


def load_model(path: str, jobs: int | None) -> CompositionalCodes:
    """Load a model that works with so many threads."""
    quantizer = CompositionalCodes.load(path)
    quantizer.n_jobs = jobs
    return quantizer


def check_output(path: str, *endings: str) -> None:
    """Refuse, before the work is done, a path that could not be written after it."""
    if endings and Path(path).suffix.lower() not in endings:
        raise ValueError(f"{path}: the file is written as {' or '.join(endings)}, give a name that ends so")
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, a file name is needed", path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "the folder cannot be written to", str(folder))


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def amount(n_bytes: float) -> str:
    """Write a size in the unit that suits it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


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
