"""Keys: what identifies vectors instead of numbers, in the form of the strings that an index and its file keep.

A string is kept unchanged. Anything else becomes JSON after a NUL: an integer a number, a tuple a list, bytes and UUIDs
an object that names the type; so does a string that begins with NUL.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import size_of
from compcodes.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["as_key", "as_keys", "is_frame", "key_array", "listed"]

_KINDS = "strings, integers, bytes, UUIDs or tuples of them"

_DEEPEST = 100
"""The deepest nesting of tuples: reading them back must not exceed Python's stack."""


def as_key(key: object, name: str = "ids") -> str:
    """Write a key as a string.

    Raises
    ------
    TypeError
        It is of a kind that files cannot keep, such as a float.
    ValueError
        It is a string that UTF-8 cannot encode.
    """
    if isinstance(key, str):
        key = str.__str__(key)  # the text itself, not what a subclass such as an Enum shows in its place
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise ArgumentValueError(name, f"hold {key!r}, which is no Unicode text: {error.reason}") from None
        if not key.startswith("\0"):
            return key
    try:
        return "\0" + json.dumps(_plain(key, name), separators=(",", ":"))
    except ArgumentValueError:
        raise
    except ValueError as error:  # Python only writes integers of up to some thousand digits
        raise ArgumentValueError(name, f"hold an integer that is too long for a key: {error}") from None


def _plain(key: object, name: str, depth: int = 0) -> Any:
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return int(key)
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, uuid.UUID):
        return {"uuid": key.hex}
    if isinstance(key, tuple):
        if depth == _DEEPEST:
            raise ArgumentValueError(name, f"hold a tuple of more than {_DEEPEST} tuples one in another")
        return [_plain(part, name, depth + 1) for part in key]
    raise ArgumentTypeError(
        name, f"hold {key!r}, of type {type(key).__name__}: want keys that a file can keep: {_KINDS}"
    )


def _read(text: str) -> object:
    if not text.startswith("\0"):
        return text
    try:
        return _raised(json.loads(text[1:]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # A file from another program: as_key writes no such text.
        raise ValueError(f"the index has a key that cannot be read: {text[:80]!r}") from None


def _raised(plain: Any) -> object:
    if isinstance(plain, list):
        return tuple(map(_raised, plain))
    if isinstance(plain, dict):
        return bytes.fromhex(plain["bytes"]) if "bytes" in plain else uuid.UUID(hex=plain["uuid"])
    if not isinstance(plain, (str, int)) or isinstance(plain, bool):
        raise ValueError(plain)
    return plain


def is_frame(value: Any) -> bool:
    """Whether it is a data frame of pandas or polars, whose elements are its columns."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def listed(values: Any) -> list[Any]:
    """Return the elements of a list, an array, or a column of some data frame."""
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            found = getattr(values, method)()
            return found if isinstance(found, list) else [found]
    return list(values)


def as_keys(keys: Any, n: int | None = None, name: str = "ids") -> list[str]:
    """Write keys as strings; if `n` is given, one per vector, in their order."""
    if n is not None and isinstance(keys, (set, frozenset)):
        raise ArgumentTypeError(name, "are a set, which has no order: want a list or an array, a key for each vector")
    if n is not None and isinstance(keys, range) and size_of(keys) != n:
        raise ArgumentValueError(name, f"has {size_of(keys)} entries: want {n}, one for each vector")
    if getattr(getattr(keys, "dtype", None), "kind", "") in ("M", "m"):
        raise ArgumentTypeError(name, f"have dtype {keys.dtype}: want keys that a file can keep: {_KINDS}")
    if isinstance(keys, (str, bytes, int, uuid.UUID)):
        keys = [keys]
    elif isinstance(keys, dict) or not isinstance(keys, Iterable):
        raise ArgumentTypeError(name, f"are {type(keys).__name__}: want a list or an array of keys")
    if is_frame(keys):
        if keys.shape[1] != 1:
            raise ArgumentTypeError(name, f"are a frame of {keys.shape[1]} columns: want one, or a list of keys")
        keys = keys.to_numpy().ravel()
    written = listed(keys)
    if not _core.are_plain(written):
        written = [as_key(key, name) for key in written]
    if n is not None and len(written) != n:
        raise ArgumentValueError(name, f"has {len(written)} entries: want {n}, one for each vector")
    return written


def key_array(written: Sequence[str | None], shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Read keys into an array of objects; None stays None."""
    array = np.empty(len(written), dtype=object)
    if _are_texts(written):
        array[:] = written
        return array.reshape(shape)
    for at, text in enumerate(written):  # one by one: numpy would take tuples for rows
        array[at] = None if text is None else _read(text)
    return array.reshape(shape)


def _are_texts(written: Sequence[str | None]) -> bool:
    """Whether no key is missing, and all are plain text."""
    return None not in written and "\0" not in "".join(written)  # type: ignore[arg-type]
