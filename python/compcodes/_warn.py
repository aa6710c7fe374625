"""Warnings that point at the line that called the package, however deep inside it their cause is found."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

__all__ = ["warn"]

_HERE = str(Path(__file__).parent) + os.sep


def warn(message: str, category: type[Warning]) -> None:
    """Warn the caller of the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
