"""The .fvecs, .bvecs and .ivecs formats of the TEXMEX data sets (http://corpus-texmex.irisa.fr).

Each vector is its dimension d as a little-endian 32-bit integer, followed by d values:

    .fvecs   4 + 4·d bytes   32-bit floats
    .bvecs   4 + 1·d bytes   unsigned bytes
    .ivecs   4 + 4·d bytes   32-bit integers

So the file is a matrix with a fixed stride, and the vectors are a view of it that leaves out the first four
bytes of each row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["load_vecs"]

_VALUE: dict[str, np.dtype[Any]] = {
    ".fvecs": np.dtype("<f4"),
    ".bvecs": np.dtype("u1"),
    ".ivecs": np.dtype("<i4"),
}
_CHUNK = 1 << 20


def load_vecs(path: Path) -> NDArray[Any]:
    """Map a file as (n, d), without a copy.

    Every row's dimension is checked, which reads through the file once.

    Raises
    ------
    ValueError
        If the file is empty, its size is not a whole number of vectors, or the dimension of a row differs.
    """
    value = _VALUE[path.suffix.lower()]
    size = path.stat().st_size
    if size < 4:
        raise ValueError(f"{path}: no vectors in it, {size} bytes")
    d = int(np.fromfile(path, "<i4", count=1)[0])
    row = 4 + d * value.itemsize
    if d < 1 or row > size:
        raise ValueError(f"{path}: the first vector claims {d} dimensions, the file has {size} bytes")
    if size % row:
        raise ValueError(f"{path}: cut off, {size} bytes are not a whole number of {row}-byte vectors")
    raw = np.memmap(path, np.uint8, mode="r", shape=(size // row, row))
    for start in range(0, len(raw), _CHUNK):
        dims = np.ascontiguousarray(raw[start : start + _CHUNK, :4]).view("<i4")[:, 0]
        if wrong := np.flatnonzero(dims != d).tolist():
            bad = wrong[0]
            raise ValueError(f"{path}: vector {start + bad} claims {dims[bad]} dimensions, the ones before it have {d}")
    vectors: NDArray[Any] = raw[:, 4:].view(value)
    return vectors
