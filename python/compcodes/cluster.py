"""Tasks on the workers of a Dask cluster, submitted by training and searching.

Dask is imported by whoever has a client, not here.
"""

from __future__ import annotations

import concurrent.futures
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from compcodes import _core
from compcodes.errors import ArgumentTypeError

__all__ = ["NoWorkers", "Stuck", "Workers", "again", "same_version", "share_of_threads"]

T = TypeVar("T")

LARGE = 8_000_000
"""Shared values up to this many bytes are part of a task. The scheduler then keeps them, and can give them to a worker
that replaces another; it warns of tasks above 10 MB."""
ATTEMPTS = 3
"""How often work is started in total, if a lost worker takes with it what cannot be recomputed."""
STUCK = "the cluster does nothing of what it was asked for, after it lost workers: try again"
LOOK = 5.0
"""Seconds between checks of whether a cluster is doing anything."""
PATIENT_LOOKS = 3
"""How many checks in a row must find it idle before it is given up."""
PROGRESS = 0.2
"""Seconds between two reports of progress."""
PATIENCE = 60
"""Seconds to wait for a worker if there is none."""


class Workers:
    """The workers of a `dask.distributed.Client`."""

    def __init__(self, client: Any) -> None:
        if not (callable(getattr(client, "submit", None)) and callable(getattr(client, "nthreads", None))):
            raise ArgumentTypeError("client", f"is {client!r}: want a dask.distributed.Client")
        if getattr(client, "asynchronous", False):
            raise ArgumentTypeError("client", "is asynchronous: want a Client(asynchronous=False)")
        self.client = client
        _make_place()

    def addresses(self) -> list[str]:
        """Return the workers' addresses, in a fixed order. Waits for the first worker.

        Raises
        ------
        NoWorkers
            No worker appeared.
        """
        until = time.monotonic() + PATIENCE
        while not (found := sorted(self.client.nthreads())):
            if time.monotonic() > until:
                raise NoWorkers(PATIENCE)
            time.sleep(PROGRESS)
        return found

    def n_threads(self) -> int:
        """Count the threads of all workers, at least 1."""
        return max(1, int(sum(self.client.nthreads().values())))

    def share(self, value: Any) -> Any:
        """Send a value to each worker that needs it, once; return what a task takes instead of the value."""
        if _size(value) > LARGE:
            return self.client.scatter(value, broadcast=True, hash=False)
        return self.client.submit(_itself, value, pure=False, key=None)

    def submit(self, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Call a function on a worker, or on another one if that is gone; return a future."""
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self.client.submit(called, function, *arguments, pure=False, **where)

    def completed(self, futures: Sequence[Any], every: float = PROGRESS) -> Iterator[int]:
        """Yield the numbers of tasks as they finish or fail, checking them `every` so many seconds.

        Raises
        ------
        Stuck
            Nothing happens although there are workers. Dask abandons tasks that were meant for a worker that is gone,
            and that others may do, if there was no other worker at that moment.
        NoWorkers
            There are no workers left, and none appeared.
        """
        import distributed

        pending, watch = dict(enumerate(futures)), _Watch(self.client, futures)
        while pending:
            try:
                distributed.wait(list(pending.values()), timeout=every)  # type: ignore[no-untyped-call]
                left: dict[int, Any] = {}
            except (TimeoutError, distributed.TimeoutError):  # which are two in Python 3.10
                left = {i: future for i, future in pending.items() if future.status == "pending"}
            yield from sorted(pending.keys() - left.keys())
            pending = left
            if pending:
                watch.look()

    def gather(self, futures: Sequence[Any], finished: Callable[[int], object] | None = None) -> list[Any]:
        """Wait for results, in order; `finished` is called with the number of each that arrives.

        Raises
        ------
        Stuck, NoWorkers
            As in `completed`.
        """
        for i in self.completed(futures, LOOK if finished is None else PROGRESS):
            if finished is not None:
                finished(i)
        # What a worker takes with it now is computed again, and waited for as before.
        watch, fetching = _Watch(self.client, futures), ThreadPoolExecutor(1)
        try:
            fetched = fetching.submit(self.client.gather, list(futures))
            while not concurrent.futures.wait([fetched], LOOK).done:
                watch.look()
            results: list[Any] = fetched.result()
            return results
        finally:
            fetching.shutdown(wait=False)


def _make_place() -> None:
    """Let a worker go on with other tasks if this is one of its own, which will wait for them.

    It does not take its place back: if several did so again and again, Dask would lose count, and start nothing more.
    """
    try:
        from distributed import secede

        secede()  # type: ignore[no-untyped-call]
    except (ImportError, ValueError, KeyError, AttributeError):
        pass  # this is no task, or has made place before


class _Watch:
    """Makes sure that nobody waits for a cluster that will never do what it was asked for."""

    def __init__(self, client: Any, futures: Sequence[Any]) -> None:
        self.client, self.futures = client, list(futures)
        self.looked = self.manned = time.monotonic()
        self.idle = 0

    def look(self) -> None:
        """Check periodically whether the cluster is doing anything; give up the tasks if not."""
        now = time.monotonic()
        if now - self.looked < LOOK:
            return
        self.looked = now
        if self.client.nthreads():
            self.manned = now
        elif now - self.manned >= PATIENCE:
            self._give_up(NoWorkers(PATIENCE))
        self.idle = self.idle + 1 if self._is_idle() else 0
        if self.idle >= PATIENT_LOOKS:
            self._give_up(Stuck(STUCK))

    def _is_idle(self) -> bool:
        """Whether there are workers, all of them idle, although not everything is done and on its way here."""
        return (
            self.manned == self.looked
            and not any(self.client.processing().values())
            and any(future.status != "finished" for future in self.futures)
        )

    def _give_up(self, error: Exception) -> None:
        self.client.cancel(self.futures)
        raise error


def again(work: Callable[[], T]) -> T:
    """Repeat work on a cluster that lost, with a worker, what no other can compute: large shared values.

    Also repeats work that was interrupted because the cluster lost all its workers.
    """
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except _lost():
            if attempt == ATTEMPTS - 1:
                raise
        except Stuck:
            pass
        # Dask forgets tasks, and where they were meant to run, once no frame holds a future of theirs any more.
        gc.collect()
    raise Stuck(STUCK)


def _lost() -> type[BaseException]:
    """Return the exception that Dask raises for lost results."""
    if "distributed" not in sys.modules:
        return Nothing
    from distributed.client import FutureCancelledError

    return cast("type[BaseException]", FutureCancelledError)


class Nothing(Exception):
    """An exception that is never raised."""


class Stuck(RuntimeError):
    """A cluster that does nothing of what it was asked for."""


class NoWorkers(RuntimeError):
    """A cluster that has had no workers for some time."""

    def __str__(self) -> str:
        return f"the cluster has had no workers for {self.args[0]} seconds: start some, and call this again"


def same_version(version: str) -> None:
    """Refuse, on a worker, to work for a client with another release: its results might differ."""
    if version != _core.__version__:
        raise RuntimeError(
            f"this worker has compcodes {_core.__version__}, the client {version}: install the same on all machines"
        )


def share_of_threads() -> int | None:
    """Return the threads for a task that has its worker for itself; None (all) outside of a worker."""
    try:
        from distributed import get_worker

        return int(get_worker().state.nthreads)
    except (ImportError, ValueError):
        return None


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with arguments that came over the network: arrays may be misaligned in the received buffer."""
    return function(*map(_aligned, arguments))


def _aligned(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if isinstance(value, (tuple, list)):
        return type(value)(map(_aligned, value))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: _aligned(getattr(value, field.name)) for field in fields(value) if field.init}
        same = all(getattr(value, name) is one for name, one in changed.items())
        return value if same else replace(value, **changed)
    return value


def _itself(value: Any) -> Any:
    return value


def _size(value: Any) -> int:
    """Return the approximate number of bytes of the arrays in a value."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    parts = value if isinstance(value, (tuple, list)) else vars(value).values() if hasattr(value, "__dict__") else ()
    return sum(_size(part) for part in parts)
