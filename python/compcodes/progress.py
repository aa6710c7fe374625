"""How long-running work reports its progress.

A progress callback is called as ``progress(stage, done, total)``: the name of the stage, and how much of it is done, in
a unit specific to the stage. ``progress=True`` selects a `Bar` on standard error; without `progress`, the library
writes nothing anywhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

from compcodes.errors import ArgumentTypeError

__all__ = ["Bar", "ProgressCallback", "ProgressLike", "as_callback", "staged"]

ProgressCallback: TypeAlias = Callable[[str, int, int], object]
ProgressLike: TypeAlias = ProgressCallback | bool | None

_LINE_EVERY = 5.0  # seconds


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
        raise ArgumentTypeError("progress", f"is {progress!r}: want a callable(stage, done, total), True or None")
    return progress


def staged(progress: ProgressLike, stage: str) -> Callable[[int, int], object] | None:
    """Turn what the caller passed as `progress` into the (done, total) callback of one stage.

    Its total is the first that is reported: steps of a stage may count in units of their own.
    """
    callback = as_callback(progress)
    if callback is None:
        return None
    whole = 0

    def told(done: int, total: int) -> object:
        nonlocal whole
        whole = whole or total
        return callback(stage, done if total == whole else done * whole // max(total, 1), whole)

    return told


class Bar:
    """A progress callback for people.

    On a terminal it is a bar of tqdm (``pip install 'compcodes[progress]'``) that disappears when a stage is done. In a
    log file, or without tqdm, it is a plain line every five seconds. The remaining time is that of the stage, or of the
    whole job if `expect` has listed its stages.

    Parameters
    ----------
    stream : text stream, optional
        Standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._tqdm = _tqdm() if self._stream.isatty() else None
        self._bar: Any = None
        self._stage: str | None = None
        self._started = self._told = 0.0
        self._job: dict[str, tuple[float, float]] = {}
        self._began = time.monotonic()

    def expect(self, stages: Mapping[str, float]) -> None:
        """Set the stages of the job, in order, and the relative time of each."""
        total, before = sum(stages.values()), 0.0
        self._job = {}
        for stage, share in stages.items():
            self._job[stage] = before / total, share / total
            before += share
        self._began = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        if stage in self._job:
            self._of_job(stage, done / total if total > 0 else 1.0)
            return
        if stage != self._stage:
            self.close()
            self._stage, self._started = stage, time.monotonic()
            self._told = self._started
        if self._tqdm is None:
            self._line(stage, done, total)
            return
        if self._bar is None:
            self._bar = self._tqdm(
                desc=stage, initial=done, total=total, file=self._stream, leave=False, unit_scale=True
            )
        self._bar.total = total
        self._bar.update(max(done - self._bar.n, 0))
        if done >= total:
            self.close()

    def close(self) -> None:
        """Remove the bar from the terminal, for example after the last stage or an interruption."""
        if self._bar is not None:
            self._bar.close()
        self._bar = self._stage = None

    def _of_job(self, stage: str, part: float) -> None:
        """Show how far the whole job is."""
        if self._stage is None:
            self._told = time.monotonic()
        self._stage = stage
        before, share = self._job[stage]
        whole = min(before + share * part, 1.0)
        if self._tqdm is not None:
            if self._bar is None:
                form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
                self._bar = self._tqdm(desc=stage, total=1.0, file=self._stream, leave=False, bar_format=form)
            self._bar.set_description_str(stage, refresh=False)
            self._bar.update(max(whole - self._bar.n, 0))
            return
        now = time.monotonic()
        if now - self._told < _LINE_EVERY:
            return
        self._told, seconds = now, now - self._began
        left = f", about {seconds * (1 - whole) / whole:.0f} s left" if whole > 0 else ""
        self._stream.write(f"{stage} {part:.0%}, all {whole:.0%}  {seconds:.0f} s{left}\n")
        self._stream.flush()

    def say(self, line: str) -> None:
        """Write a line between those of progress; in a log, only for a job that takes long."""
        if self._tqdm is None and time.monotonic() - self._began < _LINE_EVERY:
            return
        if self._bar is not None:
            self._bar.clear()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _line(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told < _LINE_EVERY or done >= total:
            return
        self._told = now
        part, seconds = done / total, now - self._started
        left = f", about {seconds * (1 - part) / part:.0f} s left" if part > 0 else ""
        self._stream.write(f"{stage} {part:.0%}  {seconds:.0f} s{left}\n")
        self._stream.flush()


def _tqdm() -> Callable[..., Any] | None:
    try:
        from tqdm import tqdm
    except ImportError:
        return None

    class Unwatched(tqdm):  # type: ignore[misc, unused-ignore]
        monitor_interval = 0  # no monitoring thread for bars: work calls back often enough

    return Unwatched
