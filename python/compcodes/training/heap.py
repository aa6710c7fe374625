"""Returning freed memory to the system.

The C library of most Linux systems keeps freed memory for later allocations, and the more of it the larger the
allocations were: after a Gram matrix of 16 MB, up to 32 MB per thread, which add up in the next step of training.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

__all__ = ["release"]


def release() -> None:
    """Return free memory; if the C library has no call for that, it does so by itself."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        import ctypes

        return ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, TypeError, AttributeError):
        return None
