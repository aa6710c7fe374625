"""Word vectors that come with the package, in the public domain (see glove20k/NOTICE)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["glove"]

_FOLDER = Path(__file__).parent / "glove20k"


def glove() -> tuple[list[str], NDArray[Any]]:
    """20,000 English words and their GloVe vectors.

    Returns
    -------
    words : list of str
        Most frequent first.
    vectors : (20000, 100) float16, mapped read-only
        Row i belongs to ``words[i]``. Not normalised: norms run from 2.3 to 12.3.

    Notes
    -----
    Source: Pennington, Socher and Manning, *GloVe: Global Vectors for Word Representation*, 2014; the
    6B-token, 100-dimensional set.
    """
    words = (_FOLDER / "words.txt").read_text(encoding="utf-8").splitlines()
    vectors: NDArray[Any] = np.load(_FOLDER / "vectors.npy", mmap_mode="r")
    return words, vectors
