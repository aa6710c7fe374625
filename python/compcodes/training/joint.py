"""Codebooks of all groups at once: the error along x is that of the whole vector, and couples the groups.

Codebooks trained for the squared error give approximations that are too short, by a ratio that differs from vector to
vector. Updating one group after the other hardly corrects this: what a group adds along x is too long for the next
ones. The joint update does, in a few steps of conjugate gradients. Its matrix is never assembled: B Bᵀ P is the sum of
what P decodes to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.training.shards import Doubles, Floats

__all__ = ["Joint"]

STEPS = 8
"""Steps of conjugate gradients."""
NUMBERS = 1 << 21
"""Numbers of vectors that are rotated at once."""


class Part(Protocol):
    def __call__(self, rows: slice, *, rest: bool) -> Floats: ...


Blocks = list[Doubles]
"""Numbers for the codewords of each group, (M_g·K, d_g)."""


@dataclass(frozen=True)
class Joint:
    """The loss Σ w (‖e‖² + β⟨e, x⟩²/‖x‖²) as a function of the codebooks of all groups, for the present codes.

    `part` returns rows of the vectors in the groups' dimensions, (r, Σ d_g), or what codewords approximate of them.
    """

    part: Part
    norms: Doubles
    codes: list[NDArray[np.uint8]]
    columns: list[slice]
    weights: Doubles | None
    beta: float
    n_jobs: int | None

    def update(self, words: list[Floats], pulls: list[float], ridge: float) -> list[Floats]:
        """Return better codebooks (M_g, K, d_g) of each group.

        `pulls` are the weights of the pull of codewords to the mean of their codebook, `ridge` that of a proximal term,
        as a fraction of the mean use of a codeword.
        """
        shapes = [own.shape for own in words]
        # Powers of two, so that vectors and weights of any magnitude fit float32 and nothing is rounded.
        size = 2.0 ** np.floor(np.log2(max(float(np.abs(own).max()) for own in words) or 1.0))
        unit = 1.0 if self.weights is None else 2.0 ** np.floor(np.log2(self.weights.mean() or 1.0))
        start: Blocks = [own.reshape(-1, own.shape[2]).astype(np.float64) / size for own in words]
        uses = [self._uses(group, shape[1]) / unit for group, shape in enumerate(shapes)]
        nearby = [ridge * (own.mean() or 1.0) for own in uses]
        pulls = [pull / unit for pull in pulls]
        along = self.beta / sum(shape[2] for shape in shapes)  # the term along x adds approximately that
        sizes = zip(uses, pulls, nearby, strict=True)
        scales = [(own * (1 + along) + pull + near)[:, None] for own, pull, near in sizes]
        residual = self._gradient(start, shapes, size, unit, of_vectors=True)
        for group, (M, K, d) in enumerate(shapes):
            if pulls[group] > 0:
                own, share = start[group].reshape(M, K, d), uses[group].reshape(M, K, 1)
                means = (own * share).sum(axis=1, keepdims=True) / (share.sum(axis=1, keepdims=True) + 1e-300)
                residual[group] += pulls[group] * (means - own).reshape(-1, d)
        change = [np.zeros_like(own) for own in start]
        direction = [own / scale for own, scale in zip(residual, scales, strict=True)]
        product = _product(residual, direction)
        for _ in range(STEPS):
            if not 0 < product < np.inf:
                break
            image = self._gradient(direction, shapes, size, unit, of_vectors=False)
            for group, own in enumerate(direction):
                image[group] += (nearby[group] + pulls[group]) * own
            step = product / _product(direction, image)
            scaled = []
            for group, own in enumerate(direction):
                change[group] += step * own
                residual[group] -= step * image[group]
                scaled.append(residual[group] / scales[group])
            before, product = product, _product(residual, scaled)
            direction = [new + product / before * old for new, old in zip(scaled, direction, strict=True)]
        return [
            np.ascontiguousarray(((own + by) * size).astype(np.float32).reshape(shape))
            for own, by, shape in zip(start, change, shapes, strict=True)
        ]

    def _gradient(self, blocks: Blocks, shapes: list[Any], size: float, unit: float, *, of_vectors: bool) -> Blocks:
        """Return B F for F = w (e + β x ⟨e, x⟩/‖x‖²): e is what `blocks` decode to, or the residual from it."""
        # A direction can be far smaller than the codebooks.
        largest = max(float(np.abs(own).max()) for own in blocks)
        own_size = 1.0 if of_vectors or not largest > 0 else 2.0 ** np.floor(np.log2(largest))
        books = [
            np.ascontiguousarray((own / own_size).astype(np.float32).reshape(shape))
            for own, shape in zip(blocks, shapes, strict=True)
        ]
        sums = [np.zeros_like(own) for own in blocks]
        for rows in self._chunks():
            X = self.part(rows, rest=False)
            decoded = np.empty_like(X)
            for columns, own, codes in zip(self.columns, books, self.codes, strict=True):
                decoded[:, columns] = _core.decode(own, codes[rows], self.n_jobs)
            errors = self.part(rows, rest=True) / np.float32(size) - decoded if of_vectors else decoded
            norms = self.norms[rows]
            # In float64: the inverse of a length can be beyond float32.
            inverse = np.divide(1, norms, out=np.zeros(len(X)), where=norms > 0)
            units = (X * inverse[:, None]).astype(np.float32)
            shares = np.einsum("ij,ij->i", errors, units, dtype=np.float64)
            errors = errors + units * (self.beta * shares)[:, None].astype(np.float32)
            if self.weights is not None:
                errors *= (self.weights[rows] / unit)[:, None].astype(np.float32)
            for group, columns in enumerate(self.columns):
                own, codes = np.ascontiguousarray(errors[:, columns]), self.codes[group][rows]
                sums[group] += _core.sums(own, codes, shapes[group][1], self.n_jobs)
        return [own_size * own for own in sums]

    def _chunks(self) -> Iterator[slice]:
        rows = max(NUMBERS // self.columns[-1].stop, 1)
        for first in range(0, len(self.norms), rows):
            yield slice(first, first + rows)

    def _uses(self, group: int, n_codewords: int) -> Doubles:
        """Return the uses of each codeword of a group, by weight."""
        codes = self.codes[group]
        return np.concatenate([np.bincount(own, self.weights, n_codewords) for own in codes.T]).astype(np.float64)


def _product(a: Blocks, b: Blocks) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(a, b, strict=True)))
