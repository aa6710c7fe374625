"""The linear systems of the update, solved with numpy, by blocks.

By blocks for three reasons: numpy's own solver decomposes without regard to symmetry and copies the matrix, so this
takes half the time and half the memory; blocks are spread over threads, whatever numpy's library does; and numpy
does not hear Ctrl-C, which is heard between them. All blocks are of one size, so the result does not depend on threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["descend", "solve"]

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]

BLOCK = 256
"""Rows of a block: products of such blocks are as fast as of larger ones, and take milliseconds."""
STEPS = 8
"""Steps of conjugate gradients: they go as far from the start as the next encoding can use."""


Each: TypeAlias = Callable[[Callable[[slice], None], Iterable[slice]], None]


@contextmanager
def _threads(n_jobs: int | None) -> Iterator[Each]:
    """Yield what calls a function for each of some blocks, on threads, and returns when all are done.

    numpy holds no lock while it multiplies, and who waits hears Ctrl-C; what has not begun by then is dropped.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = cores if n_jobs is None else n_jobs if n_jobs > 0 else max(cores + 1 + n_jobs, 1)
    with ThreadPoolExecutor(min(count, 4 * cores), thread_name_prefix="compcodes-solve") as pool:

        def each(work: Callable[[slice], None], blocks: Iterable[slice]) -> None:
            for done in [pool.submit(work, block) for block in blocks]:
                done.result()

        try:
            yield each
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def solve(A: Doubles, b: Doubles, previous: ArrayLike, ridge: float, n_jobs: int | None = None) -> Doubles:
    """Solve A D = b for the codebooks nearest the previous ones; `A` is overwritten.

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
        The codebooks at hand, one codeword a row.
    ridge : float
        λ, as a share of the mean diagonal entry of A: of the mean use of a codeword.
    n_jobs : int, optional
        Threads, all cores by default.

    Returns
    -------
    (p, d) float64

    Raises
    ------
    ValueError
        A with so small a ridge is not positive definite in float64.
    """
    previous = np.asarray(previous, dtype=np.float64)
    with _threads(n_jobs) as each:
        change = np.empty_like(b)  # solving for the change loses fewer digits than solving for D

        def start(rows: slice) -> None:
            change[rows] = b[rows] - A[rows] @ previous

        each(start, _blocks(len(A)))
        diagonal = np.einsum("ii->i", A)
        diagonal += ridge * (diagonal.mean() or 1.0)
        try:
            _solve_in_place(A, change, each)
        except np.linalg.LinAlgError:
            raise ValueError(f"ridge is {ridge}: too small for the normal equations, want a larger one") from None
    change += previous
    return change


def _solve_in_place(A: Doubles, B: Doubles, each: Each) -> None:
    """Solve A X = B, symmetric and positive definite; `B` becomes X, the lower triangle of `A` its Cholesky factor.

    The blocks on the diagonal keep what they were, but their inverse factors are kept instead: products with them are
    what numpy has instead of triangular solves.
    """
    blocks = _blocks(len(A))
    inverses = []
    for k, at in enumerate(blocks):
        inverse = np.linalg.inv(np.linalg.cholesky(A[at, at]))
        inverses.append(inverse)
        B[at] = inverse @ B[at]

        def panel(rows: slice, at: slice = at, inverse: Doubles = inverse) -> None:
            A[rows, at] = A[rows, at] @ inverse.T

        def subtract(rows: slice, at: slice = at) -> None:
            left = slice(at.stop, rows.stop)
            A[rows, left] -= A[rows, at] @ A[left, at].T
            B[rows] -= A[rows, at] @ B[at]

        below = blocks[:k:-1]  # the longest first
        each(panel, below)
        each(subtract, below)
    for k in reversed(range(len(blocks))):
        at = blocks[k]
        B[at] = inverses[k].T @ B[at]

        def back(rows: slice, at: slice = at) -> None:
            B[rows] -= A[at, rows].T @ B[at]

        each(back, blocks[:k])


def descend(
    A: Floats,
    b: Doubles,
    start: Doubles,
    diagonal: Doubles,
    ridge: float,
    extra: Callable[[Doubles], Doubles],
    n_jobs: int | None = None,
) -> Doubles:
    """Go from `start` toward the solution of (A + E) D = b, by a few steps of conjugate gradients.

    E is only ever applied, by `extra`, and ties the columns of D together. Never does the quadratic form rise but by
    rounding.

    Parameters
    ----------
    A : (p, p) float32
        The dense product takes most of the time; in float32 it takes half, and its error is far below that of stopping
        early.
    b, start : (p, d) float64
    diagonal : (p,) float64
        About that of A + E, which steps are measured by.
    ridge : float
        λ of a proximal term λ‖D − D_start‖².
    extra : callable
        (p, d) → (p, d).
    n_jobs : int, optional
        Threads, all cores by default.

    Returns
    -------
    (p, d) float64
    """
    scale = (diagonal + ridge)[:, None]
    with _threads(n_jobs) as each:

        def apply(P: Doubles) -> Doubles:
            single, out = P.astype(np.float32), extra(P)

            def product(rows: slice) -> None:
                out[rows] += A[rows] @ single

            each(product, _blocks(len(A)))
            return out

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
            residual -= step * image
            scaled = residual / scale
            before, product = product, float(np.vdot(residual, scaled))
            direction = scaled + product / before * direction
    change += start
    return change


def _blocks(rows: int) -> list[slice]:
    return [slice(first, min(first + BLOCK, rows)) for first in range(0, rows, BLOCK)]
