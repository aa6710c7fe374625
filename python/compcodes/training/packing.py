"""The left side of the update's linear system in the form in which it is sent: without redundant entries.

How often two codewords are used together does not depend on their order, and two of one codebook never are. So the
blocks (K, K) of pairs of codebooks i < j are sufficient, together with the uses of each codeword; and counts are small
numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["packed", "smallest", "unpacked"]


def packed(A: NDArray[np.float64], n_codewords: int, counts: bool) -> NDArray[Any]:
    """Return the diagonal of A (M·K, M·K) and its blocks above it, M·K + M(M − 1)/2 · K² numbers.

    `counts` are integers, and sent as the smallest type that holds them.
    """
    K, M = n_codewords, len(A) // n_codewords
    numbers = np.empty(len(A) + M * (M - 1) // 2 * K * K)
    numbers[: len(A)] = np.einsum("ii->i", A)
    for own, rows, columns in _blocks(M, K):
        numbers[own].reshape(K, K)[:] = A[rows, columns]
    return smallest(numbers) if counts else numbers


def unpacked(numbers: NDArray[Any], n_codebooks: int, n_codewords: int) -> NDArray[np.float64]:
    """Return A (M·K, M·K) from the result of `packed`, or the sum of several."""
    K, M = n_codewords, n_codebooks
    A = np.zeros((M * K, M * K))
    np.einsum("ii->i", A)[:] = numbers[: M * K]
    for own, rows, columns in _blocks(M, K):
        block = numbers[own].reshape(K, K)
        A[rows, columns] = block
        A[columns, rows] = block.T
    return A


def smallest(counts: NDArray[np.float64]) -> NDArray[Any]:
    """Return integers as the smallest unsigned type that holds them."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _blocks(M: int, K: int) -> Iterator[tuple[slice, slice, slice]]:
    """Return where the block of each pair of codebooks is in what is sent, and its rows and columns in A."""
    first = M * K
    for i, j in itertools.combinations(range(M), 2):
        yield slice(first, first + K * K), slice(i * K, (i + 1) * K), slice(j * K, (j + 1) * K)
        first += K * K
