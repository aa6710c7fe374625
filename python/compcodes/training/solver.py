"""The linear systems of the update, solved with numpy, by tiles.

Numpy's own solver ignores symmetry in the decomposition and copies the matrix: tiles take half the memory, and five
sixths of the time (2,048 unknowns, one thread). A product of two tiles is too small for numpy's library to spread it
over threads of its own, which wait for each other by spinning and made the same work ten times as long on a busy
machine. Instead, tiles are spread over threads here, and since each is computed the same way on any of them, the result
depends neither on `n_jobs` nor on the library's settings. Also, numpy does not react to Ctrl-C; here it is checked
between tiles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes.errors import ArgumentValueError

__all__ = ["descend", "solve"]

Doubles: TypeAlias = NDArray[np.float64]

TILE = 64
"""Rows and columns of a tile: OpenBLAS uses one thread for products of up to 64³ multiplications."""
TASKS = 8
"""Tasks that the rows of tiles are distributed to."""
COLUMNS = 32
"""Columns of the right side that a task solves for."""
STEPS = 8
"""Steps of conjugate gradients: they go as far from the start as the next encoding can use."""

T = TypeVar("T")


class _Threads:
    """Threads that call a function for each of several things.

    numpy holds no lock while it multiplies, and the waiting thread hears Ctrl-C; what has not begun by then is dropped.
    """

    def __init__(self, n_jobs: int | None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        count = cores if n_jobs is None else n_jobs if n_jobs > 0 else max(cores + 1 + n_jobs, 1)
        self._pool = ThreadPoolExecutor(min(count, 4 * cores), thread_name_prefix="compcodes-solve")
        self.stopped = False
        """Whether what is under way is of no use any more."""

    def __enter__(self) -> _Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def each(self, work: Callable[[T], None], things: Iterable[T]) -> None:
        """Call `work` for each, and return when all are done."""
        for done in [self._pool.submit(work, thing) for thing in things]:
            done.result()


def solve(A: Doubles, b: Doubles, previous: ArrayLike, ridge: float, n_jobs: int | None = None) -> Doubles:
    """Solve A D = b for the codebooks nearest to the previous ones; overwrites `A`.

    A is always singular: shifting one codebook by a vector and another by its negative changes no sum of
    codewords, so its rank is at most M·K − M + 1, and less where codewords are unused. The proximal term
    λ‖D − D_previous‖² makes the solution unique; a ridge toward zero would instead shrink rarely used codewords,
    and with them the longest vectors.

    Parameters
    ----------
    A : (p, p) float64
    b : (p, d) float64
        As `normal_equations` returns them.
    previous : (p, d)
        The present codebooks, one codeword per row.
    ridge : float
        λ, as a fraction of the mean diagonal entry of A, which is the mean use of a codeword.
    n_jobs : int, optional
        Threads, all cores by default.

    Returns
    -------
    (p, d) float64

    Raises
    ------
    ValueError
        A is not positive definite in float64 with such a small ridge.
    """
    p, d = b.shape
    previous = np.asarray(previous, dtype=np.float64)
    shift = ridge * (np.einsum("ii->i", A).mean() or 1.0)
    padding = -p % TILE
    if padding:
        A = np.pad(A, ((0, padding), (0, padding)))
        np.einsum("ii->i", A)[p:] = 1
    tiles = A.reshape(-1, TILE, len(A) // TILE, TILE).transpose(0, 2, 1, 3)
    right, start = (np.pad(side, ((0, padding), (0, 0))).reshape(-1, TILE, d) for side in (b, previous))
    columns = [slice(first, first + COLUMNS) for first in range(0, d, COLUMNS)]
    with _Threads(n_jobs) as threads:

        def begin(i: int) -> None:
            for own in columns:  # solving for the change loses fewer digits than solving for D
                right[i, :, own] -= np.matmul(tiles[i], start[..., own]).sum(axis=0)

        threads.each(begin, range(len(tiles)))
        np.einsum("ii->i", A)[:p] += shift
        try:
            inverses = _decompose(tiles, threads)
        except np.linalg.LinAlgError:
            raise ArgumentValueError(
                "ridge", f"is {ridge}: too small for the normal equations, want a larger one"
            ) from None
        threads.each(lambda own: _substitute(tiles, inverses, right[..., own], threads), columns)
    solution: Doubles = right.reshape(-1, d)[:p] + previous
    return solution


def _decompose(tiles: Doubles, threads: _Threads) -> list[Doubles]:
    """Replace the tiles below the diagonal by those of L with L Lᵀ = A; return the inverses of those on it.

    Products with inverses replace triangular solves, which numpy lacks.
    """
    inverses = []
    for k in range(len(tiles)):
        inverse = np.linalg.inv(np.linalg.cholesky(tiles[k, k]))
        inverses.append(inverse)
        panel = np.matmul(tiles[k + 1 :, k], inverse.T)
        tiles[k + 1 :, k] = panel
        across = panel.transpose(0, 2, 1)

        def subtract(first: int, k: int = k, panel: Doubles = panel, across: Doubles = across) -> None:
            for i in range(first, len(panel), TASKS):
                tiles[k + 1 + i, k + 1 : k + 2 + i] -= np.matmul(panel[i], across[: i + 1])

        threads.each(subtract, range(min(TASKS, len(panel))))
    return inverses


def _substitute(tiles: Doubles, inverses: list[Doubles], right: Doubles, threads: _Threads) -> None:
    """Replace the right side, tiles of rows, by the solution of L Lᵀ D = right."""
    for k, inverse in enumerate(inverses):
        if threads.stopped:
            return
        right[k] = inverse @ right[k]
        right[k + 1 :] -= np.matmul(tiles[k + 1 :, k], right[k])
    for k in reversed(range(len(inverses))):
        if threads.stopped:
            return
        right[k] = inverses[k].T @ right[k]
        right[:k] -= np.matmul(tiles[k, :k].transpose(0, 2, 1), right[k])


def descend(
    apply: Callable[[Doubles], Doubles], b: Doubles, start: Doubles, diagonal: Doubles, ridge: float
) -> Doubles:
    """Go from `start` toward the solution of A D = b, by a few steps of conjugate gradients.

    The quadratic form never rises, except by rounding.

    Parameters
    ----------
    apply : callable
        (p, d) → (p, d): P → A P. A couples the columns of D, and is never assembled.
    b, start : (p, d) float64
    diagonal : (p,) float64
        The approximate diagonal of A, which scales the steps.
    ridge : float
        λ of a proximal term λ‖D − D_start‖².

    Returns
    -------
    (p, d) float64
    """
    scale = (diagonal + ridge)[:, None]
    residual = b - apply(start)
    change = np.zeros_like(start)
    direction = residual / scale
    product = float(np.vdot(residual, direction))
    for _ in range(STEPS):
        if product <= 0:
            break
        image = apply(direction)
        image += ridge * direction
        step = product / float(np.vdot(direction, image))
        change += step * direction
        image *= step
        residual -= image
        scaled = np.divide(residual, scale, out=image)
        before, product = product, float(np.vdot(residual, scaled))
        direction *= product / before
        direction += scaled
    change += start
    return change
