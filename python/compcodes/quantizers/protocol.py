"""What an index requires of a quantizer, so that anyone can write one; see docs/quantizers.md."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compcodes._arrays import as_codes, check_rows
from compcodes.errors import ArgumentError, ArgumentTypeError, ArgumentValueError
from compcodes.progress import ProgressLike
from compcodes.quantizers.quantizer import NotFittedError, Quantizer

__all__ = ["QuantizerLike", "adopted", "encoded"]


class QuantizerLike(Protocol):
    """A fitted quantizer of any origin: its codebooks, and how it chooses codes.

    If they exist, an index also uses ``n_jobs`` (an attribute, the number of threads) and the keyword argument
    ``progress`` of `encode` (a callable ``progress(stage, done, total)``).
    """

    @property
    def codebooks_(self) -> NDArray[np.float32]:
        """(M, K, d), 1 ≤ M ≤ 256 and 1 ≤ K ≤ 256: a code represents the sum of the M codewords that it names."""

    def encode(self, X: Any, /) -> NDArray[np.uint8]:
        """Choose codes (n, M) for vectors (n, d) of any real type: row i names a codeword of each codebook."""


class Adopted(Quantizer):
    """A quantizer of another origin, with the methods of this package's quantizers."""

    def __init__(self, theirs: QuantizerLike) -> None:
        self.theirs = theirs
        self.n_jobs = getattr(theirs, "n_jobs", None)
        self._set(_codebooks(theirs).copy())
        self.history_ = []

    def _encode(self, X: NDArray[Any], report: Callable[[int, int], object] | None) -> NDArray[np.uint8]:
        if not np.array_equal(_codebooks(self.theirs), self.codebooks_):
            raise ArgumentValueError(
                "quantizer", "has other codebooks_ than when the index was made: make a new index of it"
            )
        progress = None if report is None else lambda stage, done, total: report(done, total)
        return _checked(_call(self.theirs, X, progress), self.codebooks_, len(X))

    def fit(self, X: object, y: object = None) -> Adopted:
        """Refuse: the quantizer itself can be fitted."""
        raise TypeError(f"this is an index's copy of a {type(self.theirs).__name__}: fit that, and make a new index")

    def __repr__(self) -> str:
        return f"Adopted({self.theirs!r})"


def adopted(quantizer: QuantizerLike, n_jobs: int | None = None) -> Quantizer:
    """Return a copy of a fitted quantizer for an index to keep: later changes of the original do not affect it.

    Raises
    ------
    TypeError
        It has no `encode`.
    NotFittedError
        It has no codebooks yet.
    ValueError
        Its codebooks have a wrong shape, or hold NaN or infinity.
    """
    if isinstance(quantizer, (type, str)) or not callable(getattr(quantizer, "encode", None)):
        raise ArgumentTypeError(
            "quantizer",
            f"is {quantizer!r}: want a fitted CompositionalCodes or another object with codebooks_ and encode(X), or "
            "Index.load(path)",
        )
    if isinstance(quantizer, Quantizer):
        own, codebooks = copy.copy(quantizer), _codebooks(quantizer)
        if codebooks.flags.writeable:
            own._set(codebooks.copy(), own._selection)
    else:
        try:
            own = Adopted(copy.copy(quantizer))
        except TypeError:  # cannot be copied, such as an object of an extension module
            own = Adopted(quantizer)
    if n_jobs is not None:
        own.n_jobs = n_jobs
        if isinstance(own, Adopted) and own.theirs is not quantizer and hasattr(own.theirs, "n_jobs"):
            setattr(own.theirs, "n_jobs", n_jobs)  # noqa: B010  # an attribute that the protocol leaves open
    return own


def encoded(
    quantizer: Quantizer, X: NDArray[Any], progress: ProgressLike, lists: NDArray[np.int64] | None = None
) -> NDArray[np.uint8]:
    """Encode with what `adopted` returned, in these lists if it has any; codes from foreign subclasses are checked."""
    if lists is not None:
        encode: Callable[..., Any] = quantizer.encode
        return _checked(encode(X, lists=lists, progress=progress), quantizer.codebooks_, len(X))
    return _checked(_call(quantizer, X, progress), quantizer.codebooks_, len(X))


def _call(quantizer: QuantizerLike, X: NDArray[Any], progress: ProgressLike) -> Any:
    """Call `encode`, with `progress` if it accepts that."""
    encode: Callable[..., Any] = quantizer.encode
    try:
        parameters = inspect.signature(encode).parameters.values()
    except ValueError:  # of an extension module
        return encode(X)
    takes = any(p.name == "progress" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    return encode(X, progress=progress) if takes else encode(X)


def _codebooks(quantizer: QuantizerLike) -> NDArray[np.float32]:
    try:
        given = quantizer.codebooks_
    except AttributeError:
        raise NotFittedError(f"quantizer is {quantizer!r}: it has no codebooks_, so call fit(X) first") from None
    codebooks = np.asarray(given)
    if codebooks.ndim != 3 or codebooks.dtype.kind not in "fiu":
        raise ArgumentValueError(
            "quantizer", f".codebooks_ has shape {codebooks.shape}, {codebooks.dtype}: want (M, K, d) float32"
        )
    codebooks = np.ascontiguousarray(codebooks, dtype=np.float32)
    check_rows("quantizer.codebooks_", codebooks)
    return codebooks


def _checked(codes: Any, codebooks: NDArray[np.float32], n: int) -> NDArray[np.uint8]:
    if np.shape(codes) != (n, len(codebooks)):
        raise ArgumentValueError("quantizer", f".encode gave shape {np.shape(codes)}: want ({n}, {len(codebooks)})")
    try:
        taken = np.ascontiguousarray(as_codes(codes, len(codebooks)))
    except ArgumentError as error:
        raise type(error)("quantizer", f".encode: codes {error.problem}") from None
    if taken.size and taken.max() >= codebooks.shape[1]:
        raise ArgumentValueError(
            "quantizer", f".encode gave a code of {taken.max()}, the codebooks have {codebooks.shape[1]} codewords"
        )
    return taken
