"""What every quantizer is: codebooks (M, K, d), a way to choose codes, parameters by name, and files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_codes, as_count, as_vectors
from compcodes.estimator import Estimator
from compcodes.progress import ProgressLike, staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

__all__ = ["NotFittedError", "Quantizer", "as_seed"]


class NotFittedError(ValueError, AttributeError):
    """A model is used before `fit`."""


class Quantizer(Estimator):
    """Vectors as sums of codewords, one from each of M codebooks.

    What `CompositionalCodes` and the methods beside it have in common, and all that `Index` asks for.
    """

    codebooks_: NDArray[np.float32]
    n_features_in_: int
    history_: list[dict[str, Any]]
    n_jobs: int | None = None

    #: The name of the method in files.
    method: ClassVar[str] = "compositional"
    _kinds: ClassVar[dict[str, type[Quantizer]]] = {}
    _selection: str = "group"

    def __init_subclass__(cls) -> None:
        Quantizer._kinds[cls.method] = cls

    def encode(self, X: ArrayLike, *, progress: ProgressLike = None) -> NDArray[np.uint8]:
        """Choose codes for vectors.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time.
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
            `X` has another shape or dtype, or holds NaN or infinity (with the row).
        """
        X = as_vectors(X, "X", self._fitted().shape[2])
        return self._encode(X, staged(progress, "encode"))

    def _encode(self, X: NDArray[Any], report: Callable[[int, int], object] | None) -> NDArray[np.uint8]:
        raise NotImplementedError

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Sum the codewords that codes (n, M) name: the approximations, (n, d) float32.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            Codes of another shape, or that name a codeword beyond K.
        """
        codebooks = self._fitted()
        return _core.decode(codebooks, as_codes(codes, len(codebooks)), self.n_jobs)

    def decode_batches(self, codes: ArrayLike, batch_size: int = 1024) -> Iterator[NDArray[np.float32]]:
        """Decode a few codes at a time, for what reads approximations and cannot hold them all.

        Parameters
        ----------
        codes : (n, M) uint8
            May be a memory map: a batch of it is read at a time.
        batch_size : int, default 1024

        Returns
        -------
        iterator of (≤ batch_size, d) float32
            The same rows as of `decode`, in order. Only one batch is held.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            Codes of another shape; or, when their batch comes, that name a codeword beyond K.

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
        return (self.decode(codes[first : first + size]) for first in range(0, len(codes), size))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the mean squared error ‖x − x̄‖² of vectors (n, d): higher is better; `y` is not looked at.

        The same measure whatever the loss, so that models of different losses may be compared; what matters for a
        search is better compared by `evaluate.recall`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            As in `fit`.
        """
        codebooks = self._fitted()
        X = as_vectors(X, "X", codebooks.shape[2])
        if len(X) == 0:
            raise ValueError(f"X has shape {X.shape}: want at least one vector")
        return -float(_core.errors(codebooks, X, self.encode(X), 1.0, self.n_jobs).mean())

    def error_bound(self, X: ArrayLike, codes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Bound how far inner products with the approximations are off.

        For every query q, |⟨q, x⟩ − ⟨q, x̄⟩| ≤ ‖x − x̄‖ ‖q‖ (Property 1 of the paper). An index with
        ``residuals=True`` keeps these bounds, and can prove results with them: see `Index.search`.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors, taken as float32.
        codes : (n, M) uint8, optional
            Their codes; by default those of `encode`.

        Returns
        -------
        (n,) float64
            ‖x − x̄‖, rounded up: the inequality holds as it stands, with x̄ the float32 that `decode` returns.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Arrays of another shape or dtype, or NaN or infinity in `X` (with the row).

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
        codes = self.encode(X) if codes is None else as_codes(codes, len(codebooks))
        return _core.error_bounds(codebooks, X, codes, self.n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file (safetensors), replacing what is there.

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
        """Read a model from a file that `save`, or an index, or the Rust crate wrote.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            The file is damaged, of a later version, or not one of compcodes; or it holds a model of another class
            (``Quantizer.load`` reads any).
        """
        name = os.fsdecode(path)
        model = Quantizer._restore(_core.Model.load(name), name)
        if not isinstance(model, cls):
            raise ValueError(f"{name}: holds a {type(model).__name__}, not a {cls.__name__}")
        return model

    @staticmethod
    def _restore(model: _core.Model, name: str) -> Quantizer:
        """Rebuild a model, of the class that made it, from what the file of that name keeps."""
        stored = json.loads(model.parameters)
        method = stored.get("method", "compositional")
        if not isinstance(method, str) or method not in Quantizer._kinds:
            raise ValueError(f"{name}: the model is of the method {method!r}, which this release does not know")
        try:
            made = Quantizer._kinds[method]._restored(model.codebooks, model.selection, stored)
            made._follow(model)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from None
        return made

    @classmethod
    def _restored(cls, codebooks: NDArray[np.float32], selection: str, stored: dict[str, Any]) -> Self:
        """Rebuild a model of this class; of unknown parameters nothing is needed to encode."""
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
        """Return all that a file keeps."""
        return _core.Model(self._fitted(), self._selection, parameters=self._parameters(), **self._recipe())

    def _recipe(self) -> dict[str, Any]:
        """How codes are chosen, as `_core.Model` takes it, so that every program encodes alike."""
        return {}

    def _follow(self, model: _core.Model) -> None:
        """Choose codes as the model of a file does: where its parameters differ, the recipe is right."""

    def _parameters(self) -> str:
        """What only this package reads: parameters and history, as JSON."""
        params = {name: value for name, value in self.get_params().items() if name != "n_jobs"}
        return as_json(params | {"method": self.method, "history": self.history_})

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in ("codebooks_", "directions_"):
            if name in state:
                state[name].flags.writeable = False  # pickles do not keep it

    def _set(self, codebooks: NDArray[np.float32], selection: str = "group") -> None:
        self._selection = selection  # the parameter may be changed for another fit
        codebooks.flags.writeable = False  # what is prepared from them would not notice a change
        self.codebooks_ = codebooks
        self.n_features_in_ = codebooks.shape[2]

    def _fitted(self) -> NDArray[np.float32]:
        try:
            return self.codebooks_
        except AttributeError:
            raise NotFittedError("this model is not fitted yet: call fit(X) first") from None


def as_json(parameters: dict[str, Any]) -> str:
    """Parameters as files keep them: without seeds and arrays that are not plain numbers or names."""
    for name in ("init", "random_state"):
        if name in parameters and not isinstance(parameters[name], (str, int, np.integer)):
            del parameters[name]
    return json.dumps(parameters, default=lambda number: number.item())


def as_seed(random_state: int | np.random.Generator | None) -> int:
    """Take a seed from what scikit-learn calls a random state."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise TypeError(f"random_state is {random_state!r}: want an integer, a numpy Generator or None")
    if not 0 <= random_state < 2**64:
        raise ValueError(f"random_state is {random_state}: want 0 to 2**64 - 1")
    return int(random_state)
