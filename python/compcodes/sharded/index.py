"""The sharded index: a folder that is searched and changed as one index."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_count, as_ids, as_queries, as_vectors, check_jobs
from compcodes._choices import Metric
from compcodes._filters import as_filter
from compcodes.data.files import new_file
from compcodes.data.many import Files
from compcodes.errors import ArgumentValueError
from compcodes.index import Index, MetricWarning, _fetched
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers.protocol import QuantizerLike
from compcodes.quantizers.quantizer import Quantizer
from compcodes.sharded import manifest as manifests
from compcodes.sharded.manifest import MANIFEST, Manifest, Shard, commit, crc_of, fingerprint
from compcodes.sharded.opened import Choice, Opened, opened

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ShardedIndex"]

LARGEST = 2**63 - 1
ENDING = ".compcodes"


class ShardedIndex:
    """An index in several files, searched as one: `create` or `open` a folder.

    The folder holds `manifest.json` and a file for each shard, an `Index` of its own as `Index.save` writes it. All
    shards have the same model and settings. A search looks through them in order, as through one index with all their
    vectors: the same scores and the same order, of equal scores the vector of the earlier shard first. Shards are
    mapped into memory, so that the index may be larger than that.

    Every change is a new version of the manifest, which takes the place of the one before at once; who has the index
    open goes on with the version that was opened until `refresh`. Files of the last version but one are deleted.

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
        self.path = Path(path)
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
            not gone through: see `verify`.
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
    ) -> Self:
        """Make an index without shards in a folder, which is made if it is not there.

        Parameters are those of `Index`.

        Raises
        ------
        FileExistsError
            The folder holds an index already.
        ValueError
            The quantizer has lists.
        OSError
            It cannot be written to.
        """
        folder = Path(path)
        empty = Index(quantizer, metric, n_jobs, scale=scale, exact_norms=exact_norms, residuals=residuals)
        if empty.list_sizes is not None:
            raise ArgumentValueError("quantizer", "has lists: shards are of a model without n_lists")
        folder.mkdir(exist_ok=True)
        codebooks = empty.quantizer.codebooks_
        name = fingerprint(codebooks)
        settings = empty._core.settings()

        def made(current: Manifest | None) -> Manifest:
            if current is not None:
                raise FileExistsError(errno.EEXIST, "holds a sharded index already: open it", os.fspath(folder))
            model = f"model-{name[:12]}{ENDING}"
            empty.save(folder / model)
            return Manifest(0, name, model, codebooks.shape, *settings)

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
        client: Any = None,
        progress: ProgressLike = None,
    ) -> Self:
        """Encode vectors, and write them to shards of about the same size; go on where an earlier call was interrupted.

        Parameters
        ----------
        path : str or path-like
            The folder: a new one, or that of an interrupted build of the same vectors with the same model.
        quantizer : CompositionalCodes, another Quantizer, or any object like one
        X : (n, d) array, `compcodes.data.Files`, or dask.array
            Vectors, read a shard at a time. Their ids are the numbers of their rows.
        n_shards : int, default 1
        metric, n_jobs, scale, exact_norms, residuals
            As of `Index`.
        client : dask.distributed.Client, optional
            Encode on its workers, which write to the folder: it must be at the same path for all of them.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        ShardedIndex
            Complete. After an error or Ctrl-C the folder holds the shards that were finished.

        Raises
        ------
        ValueError
            As in `Index.add`; or the folder holds an index of another model, of other settings, or of other vectors.
        OSError
            The folder cannot be written to.
        """
        from compcodes.sharded import build

        rows = build.rows_of(X if hasattr(X, "shape") else as_vectors(X, "X"))
        n_shards = as_count("n_shards", n_shards)
        if not is_sharded(path):
            settings = {"scale": scale, "exact_norms": exact_norms, "residuals": residuals}
            index = cls.create(path, quantizer, metric, n_jobs, **settings)
        else:
            index = cls(path, n_jobs)
            own = Index(quantizer, metric, n_jobs, scale=scale, exact_norms=exact_norms, residuals=residuals)
            index._check(own, "the quantizer")
        if rows.shape[1] != index._opened.manifest.shape[2]:
            dims = index._opened.manifest.shape[2]
            raise ArgumentValueError("X", f"has {rows.shape[1]} dimensions, the model has {dims}")
        build.add_all(index, rows, n_shards, client, staged(progress, "build"))
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
            As in `Index.add`. By default the numbers after the largest id that there ever was.
        source : str, optional
            What the vectors are, kept in the manifest.
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
        index = self.empty().add(X, ids, progress=progress)
        return self.add_shard(index, source=source)

    def add_shard(
        self, shard: Index | str | os.PathLike[str], *, first_id: int | None = None, source: str | None = None
    ) -> Self:
        """Add the vectors of an index, or of the file of one, which is copied into the folder.

        Parameters
        ----------
        shard : Index or path
            Of the same model, metric and settings.
        first_id : int, optional
            Added to the ids of its vectors. By default, where these are 0, 1, 2, …, the number after the largest id
            that there ever was in the sharded index; otherwise 0.
        source : str, optional
            What the vectors are, kept in the manifest.

        Returns
        -------
        ShardedIndex
            Itself, at the new version. After an error or Ctrl-C nothing is added.

        Raises
        ------
        ValueError
            It is of another model (the fingerprints differ), metric or settings; or has an id that is there already.
        OSError
            A file cannot be read or written.
        """
        index = shard if isinstance(shard, Index) else Index.load(shard, self.n_jobs, mmap=True)
        self._check(index, "shard" if isinstance(shard, Index) else os.fspath(shard))
        partial = new_file(self.path)
        try:
            if isinstance(shard, Index):
                index.save(partial)
            else:
                shutil.copyfile(shard, partial)
            self._take([(partial, index._core, source)], first_id)
        finally:
            partial.unlink(missing_ok=True)
        return self.refresh()

    def _check(self, index: Index, name: str) -> None:
        """Refuse what codes of another model, or of other settings, are in."""
        manifest = self._opened.manifest
        if index.has_keys:
            raise ArgumentValueError("shard", "has keys: shards name vectors by numbers")
        if index._quantizer._lists is not None:
            # The fingerprint is of the codebooks alone.
            raise ArgumentValueError("shard", f"has lists ({name}): shards are of a model without n_lists")
        codebooks = index._quantizer.codebooks_
        other = fingerprint(codebooks)
        if other != manifest.fingerprint:
            raise ArgumentValueError(
                "shard",
                f"is of another model ({name} has the fingerprint {other[:12]}, the index "
                f"{manifest.fingerprint[:12]}): its codes are sums of other codewords",
            )
        if index._core.settings() != manifest.settings:
            raise ArgumentValueError(
                "shard",
                f"has (metric, scale, exact_norms, residuals) {index._core.settings()}, the index {manifest.settings}: "
                "want the same",
            )

    def _take(
        self,
        files: list[tuple[Path, _core.Index, str | None]],
        first_id: int | None = None,
        in_order: bool = False,
    ) -> None:
        """Add finished files, which are renamed, as shards: in one version, at the end or in the order of their ids.

        It is not open then: that is for `refresh`.
        """
        checked = [(path, index, source, path.stat().st_size, crc_of(path)) for path, index, source in files]

        def made(current: Manifest | None) -> Manifest:
            assert current is not None
            shards, next_id = list(current.shards), current.next_id
            for path, index, source, size, crc in checked:
                ids = np.asarray(index.ids(), np.int64)
                by_position = bool((ids == np.arange(len(ids))).all())
                first = (next_id if by_position else 0) if first_id is None else first_id
                low, high = (int(ids.min()) + first, int(ids.max()) + first) if len(ids) else (-1, -1)
                if first < 0 or high > LARGEST:
                    raise ArgumentValueError("first_id", f"is {first}: want at least 0, and ids of at most 2**63 - 1")
                self._refuse_known(current, shards[len(current.shards) :], ids + first, low, high)
                name = f"shard-{current.version + 1}-{len(shards)}{ENDING}"
                os.replace(path, self.path / name)
                shards.append(Shard(name, len(ids), first, low, high, size, crc, source=source))
                next_id = max(next_id, high + 1)
            if in_order:
                shards.sort(key=lambda shard: shard.first_id)
            return replace(current, shards=tuple(shards), next_id=next_id)

        commit(self.path, made)

    def _refuse_known(self, current: Manifest, new: list[Shard], ids: NDArray[np.int64], low: int, high: int) -> None:
        """Refuse ids that are there already."""
        if not len(ids):
            return
        for shard in new:
            if low <= shard.highest_id and shard.lowest_id <= high:
                raise ValueError(f"ids {low} to {high} overlap those of another shard: give first_id")
        if any(low <= shard.highest_id and shard.lowest_id <= high for shard in current.shards):
            found = opened(self.path, self._opened).shards.find(ids)
            if (found >= 0).any():
                raise ValueError(f"ids hold {ids[np.argmax(found >= 0)]}, which the index has already: give first_id")

    def _commit(self, change: Callable[[Manifest | None], Manifest]) -> None:
        commit(self.path, change)
        self.refresh()

    def remove(self, ids: ArrayLike) -> int:
        """Remove the vectors with these ids.

        Their codes stay in the files until `compact`, and are not found.

        Returns
        -------
        int
            How many there were.

        Raises
        ------
        ValueError
            The index has no such id. Nothing is removed then, nor after Ctrl-C.
        """
        wanted = as_ids(ids, np.size(ids))

        def made(current: Manifest | None) -> Manifest:
            assert current is not None
            now = opened(self.path)
            found = now.shards.find(wanted, self.n_jobs)
            if (found < 0).any():
                raise ValueError(f"the index has no id {wanted[np.argmax(found < 0)]}")
            starts, shards = now.starts, list(current.shards)
            for i, shard in enumerate(shards):
                own = found[(found >= starts[i]) & (found < starts[i + 1])] - starts[i]
                if not len(own):
                    continue
                positions = np.union1d(now.removed[i], own)
                name = f"removed-{current.version + 1}-{i}.npy"
                _save(self.path, name, positions)
                shards[i] = replace(shard, removed=name, n_removed=len(positions))
            return replace(current, shards=tuple(shards))

        self._commit(made)
        return len(np.unique(wanted))

    def compact(self, share: float = 0.0) -> Self:
        """Write the shards anew from which more than a `share` of the vectors was removed, without these.

        Searches that go on meanwhile see the version before. Shards without any vectors left go.

        Returns
        -------
        ShardedIndex
            Itself, at the new version if there was anything to do.
        """

        def made(current: Manifest | None) -> Manifest:
            assert current is not None
            now, shards = opened(self.path), []
            for i, shard in enumerate(current.shards):
                if shard.n_removed <= share * shard.vectors:
                    shards.append(shard)
                    continue
                index = _core.Index.load(os.fspath(self.path / shard.file), False, self.n_jobs)
                index.remove(np.asarray(index.ids(), np.int64)[now.removed[i]], self.n_jobs)
                if not len(index):
                    continue
                ids = np.asarray(index.ids(), np.int64) + shard.first_id
                name = f"shard-{current.version + 1}-{i}{ENDING}"
                index.save(os.fspath(self.path / name), self.n_jobs)
                path = self.path / name
                shards.append(
                    replace(
                        shard,
                        file=name,
                        vectors=len(index),
                        lowest_id=int(ids.min()),
                        highest_id=int(ids.max()),
                        bytes=path.stat().st_size,
                        crc32=crc_of(path),
                        removed=None,
                        n_removed=0,
                    )
                )
            return replace(current, shards=tuple(shards))

        if any(shard.n_removed > share * shard.vectors for shard in manifests.read(self.path).shards):
            self._commit(made)
        return self

    def refresh(self) -> Self:
        """Go on with the current version of the folder; searches under way end with the one they began with."""
        self._opened = opened(self.path, self._opened)
        return self

    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: ArrayLike | range | None = None,
        rerank: ArrayLike | Callable[[NDArray[np.int64]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        client: Any = None,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k best vectors for each query, in all shards.

        Parameters
        ----------
        Q : (nq, d) or (d,)
            Queries; one vector is one query.
        k : int, default 10
            How many to find. May exceed the number of vectors.
        filter : (len(index),) bool, (m,) int, or range, optional
            Find only these: a mask in the order of `ids`, an array of ids, or a range of ids.
        rerank : (len(index), d) array of any real type, or callable, optional
            The vectors themselves, in the order of `ids`, of which only the candidates' rows are read; or a callable
            that is given the ids of all candidates, (m,) int64, once, and returns their vectors, (m, d). Scores are
            then exact.
        rerank_ids : (m,) int, optional
            The id of each row of `rerank`, each once, where its rows are in another order.
        n_candidates : int, optional
            With `rerank`: how many of the best by code are compared exactly; 10 · k by default.
        client : dask.distributed.Client, optional
            Search on its workers, each of which keeps a share of the shards open. The folder must be at the same path
            for all of them. `rerank` is done here.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        scores : (nq, k) float32
            Best first; −inf where there are fewer than k vectors.
        ids : (nq, k) int64
            Of equal scores that of the earlier shard comes first, and within a shard that which was added first; −1
            where there are fewer than k vectors.

        Raises
        ------
        ValueError
            As in `Index.search`.
        """
        now = self._opened
        dim = now.manifest.shape[2]
        queries, k = as_queries(Q, dim), as_count("k", k)
        if rerank is None and n_candidates is not None:
            raise ArgumentValueError("n_candidates", "goes with rerank: give the vectors to compare with")
        if rerank_ids is not None and (rerank is None or callable(rerank)):
            raise ArgumentValueError(
                "rerank_ids", "goes with rerank: give an array that has these ids' vectors as rows"
            )
        n_candidates = 10 * k if n_candidates is None else as_count("n_candidates", n_candidates)
        if n_candidates < k:
            raise ArgumentValueError("n_candidates", f"is {n_candidates}: want at least k, {k}")
        choice, report = _choice(now, filter, len(queries)), staged(progress, "search")
        if client is not None:
            from compcodes.sharded.cluster import search_on

            wanted = k if rerank is None else min(n_candidates, int(now.starts[-1]))
            scores, ids, positions = search_on(client, self.path, now, queries, wanted, choice, report)
            if rerank is None:
                return scores, ids
            candidates, places = now.shards.chosen(positions)
        elif rerank is None:
            scores, ids, _ = now.shards.search(queries, k, *choice.arguments(), self.n_jobs, report)
            return scores, ids
        else:
            limits = choice.arguments()
            candidates, places = now.shards.candidates(queries, n_candidates, *limits, self.n_jobs, report)
        row_ids = None
        if callable(rerank):
            vectors = _fetched(rerank, np.asarray(candidates.ids(), np.int64), dim)
        elif rerank_ids is not None:
            vectors = as_vectors(rerank, "rerank", dim)
            row_ids = as_ids(rerank_ids, len(vectors), "rerank_ids")
        else:
            # Of an array or of files only the candidates' rows are read.
            rows: Any = rerank if isinstance(rerank, Files) else as_vectors(rerank, "rerank", dim)
            if len(rows) != len(now.shards):
                raise ArgumentValueError(
                    "rerank",
                    f"has {len(rows)} rows, the index holds {len(now.shards)} vectors: want a row for each of its ids, "
                    "in their order",
                )
            vectors = as_vectors(rows[_among_live(now, places)], "rerank", dim)
        scores, found, _ = candidates.rerank(queries, k, vectors, row_ids, self.n_jobs, report)
        return scores, np.asarray(found, np.int64)

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the approximations of the vectors with these ids, (n, d) float32.

        Raises
        ------
        ValueError
            The index has no such id.
        """
        wanted, now = as_ids(ids, np.size(ids)), self._opened
        positions = now.shards.find(wanted, self.n_jobs)
        if (positions < 0).any():
            raise ValueError(f"the index has no id {wanted[np.argmax(positions < 0)]}")
        return now.shards.reconstruct(positions, self.n_jobs)

    def verify(self) -> Self:
        """Read all files, and compare their checksums with those of the manifest.

        Raises
        ------
        ValueError
            A file is damaged.
        """
        for shard in self._opened.manifest.shards:
            path = self.path / shard.file
            crc = crc_of(path)
            if crc != shard.crc32:
                raise ValueError(f"{path}: damaged (its checksum is {crc:08x}, the manifest says {shard.crc32:08x})")
        return self

    def empty(self) -> Index:
        """Return an index of the same model and settings without vectors, to be filled and given to `add_shard`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MetricWarning)  # said when the folder was made
            return Index.load(self.path / self._opened.manifest.model, self.n_jobs)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path.absolute(), self.n_jobs)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._opened.shards)

    def __contains__(self, id: object) -> bool:
        """Tell whether there is a vector with this id."""
        if not isinstance(id, (int, np.integer)) or not 0 <= id <= LARGEST:
            return False
        return bool(self._opened.shards.find(np.array([id], np.int64))[0] >= 0)

    @property
    def ids(self) -> NDArray[np.int64]:
        """A copy of all ids, (n,), in the order of the shards."""
        return self._opened.shards.ids()

    @property
    def version(self) -> int:
        """The version of the folder that is open: each change is one more."""
        return self._opened.manifest.version

    @property
    def fingerprint(self) -> str:
        """The name of the model whose codes the shards hold: a hash of its codebooks."""
        return self._opened.manifest.fingerprint

    @property
    def shards(self) -> tuple[Shard, ...]:
        """What the manifest says of each shard."""
        return self._opened.manifest.shards

    @property
    def metric(self) -> str:
        """What scores measure."""
        return self._opened.manifest.metric

    @property
    def quantizer(self) -> Quantizer:
        """A copy of the model."""
        return self.empty().quantizer

    @property
    def bytes_per_vector(self) -> int:
        """Bytes kept for each vector: codes, and what metric and scale add."""
        return self.empty().bytes_per_vector

    def __repr__(self) -> str:
        (M, K, d), n = self._opened.manifest.shape, len(self.shards)
        return (
            f"ShardedIndex({len(self):,} vectors of {d} dimensions in {n} shards, {M} codes of {K}, "
            f"metric={self.metric!r}, version={self.version})"
        )


def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Whether there is a sharded index in this folder."""
    return (Path(path) / MANIFEST).is_file()


def _choice(now: Opened, filter: ArrayLike | range | None, n_queries: int) -> Choice:
    """Bring a filter to what each shard can tell."""
    if filter is None:
        return Choice()
    allowed = as_filter(filter, "filter", n_queries, False)
    if (isinstance(allowed, tuple) and len(allowed) == 2) or getattr(allowed, "ndim", 1) == 2:
        raise ArgumentValueError("filter", "is one for each query: a sharded index takes one for all of them")
    if isinstance(allowed, tuple) or allowed.dtype != bool:
        return Choice(cast(Any, allowed))
    if len(allowed) != len(now.shards):
        raise ArgumentValueError(
            "filter", f"has {len(allowed)} entries, the index holds {len(now.shards)} vectors: want one for each"
        )
    masks, first = [], 0
    for shard, removed in zip(now.manifest.shards, now.removed, strict=True):
        live = np.ones(shard.vectors, bool)
        live[removed] = False
        count = shard.vectors - len(removed)
        live[live] = allowed[first : first + count]
        masks.append(live)
        first += count
    return Choice(None, tuple(masks)) if masks else Choice()


def _among_live(now: Opened, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where positions that ascend, counted through all shards, are among those that are not removed."""
    gone = [removed + start for removed, start in zip(now.removed, now.starts, strict=False)]
    return positions - np.searchsorted(np.concatenate(gone), positions) if gone else positions


def _save(folder: Path, name: str, positions: NDArray[np.int64]) -> None:
    partial = new_file(folder)
    try:
        with partial.open("wb") as file:
            np.lib.format.write_array(file, positions, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
