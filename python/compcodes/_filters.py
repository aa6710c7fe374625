"""The arguments `filter` and `exclude` of a search, as the compiled core takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import size_of
from compcodes._keys import as_keys, is_frame, key_array, listed
from compcodes._warn import warn
from compcodes.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["FilterLike", "FilterWarning", "Searched", "as_filter", "warn_of_unknown"]

FilterLike: TypeAlias = Any
"""A mask, ids or keys, a range; or one of them per query: lists, a sparse matrix, a boolean matrix."""

_LARGEST = 2**63 - 1
"""The largest possible id."""
_FEW = 8
"""Up to so many vectors, 0 and 1 for each of them may well be ids."""
_SMALL = 4096
"""Ranges up to this size are written out, without looking at which of their ids there are."""


class FilterWarning(UserWarning):
    """A search is limited to names, or must not find them, and the index has none of them."""


def warn_of_unknown(allowed: Any, excluded: Any, contains: Callable[[Any], bool]) -> None:
    """Warn if `filter` or `exclude`, in the core's form, names vectors of which none exists.

    Names that each query is limited to may well be unknown, and so may ids that are excluded; but if all excluded keys
    are unknown, they may be of the wrong type. Masks and ranges do not name individual vectors.
    """
    if allowed is None and excluded is None:
        return
    if isinstance(excluded, tuple):  # of each query
        excluded = excluded[1]
    for name, names, outcome in (("filter", allowed, "found"), ("exclude", excluded, "excluded")):
        keyed = isinstance(names, (list, _core.Keys))
        is_ids = name == "filter" and isinstance(names, np.ndarray) and names.dtype == np.int64
        if not (keyed or is_ids) or not len(names) or any(map(contains, names)):
            continue
        first = repr(key_array([names[0]], (1,))[0]) if keyed else str(names[0])
        kind, hint = ("keys", "; 7 and '7' are different keys") if keyed else ("ids", "")
        warn(
            f"{name} holds {len(names):,} {kind}, and the index has none of them (the first is {first}{hint}): nothing "
            f"is {outcome}",
            FilterWarning,
        )


class Searched(Protocol):
    """An index, as far as filters depend on it."""

    @property
    def has_keys(self) -> bool:
        """Whether vectors are identified by keys."""

    @property
    def ids(self) -> NDArray[Any]:
        """The names of its vectors."""

    def __len__(self) -> int: ...


def as_filter(value: FilterLike, name: str, n_queries: int, index: Searched) -> Any:
    """Turn what a search is limited to, or must not find, into what the core takes."""
    has_keys = index.has_keys
    value = value.to_numpy() if is_frame(value) else value
    _check_unmasked(value, name)
    if isinstance(value, range):
        if not has_keys:
            return _clipped(value)
        value = _within(value, index)
    given = value
    if isinstance(value, np.ndarray):
        _check_mask(value, name, index)
    if isinstance(value, (str, bytes)):
        raise ArgumentTypeError(name, f"is {value!r}: want a list of keys" if has_keys else f"is {value!r}: want ids")
    if hasattr(value, "tocsr"):
        return _of_matrix(value, name, n_queries, has_keys)
    if _is_column(value) and str(getattr(value, "dtype", getattr(value, "type", ""))).lower() in ("object", "null"):
        rows = listed(value)
        if rows and all(map(_is_missing, rows)):  # histories of nobody
            return _of_each(rows, name, n_queries, index)
    if isinstance(value, (set, frozenset)):
        value = list(value)
    elif str(getattr(value, "dtype", "")) == "object" and hasattr(value, "to_numpy"):
        value = value.to_numpy()  # a pandas column, possibly of lists
    if _is_nested(value, has_keys):
        rows = list(value) if getattr(value, "ndim", 1) == 2 else listed(value)
        return _of_each(rows, name, n_queries, index)
    if isinstance(value, dict) or (has_keys and not isinstance(value, Iterable)):
        wanted = "a bool mask or a list of keys" if has_keys else "a bool mask, integer ids or a range"
        raise ArgumentTypeError(name, f"is {value!r}: want {wanted}")
    if has_keys and not _is_mask(value):
        values = _keys_in(given)
        is_mask = bool(values) and all(isinstance(one, (bool, np.bool_)) for one in values)
        if len(values) == len(index) and all(type(one) is int and 0 <= one <= 1 for one in values):
            _check_mask(np.array(values), name, index)
        return np.array(values, dtype=bool) if is_mask else as_keys(values, name=name)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ArgumentValueError(
            name, "is nested unevenly: want ids, or a list of ids for each query, an empty one for none"
        ) from None
    if array.dtype == bool and array.ndim == 2:
        _check_queries(name, len(array), n_queries)
        return np.ascontiguousarray(array)
    if array.ndim == 2:
        return _of_each(list(array), name, n_queries, index)
    if array.ndim == 0:
        raise ArgumentTypeError(name, f"is {value!r}: want a bool mask, integer ids or a range")
    if array.ndim != 1:
        raise ArgumentValueError(name, f"has shape {array.shape}: want one dimension, or a row for each query")
    if array.dtype == bool:
        return array
    array = _known(array, value, name)
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentTypeError(name, f"has dtype {array.dtype}: want a bool mask, integer ids or a range")
    _check_mask(array, name, index)
    return array.astype(np.int64)  # values beyond int64 become negative, and match no id


def _check_mask(array: NDArray[Any], name: str, index: Searched) -> None:
    """Refuse 0 and 1 for each vector, unless there are few: as ids they would be repeated many times."""
    is_of_vectors = array.ndim in (1, 2) and array.shape[-1] == len(index) > _FEW and array.size
    if is_of_vectors and array.dtype.kind in "iu" and 0 <= array.min() <= array.max() <= 1:
        raise ArgumentTypeError(name, f"holds 0 and 1 for each vector in {array.dtype}: a mask is of type bool")


def _known(array: NDArray[Any], value: Any, name: str, part: str = "") -> NDArray[Any]:
    """Return ids that numpy could not hold as integers: without those beyond int64, which no vector has."""
    if array.dtype.kind not in "fO" or not array.size:
        return array
    ids = listed(value)
    if any(map(_is_missing, ids)):
        raise ArgumentTypeError(name, f"{part}has missing values: fill or drop them")
    if not all(isinstance(id, (int, np.integer)) and not isinstance(id, bool) for id in ids):
        return array
    return np.array([id for id in ids if -_LARGEST <= id <= _LARGEST], dtype=np.int64)


def _is_nested(value: Any, has_keys: bool) -> bool:
    """Whether elements are themselves lists, one per query. A tuple may be a key."""

    def is_list(one: object) -> bool:
        return _is_list(one) and not (has_keys and isinstance(one, tuple))

    if isinstance(value, np.ndarray):
        if has_keys and value.ndim == 2:  # such as the keys that a search returned
            return bool(value.dtype != bool)
        are_missing = not has_keys and value.size and all(map(_is_missing, value.flat))
        return bool(value.dtype == object and (are_missing or any(map(is_list, value.flat))))
    if isinstance(value, (list, tuple)):
        some = [one for one in value if not _is_missing(one)]
        return bool(value) and all(map(is_list, some)) and not (some and _are_masks(some))
    kind = getattr(value, "dtype", getattr(value, "type", None))
    return kind is not None and "list" in str(kind).lower()


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, (list, tuple, set, frozenset, range)) or _is_column(value)


def _is_column(value: object) -> bool:
    """Whether it is a column of some data frame."""
    return hasattr(value, "to_numpy") and hasattr(value, "__len__")


def _is_missing(value: object) -> bool:
    """Whether it stands for nothing, in a list or a column of lists."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _is_mask(value: Any) -> bool:
    """Whether it is a boolean array, or consists of boolean lists or arrays, one per query."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype == bool)
    return isinstance(value, (list, tuple)) and bool(value) and all(map(_is_list, value)) and _are_masks(value)


def _keys_in(row: Any) -> list[Any]:
    """Return the keys in a list, set, array or column.

    None in an array of objects is left out: in the results of a search it stands for no vector, as the id -1 does.
    """
    keys = row if type(row) is list else listed(row)
    return [key for key in keys if key is not None] if isinstance(row, np.ndarray) and row.dtype == object else keys


def _are_masks(rows: Any) -> bool:
    return all(isinstance(next(iter(row), None), (bool, np.bool_)) for row in rows)


def _of_each(rows: list[Any], name: str, n_queries: int, index: Searched) -> tuple[NDArray[np.int64], Any]:
    """Return where the ids or keys of each query begin, and those of all queries."""
    _check_queries(name, len(rows), n_queries)
    for query, row in enumerate(rows):
        _check_unmasked(row, name, f"[{query}] ")
        if not (_is_list(row) or _is_missing(row)):
            raise ArgumentTypeError(name, f"[{query}] is {row!r}: want a list for each query")
        if name == "filter" and _is_missing(row):
            raise ArgumentTypeError(name, f"[{query}] is {row!r}: want a list for each query, an empty one for none")
    if any(isinstance(row, range) or _is_missing(row) or _is_column(row) for row in rows):
        rows = [_plain(row, index) for row in rows]
    if index.has_keys:
        rows = [_keys_in(row) for row in rows]
        plain = _core.keys_of_each(rows)
        if plain is not None:
            return plain
        keys = [as_keys(row, name=name) for row in rows]
        return _starts([len(row) for row in keys]), [key for row in keys for key in row]
    starts, ids = _core.ids_of_each(rows) or _joined(rows) or _one_by_one(rows, name)
    if rows and (np.diff(starts) == len(index)).all():
        _check_mask(ids.reshape(len(rows), -1), name, index)
    return starts, ids


def _one_by_one(rows: list[Any], name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the result of `_of_each` for ids of any kind."""
    arrays = [np.asarray(list(row) if isinstance(row, (set, frozenset)) else row) for row in rows]
    arrays = [_known(array, row, name, f"[{at}] ") for at, (array, row) in enumerate(zip(arrays, rows, strict=True))]
    for query, array in enumerate(arrays):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ArgumentTypeError(
                name, f"[{query}] has shape {array.shape}, {array.dtype}: want the integer ids of a query"
            )
    found = [array.astype(np.int64) for array in arrays]
    return _starts([len(array) for array in found]), np.concatenate([*found, np.zeros(0, dtype=np.int64)])


