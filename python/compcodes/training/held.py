"""What a worker does with the vectors that it holds: the steps of `Local`, array by array.

This module knows nothing about clusters. A step takes `Held` vectors, and their codes if it needs any, and returns
codes, which stay where they are, or sums and small samples, which are sent. An encoder chooses a code by the vector and
the seed alone, so codes equal those of `Local`, whatever the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import as_vectors
from compcodes.cluster import same_version, share_of_threads
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.training.encoders import Pass
from compcodes.training.losses import Objective
from compcodes.training.packing import packed, smallest
from compcodes.training.shards import Base, Doubles, Floats, Local, Sums, Worst
from compcodes.training.unit import unit_rows

__all__ = ["Held", "hold"]

Bytes: TypeAlias = NDArray[np.uint8]
Improved: TypeAlias = tuple[Bytes, float]
Kept: TypeAlias = Bytes | Improved
"""Codes (n, M), alone or with the Σ w·loss that `improve` found."""

SMALL = 1 << 25
"""Arrays below this many bytes are concatenated: each array costs sums of its own."""


CHECKED = 1 << 14
"""Rows that are checked together."""


@dataclass(frozen=True)
class Held:
    """Vectors in some arrays (n_i, d), one after the other, and a weight for each of them."""

    blocks: tuple[NDArray[Any], ...]
    dim: int
    weights: Doubles | None = None
    unit: bool = False
    """Whether rows count as scaled to length 1."""
    n_jobs: int | None = None
    base: Base | None = None
    """For vectors in lists: the centroids, and the list of each row as int32."""

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def parts(self) -> Iterator[tuple[slice, Local]]:
        """Yield the rows of each array, and the array as training sees it."""
        share, first = share_of_threads(), 0
        n_jobs = self.n_jobs if share is None else share
        for block in self.blocks:
            rows = slice(first, first + len(block))
            weights = None if self.weights is None else self.weights[rows]
            base = None if self.base is None else replace(self.base, places=self.base.places[rows].astype(np.int64))
            yield rows, Local(unit_rows(block) if self.unit else block, weights, n_jobs, base)
            first += len(block)


def hold(version: str, unit: bool, n_jobs: int | None, *blocks: Any) -> Held:
    """Hold arrays of any real type, also without rows, or lists of vectors in a column."""
    same_version(version)
    arrays = [block_of(block) for block in blocks]
    dims = {array.shape[1] for array in arrays if array.shape[1]}
    if len(dims) > 1:
        raise ArgumentValueError(
            "X", f"has blocks of {' and '.join(map(str, sorted(dims)))} dimensions: want one number"
        )
    return Held(_together([array for array in arrays if len(array)]), dims.pop() if dims else 0, None, unit, n_jobs)


def block_of(block: Any) -> NDArray[Any]:
    """Return one block: an array, the result of a loader, or a column of vectors."""
    block = block.load() if hasattr(block, "load") and not isinstance(block, np.ndarray) else block
    values = getattr(block, "to_numpy", None)
    if np.ma.isMaskedArray(block) and np.ma.is_masked(block):
        raise ArgumentTypeError("X", "is a masked array: fill or drop what is masked")
    array = values() if callable(values) else np.asarray(block)
    if array.ndim == 1 and len(array) and isinstance(array[0], str):
        raise ArgumentTypeError(
            "X",
            "is a column of texts: where the file holds lists, read it with "
            'dask.config.set({"dataframe.convert-string": False})',
        )
    if array.dtype == object and array.ndim == 1:
        if not len(array):
            return np.zeros((0, 0), np.float32)
        try:
            array = np.stack([np.asarray(row) for row in array])
        except ValueError as error:
            raise ArgumentValueError("X", f"has vectors of different lengths in a column ({error})") from None
    array = as_vectors(array, "X")
    if not array.dtype.isnative or not array.flags.aligned:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _together(arrays: list[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Copy small neighbours of one type into one array."""
    runs: list[list[NDArray[Any]]] = []
    for array in arrays:
        joins = runs and runs[-1][0].dtype == array.dtype and sum(a.nbytes for a in runs[-1]) + array.nbytes <= SMALL
        if joins:
            runs[-1].append(array)
        else:
            runs.append([array])
    return tuple(run[0] if len(run) == 1 else np.concatenate(run) for run in runs)


def joined(*helds: Held) -> Held:
    """Concatenate several."""
    weighted = [held.weights for held in helds if held.weights is not None]
    weights = np.concatenate(weighted) if len(weighted) == len(helds) and weighted else None
    blocks = _together([block for held in helds for block in held.blocks])
    return replace(helds[0], blocks=blocks, dim=max(held.dim for held in helds), weights=weights)


