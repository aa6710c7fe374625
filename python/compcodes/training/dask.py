"""Training on data held by Dask: arrays, lists of delayed blocks, and columns of data frames.

With a `distributed.Client` the workers hold the vectors and their codes; without one this process reads the blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import check_rows
from compcodes.cluster import Workers, called, same_version
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.training import held as steps
from compcodes.training.spread import Engine, Here, Spread

if TYPE_CHECKING:
    from compcodes.quantizers.quantizer import Quantizer

__all__ = ["Cluster", "blocks_of", "encoded", "shape_of", "spread"]


class Cluster(Workers):
    """The workers of a client, as training uses them."""

    def places(self) -> list[str | None]:
        """Name the workers."""
        return [*self.addresses()]

    def submit(self, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Call a function; blocks that are to be read are passed as what is read."""
        if not any(isinstance(argument, _Reading) for argument in arguments):
            return super().submit(function, *arguments, worker=worker)
        from dask.base import annotate
        from dask.delayed import delayed

        # Our own tasks are pinned to a worker, those that blocks come from are not: `workers` of `compute`, or an
        # annotation while it is called, would apply to all of them. The user's tasks keep their names and annotations
        # as long as anybody needs them: if they were pinned to a worker that is gone, they might never run.
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        with annotate(**where):
            given = [one.task() if isinstance(one, _Reading) else one for one in arguments]
            task = delayed(called, pure=False)(function, *given)
        return self.client.compute(task)

    def holding(self, unit: bool, n_jobs: int | None, blocks: Sequence[Any]) -> Any:
        """Return a handle for blocks that are read each time they are needed."""
        return _Reading(unit, n_jobs, blocks)

    def keep(self, holdings: Sequence[Any], worker: str | None) -> Any:
        """Read blocks once, and keep them on a worker."""
        return self.submit(steps.joined, *holdings, worker=worker)


@dataclass(frozen=True)
class _Reading:
    """Blocks that workers read each time they are needed."""

    unit: bool
    n_jobs: int | None
    blocks: Sequence[Any]

    def task(self) -> Any:
        """Return a task that reads them."""
        from dask.delayed import delayed

        return delayed(steps.hold, pure=False)(_core.__version__, self.unit, self.n_jobs, *self.blocks)


def spread(blocks: Sequence[Any], shape: tuple[Sequence[int], int] | None, unit: bool, n_jobs: int | None) -> Spread:
    """Take blocks of vectors, each delayed or with a method `load`; `shape` is their rows and d if known.

    All of them are read once, to check that they are finite.
    """
    client = _client()
    engine: Engine = Here() if client is None else Cluster(client)
    held = [engine.holding(unit, n_jobs, [block]) for block in blocks]
    if shape is None:
        known = engine.gather([engine.submit(steps.size, one) for one in held])
        sizes, dims = [n for n, _ in known], sorted({d for n, d in known if n})
        if len(dims) > 1:
            raise ArgumentValueError("X", f"has blocks of {' and '.join(map(str, dims))} dimensions: want one number")
        shape = sizes, dims[0] if dims else 0
    rows, dim = shape
    if not sum(rows):
        raise ArgumentValueError("X", f"has no rows in its {len(blocks)} blocks: training needs at least one vector")
    # Blocks without rows need nothing.
    some = [(one, n) for one, n in zip(held, rows, strict=True) if n]
    made = Spread(engine, tuple(one for one, _ in some), tuple(n for _, n in some), dim)
    made.check()
    return replace(made, checked=True)


def shape_of(X: Any) -> tuple[Sequence[int], int] | None:
    """Return the number of rows of each block of an array, and d, if known."""
    chunks = getattr(X, "chunks", None) if hasattr(X, "rechunk") and not _is_delayed(X) else None
    if chunks is None or any(n != n for n in (*chunks[0], X.shape[1])):  # NaN means unknown
        return None
    return chunks[0], X.shape[1]


def encoded(quantizer: Quantizer, X: Any) -> Any:
    """Encode a dask array block by block, on demand."""
    M, _, d = quantizer._fitted().shape
    if X.ndim != 2 or X.shape[1] != d:
        problem = (
            f"has {X.shape[1]} dimensions, the model has {d}" if X.ndim == 2 else f"has shape {X.shape}: want (n, d)"
        )
        raise ArgumentValueError("X", problem)
    if X.dtype.kind not in "fiu":
        raise ArgumentTypeError("X", f"has dtype {X.dtype}: want real numbers")
    from dask.delayed import delayed

    model = copy.copy(quantizer)
    model.n_jobs = 1  # as many tasks as threads run at a time
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    known = shape_of(X)
    starts = None if known is None else np.cumsum((0, *known[0]))
    return X.map_blocks(
        _encode_block,
        model=delayed(model, pure=False),
        version=_core.__version__,
        starts=starts,
        dtype=np.uint8,
        chunks=(X.chunks[0], (M,)),
        meta=np.zeros((0, M), np.uint8),
    )


def _encode_block(
    block: Any, model: Quantizer, version: str, starts: Any = None, block_info: Any = None
) -> NDArray[np.uint8]:
    same_version(version)
    rows = steps.block_of(block)
    if starts is not None and block_info:  # an error names the row in the whole
        first = int(starts[block_info[0]["chunk-location"][0]])
        with np.errstate(over="ignore"):
            check_rows("X", rows.astype(np.float32, copy=False), np.arange(first, first + len(rows)))
    return model.encode(rows)


def _is_delayed(X: Any) -> bool:
    """Whether it is a delayed value, which seems to have every attribute."""
    from dask.delayed import Delayed

    return isinstance(X, Delayed)


def blocks_of(X: Any) -> list[Any] | None:
    """Return the delayed blocks of a Dask object; None for anything else."""
    if isinstance(X, (list, tuple)):
        return list(X) if X and all(map(_is_delayed, X)) else None
    if _is_delayed(X):
        return [X]
    if not hasattr(X, "to_delayed"):
        return None
    if hasattr(X, "rechunk"):
        if X.ndim != 2:
            raise ArgumentValueError("X", f"has shape {X.shape}: want (n, d)")
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed()))


def _client() -> Any:
    """Return the current client, if any."""
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None
