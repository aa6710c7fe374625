"""The Netflix prize's ratings as users of 512 numbers, the way the paper prepares them: by PCA.

The files name a movie by a line ``N:`` and then give its ratings, a line ``user,rating,date`` each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["load_netflix"]

_DIM = 512
_BLOCK = 1024  # users whose ratings of all movies are written out at once
_CACHE = "netflix512.npy"


def load_netflix(folder: Path, dim: int = _DIM) -> NDArray[Any] | None:
    """Return the users (n, ≤ dim), or None where the files are missing; they are kept beside the files for next time.

    Raises
    ------
    ValueError
        A line is none of the two kinds.
    """
    cache = folder / _CACHE
    if cache.exists():
        kept: NDArray[Any] = np.load(cache, mmap_mode="r")
        return kept
    paths = sorted([*folder.glob("netflix/mv_*.txt"), *folder.glob("netflix/combined_data_*.txt")])
    if not paths:
        return None
    users, movies, ratings = _read(paths)
    reduced = _principal(users, movies, ratings, dim)
    np.save(cache, reduced)
    return reduced


def _read(paths: list[Path]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Read the user, movie and rating of each line, users and movies counted from 0, sorted by user."""
    users, movies, ratings = [], [], []
    for path in paths:
        movie = -1
        with path.open(encoding="ascii") as lines:
            for number, line in enumerate(lines, start=1):
                head, comma, rest = line.partition(",")
                try:
                    if comma:
                        users.append(int(head))
                        ratings.append(float(rest.partition(",")[0]))
                        movies.append(movie)
                    elif line.strip():
                        movie = int(line.strip().removesuffix(":"))
                except ValueError:
                    raise ValueError(
                        f"{path} line {number} is neither a movie nor a rating: {line.strip()!r}"
                    ) from None
    user, movie_of, rating = np.array(users), np.array(movies), np.array(ratings, np.float32)
    user = np.unique(user, return_inverse=True)[1]
    movie_of = np.unique(movie_of, return_inverse=True)[1]
    order = np.argsort(user, kind="stable")
    return user[order], movie_of[order], rating[order]


def _principal(
    users: NDArray[Any], movies: NDArray[Any], ratings: NDArray[Any], dim: int, rounds: int = 3
) -> NDArray[np.float32]:
    """Project the centered matrix (users, movies), no rating being 0, on its `dim` first principal directions.

    They are found by subspace iteration from a random start: the matrix is only ever written out a block at a time.
    """
    n, width = int(users[-1]) + 1, int(movies.max()) + 1
    dim = min(dim, n, width)
    mean = np.bincount(movies, ratings, width).astype(np.float32) / n
    begin = np.searchsorted(users, np.arange(0, n + _BLOCK, _BLOCK))

    def blocks() -> Any:
        for i, first in enumerate(range(0, n, _BLOCK)):
            part = slice(begin[i], begin[i + 1])
            block = np.zeros((min(_BLOCK, n - first), width), np.float32)
            block[users[part] - first, movies[part]] = ratings[part]
            yield block - mean

    basis = np.random.default_rng(0).normal(size=(width, min(dim + 10, width))).astype(np.float32)
    for _ in range(rounds):
        product = np.zeros(basis.shape, np.float64)
        for block in blocks():
            product += block.T @ (block @ basis)
        basis = np.linalg.qr(product)[0].astype(np.float32)
    projected = np.concatenate([block @ basis for block in blocks()])
    _, turn = np.linalg.eigh(projected.T.astype(np.float64) @ projected)
    reduced: NDArray[np.float32] = (projected @ turn[:, ::-1][:, :dim]).astype(np.float32)
    return reduced
