"""The sharded index: a folder that is searched and changed as one index."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._arrays import as_count, check_jobs, check_range
from compcodes._choices import Metric
from compcodes._filters import FilterLike
from compcodes._keys import as_key
from compcodes._searching import Above, Found
from compcodes.cluster import Workers
from compcodes.data.files import new_file
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.index import Index, MetricWarning
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers.protocol import QuantizerLike
from compcodes.quantizers.quantizer import Quantizer
from compcodes.sharded import change
from compcodes.sharded.change import ENDING, LARGEST, refuse_begun, refuse_shard, take
from compcodes.sharded.manifest import MANIFEST, Manifest, Shard, commit, fingerprint
from compcodes.sharded.opened import Opened, opened, verify
from compcodes.sharded.search import above, search

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ShardedIndex"]


class ShardedIndex:
    """An index in several files, searched as one: `create` or `open` a folder.

    The folder holds `manifest.json` and a file per shard, which is a complete `Index` as written by `Index.save`. All
    shards have the same model and settings. A search covers them in order, like one index with all their vectors: with
    the same scores and the same order, ties going to the vector of the earlier shard. Shards are mapped into memory, so
    the index may be larger than memory. Their files must not be truncated or written in place by others: that changes
    results, and can end the process (SIGBUS).

    Every change is a new version of the manifest, which replaces the previous one atomically; a process that has the
    index open keeps the version it opened until `refresh`. The files of the last two versions are kept, older ones are
    deleted.

    Attributes
    ----------
    path : pathlib.Path
    n_jobs : int or None

    Examples
    --------
    >>> import numpy as np, compcodes as cc, tempfile
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> q = cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     index = cc.ShardedIndex.create(folder, q)
    ...     index = index.add(X[:1200]).add(X[1200:])
    ...     scores, ids = cc.ShardedIndex.open(folder).search(X[:5], k=3)
    >>> len(index), ids.shape
    (2000, (5, 3))
    """

    def __init__(self, path: str | os.PathLike[str], n_jobs: int | None = None) -> None:
        check_jobs(n_jobs)
        self.path = _folder(path)
        self.n_jobs = n_jobs
        self._opened: Opened = opened(self.path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], n_jobs: int | None = None) -> Self:
        """Open a folder.

        Parameters
        ----------
        path : str or path-like
            The folder.
        n_jobs : int, optional
            Threads; all cores by default.

        Raises
        ------
        OSError
            A file cannot be read.
        ValueError
            The manifest or a shard is damaged, of a later version, or a shard is not what the manifest says. Codes are
            not checked: see `verify`.
        """
        return cls(path, n_jobs)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        quantizer: QuantizerLike,
        metric: Metric | None = None,
        n_jobs: int | None = None,
        *,
        scale: bool = False,
        exact_norms: bool = True,
        residuals: bool = False,
        keys: bool = False,
    ) -> Self:
        """Make an index without shards in a folder, which is created if it does not exist.

        Parameters are those of `Index`.

        Raises
        ------
        FileExistsError
            The folder already holds an index.
        OSError
            It cannot be written to.
        """
        folder = _folder(path)
        empty = Index(quantizer, metric, n_jobs, scale=scale, exact_norms=exact_norms, residuals=residuals, keys=keys)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is a file: want a folder, or the path of a new one", str(folder))
        folder.mkdir(exist_ok=True)
        codebooks, lists = empty.quantizer.codebooks_, empty._quantizer._lists
        name = fingerprint(codebooks, lists)
        settings = empty._core.settings()

        def made(current: Manifest | None) -> Manifest:
            if current is not None:
                raise FileExistsError(errno.EEXIST, "holds a sharded index already: open it", os.fspath(folder))
            model = f"model-{name[:12]}{ENDING}"
            empty.save(folder / model)
            n_lists = None if lists is None else len(lists)
            return Manifest(0, name, model, codebooks.shape, *settings, n_lists=n_lists, keys=empty.has_keys)

        commit(folder, made)
        return cls(folder, n_jobs)

    @classmethod
    def build(
        cls,
        path: str | os.PathLike[str],
        quantizer: QuantizerLike,
        X: Any,
        n_shards: int = 1,
        metric: Metric | None = None,
        n_jobs: int | None = None,
        *,
        scale: bool = False,
        exact_norms: bool = True,
        residuals: bool = False,
        ids: ArrayLike | None = None,
        keys: bool = False,
        client: Any = None,
        progress: ProgressLike = None,
    ) -> Self:
        """Encode vectors, and write them to shards of about equal size; resume an earlier call that was interrupted.

        Parameters
        ----------
        path : str or path-like
            The folder: a new one, or that of an interrupted build of the same vectors with the same model.
        quantizer : CompositionalCodes, another Quantizer, or any object like one
        X : (n, d) array, `compcodes.data.Files`, or dask.array
            Vectors, read a shard at a time.
        n_shards : int, default 1
            The number of files that the vectors are divided into; at most as many as there are vectors.
        metric, n_jobs, scale, exact_norms, residuals
            As in `Index`.
        ids : (n,) int, optional
            The id of each vector, by default its row number. With ``keys=True``: n keys.
        keys : bool, default False
            Vectors are identified by keys, as in `Index`.
        client : dask.distributed.Client, optional
            Encode on its workers, which write to the folder: all of them must see it at the same path.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        ShardedIndex
            Complete. After an error or Ctrl-C the folder holds the shards that were finished. A shard that was removed
            and compacted away is built again.

        Raises
        ------
        ValueError
            As in `Index.add`; or the folder holds an index with another model, other settings, or other vectors.
        OSError
            The folder cannot be written to.
        """
        from compcodes.sharded import build

        folder, rows, report = _folder(path), build.rows_of(X), staged(progress, "build")
        n_shards = as_count("n_shards", n_shards)
        settings = {"scale": scale, "exact_norms": exact_norms, "residuals": residuals, "keys": keys}
        names = build.names_of(ids, rows.shape[0], keys)
        if client is not None:
            Workers(client)
        with warnings.catch_warnings():
            if not is_sharded(folder):
                warnings.simplefilter("ignore", MetricWarning)  # `create` reports it
            own = Index(quantizer, metric, n_jobs, **settings)
        if rows.shape[1] != own.dimension:
            raise ArgumentValueError("X", f"has {rows.shape[1]} dimensions, the model has {own.dimension}")
        if is_sharded(folder):
            index = cls(folder, n_jobs)
            refuse_begun(index._opened.manifest, own._core, folder)
        else:
            index = cls.create(folder, quantizer, metric, n_jobs, **settings)
        build.add_all(index, rows, n_shards, client, report, names)
        return index.refresh()

    def add(
        self, X: ArrayLike, ids: ArrayLike | None = None, *, source: str | None = None, progress: ProgressLike = None
    ) -> Self:
        """Encode vectors and add them as one shard.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time, and not kept.
        ids : (n,) int, optional
            As in `Index.add`. By default the numbers after the largest id that there ever was. With ``keys=True``: n
            keys.
        source : str, optional
            A description of the vectors, stored in the manifest.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        ShardedIndex
            Itself, at the new version. After an error or Ctrl-C nothing is added.

        Raises
        ------
        ValueError
            As in `Index.add`.
        """
        _check_source(source)
        index = self.empty().add(X, ids, progress=progress)
        # Ids that were given are meant as they are, even 0, 1, 2, …
        return self._taken(index, "an Index", None if ids is None or index.has_keys else 0, source, "ids")

    def add_shard(
        self, shard: Index | str | os.PathLike[str], *, first_id: int | None = None, source: str | None = None
    ) -> Self:
        """Add the vectors of an index, or of an index file, which is copied into the folder.

        Parameters
        ----------
        shard : Index or path
            It must have the same model, metric and settings.
        first_id : int, optional
            Added to the ids of its vectors. By default, if these are 0, 1, 2, …, the number after the largest id that
            there ever was in the sharded index; otherwise 0.
        source : str, optional
            A description of the vectors, stored in the manifest.

        Returns
        -------
        ShardedIndex
            Itself, at the new version. After an error or Ctrl-C nothing is added.

        Raises
        ------
        ValueError
            It has another model (the fingerprints differ), metric or settings; has an id that already exists; or is
            damaged.
        OSError
            A file cannot be read or written.
        """
        if first_id is not None:
            check_range("first_id", first_id, 0, LARGEST)
            first_id = int(first_id)
        _check_source(source)
        if not isinstance(shard, (Index, str, os.PathLike)):
            raise ArgumentTypeError("shard", f"is {shard!r}: want an Index, or the path of one")
        index = shard if isinstance(shard, Index) else Index.load(shard, self.n_jobs, mmap=True)
        name = "an Index" if isinstance(shard, Index) else os.fsdecode(shard)
        return self._taken(index, name, first_id, source, "shard")

    def _taken(self, index: Index[Any], name: str, first_id: int | None, source: str | None, argument: str) -> Self:
        refuse_shard(self._opened.manifest, index._core, name)
        partial = new_file(self.path)
        try:
            try:
                index.save(partial)
            except ValueError as error:  # codes of a mapped file that do not match their checksum
                raise ArgumentValueError("shard", f"cannot be read ({name}): {error}") from None
            self._opened = take(self.path, self._opened, partial, source, first_id, argument)
        finally:
            partial.unlink(missing_ok=True)
        return self

    def remove(self, ids: ArrayLike) -> int:
        """Remove the vectors with these ids, or keys.

        Their codes stay in the files until `compact`, but are not found.

        Returns
        -------
        int
            How many were removed.

        Raises
        ------
        ValueError
            An id is not in the index. Nothing is removed in that case, nor after Ctrl-C.
        """
        self._opened, count = change.remove(self.path, self._opened, ids, self.n_jobs)
        return count

    def compact(self, share: float = 0.0) -> Self:
        """Rewrite the shards from which more than a `share` of the vectors was removed, leaving these out.

        Concurrent searches see the previous version. Shards without any remaining vectors are dropped.

        Parameters
        ----------
        share : float, default 0
            0 to 1.

        Returns
        -------
        ShardedIndex
            Itself, at the new version if there was anything to do.
        """
        if isinstance(share, (bool, np.bool_)) or not isinstance(share, (int, float, np.integer, np.floating)):
            raise ArgumentTypeError("share", f"is {share!r}: want a number from 0 to 1")
        if not 0 <= share <= 1:
            raise ArgumentValueError("share", f"is {share!r}: want 0 to 1, of the vectors of a shard")
        self._opened = change.compact(self.path, self._opened, float(share), self.n_jobs)
        return self

    def refresh(self) -> Self:
        """Switch to the current version of the folder; searches under way finish with the version they began with."""
        self._opened = opened(self.path, self._opened)
        return self

    @overload
    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Any]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: Literal[False] = False,
        client: Any = None,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[Any]]: ...

    @overload
    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Any]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: bool,
        client: Any = None,
        progress: ProgressLike = None,
    ) -> Found: ...

    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Any]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: bool = False,
        client: Any = None,
        progress: ProgressLike = None,
    ) -> Found:
        """Find the k best vectors for each query, in all shards.

        Parameters
        ----------
        Q : (nq, d) or (d,)
            Queries; one vector is one query.
        k : int, default 10
            How many to find. May exceed the number of vectors.
        filter : (len(index),) bool, (m,) int, range, or one for each query, optional
            Find only these, as in `Index.search`: a mask in the order of `ids`, ids, a range of ids; or one of them per
            query. A `FilterWarning` is given if the index has none of them.
        exclude : like `filter`, optional
            Do not find these. Ids or keys that the index does not have are ignored.
        rerank : (len(index), d) array of any real type, or callable, optional
            The vectors themselves, in the order of `ids`, of which only the candidates' rows are read; or a callable
            that is given the ids of all candidates, (m,) int64, once, and returns their vectors, (m, d). Scores are
            then exact.
        rerank_ids : (m,) int, optional
            The id of each row of `rerank`, each once, if its rows are in another order.
        n_candidates : int, optional
            With `rerank`: how many of the best by code are compared exactly; 10 · k by default.
        n_probe : int, optional
            For a model with lists: how many to search, the best ones for each query over all shards; more if these hold
            fewer than k vectors that may be found.
        recall : float, default 0.95
            Instead of `n_probe`, as in `Index.search`.
        certify : bool, default False
            With `rerank`, for an index with ``residuals=True``: return for which queries the results are proven exact,
            as in `Index.search`.
        client : dask.distributed.Client, optional
            Search on its workers, each of which keeps a share of the shards open. All of them must see the folder at
            the same path. `rerank` runs in this process.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        scores : (nq, k) float32
            Best first; −inf if there are fewer than k vectors.
        ids : (nq, k) int64
            Ties go to the earlier shard, and within a shard to the vector that was added first; −1 if there are fewer
            than k vectors. For an index with keys, keys and None.
        certified : (nq,) bool
            With `certify` only.

        Raises
        ------
        ValueError
            As in `Index.search`.
        """
        return search(
            self.path,
            self._opened,
            Q,
            k,
            filter=filter,
            exclude=exclude,
            rerank=rerank,
            rerank_ids=rerank_ids,
            n_candidates=n_candidates,
            n_probe=n_probe,
            recall=recall,
            certify=certify,
            client=client,
            n_jobs=self.n_jobs,
            progress=progress,
        )

    def search_above(
        self,
        Q: ArrayLike,
        score: ArrayLike,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        client: Any = None,
        progress: ProgressLike = None,
    ) -> Above:
        """Find all vectors that reach a given score, for each query, in all shards and all lists.

        Parameters are those of `Index.search_above`; `client` is that of `search`.

        Returns
        -------
        indptr : (nq + 1,) int64
            The results of query i are ``indptr[i]:indptr[i + 1]``.
        ids : (m,) int64
            Best first; ties go to the earlier shard. Keys, for an index with keys.
        scores : (m,) float32

        Raises
        ------
        ValueError
            As in `Index.search_above`.
        """
        return above(
            self.path,
            self._opened,
            Q,
            score,
            filter=filter,
            exclude=exclude,
            client=client,
            n_jobs=self.n_jobs,
            progress=progress,
        )

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the approximations of the vectors with these ids, (n, d) float32.

        Raises
        ------
        ValueError
            An id is not in the index.
        """
        now = self._opened
        return now.shards.reconstruct(now.find(ids, self.n_jobs), self.n_jobs)

    def verify(self) -> Self:
        """Read all files, and compare them with their checksums.

        Raises
        ------
        OSError
            A file cannot be read.
        ValueError
            A file is damaged: a shard, a list of removed vectors, or the model.
        """
        verify(self.path, self._opened)
        return self

    def empty(self) -> Index:
        """Return an empty index with the same model and settings, to be filled and passed to `add_shard`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MetricWarning)  # any warning was given when the folder was made
            return Index.load(self.path / self._opened.manifest.model, self.n_jobs)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path.absolute(), self.n_jobs)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._opened.shards)

    def __contains__(self, id: object) -> bool:
        """Tell whether there is a vector with this id, or key."""
        now = self._opened
        try:
            one = [as_key(id)] if self.has_keys else np.array([id])
        except (TypeError, ValueError):
            return False
        if isinstance(one, np.ndarray):
            if one.shape != (1,) or one.dtype.kind not in "iu" or not 0 <= one[0] <= LARGEST:
                return False
            one = one.astype(np.int64)
        return bool(now.shards.find(one)[0] >= 0)

    @property
    def ids(self) -> NDArray[Any]:
        """A copy of all ids or keys, (n,), in the order of the shards."""
        return self._opened.ids

    @property
    def has_keys(self) -> bool:
        """Whether vectors are identified by keys instead of ids."""
        return self._opened.has_keys

    @property
    def dimension(self) -> int:
        """The length d of its vectors."""
        return self._opened.manifest.shape[2]

    @property
    def list_sizes(self) -> NDArray[np.int64] | None:
        """How many vectors each list holds in all shards, (n_lists,); None without lists."""
        return self._opened.shards.list_sizes()

    @property
    def version(self) -> int:
        """The version of the folder that is open: each change increases it by one."""
        return self._opened.manifest.version

    @property
    def fingerprint(self) -> str:
        """The identity of the model whose codes the shards hold: a hash of its codebooks and lists."""
        return self._opened.manifest.fingerprint

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The manifest's entry for each shard."""
        return self._opened.manifest.shards

    @property
    def metric(self) -> Metric:
        """The metric of the scores."""
        return cast(Metric, self._opened.manifest.metric)

    @property
    def quantizer(self) -> Quantizer:
        """A copy of the model."""
        return self.empty().quantizer

    @property
    def bytes_per_vector(self) -> int:
        """Bytes kept per vector: codes, and what metric and scale add."""
        return self.empty().bytes_per_vector

    def __repr__(self) -> str:
        (M, K, d), n, lists = self._opened.manifest.shape, len(self.shards), self._opened.manifest.n_lists
        divided = "" if lists is None else f" of {lists:,} lists"
        return (
            f"ShardedIndex({len(self):,} vectors of {d} dimensions in {n} shards{divided}, {M} codes of {K}, "
            f"metric={self.metric!r}, version={self.version})"
        )


def _folder(path: str | os.PathLike[str]) -> Path:
    """Return the path of a folder, which stays the same if the working directory changes."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise ArgumentTypeError("path", f"is {path!r}: want the path of a folder")
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise ArgumentValueError("path", f"is {name!r}: want the path of a folder")
    return Path(name).absolute()


def _check_source(source: object) -> None:
    if source is not None and not isinstance(source, str):
        raise ArgumentTypeError("source", f"is {source!r}: want a string")


def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Whether there is a sharded index in this folder."""
    return (Path(path) / MANIFEST).is_file()