def _joined(rows: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the result of `_of_each` for arrays of ids of a single type, without looking at each element."""
    if set(map(type, rows)) != {np.ndarray} or len({row.dtype for row in rows}) > 1:
        return None
    if rows[0].dtype.kind not in "iu" or any(row.ndim != 1 for row in rows):
        return None
    return _starts([len(row) for row in rows]), np.concatenate(rows).astype(np.int64, copy=False)


def _of_matrix(matrix: Any, name: str, n_queries: int, has_keys: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the columns of the nonzero entries in each row of a sparse matrix."""
    if has_keys:
        raise ArgumentTypeError(name, "is a matrix, whose columns are ids: want keys, since the index has keys")
    rows = matrix.tocsr()
    _check_queries(name, rows.shape[0], n_queries)
    indptr, ids = np.asarray(rows.indptr, dtype=np.int64), np.asarray(rows.indices, dtype=np.int64)
    kept = np.asarray(rows.data) != 0
    if not kept.all():
        indptr, ids = np.concatenate([[0], np.cumsum(kept)])[indptr], ids[kept]
    return indptr, ids


def _check_unmasked(value: Any, name: str, part: str = "") -> None:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ArgumentTypeError(name, f"{part}is a masked array: drop what is masked, as its method compressed() does")


def _check_queries(name: str, n: int, n_queries: int) -> None:
    if n != n_queries:
        raise ArgumentValueError(name, f"has {n} rows for {n_queries} queries: want one for each")


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _plain(row: Any, index: Searched) -> Any:
    """Return what limits one query in a plain form."""
    if isinstance(row, range):
        return _within(row, index)
    return [] if _is_missing(row) else listed(row) if _is_column(row) else row


def _within(ids: range, index: Searched) -> Any:
    """Return a range, or which of its ids there are if it is long or goes beyond int64."""
    if size_of(ids) <= _SMALL and not (ids and max(abs(ids[0]), abs(ids[-1])) > _LARGEST):
        return ids
    names = index.ids
    if names.dtype == object:
        return [key for key in names if type(key) is int and key in ids]
    first, last, step = _clipped(ids)
    if step > _LARGEST:
        last, step = first, 1
    return names[(names >= first) & (names <= last) & ((names - first) % step == 0)]


def _clipped(ids: range) -> tuple[int, int, int]:
    """Return first, last and step of the ids in a range, ascending; the last is below the first if there are none."""
    ids = ids if ids.step > 0 else ids[::-1]
    if not ids:
        return 1, 0, 1
    first = ids[0] if ids[0] >= 0 else ids[0] % ids.step
    last = min(ids[-1], _LARGEST)
    if first > last:
        return 1, 0, 1
    return first, last, min(ids.step, _LARGEST + 1)
