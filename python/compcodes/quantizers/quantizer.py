"""The base class of quantizers: codebooks (M, K, d), a way to choose codes, parameters by name, and files."""

from __future__ import annotations

import copy
import json
import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_codes, as_count, as_ids, as_vectors, check_features
from compcodes.errors import ArgumentValueError
from compcodes.estimator import Estimator
from compcodes.progress import ProgressLike, staged
from compcodes.training.sources import is_dask_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

__all__ = ["NotFittedError", "Quantizer"]

Prepared = TypeVar("Prepared")
Kind = TypeVar("Kind", bound="type[Quantizer]")


class NotFittedError(ValueError, AttributeError):
    """A model is used before `fit`."""


class Quantizer(Estimator):
    """Vectors as sums of codewords, one from each of M codebooks.

    A subclass defines `fit`, which ends by setting ``codebooks_`` (M, K, d) float32, and `encode`. Everything else
    follows from these; docs/quantizers.md shows an example. A subclass of `CompositionalCodes` or of another class of
    this package loads its own files with its own `load`; `Quantizer.load` and `Index.load` create the classes of this
    package, and those passed to `register`. `Index` accepts any object with the two members of `QuantizerLike`.
    """

    codebooks_: NDArray[np.float32]
    n_features_in_: int
    history_: list[dict[str, Any]]
    n_jobs: int | None = None
    #: The metric it was trained for; None if a method has only one way to train, or the model is from elsewhere.
    metric_: str | None = None

    #: The name of the method in files, for classes that are registered.
    method: ClassVar[str] = ""
    _kinds: ClassVar[dict[str, type[Quantizer]]] = {}
    _selection: str = "group"
    #: Whether it was trained on vectors of different lengths, which it then keeps; False if that is not known.
    _lengths_differ: bool = False
    #: What an index of the model is divided by; None without lists.
    _lists: _core.Lists | None = None

    @staticmethod
    def register(kind: Kind) -> Kind:
        """Load files that name the ``method`` of a class as this class: a decorator.

        It must be possible to create the class without arguments, as scikit-learn also requires of estimators.

        Raises
        ------
        ValueError
            The class has no ``method``, or another class has the same.
        """
        if not kind.method:
            raise ValueError(f"{kind.__name__} has no method: want a name for files to keep")
        known = Quantizer._kinds.setdefault(kind.method, kind)
        if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # but may be defined again
            raise ArgumentValueError(
                "method", f"{kind.method!r} of {kind.__name__} is that of {known.__name__}: want another"
            )
        Quantizer._kinds[kind.method] = kind
        return kind

    def encode(self, X: ArrayLike, *, progress: ProgressLike = None) -> NDArray[np.uint8]:
        """Choose codes for vectors.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time. For a `dask.array` the codes are one too, with blocks (rows, M), and are
            computed on demand, each task on one thread.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        (n, M) uint8

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            `X` has a wrong shape or dtype, or holds NaN or infinity (with the row).
        """
        if is_dask_array(X):
            from compcodes.training.dask import encoded

            lazy: NDArray[np.uint8] = encoded(self, X)
            return lazy
        X = as_vectors(X, "X", self._fitted().shape[2])
        return self._encode(X, staged(progress, "encode"))

    def _encode(self, X: NDArray[Any], report: Callable[[int, int], object] | None) -> NDArray[np.uint8]:
        raise NotImplementedError

    def decode(self, codes: ArrayLike, lists: ArrayLike | None = None) -> NDArray[np.float32]:
        """Sum the codewords of codes (n, M): the approximations, (n, d) float32.

        For a model with `centroids_`, `lists` (n,) gives the list of each vector; its centroid is part of the sum,
        unless codes encode whole vectors (``by_residual=False`` of `CompositionalCodes.from_codebooks`).

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            Codes with a wrong shape, or that name a codeword beyond K; lists that are missing, or that the model does
            not have.
        """
        codebooks = self._fitted()
        codes = as_codes(codes, len(codebooks))
        places = self._places(lists, len(codes))
        if self._lists is None or places is None:
            return _core.decode(codebooks, codes, self.n_jobs)
        return self._lists.decode(codebooks, codes, places, self.n_jobs)

    def _places(self, lists: ArrayLike | None, n: int) -> NDArray[np.int64] | None:
        """Check the lists of n vectors, which a model with centroids requires and others do not accept."""
        if self._lists is None:
            if lists is not None:
                raise ArgumentValueError("lists", "are given, but the model has no centroids_")
            return None
        if lists is None:
            raise ArgumentValueError("lists", "are missing: want the list of each vector, as assign(X) returns them")
        places = as_ids(lists, n, "lists")
        if n and not (places.min() >= 0 and places.max() < len(self._lists)):
            raise ArgumentValueError(
                "lists", f"range from {places.min()} to {places.max()}: want 0 to {len(self._lists) - 1}"
            )
        return places

    def decode_batches(
        self, codes: ArrayLike, batch_size: int = 1024, lists: ArrayLike | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """Decode a few codes at a time, if the approximations do not fit in memory at once.

        Parameters
        ----------
        codes : (n, M) uint8
            May be a memory map: it is read one batch at a time.
        batch_size : int, default 1024
        lists : (n,) int, optional
            As in `decode`.

        Returns
        -------
        iterator of (≤ batch_size, d) float32
            The rows of `decode`, in order. Only one batch is held.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            Codes with a wrong shape; or, when their batch is reached, codes that name a codeword beyond K.

        Examples
        --------
        >>> import numpy as np, compcodes as cc
        >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
        >>> q = cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)
        >>> [len(batch) for batch in q.decode_batches(q.encode(X), batch_size=900)]
        [900, 900, 200]
        """
        codes = as_codes(codes, len(self._fitted()))
        size = as_count("batch_size", batch_size)
        places = self._places(lists, len(codes))
        chunks = (slice(first, first + size) for first in range(0, len(codes), size))
        return (self.decode(codes[chunk], None if places is None else places[chunk]) for chunk in chunks)

    @property
    def n_iter_(self) -> int:
        """How many times codes were chosen in training, for scikit-learn's tools: once for the start, and so on."""
        self._fitted()
        return max(1, len(self.history_))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return minus the mean squared error ‖x − x̄‖² of vectors (n, d): higher is better; `y` is ignored.

        The measure does not depend on the loss, so models trained with different losses may be compared; for search,
        compare `evaluate.recall` instead.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            As in `fit`.
        """
        codebooks = self._fitted()
        X = as_vectors(X, "X")
        check_features(X, codebooks.shape[2], type(self).__name__)
        if len(X) == 0:
            raise ArgumentValueError("X", f"has shape {X.shape}: want at least one vector")
        lists = self._assigned(X)
        codes = _encoded(self, X, lists)
        return -float(_core.errors(codebooks, self._target(self._seen(X), lists), codes, 1.0, self.n_jobs).mean())

    def _assigned(self, X: NDArray[Any]) -> NDArray[np.int64] | None:
        """Return the list of each vector, for a model that has lists."""
        return None if self._lists is None else self._lists.assign(self._seen(X), self.n_jobs)[0]

    def _target(self, X: NDArray[Any], lists: NDArray[np.int64] | None) -> Any:
        """Return the target that codes are chosen for, for vectors in these lists."""
        if self._lists is None or lists is None or not self._lists.by_residual:
            return X
        return _core.Target(X, self._lists.centroids, lists)

    def _seen(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return vectors in the form that codes approximate."""
        return X

    def error_bound(
        self, X: ArrayLike, codes: ArrayLike | None = None, lists: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Bound the error of inner products with the approximations.

        For every query q, |⟨q, x⟩ − ⟨q, x̄⟩| ≤ ‖x − x̄‖ ‖q‖ (Property 1 of the paper). An index with
        ``residuals=True`` keeps these bounds, and can prove results with them: see `Index.search`.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors, taken as float32.
        codes : (n, M) uint8, optional
            Their codes; by default those of `encode`.
        lists : (n,) int, optional
            Their lists, for a model with `centroids_`; by default those of `assign`.

        Returns
        -------
        (n,) float64
            ‖x − x̄‖, rounded up: the inequality holds exactly, with x̄ the float32 that `decode` returns.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Arrays of a wrong shape or dtype, or NaN or infinity in `X` (with the row).

        Examples
        --------
        >>> import numpy as np, compcodes as cc
        >>> X = np.random.default_rng(0).normal(size=(500, 8))
        >>> q = cc.CompositionalCodes(n_codebooks=2, n_codewords=16).fit(X)
        >>> off = np.abs(X @ X[0] - q.decode(q.encode(X)) @ X[0])
        >>> bool((off <= q.error_bound(X) * np.linalg.norm(X[0]) + 1e-5).all())
        True
        """
        codebooks = self._fitted()
        X = as_vectors(X, "X", codebooks.shape[2])
        places = self._assigned(X) if lists is None else self._places(lists, len(X))
        codes = _encoded(self, X, places) if codes is None else as_codes(codes, len(codebooks))
        return _core.error_bounds(codebooks, self._target(X, places), codes, self.n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file (safetensors), replacing any existing one.

        Raises
        ------
        NotFittedError
            Before `fit`.
        OSError
            The file cannot be written.
        """
        self._model().save(os.fsdecode(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model from a file written by `save`, by an index, or by the Rust crate.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            The file is damaged, of a later version, or not one of compcodes; or it holds a model of another class
            (``Quantizer.load`` reads any).
        """
        name = os.fsdecode(path)
        kept = _core.Model.load(name)
        kind = Quantizer._kind_of(kept, name)
        if issubclass(cls, kind):
            kind = cls
        elif not issubclass(kind, cls):
            raise ValueError(f"{name}: holds a {kind.__name__}, not a {cls.__name__}")
        model = kind._made_of(kept, name)
        assert isinstance(model, cls)
        return model

    @staticmethod
    def _restore(model: _core.Model, name: str) -> Quantizer:
        """Rebuild a model, of the registered class that made it, from the contents of the file of that name."""
        return Quantizer._kind_of(model, name)._made_of(model, name)

    @staticmethod
    def _kind_of(model: _core.Model, name: str) -> type[Quantizer]:
        """Find the registered class of the method that a file names."""
        method = json.loads(model.parameters).get("method", "compositional")
        if not isinstance(method, str) or method not in Quantizer._kinds:
            raise ValueError(
                f"{name}: the model is of the method {method!r}, which is not registered: see Quantizer.register"
            )
        return Quantizer._kinds[method]

    @classmethod
    def _made_of(cls, model: _core.Model, name: str) -> Self:
        """Rebuild a model of this class from the contents of the file of that name."""
        try:
            made = cls._restored(model.codebooks, model.selection, json.loads(model.parameters))
            made._follow(model)
            made._lists = model.lists
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from None
        return made

    @classmethod
    def _restored(cls, codebooks: NDArray[np.float32], selection: str, stored: dict[str, Any]) -> Self:
        """Rebuild a model of this class; unknown parameters are ignored."""
        self = cls()
        M, K, _ = codebooks.shape
        known = self.get_params().keys() & stored.keys()
        self.set_params(**{name: stored[name] for name in known})
        self.set_params(
            **{name: size for name, size in (("n_codebooks", M), ("n_codewords", K)) if hasattr(self, name)}
        )
        self._set(codebooks, selection)
        self.history_ = stored.get("history", [])
        if not (isinstance(self.history_, list) and all(isinstance(entry, dict) for entry in self.history_)):
            raise ValueError("the model's history is not a list of entries")
        return self

    def _model(self) -> _core.Model:
        """Return everything that a file stores."""
        return _core.Model(
            self._fitted(), self._selection, parameters=self._parameters(), lists=self._lists, **self._recipe()
        )

    def _recipe(self) -> dict[str, Any]:
        """Return how codes are chosen, in the form of `_core.Model`, so that every program encodes alike."""
        return {}

    def _follow(self, model: _core.Model) -> None:
        """Adopt the encoding of a model from a file: if its parameters differ, the recipe is right."""

    def _parameters(self) -> str:
        """Return what only this package reads: parameters and history, as JSON."""
        if not isinstance(self, Quantizer._kinds.get(self.method, ())):
            return as_json({"history": getattr(self, "history_", [])})  # loaded like the result of `from_codebooks`
        params = {name: value for name, value in self.get_params().items() if name != "n_jobs"}
        return as_json(params | {"method": self.method, "history": getattr(self, "history_", [])})

    def __copy__(self) -> Self:
        """Return a model that later changes of this one, including `fit`, do not affect. Arrays are shared."""
        vars(self).setdefault("_cache", {})  # what is prepared for one can be used for the other
        made = type(self).__new__(type(self))
        for name, value in vars(self).items():
            plain = isinstance(value, (dict, list)) and name != "_cache"
            vars(made)[name] = copy.copy(value) if plain else value
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # arrays that came over a network may be misaligned in the received buffer
            unaligned = isinstance(value, np.ndarray) and not value.flags.aligned
            vars(self)[name] = value.copy() if unaligned else value
        for name in ("codebooks_", "directions_"):
            if name in state:
                vars(self)[name].flags.writeable = False  # pickles do not keep it

    def _prepared(self, arrays: tuple[object, ...], settings: object, make: Callable[[], Prepared]) -> Prepared:
        """Return what `make` prepares for encoding with these arrays and settings: once, also for copies.

        Arrays are distinguished by identity: they are read-only, and may be replaced.
        """
        cache: dict[str, tuple[tuple[object, ...], object, Prepared]] = vars(self).setdefault("_cache", {})
        known = cache.get("encoder")
        if known is None or known[1] != settings or any(a is not b for a, b in zip(known[0], arrays, strict=True)):
            known = cache["encoder"] = (arrays, settings, make())
        return known[2]

    def _set(self, codebooks: NDArray[np.float32], selection: str = "group") -> None:
        vars(self)["_cache"] = {}  # copies keep theirs
        self._selection = selection  # the parameter may be changed for another fit
        codebooks.flags.writeable = False  # a change would not reach what was prepared from them
        self.codebooks_ = codebooks
        self.n_features_in_ = codebooks.shape[2]

    def _fitted(self) -> NDArray[np.float32]:
        try:
            return self.codebooks_
        except AttributeError:
            raise NotFittedError("this model is not fitted yet: call fit(X) first") from None


def _encoded(quantizer: Quantizer, X: NDArray[Any], lists: NDArray[np.int64] | None) -> NDArray[np.uint8]:
    encode: Callable[..., NDArray[np.uint8]] = quantizer.encode
    return encode(X) if lists is None else encode(X, lists=lists)


def as_json(parameters: dict[str, Any]) -> str:
    """Return parameters as files store them: without seeds, arrays and objects, which are not numbers or names."""
    kept = {}
    for name, value in parameters.items():
        try:
            json.dumps(value, default=_plain)
        except (TypeError, ValueError):
            continue
        if name not in ("init", "random_state") or isinstance(value, (str, int, np.integer)):
            kept[name] = value
    return json.dumps(kept, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no number or name")
