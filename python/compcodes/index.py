"""The index: codes, ids and the search over them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_codes, as_ids, as_queries, as_vectors
from compcodes.progress import ProgressLike, staged
from compcodes.quantizer import CompositionalCodes

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Index"]


class Index:
    """A database of codes that is searched for the largest inner products.

    Searching compares each query with the *approximation* of every vector: M table look-ups and additions each.
    The result is exactly the k best of these sums. Many threads may search at once, also while one adds: a search
    sees all of an addition or nothing of it.

    Parameters
    ----------
    quantizer : CompositionalCodes
        A fitted model. The index keeps a copy.
    metric : {"ip"}, default "ip"
        Inner product.
    n_jobs : int, optional
        Threads; all cores by default.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> index = cc.Index(cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)).add(X)
    >>> scores, ids = index.search(X[:5], k=3)
    >>> ids.shape, len(index), index.bytes_per_vector
    ((5, 3), 2000, 4)
    """

    def __init__(self, quantizer: CompositionalCodes, metric: str = "ip", n_jobs: int | None = None) -> None:
        if metric != "ip":
            raise ValueError(f"metric is {metric!r}: want 'ip'")
        self.metric = metric
        self.n_jobs = n_jobs
        self._quantizer = quantizer
        codebooks = quantizer._fitted()
        self._core = _core.Index(codebooks, quantizer.selection, quantizer._parameters())
        self._shape = codebooks.shape

    def add(self, X: ArrayLike, ids: ArrayLike | None = None, *, progress: ProgressLike = None) -> Self:
        """Encode vectors and add their codes.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time, and not kept.
        ids : (n,) int, optional
            At least 0, and not in the index yet. By default the numbers after the largest id so far: for the
            first vectors 0, 1, 2, …
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        Index
            Itself. After an error or Ctrl-C nothing is added.

        Raises
        ------
        ValueError
            Shapes that do not fit, NaN or infinity in `X` (with the row), or ids that cannot be used.
        """
        X = as_vectors(X, "X", self._shape[2])
        ids = None if ids is None else as_ids(ids, len(X))
        return self.add_codes(self._quantizer.encode(X, progress=progress), ids)

    def add_codes(self, codes: ArrayLike, ids: ArrayLike | None = None) -> Self:
        """Add codes (n, M) uint8 that the index's quantizer made; otherwise as `add`."""
        codes = as_codes(codes, self._shape[0])
        self._core.add_codes(codes, None if ids is None else as_ids(ids, len(codes)))
        return self

    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        rerank: ArrayLike | None = None,
        n_candidates: int | None = None,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k best vectors for each query.

        Parameters
        ----------
        Q : (nq, d) or (d,)
            Queries; one vector is one query.
        k : int, default 10
            How many to find. May exceed the number of vectors.
        rerank : (len(index), d) array of any real type, optional
            The vectors themselves, in the order they were added; an array or a memory map, of which only the
            candidates' rows are read. Scores are then exact inner products.
        n_candidates : int, optional
            With `rerank`: how many of the best by code are compared exactly; 10 · k by default.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        scores : (nq, k) float32
            Best first; −inf where there are fewer than k vectors.
        ids : (nq, k) int64
            Of equal scores the vector that was added first comes first; −1 where there are fewer than k vectors.

        Raises
        ------
        ValueError
            Shapes that do not fit, NaN or infinity in `Q`, or k below 1.
        """
        queries = as_queries(Q, self._shape[2])
        k = _count("k", k)
        report = staged(progress, "search")
        if rerank is None:
            if n_candidates is not None:
                raise ValueError("n_candidates goes with rerank: give the vectors to compare with")
            return self._core.search(queries, k, self.n_jobs, report)
        vectors = as_vectors(rerank, "rerank", self._shape[2])
        n_candidates = 10 * k if n_candidates is None else _count("n_candidates", n_candidates)
        if n_candidates < k:
            raise ValueError(f"n_candidates is {n_candidates}: want at least k, {k}")
        n_candidates = min(n_candidates, max(len(self), 1))
        return self._core.search_rerank(queries, k, vectors, n_candidates, self.n_jobs, report)

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the approximations of the vectors with these ids, (n, d) float32.

        Raises
        ------
        ValueError
            The index has no such id.
        """
        ids = np.atleast_1d(np.asarray(ids))
        rows = [self._core.reconstruct(int(id)) for id in ids]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self._shape[2])

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._core)

    @property
    def codes(self) -> NDArray[np.uint8]:
        """A copy of all codes, (n, M), in the order they were added."""
        return self._core.codes()

    @property
    def ids(self) -> NDArray[np.int64]:
        """A copy of all ids, (n,), in the order they were added."""
        return self._core.ids()

    @property
    def quantizer(self) -> CompositionalCodes:
        """The model."""
        return self._quantizer

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of code a vector; ids, where they are given, take 8 more."""
        return int(self._shape[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index with its model to a file (safetensors), replacing what is there.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        self._core.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], n_jobs: int | None = None) -> Index:
        """Read an index from a file that `save` or the Rust crate wrote.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            The file is damaged, of a later version, or not an index of compcodes.
        """
        core = _core.Index.load(os.fspath(path))
        index = cls(CompositionalCodes._restore(*core.model()), n_jobs=n_jobs)
        index._core = core
        return index

    def __reduce__(self) -> tuple[object, ...]:
        ids = self.ids
        given = None if np.array_equal(ids, np.arange(len(ids))) else ids
        return _rebuild, (self._quantizer, self.metric, self.n_jobs, self.codes, given)

    def __repr__(self) -> str:
        M, K, d = self._shape
        return f"Index({len(self):,} vectors of {d} dimensions, {M} codes of {K}, metric={self.metric!r})"


def _rebuild(
    quantizer: CompositionalCodes,
    metric: str,
    n_jobs: int | None,
    codes: NDArray[np.uint8],
    ids: NDArray[np.int64] | None,
) -> Index:
    """Unpickle an index."""
    return Index(quantizer, metric, n_jobs).add_codes(codes, ids)


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}: want an integer")
    if value < 1:
        raise ValueError(f"{name} is {value}: want at least 1")
    return int(value)
