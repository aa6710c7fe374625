"""Arguments as the arrays that the compiled core takes: no copies, and errors that name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_codes",
    "as_count",
    "as_ids",
    "as_numbers",
    "as_queries",
    "as_vectors",
    "as_weights",
    "check_jobs",
    "check_range",
]


def as_numbers(name: str, value: ArrayLike) -> NDArray[Any]:
    """Anything array-like as an array of real numbers, without copying it."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} is not an array of numbers: {error}") from None
    if np.ma.isMaskedArray(value) and np.ma.is_masked(value):
        raise TypeError(f"{name} is a masked array: fill or drop what is masked")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}: want real numbers")
    return array


def as_vectors(X: ArrayLike, name: str, dim: int | None = None) -> NDArray[Any]:
    """Look at `X` as (n, d) without copying it: the core reads any real number type a chunk at a time."""
    array = as_numbers(name, X)
    if array.ndim != 2:
        hint = " (one vector is X[None, :])" if array.ndim == 1 else ""
        raise ValueError(f"{name} has shape {array.shape}: want (n, d){hint}")
    if dim is not None and array.shape[1] != dim:
        raise ValueError(f"{name} has {array.shape[1]} dimensions, the model has {dim}")
    return array


def as_queries(Q: ArrayLike, dim: int, name: str = "Q") -> NDArray[np.float32]:
    """Queries (nq, d) as float32; one query (d,) becomes (1, d)."""
    array = as_numbers(name, Q)
    if array.ndim == 1:
        array = array[None, :]
    array = as_vectors(array, name, dim)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return np.ascontiguousarray(array, dtype=np.float32)


def as_codes(codes: ArrayLike, n_codebooks: int) -> NDArray[np.uint8]:
    """Codes (n, M) as uint8; other integers are taken where they fit."""
    array = as_numbers("codes", codes)
    if array.ndim != 2 or array.shape[1] != n_codebooks:
        raise ValueError(f"codes have shape {array.shape}: want (n, {n_codebooks})")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iu":
        raise TypeError(f"codes have dtype {array.dtype}: want uint8")
    if array.size and (array.min() < 0 or array.max() > 255):
        raise ValueError(f"codes range from {array.min()} to {array.max()}: want 0 to 255")
    return array.astype(np.uint8)


def as_ids(ids: ArrayLike, n: int, name: str = "ids") -> NDArray[np.int64]:
    """Ids (n,) as int64."""
    array = np.atleast_1d(ids) if np.size(ids) == 0 else np.atleast_1d(as_numbers(name, ids))
    if array.shape != (n,):
        raise ValueError(f"{name} have shape {array.shape}: want ({n},), one for each vector")
    if n == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} have dtype {array.dtype}: want int64")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} hold {array.max()}, which is beyond int64")
    return array.astype(np.int64)


def as_weights(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """Weights (n,) as float64: 0 to 1e30, so that their sums and products stay finite; not all zero."""
    weights = np.ascontiguousarray(as_numbers("sample_weight", sample_weight), dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight has shape {weights.shape}: want ({n},), one for each row of X")
    fitting = (weights >= 0) & (weights <= 1e30)
    if not fitting.all():
        row = int(np.argmin(fitting))
        raise ValueError(f"sample_weight[{row}] is {weights[row]}: want a finite number of at least 0, at most 1e30")
    if not weights.any():
        raise ValueError("sample_weight is zero everywhere")
    return weights


def check_rows(name: str, values: NDArray[Any], rows: NDArray[np.int64] | None = None) -> None:
    """Refuse vectors that are not all finite, by the first that is not; `rows` says which of `name` they are."""
    finite: NDArray[np.bool_] = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not finite.all():
        row = int(finite.argmin())
        row = row if rows is None else int(rows[row])
        raise ValueError(f"{name} row {row} holds NaN, an infinity or a value beyond float32")


def as_count(name: str, value: Any) -> int:
    """A number of things, at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}: want an integer")
    if not 1 <= value < 2**60:
        raise ValueError(f"{name} is {value}: want at least 1" + (" and below 2**60" if value > 1 else ""))
    return int(value)


def check_jobs(n_jobs: Any) -> None:
    """Refuse what cannot be a number of threads."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)):
        raise TypeError(f"n_jobs is {n_jobs!r}: want an integer, or None for all cores")
    if n_jobs == 0 or not -(2**31) < n_jobs < 2**31:
        raise ValueError(f"n_jobs is {n_jobs}: want a number of threads, or None for all cores")


def check_range(name: str, value: Any, low: int, high: int | None = None) -> None:
    """Refuse what is not an integer in a range."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}: want an integer")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} is {value}: want " + (f"at least {low}" if high is None else f"{low} to {high}"))
