"""The index: codes, ids and the search over them."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes import _searching as searching
from compcodes._arrays import as_codes, as_vectors, check_jobs
from compcodes._choices import Metric
from compcodes._filters import FilterLike, FilterWarning
from compcodes._names import Names
from compcodes._searching import Above
from compcodes._suits import MetricWarning, other_metric, suits
from compcodes._warn import warn
from compcodes.errors import ArgumentTypeError, ArgumentValueError, renamed
from compcodes.progress import ProgressLike
from compcodes.quantizers.protocol import QuantizerLike, adopted, encoded
from compcodes.quantizers.quantizer import Quantizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self, TypeVar

    #: What identifies vectors: numbers, or keys as objects.
    Name = TypeVar("Name", bound=np.generic, default=np.int64)
else:
    from typing import TypeVar

    Name = TypeVar("Name")

__all__ = ["Above", "FilterWarning", "Index", "MetricWarning"]


class Index(Generic[Name]):
    """A database of codes that is searched for the best matches of a query.

    Searching compares each query with the *approximation* x̄ of every vector, as returned by `reconstruct`: M table
    lookups and additions each. The result is exactly the k best of these scores. Many threads may search at once, even
    while one changes the index: a search sees all of a change or nothing of it. A change that raises an exception,
    including Ctrl-C, has not happened. The child of a fork has the index in its state at the fork, whatever other
    threads were doing with it.

    Parameters
    ----------
    quantizer : CompositionalCodes, another Quantizer, or any object like one
        A fitted model, or any object with ``codebooks_`` and ``encode(X)`` (see `QuantizerLike`). The index keeps a
        copy.
    metric : {"ip", "cosine", "l2"} or None, default None
        By default the metric of the model, or "ip" if the model has none. A metric other than the model was trained for
        causes a `MetricWarning`.
        Inner product ⟨q, x̄⟩, a sum of M numbers in float32; cosine ⟨q, x̄⟩ / (‖q‖ ‖x̄‖), 0 if q or x̄ is 0, for one
        more byte per vector; or minus the squared Euclidean distance −‖q − x̄‖², for five more. Higher is better.
        Cosines and distances are computed in float64, put in order, and then rounded to float32: for any offset and any
        lengths they are correct to the last bit, and so is their order. Inner products below 1e-38 are lost in float32.
    n_jobs : int, optional
        Threads; all cores by default.
    scale : bool, default False
        Multiply each inner product by ‖x‖² / ⟨x, x̄⟩, stored in one more byte per vector: the approximation then has
        the same length along x as x. It pays off for codes of a plain reconstruction loss, as other libraries make
        them.
    exact_norms : bool, default True
        With "l2": False takes one more byte per vector instead of five. The results are the same, but take longer to
        find.
    residuals : bool, default False
        With "ip" and without a scale: keep ‖x − x̄‖ in five more bytes per vector, so that ``search(...,
        certify=True)`` can prove its results.
    keys : bool, default False
        Vectors are identified by keys that are passed to `add`: strings, integers, bytes, UUIDs, or tuples of them,
        which the file of the index stores. Wherever ids are taken or returned, keys replace them, and None replaces −1.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> index = cc.Index(cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)).add(X)
    >>> scores, ids = index.search(X[:5], k=3)
    >>> ids.shape, len(index), index.bytes_per_vector
    ((5, 3), 2000, 4)

    With keys, here for five items:

    >>> shop = cc.Index(index.quantizer, keys=True).add(X[:5], ["tea", "cup", "pot", "jam", "bun"])
    >>> shop.remove(["jam"]), "cup" in shop
    (1, True)
    >>> shop.search(X[1], k=1, exclude=["tea", "pot"])[1]
    array([['cup']], dtype=object)
    """

    @overload
    def __init__(
        self: Index[np.int64],
        quantizer: QuantizerLike,
        metric: Metric | None = None,
        n_jobs: int | None = None,
        *,
        scale: bool = False,
        exact_norms: bool = True,
        residuals: bool = False,
        keys: Literal[False] = False,
    ) -> None: ...

    @overload
    def __init__(
        self: Index[np.object_],
        quantizer: QuantizerLike,
        metric: Metric | None = None,
        n_jobs: int | None = None,
        *,
        scale: bool = False,
        exact_norms: bool = True,
        residuals: bool = False,
        keys: Literal[True],
    ) -> None: ...

    @overload
    def __init__(
        self: Index[Any],
        quantizer: QuantizerLike,
        metric: Metric | None = None,
        n_jobs: int | None = None,
        *,
        scale: bool = False,
        exact_norms: bool = True,
        residuals: bool = False,
        keys: bool,
    ) -> None: ...

    def __init__(
        self,
        quantizer: QuantizerLike,
        metric: Metric | None = None,
        n_jobs: int | None = None,
        *,
        scale: bool = False,
        exact_norms: bool = True,
        residuals: bool = False,
        keys: bool = False,
    ) -> None:
        self.n_jobs = n_jobs
        check_jobs(n_jobs)
        # A copy: a later fit of the original changes nothing here.
        self._quantizer = adopted(quantizer, n_jobs)
        codebooks = self._quantizer.codebooks_
        if metric is None:
            metric = cast(Metric, self._quantizer.metric_ or "ip")
        if not isinstance(metric, str):
            raise ArgumentTypeError("metric", f'is {metric!r}: want "ip", "cosine" or "l2"')
        if not isinstance(keys, (bool, np.bool_)):
            raise ArgumentTypeError("keys", f"is {keys!r}: want True or False; add takes the keys themselves as ids")
        self._names = Names(bool(keys))
        settings = bool(scale), bool(exact_norms), bool(residuals)
        self._core = _core.Index(self._quantizer._model(), metric, *settings, self._names.keyed)
        self.metric = cast(Metric, str.__str__(metric))
        if not isinstance(metric, _Stored) and not suits(self._quantizer, metric):
            warn(other_metric(self._quantizer, metric), MetricWarning)
        self._scale, self._residuals = bool(scale), bool(residuals)
        self._shape = codebooks.shape

    def add(self, X: ArrayLike, ids: ArrayLike | None = None, *, progress: ProgressLike = None) -> Self:
        """Encode vectors and add their codes.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time, and not kept.
        ids : (n,) int, optional
            At least 0, and not in the index yet. By default the numbers after the largest id that there ever was: for
            the first vectors 0, 1, 2, …, and never the id of a vector that was removed. With ``keys=True``: n keys.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        Index
            Itself. After an error or Ctrl-C nothing is added.

        Raises
        ------
        ValueError
            Shapes that do not match, NaN or infinity in `X` (with the row), invalid ids, or, for "l2" and "cosine", an
            approximation that float32 cannot hold (with the row). For "l2" it must also hold the squares of vectors and
            approximations relative to the center of the codewords.
        """
        X = as_vectors(X, "X", self._shape[2])
        names = self._names.new(ids, len(X))
        codes, lists, side = self._encoded(X, progress)
        with renamed("codes", "X"):
            self._core.add_codes(codes, names, side, self.n_jobs, lists)
        return self

    def _encoded(
        self, X: NDArray[Any], progress: ProgressLike
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None, NDArray[np.float32] | None]:
        """Return codes, lists if there are any, and what the settings require alongside them."""
        lists = self._quantizer._assigned(X)
        codes = encoded(self._quantizer, X, progress, lists)
        if self.metric == "l2":
            self._core.check_vectors(X, self.n_jobs)
        side = None
        if self._scale:
            side = self._core.scales(X, codes, self.n_jobs, lists)
        elif self._residuals:
            side = self._core.residuals(X, codes, self.n_jobs, lists)
        return codes, lists, side

    def add_codes(self, codes: ArrayLike, ids: ArrayLike | None = None, *, lists: ArrayLike | None = None) -> Self:
        """Add codes (n, M) uint8 that the index's quantizer made; otherwise like `add`.

        An index with lists also takes the list of each vector, (n,) int, as returned by the quantizer's `assign`. With
        ``scale=True`` their scale is 1, since computing it takes the vectors. With ``residuals=True`` it is an error.
        """
        codes = as_codes(codes, self._shape[0])
        places = self._quantizer._places(lists, len(codes))
        self._core.add_codes(codes, self._names.new(ids, len(codes)), None, self.n_jobs, places)
        return self

    def update(self, X: ArrayLike, ids: ArrayLike, *, progress: ProgressLike = None) -> Self:
        """Replace the vectors with these ids by others, which take over their ids and positions.

        Concurrent searches see all of the change or nothing of it.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time, and not kept.
        ids : (n,) int
            Ids in the index, each at most once.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        Index
            Itself. After an error or Ctrl-C nothing is changed.

        Raises
        ------
        ValueError
            Shapes that do not match, NaN or infinity in `X` (with the row), values too large for float32 as in `add`,
            an id that is repeated, or one that is not in the index.

        Examples
        --------
        >>> import numpy as np, compcodes as cc
        >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
        >>> index = cc.Index(cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)).add(X)
        >>> X[[3, 5]] = X[[8, 9]]
        >>> bool((index.update(X[[3, 5]], ids=[3, 5]).codes[[3, 5]] == index.codes[[8, 9]]).all())
        True
        """
        X = as_vectors(X, "X", self._shape[2])
        names = self._names.given(ids, len(X))
        codes, lists, side = self._encoded(X, progress)
        with renamed("codes", "X"):
            self._core.update_codes(codes, names, side, self.n_jobs, lists)
        return self

    def remove(self, ids: ArrayLike) -> int:
        """Remove the vectors with these ids; the others keep their order and ids.

        If vectors are added after a removal, `search` needs `rerank_ids` to match the rows of `rerank`. To exchange
        vectors, see `update`.

        Returns
        -------
        int
            How many were removed.

        Raises
        ------
        ValueError
            An id is not in the index. Nothing is removed in that case, nor after Ctrl-C.
        """
        return self._core.remove(self._names.some(ids, len(self)), self.n_jobs)

    def reset(self) -> Self:
        """Remove all vectors. Their ids are not assigned again by default."""
        self._core.clear()
        return self

    def merge(self, other: Index) -> Self:
        """Add all vectors of another index with the same codebooks, metric and settings.

        They keep the ids they were given; without any they get the numbers after the largest id here.

        Raises
        ------
        ValueError
            The indexes do not match, or an id is in both. Nothing is added in that case, nor after Ctrl-C.
        """
        if not isinstance(other, Index):
            raise ArgumentTypeError("other", f"is {type(other)}: want an Index")
        self._core.merge(other._core, self.n_jobs)
        return self

    @overload
    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Name]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: Literal[False] = False,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[Name]]: ...

    @overload
    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Name]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: Literal[True],
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[Name], NDArray[np.bool_]]: ...

    @overload
    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Name]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: bool,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[Name]] | tuple[NDArray[np.float32], NDArray[Name], NDArray[np.bool_]]: ...

    def search(
        self,
        Q: ArrayLike,
        k: int = 10,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        rerank: ArrayLike | Callable[[NDArray[Name]], ArrayLike] | None = None,
        rerank_ids: ArrayLike | None = None,
        n_candidates: int | None = None,
        n_probe: int | None = None,
        recall: float | None = None,
        certify: bool = False,
        progress: ProgressLike = None,
    ) -> tuple[NDArray[np.float32], NDArray[Name]] | tuple[NDArray[np.float32], NDArray[Name], NDArray[np.bool_]]:
        """Find the k best vectors for each query.

        Parameters
        ----------
        Q : (nq, d) or (d,)
            Queries; one vector is one query.
        k : int, default 10
            How many to find. May exceed the number of vectors.
        filter : (len(index),) bool, (m,) int, range, or one for each query, optional
            Find only these: a mask in the order of `ids`, an array of ids, or a range of ids. Or a separate set per
            query: nq lists, sets or arrays of ids, (nq, m) int with −1 for none (keys: objects, with None for none), a
            sparse matrix (nq, …) whose columns are ids, or a boolean matrix (nq, len(index)). Ids or keys that the
            index does not have are ignored; if it has none of those given for all queries, nothing is found, and a
            `FilterWarning` says so.
        exclude : like `filter`, optional
            Do not find these, for example what a user already has: ``exclude=[history_of_a, history_of_b]``, or the CSR
            matrix of users and items. Ids or keys that the index does not have are ignored; if it has none of the keys,
            a `FilterWarning` says so.
        rerank : (len(index), d) array of any real type, or callable, optional
            The vectors themselves, in the order of `ids`; an array, a memory map or `compcodes.data.Files`, of which
            only the candidates' rows are read. Scores are then exact. With `rerank_ids` it may have rows in any order,
            (m, d). A callable is given the ids of all candidates, (m,) int64, once, and returns their vectors, (m, d),
            for example from a database.
        rerank_ids : (m,) int, optional
            The id of each row of `rerank`, each once; ids that are not in the index are ignored. Required if vectors
            were added after others were removed, since rows might otherwise be matched with the wrong vectors.
            Ascending ids are looked up without sorting them first.
        n_candidates : int, optional
            With `rerank`: how many of the best by code are compared exactly; 10 · k by default.
        n_probe : int, optional
            For an index with lists (see `CompositionalCodes`): how many to search, the best ones for each query; more
            if those hold fewer than k vectors that may be found, or fewer than `n_candidates` with `rerank`. All of
            them give the result of a search without lists.
        recall : float, default 0.95
            Instead of `n_probe`, 0 to 1: for each query the lists that score so near its best ones that, on average,
            they hold this share of the 10 nearest vectors, as `fit` measured for its sample queries, or for rows of the
            data. The nearest k lie in more if k is larger. 1 searches all.
        certify : bool, default False
            With `rerank`, for an index with ``residuals=True``: also compare exactly the `n_candidates` with the
            largest bounds ⟨q, x̄⟩ + ‖x − x̄‖ ‖q‖, and return for which queries the results are thereby proven exact, as
            far as scores rounded to float32 distinguish vectors. `rerank` must hold the vectors that were added. All
            lists are searched, since nothing can be proven about others.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        scores : (nq, k) float32
            Best first; −inf if there are fewer than k vectors.
        ids : (nq, k) int64
            Ties in the order of adding; −1 if there are fewer than k vectors.
        certified : (nq,) bool
            With `certify` only: whether no vector beyond those compared exactly can be among the k best, so that the
            result is that of comparing with all of them. More candidates certify more.

        Raises
        ------
        ValueError
            Shapes that do not match, NaN or infinity in `Q`, a query whose squared distances are beyond float32, or k
            below 1; `certify` without `rerank`, or for an index without residuals; `rerank` without `rerank_ids` if
            they are required; the id of a candidate is missing from `rerank_ids`, or repeated there.
        """
        return searching.search(
            self,
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
            progress=progress,
        )

    def search_above(
        self,
        Q: ArrayLike,
        score: ArrayLike,
        *,
        filter: FilterLike = None,
        exclude: FilterLike = None,
        progress: ProgressLike = None,
    ) -> Above:
        """Find all vectors that reach a given score, for each query.

        They are exactly those whose score by code, as returned by `search`, is `score` or more.

        Parameters
        ----------
        Q : (nq, d) or (d,)
            Queries; one vector is one query.
        score : float or (nq,) float
            The least score, for all queries or for each. With "l2", where scores are negative, −r² finds everything
            within distance r.
        filter, exclude : optional
            As for `search`.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        indptr : (nq + 1,) int64
            The results of query i are ``indptr[i]:indptr[i + 1]``.
        ids : (m,) int64
            Best first; ties in the order of adding. Keys, for an index with keys.
        scores : (m,) float32

        Raises
        ------
        ValueError
            As in `search`; or a score that is not finite, or that yields more than 2³¹ results.

        Examples
        --------
        >>> import numpy as np, compcodes as cc
        >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
        >>> index = cc.Index(cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)).add(X)
        >>> found = index.search_above(X[:2], 8.0)
        >>> len(found.indptr), bool((found.scores >= 8).all())
        (3, True)
        """
        return searching.above(self, Q, score, filter=filter, exclude=exclude, progress=progress)

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the approximations of the vectors with these ids, (n, d) float32.

        Raises
        ------
        ValueError
            An id is not in the index.
        """
        return self._core.reconstruct(self._names.some(ids, len(self)), self.n_jobs)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._core)

    def __contains__(self, id: object) -> bool:
        """Tell whether there is a vector with this id."""
        return self._names.among(self._core, id)

    @property
    def codes(self) -> NDArray[np.uint8]:
        """A copy of all codes, (n, M), in the order they were added."""
        return self._core.codes()

    @property
    def ids(self) -> NDArray[Name]:
        """A copy of all ids or keys, (n,), in the order they were added."""
        names = self._core.ids()
        return self._names.read(names, (len(names),))

    @property
    def has_keys(self) -> bool:
        """Whether vectors are identified by keys instead of ids."""
        return self._names.keyed

    @property
    def dimension(self) -> int:
        """The length d of its vectors."""
        return int(self._shape[2])

    @property
    def lists(self) -> NDArray[np.int64] | None:
        """The list of each vector, (n,), in the order they were added; None without lists."""
        return self._core.lists()

    @property
    def list_sizes(self) -> NDArray[np.int64] | None:
        """How many vectors each list holds, (n_lists,); None without lists."""
        return self._core.list_sizes()

    @property
    def drift(self) -> float | None:
        """How far the lists have drifted from those of training: the share of vectors that would have to change lists.

        If it is above about 0.2, the vectors that were added differ from those of the training: list sizes are uneven,
        and fewer of the nearest vectors are where a search looks. Train again, and add the vectors again.
        """
        return self._core.drift()

    @property
    def quantizer(self) -> Quantizer:
        """A copy of the model: changing it, for example by another `fit`, does not change the index."""
        return copy.copy(self._quantizer)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes kept per vector: codes, and what metric and scale add.

        Ids, if they are given, take 4 more, or 8 once one is 2³² or above; keys take their UTF-8 bytes and about 20.
        """
        return self._core.bytes_per_vector()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index with its model to a file (safetensors), replacing any existing one.

        Raises
        ------
        OSError
            The file cannot be written. An existing file is kept in that case, and also after Ctrl-C.
        """
        self._core.save(os.fsdecode(path), self.n_jobs)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        n_jobs: int | None = None,
        *,
        mmap: bool = False,
        quantizer: QuantizerLike | None = None,
    ) -> Self:
        """Read an index from a file that `save` or the Rust crate wrote.

        Parameters
        ----------
        path : str or path-like
        n_jobs : int, optional
            As in the constructor.
        mmap : bool, default False
            Leave the codes in the file, mapped into memory: searching can begin at once, and processes share the pages.
            The codes are verified when the index is changed or saved, and copied when it is changed. The file may be
            replaced in the meantime, as `save` does, but must not be written in place or truncated: that changes
            results, and can end the process (SIGBUS). Without `mmap` the file is read, and writing to it meanwhile
            causes an error at worst.
        quantizer : Quantizer or any object like one, optional
            The encoder for vectors that are added, if it is none of this package's classes: files store the codebooks
            of such a quantizer, but not its `encode`. Without it the index uses `CompositionalCodes.from_codebooks` of
            the same codebooks, which chooses codes by its own search.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            The file is damaged, of a later version, or not an index of compcodes; or `quantizer` has other codebooks.
        """
        name = os.fsdecode(path)
        return cls._around(_core.Index.load(name, mmap, n_jobs), n_jobs, name, quantizer)

    @classmethod
    def _around(cls, core: _core.Index, n_jobs: int | None, name: str, quantizer: QuantizerLike | None) -> Self:
        """Wrap what the core has loaded from the file of that name."""
        metric, scale, exact_norms, residuals = core.settings()
        kept = core.model()
        if quantizer is None:
            quantizer = Quantizer._restore(kept, name)
        elif not np.array_equal(adopted(quantizer).codebooks_, kept.codebooks):
            raise ArgumentValueError("quantizer", f"has other codebooks_ than the index in {name}")
        elif (adopted(quantizer)._lists is None) != (kept.lists is None):
            raise ArgumentValueError("quantizer", f"has other lists than the index in {name}, or none")
        index = cls(
            quantizer,
            cast(Metric, _Stored(metric)),
            n_jobs,
            scale=scale,
            exact_norms=exact_norms,
            residuals=residuals,
            keys=core.has_keys(),
        )
        index._core = core
        return index

    @classmethod
    def from_faiss(cls, index: object, n_jobs: int | None = None) -> Self:
        """Take over a trained index of faiss with its codes, to search it with this engine.

        The results are those of faiss, except for rounding; FastScan rounds its tables to bytes, and this engine does
        not. Vectors added later are encoded by compcodes. An inverted file keeps its lists; its ``nprobe`` is the
        number of lists for searches that specify neither `n_probe` nor `recall`; the recall of these lists is not
        known.

        Parameters
        ----------
        index : faiss.IndexPQ, IndexResidualQuantizer or IndexLocalSearchQuantizer, or the FastScan of one
            At most 8 bits per code; also ``IndexProductResidualQuantizer`` and ``IndexProductLocalSearchQuantizer``; in
            an inverted file (``IndexIVFPQ`` and so on), of residuals or of whole vectors (``by_residual``), whose
            vectors are then in the order of their ids; behind a rotation (``IndexPreTransform``, as for OPQ), or with
            ids (``IndexIDMap``).

        Raises
        ------
        TypeError
            The index is of another kind; the message says what to call instead.
        ValueError
            It has larger codes, a metric other than inner product and L2, or is not trained.

        Warns
        -----
        UserWarning
            The coarse quantizer of an inverted file has a different metric than the index, for example ``IndexFlatIP``
            with ``METRIC_L2``: only searches of all lists find what faiss finds.
        """
        from compcodes.interop.faiss import model_of, put, take

        taken = take(index)
        made = cls(model_of(taken), cast(Metric, taken.metric), n_jobs)
        put(taken, made)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        # Bytes keep the quantizer's registered class; another one is passed along.
        own = self._quantizer
        other = None if type(own) in Quantizer._kinds.values() else own
        return _from_bytes, (self._core.to_bytes(), self.n_jobs, type(self), other)

    def __repr__(self) -> str:
        M, K, d = self._shape
        divided = "" if self._quantizer._lists is None else f" in {len(self._quantizer._lists):,} lists"
        return f"Index({len(self):,} vectors of {d} dimensions{divided}, {M} codes of {K}, metric={self.metric!r})"


class _Stored(str):
    """The metric of a file; any warning about it was given when the index was made."""

    __slots__ = ()


def _from_bytes(
    content: bytes, n_jobs: int | None, kind: type[Index] = Index, quantizer: Quantizer | None = None
) -> Index:
    """Unpickle an index: a pickle holds the same content as a file."""
    return kind._around(_core.Index.from_bytes(content), n_jobs, "<bytes>", quantizer)
