"""What `fit` accepts besides arrays: blocks of vectors stored elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from compcodes.data.many import Files
from compcodes.training.spread import Spread

__all__ = ["is_dask_array", "spread_of"]


def spread_of(X: Any, unit: bool, n_jobs: int | None) -> Spread | None:
    """Return blocks of Dask, or files, as vectors to train on; None for anything else, which is treated as an array."""
    if isinstance(X, Files):
        from compcodes.training.dask import spread

        return spread(X.pieces(), X.piece_sizes(), unit, n_jobs)
    if "dask" not in sys.modules:  # then nothing can be of it
        return None
    from compcodes.training.dask import blocks_of, shape_of, spread

    blocks = blocks_of(X)
    return None if blocks is None else spread(blocks, shape_of(X), unit, n_jobs)


def is_dask_array(X: Any) -> bool:
    """Return whether it is a Dask array."""
    return "dask" in sys.modules and hasattr(X, "map_blocks") and hasattr(X, "rechunk")
