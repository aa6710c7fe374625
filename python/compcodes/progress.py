"""What long work says about how far it is.

A progress callback is called as ``progress(stage, done, total)``: the name of the stage, and how much of it
is done, in a unit of the stage's own. ``progress=True`` stands for a `Bar` on standard error; without
`progress`, the library writes nothing anywhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO, TypeAlias

__all__ = ["Bar", "ProgressCallback", "ProgressLike", "as_callback", "staged"]

ProgressCallback: TypeAlias = Callable[[str, int, int], object]
ProgressLike: TypeAlias = ProgressCallback | bool | None

_WIDTH = 30
_LINE_EVERY = 0.1  # seconds, on a terminal, where a line replaces the last one
_LOG_EVERY = 5.0  # seconds, in a file, where every line stays


def as_callback(progress: ProgressLike) -> ProgressCallback | None:
    """Turn what the caller passed as `progress` into a callback, or None for silence.

    Raises
    ------
    TypeError
        If `progress` is neither callable, nor True, False or None.
    """
    if progress is True:
        return Bar()
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise TypeError(f"progress must be a callable(stage, done, total), True or None, got {progress!r}")
    return progress


def staged(progress: ProgressLike, stage: str) -> Callable[[int, int], object] | None:
    """Turn what the caller passed as `progress` into the (done, total) callback of one stage."""
    callback = as_callback(progress)
    return None if callback is None else lambda done, total: callback(stage, done, total)


class Bar:
    """A progress callback that draws a bar, and leaves no trace of it when a stage is done.

    On a terminal the bar is one line that is drawn again and again. Elsewhere (a log file) it is a plain line
    every five seconds.

    Parameters
    ----------
    stream : text stream, optional
        Standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._stage: str | None = None
        self._started = self._drawn = 0.0
        self._length = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Draw the bar, if the last time is long enough ago."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage = stage
            self._started = now
            self._drawn = self._drawn if self._terminal else now
        if self._terminal and done >= total:
            self.clear()
            self._stage = None
        elif now - self._drawn >= (_LINE_EVERY if self._terminal else _LOG_EVERY):
            self._drawn = now
            self._write(self._line(stage, done, total, now - self._started))

    def clear(self) -> None:
        """Take the bar off the terminal, as after an interruption."""
        if self._length:
            self._stream.write("\r" + " " * self._length + "\r")
            self._stream.flush()
            self._length = 0

    def _line(self, stage: str, done: int, total: int, seconds: float) -> str:
        part = min(done / total, 1.0) if total > 0 else 0.0
        line = f"{stage} {part:4.0%}"
        if self._terminal:
            filled = round(part * _WIDTH)
            line = f"{stage:<12} [{'#' * filled}{'.' * (_WIDTH - filled)}] {part:4.0%}"
        line += f"  {seconds:.0f} s"
        if part > 0 and seconds >= 1:
            line += f", about {seconds * (1 - part) / part:.0f} s left"
        return line

    def _write(self, line: str) -> None:
        if self._terminal:
            self._stream.write("\r" + line.ljust(self._length))
            self._length = max(self._length, len(line))
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
