"""What `fit` takes beside arrays: blocks of vectors that lie elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from compcodes.data.many import Files
from compcodes.training.spread import Spread

__all__ = ["is_dask_array", "spread_of"]


def spread_of(X: Any, unit: bool, n_jobs: int | None) -> Spread | None:
    """Take what is in blocks: of Dask, or files; None for anything else, which is taken as an array."""
    if isinstance(X, Files):
        from compcodes.training.dask import spread

        return spread(X.pieces(), X.piece_sizes(), unit, n_jobs)
    if "dask" not in sys.modules:  # then nothing can be of it
        return None
    from compcodes.training.dask import blocks_of, shape_of, spread

    blocks = blocks_of(X)
    return None if blocks is None else spread(blocks, shape_of(X), unit, n_jobs)


def is_dask_array(X: Any) -> bool:
    """Whether it is an array of Dask."""
    return "dask" in sys.modules and hasattr(X, "map_blocks") and hasattr(X, "rechunk")
