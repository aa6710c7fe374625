"""Inverted files of faiss: centroids, and the codes, ids and lists of vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.interop._faiss_advice import METRICS, Refused

__all__ = ["Lists", "inverted", "unblocked"]

_MOST = 1 << 20
"""The most lists that a model can have."""

_ORDER = np.arange(16).reshape(2, 8).T.ravel().argsort()
"""The byte of each of 16 vectors in a block of FastScan codes: they are in the order 0, 8, 1, 9, …"""


class Lists(NamedTuple):
    """How an inverted file divides its vectors."""

    centroids: NDArray[np.float32]  # (n_lists, d)
    of_each: NDArray[np.int64]  # (n,), the list of each vector
    by_residual: bool  # whether codes approximate residuals
    n_probe: int  # how many lists its searches cover
    metric: str | None  # by which faiss chooses the lists of queries


def inverted(index: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None, Lists]:
    """Return rows of bit strings (n, code size), ids and lists of an `IndexIVF`, in the order of ids.

    Ids are None if they are 0, 1, 2, …: rows of vectors that were added without ids are then in the order of adding.
    """
    if index.nlist > _MOST:
        raise Refused(ArgumentValueError, f"it has {index.nlist:,} lists: want at most {_MOST:,}")
    centroids, invlists = _centroids(index), index.invlists
    sizes = np.array([invlists.list_size(i) for i in range(index.nlist)], dtype=np.int64)
    codes = np.empty((sizes.sum(), index.code_size), dtype=np.uint8)
    ids = np.empty(len(codes), dtype=np.int64)
    ends = np.cumsum(sizes)
    for i in np.flatnonzero(sizes).tolist():
        own = slice(ends[i] - sizes[i], ends[i])
        codes[own], ids[own] = _codes(index, i), _ids(invlists, i)
    lists = np.repeat(np.arange(len(sizes)), sizes)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    numbered = bool((ids == np.arange(len(ids))).all())
    n_probe = min(max(int(index.nprobe), 1), int(index.nlist))
    metric = METRICS.get(index.quantizer.metric_type)
    divided = Lists(centroids, lists[order], bool(index.by_residual), n_probe, metric)
    return codes[order], None if numbered else ids, divided


def unblocked(blocks: NDArray[np.uint8], index: Any, n: int) -> NDArray[np.uint8]:
    """Return rows of bit strings (n, code size) of FastScan codes, which are interleaved in blocks of `index.bbs`.

    For each pair of codebooks in turn, a block has 32 bytes for every 32 vectors: 16 with the codes of the first
    codebook, 16 with those of the second. A byte holds the codes of a vector and of the one 16 places after it.
    faiss has a `CodePacker` for this, but it is wrong for blocks of more than 32 vectors.
    """
    n_blocks, n_pairs, n_32 = -(-n // index.bbs), index.M2 // 2, index.bbs // 32
    given = blocks[: n_blocks * n_pairs * index.bbs].reshape(n_blocks, n_pairs, n_32, 2, 16)
    rows = np.empty((n_blocks, n_32, 2, 16, n_pairs), dtype=np.uint8)
    for half, shift in enumerate((0, 4)):
        codes = np.moveaxis(given >> shift & 15, 1, -1)[..., _ORDER, :]
        rows[:, :, half] = codes[:, :, 0] | codes[:, :, 1] << 4
    return rows.reshape(-1, n_pairs)[:n, : -(-index.M // 2)]


def _centroids(index: Any) -> NDArray[np.float32]:
    import faiss

    quantizer = faiss.downcast_index(index.quantizer)
    try:
        quantizer.reconstruct(0)  # for many kinds without an implementation, `reconstruct_n` ends the process
        centroids: NDArray[np.float32] = quantizer.reconstruct_n(0, index.nlist)
    except RuntimeError:
        raise Refused(
            ArgumentTypeError, f"its lists are those of a {type(quantizer).__name__}, without centroids"
        ) from None
    return centroids


def _codes(index: Any, i: int) -> NDArray[np.uint8]:
    """Return a copy of the rows of list i."""
    import faiss

    invlists = index.invlists
    n, pointer = invlists.list_size(i), invlists.get_codes(i)
    is_fast = isinstance(index, faiss.IndexIVFFastScan)
    n_bytes = -(-n // index.bbs) * index.bbs * index.M2 // 2 if is_fast else n * invlists.code_size
    try:
        kept: NDArray[np.uint8] = faiss.rev_swig_ptr(pointer, n_bytes)
        return unblocked(kept, index, n) if is_fast else kept.reshape(n, -1).copy()
    finally:
        invlists.release_codes(i, pointer)


def _ids(invlists: Any, i: int) -> NDArray[np.int64]:
    """Return a copy of the ids in list i."""
    import faiss

    pointer = invlists.get_ids(i)
    try:
        return faiss.rev_swig_ptr(pointer, invlists.list_size(i)).astype(np.int64, copy=True)
    finally:
        invlists.release_ids(i, pointer)
