"""Memory maps that are read once, from beginning to end."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

__all__ = ["release"]


def release(array: Any) -> bool:
    """If `array` is a read-only memory map, or a view of one, drop its pages from this process; return whether it is.

    Pages that were read count as memory of the process until the system runs short of it: that looks like a database
    held in memory, and may get the process killed in a container. The pages stay in the page cache, and the array can
    still be read.
    """
    is_read_only = False
    while array is not None and not isinstance(array, mmap.mmap):
        # What was written to a private map would be lost.
        is_read_only |= isinstance(array, np.memmap) and array.mode == "r"
        array = getattr(array, "base", None)
    if array is None or not is_read_only or not hasattr(mmap, "MADV_DONTNEED"):
        return False
    array.madvise(mmap.MADV_DONTNEED)
    return True
