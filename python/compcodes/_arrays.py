"""Arguments converted to the arrays that the compiled core takes: no copies, and errors that name the argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes.errors import ArgumentError, ArgumentTypeError, ArgumentValueError
from compcodes.interop.columns import plain

__all__ = [
    "RandomState",
    "as_codes",
    "as_count",
    "as_ids",
    "as_numbers",
    "as_queries",
    "as_seed",
    "as_vectors",
    "as_weights",
    "check_features",
    "check_jobs",
    "check_range",
    "check_rows",
    "numbered",
    "size_of",
]


RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


_END = 2**63
"""Above the largest id."""


def as_numbers(name: str, value: ArrayLike) -> NDArray[Any]:
    """Take anything array-like as real numbers, without copying it; also columns and tensors of other packages."""
    try:
        array = np.asarray(plain(value, name))
    except ArgumentError:
        raise
    except (TypeError, ValueError) as error:
        kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentValueError
        raise kind(name, f"is not an array of numbers: {error}") from None
    if not array.flags.aligned and not isinstance(value, np.memmap):
        array = array.copy()  # such as Dask receives over the network
    if np.ma.isMaskedArray(value) and np.ma.is_masked(value):
        raise ArgumentTypeError(name, "is a masked array: fill or drop what is masked")
    if array.dtype == object and array.size:
        array = _as_floats(array, name)
    if array.dtype.kind not in "fiu":
        raise ArgumentTypeError(name, f"has dtype {array.dtype}: want real numbers")
    return array


def _as_floats(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Convert objects that are numbers."""
    wrong = [one for one in array.flat if one is None or isinstance(one, (str, bytes))][:1]
    try:
        if wrong:
            raise TypeError(f"one is {wrong[0]!r}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(name, f"has dtype object: want real numbers ({error})") from None


def check_features(X: NDArray[Any], expected: int, estimator: str) -> None:
    """Reject vectors of another dimension, in the wording that scikit-learn's tools look for."""
    if X.shape[1] != expected:
        raise ArgumentValueError(
            "X", f"has {X.shape[1]} features, but {estimator} is expecting {expected} features as input"
        )


def as_vectors(X: ArrayLike, name: str, dim: int | None = None) -> NDArray[Any]:
    """View `X` as (n, d) without copying it: the core reads any real number type a chunk at a time."""
    array = as_numbers(name, X)
    if array.ndim != 2:
        hint = " (Reshape your data: one vector is X[None, :])" if array.ndim == 1 else ""
        raise ArgumentValueError(name, f"has shape {array.shape}: want (n, d){hint}")
    if array.shape[1] == 0:
        have = f"has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required"
        raise ArgumentValueError(name, f"{have}: want at least one dimension")
    if dim is not None and array.shape[1] != dim:
        raise ArgumentValueError(name, f"has {array.shape[1]} dimensions, the model has {dim}")
    return array


def as_queries(Q: ArrayLike, dim: int, name: str = "Q") -> NDArray[np.float32]:
    """Return queries (nq, d) as float32; a single query (d,) becomes (1, d)."""
    if type(Q) is np.ndarray and Q.dtype == np.float32 and Q.shape[1:] == (dim,):
        flags = Q.flags
        if flags.c_contiguous and flags.aligned:
            return Q  # the usual case, which takes a tenth of the time of the others
    array = as_numbers(name, Q)
    if array.ndim == 1:
        array = array[None, :]
    array = as_vectors(array, name, dim)
    with np.errstate(over="ignore"):  # values that float32 cannot hold become infinite, and are rejected as such
        return np.ascontiguousarray(array, dtype=np.float32)


def as_codes(codes: ArrayLike, n_codebooks: int) -> NDArray[np.uint8]:
    """Return codes (n, M) as uint8; other integers are accepted if they fit."""
    array = as_numbers("codes", codes)
    if array.ndim != 2 or array.shape[1] != n_codebooks:
        raise ArgumentValueError("codes", f"have shape {array.shape}: want (n, {n_codebooks})")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError("codes", f"have dtype {array.dtype}: want uint8")
    if array.size and (array.min() < 0 or array.max() > 255):
        raise ArgumentValueError("codes", f"range from {array.min()} to {array.max()}: want 0 to 255")
    return array.astype(np.uint8)


def plain_ids(ids: ArrayLike, name: str) -> NDArray[Any]:
    """Return integers of any kind as an array; other ids are identified by their type."""
    if isinstance(ids, range) and ids and not -_END <= min(ids[0], ids[-1]) <= max(ids[0], ids[-1]) < _END:
        raise ArgumentValueError(name, f"hold {max(ids[0], ids[-1])}, which is beyond int64: want at most 2**63 - 1")
    if np.ma.isMaskedArray(ids) and np.ma.is_masked(ids):
        raise ArgumentTypeError(name, "are a masked array: drop what is masked, as its method compressed() does")
    array = np.asarray(plain(ids, name))
    if array.dtype.kind in "Of" and isinstance(ids, (int, list, tuple)):  # numpy has no type for integers this large
        large = [one for one in np.ravel(np.array(ids, dtype=object)) if type(one) is int and not -_END <= one < _END]
        if large:
            raise ArgumentValueError(name, f"hold {large[0]}, which is beyond int64: want at most 2**63 - 1")
    if array.dtype.kind in "UOS":
        raise ArgumentTypeError(name, f"have dtype {array.dtype}: want int64, or an index of keys, Index(…, keys=True)")
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(name, f"have dtype {array.dtype}: want int64")
    return array


def size_of(ids: range) -> int:
    """Count the numbers in a range; `len` fails beyond 2⁶³."""
    return (ids[-1] - ids[0]) // ids.step + 1 if ids else 0


def as_ids(ids: ArrayLike, n: int, name: str = "ids") -> NDArray[np.int64]:
    """Return ids (n,) as int64."""
    if isinstance(ids, range) and size_of(ids) != n:
        raise ArgumentValueError(name, f"have shape ({size_of(ids)},): want ({n},), one for each vector")
    array = np.atleast_1d(ids) if np.size(ids) == 0 else np.atleast_1d(plain_ids(ids, name))
    if array.shape != (n,):
        raise ArgumentValueError(name, f"have shape {array.shape}: want ({n},), one for each vector")
    if n == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(name, f"have dtype {array.dtype}: want int64")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ArgumentValueError(name, f"hold {array.max()}, which is beyond int64: want at most 2**63 - 1")
    return array.astype(np.int64)


def as_weights(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """Return weights (n,) as float64: 0 to 1e30, so that sums and products stay finite; not all zero. Masks too."""
    kind = getattr(getattr(sample_weight, "dtype", None), "kind", None)
    listed = isinstance(sample_weight, (list, tuple)) and all(isinstance(w, (bool, np.bool_)) for w in sample_weight)
    if kind == "b" or listed:
        sample_weight = np.asarray(sample_weight, dtype=np.float64)
    weights = np.ascontiguousarray(as_numbers("sample_weight", sample_weight), dtype=np.float64)
    if weights.shape != (n,):
        raise ArgumentValueError("sample_weight", f"has shape {weights.shape}: want ({n},), one for each row of X")
    fitting = (weights >= 0) & (weights <= 1e30)
    if not fitting.all():
        row = int(np.argmin(fitting))
        raise ArgumentValueError(
            "sample_weight", f"[{row}] is {weights[row]}: want a finite number of at least 0, at most 1e30"
        )
    if not weights.any():
        raise ArgumentValueError("sample_weight", "is zero everywhere")
    return weights


def check_rows(name: str, values: NDArray[Any], rows: NDArray[np.int64] | None = None) -> None:
    """Reject vectors with NaN or infinity, naming the first; `rows` gives their row numbers in `name`."""
    finite: NDArray[np.bool_] = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not finite.all():
        row = int(finite.argmin())
        row = row if rows is None else int(rows[row])
        raise ArgumentValueError(name, f"row {row} holds NaN, an infinity or a value beyond float32")


def numbered(name: str, blocks: Iterable[NDArray[Any]], first: int = 0) -> Iterator[tuple[int, NDArray[Any]]]:
    """Check vectors that come in blocks from row `first`; yields each with the number of its first row, for errors."""
    for block in blocks:
        with np.errstate(over="ignore"):  # values that float32 cannot hold become infinite, and are rejected as such
            check_rows(name, block.astype(np.float32, copy=False), np.arange(first, first + len(block)))
        yield first, block
        first += len(block)


def as_count(name: str, value: Any) -> int:
    """Return a count, which must be at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(name, f"is {value!r}: want an integer")
    if not 1 <= value < 2**60:
        raise ArgumentValueError(name, f"is {value}: want at least 1" + (" and below 2**60" if value > 1 else ""))
    return int(value)


def check_jobs(n_jobs: Any) -> None:
    """Reject what cannot be a number of threads."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)):
        raise ArgumentTypeError("n_jobs", f"is {n_jobs!r}: want an integer, or None for all cores")
    if n_jobs == 0 or not -(2**31) < n_jobs < 2**31:
        raise ArgumentValueError("n_jobs", f"is {n_jobs}: want a number of threads, or None for all cores")


def check_range(name: str, value: Any, low: int, high: int | None = None) -> None:
    """Reject what is not an integer in the range."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(name, f"is {value!r}: want an integer")
    if value < low or (high is not None and value > high):
        raise ArgumentValueError(
            name, f"is {value}: want " + (f"at least {low}" if high is None else f"{low} to {high}")
        )


def as_seed(random_state: RandomState) -> int:
    """Turn what scikit-learn calls a random state into a seed: for a generator, its next number."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**63 - 1, dtype=np.int64))
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise ArgumentTypeError(
            "random_state", f"is {random_state!r}: want an integer, a numpy Generator or RandomState, or None"
        )
    if not 0 <= random_state < 2**64:
        raise ArgumentValueError("random_state", f"is {random_state}: want 0 to 2**64 - 1")
    return int(random_state)