def norm_sums(held: Held) -> Doubles:
    """Return Σ ‖x‖ and Σ ‖x‖²."""
    lengths = norms(held, None)
    return np.array([lengths.sum(), (lengths * lengths).sum()])


def assign(held: Held, centroids: Floats, eta: float) -> NDArray[np.int32]:
    """Return the list of each row."""
    made = _core.Lists(centroids, eta)
    found = [made.assign(local.X, local.n_jobs)[0].astype(np.int32) for _, local in held.parts()]
    return np.concatenate(found) if found else np.zeros(0, np.int32)


def list_sizes(places: NDArray[np.int32], n_lists: int) -> NDArray[np.int64]:
    """Count the rows of each list."""
    return np.bincount(places, minlength=n_lists)


def places_at(places: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the lists of some rows."""
    return places[rows]


def placed(held: Held, centroids: Floats, eta: float, *places: NDArray[np.int32]) -> Held:
    """Return the same vectors with the list of each row; training then uses the residuals from the centroids."""
    return replace(held, base=Base(centroids, np.concatenate(places), eta))


def size(held: Held) -> tuple[int, int]:
    """Return n and d."""
    return len(held), held.dim


def weighed(held: Held, weights: Doubles) -> Held:
    """Return the same vectors with weights."""
    return replace(held, weights=weights)


def first_wrong(held: Held) -> int:
    """Return the first row that is not finite in float32; −1 if there is none."""
    first = 0
    for block in held.blocks:
        for start in range(0, len(block), CHECKED):
            with np.errstate(over="ignore"):
                rows = block[start : start + CHECKED].astype(np.float32, copy=False)
            if not np.isfinite(rows).all():
                return first + start + int(np.isfinite(rows).all(axis=1).argmin())
        first += len(block)
    return -1


def norms(held: Held, directions: Floats | None) -> Doubles:
    """Return ‖x‖ of each row, stretched along `directions`."""
    found = [_core.norms(local.X, directions, local.n_jobs) for _, local in held.parts()]
    return np.concatenate(found) if found else np.zeros(0)


def nearest(held: Held, queries: Floats, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return scores and rows of the k largest inner products with each query, (nq, ≤ k)."""
    scores, ids = [], []
    for rows, local in held.parts():
        found = _core.exact_search(local.X, queries, min(k, len(local.X)), n_jobs=local.n_jobs)
        scores.append(found[0])
        ids.append(found[1] + rows.start)
    if not scores:
        return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    return best(np.concatenate(scores, axis=1), np.concatenate(ids, axis=1), k)


def best(scores: Floats, ids: NDArray[np.int64], k: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the k best of each row: the higher score comes first, ties in the given order."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def sample(held: Held, rows: NDArray[np.int64]) -> Floats:
    """Copy rows at ascending positions, as float32."""
    taken = [local.sample(own) for own, local in _among(held, rows)]
    return np.concatenate(taken) if taken else np.zeros((0, held.dim), np.float32)


def take(held: Held, rows: NDArray[np.int64], weights: Doubles | None) -> Held:
    """Return some rows, at ascending positions, in their stored type, with weights of their own."""
    taken = [np.asarray(block[own]) for own, block in _blocks_among(held, rows)]
    return replace(held, blocks=_together(taken), weights=weights, base=held.base and held.base.of(rows))


def _blocks_among(held: Held, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    first = 0
    for block in held.blocks:
        own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(block))] - first
        if len(own):
            yield own, block
        first += len(block)


def _among(held: Held, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Local]]:
    for part, local in held.parts():
        own = rows[np.searchsorted(rows, part.start) : np.searchsorted(rows, part.stop)] - part.start
        if len(own):
            yield own, local


def codes_of(codes: Kept) -> Bytes:
    """Return codes without the loss stored with them."""
    return codes[0] if isinstance(codes, tuple) else codes


def loss_of(improved: Improved) -> float:
    """Return the loss stored with codes."""
    return improved[1]


def take_codes(codes: Kept, rows: NDArray[np.int64]) -> Bytes:
    """Return the codes of some rows."""
    taken: Bytes = codes_of(codes)[rows]
    return taken


def put(codes: Kept, rows: NDArray[np.int64], own: Kept) -> Bytes:
    """Return codes in which those of some rows are replaced."""
    changed: Bytes = codes_of(codes).copy()  # other tasks may have to start again from these, so they stay unchanged
    changed[rows] = codes_of(own)
    return changed


def encode(held: Held, coder: Pass) -> Bytes:
    """Choose codes."""
    codes: Bytes = np.zeros((len(held), len(coder.codebooks)), np.uint8)
    encoder = None
    for rows, local in held.parts():
        encoder = encoder or coder.build(local.n_jobs)
        codes[rows] = encoder.encode(local.target, local.n_jobs)
    return codes


def renewed(held: Held, coder: Pass, codes: Kept) -> Bytes:
    """Return the better of the present codes and new ones, row by row."""
    kept: Bytes = codes_of(codes).copy()
    for rows, local in held.parts():
        kept[rows] = local.renewed(coder, kept[rows], None)
    return kept


def improve(held: Held, coder: Pass, codes: Kept) -> Improved:
    """Return improved codes where possible, and Σ w·loss."""
    kept, total, encoder = codes_of(codes).copy(), 0.0, None
    for rows, local in held.parts():
        encoder = encoder or coder.build(local.n_jobs)
        kept[rows], _, errors = encoder.improve(local.target, kept[rows], local.n_jobs)
        total += local.total(errors)
    return kept, total


def loss(held: Held, objective: Objective, codebooks: Floats, codes: Kept) -> float:
    """Sum up w·loss."""
    kept = codes_of(codes)
    return sum(local.loss(objective, codebooks, kept[rows]) for rows, local in held.parts())


def equations(held: Held, codes: Kept, n_codewords: int) -> tuple[NDArray[Any], Doubles]:
    """Sum up both sides of the update's linear system, the left one `packed`."""
    kept, sums = codes_of(codes), None
    for rows, local in held.parts():
        own = local.equations(kept[rows], n_codewords)
        if sums is None:
            sums = own
        else:
            sums[0].__iadd__(own[0])
            sums[1].__iadd__(own[1])
    if sums is None:
        sums = nothing(kept.shape[1] * n_codewords, held.dim)
    A, b = sums
    return packed(A, n_codewords, counts=held.weights is None), b


def added(*sums: Any) -> Any:
    """Add up arrays, or pairs of them: in float64, which holds counts exactly."""
    if isinstance(sums[0], tuple):
        return tuple(added(*arrays) for arrays in zip(*sums, strict=True))
    total = sums[0].astype(np.float64)
    for one in sums[1:]:
        total += one
    return smallest(total) if all(one.dtype.kind == "u" for one in sums) else total


def nothing(unknowns: int, dim: int) -> Sums:
    """Return the sums over no rows."""
    return np.zeros((unknowns, unknowns)), np.zeros((unknowns, dim))


def sides(held: Held, codes: Kept, n_codewords: int, shared: bool, directions: Floats | None) -> Sums:
    """Sum up the diagonal and the right side of the update's linear system."""
    kept, total = codes_of(codes), None
    for rows, local in held.parts():
        own = local.sides(kept[rows], n_codewords, shared, directions)
        total = own if total is None else (total[0] + own[0], total[1] + own[1])
    unknowns = n_codewords if shared else kept.shape[1] * n_codewords
    return (np.zeros(unknowns), np.zeros((unknowns, held.dim))) if total is None else total


def apply(held: Held, codes: Kept, n_codewords: int, P: Doubles, extra: float, directions: Floats | None) -> Doubles:
    """Sum up A P for the inner-product loss."""
    kept, image = codes_of(codes), np.zeros_like(P)
    for rows, local in held.parts():
        image += local.apply(kept[rows], n_codewords, P, extra, directions)
    return image


def uses(held: Held, codes: Kept, n_codewords: int, selection: str) -> NDArray[np.uint64]:
    """Count the rows of any weight that use each codeword."""
    return _core.uses(codes_of(codes), n_codewords, selection, held.weights)


def worst(held: Held, objective: Objective, codebooks: Floats, codes: Kept, count: int) -> Worst:
    """Return errors, vectors and codes of the `count` rows of any weight with the largest losses."""
    kept = codes_of(codes)
    return merged_worst(
        [local.worst(objective, codebooks, kept[rows], count) for rows, local in held.parts()],
        count,
        (held.dim, kept.shape[1]),
    )


def merged_worst(found: list[Worst], count: int, shape: tuple[int, int]) -> Worst:
    """Return the worst of all: the largest error first, ties to the lower row."""
    if not found:
        return np.zeros(0), np.zeros((0, shape[0]), np.float32), np.zeros((0, shape[1]), np.uint8)
    errors, vectors, codes = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    order = np.argsort(-errors, kind="stable")[:count]
    return errors[order], vectors[order], codes[order]
