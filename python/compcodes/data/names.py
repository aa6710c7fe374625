"""Names of vectors, from one file or several: integers, or strings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes.data.columns import names_in
from compcodes.data.files import as_ids, check_regular, open_array, read_npy, split, with_column
from compcodes.data.many import column_of, is_many, kind_of, open_many, opened, parquet_file, paths_of

__all__ = ["load_names", "names_of"]

PathLike: TypeAlias = str | os.PathLike[str]


def load_names(path: PathLike | Sequence[PathLike], column: str | None = None) -> NDArray[Any]:
    """Read names of vectors: integers (n,) as int64, or strings (n,) as objects.

    From any format of `load`, whose array may also hold strings; from a .parquet file, the only column of integers or
    strings, or the named one; or from a .txt file, one per line.

    Parameters
    ----------
    path : str, path or list of these
        A file, or several as for `open_many`: a folder, a pattern or a list. Their names are in the same order in which
        `open_many` has their vectors.
    column : str, optional
        The column, or dataset; ``file.parquet:name`` and ``folder:name`` name it, too.

    Raises
    ------
    OSError
        A file cannot be read.
    ValueError
        It holds neither integers nor strings, or another kind than the file before; or there is no such column.
    ImportError
        The format needs a package that is not installed.
    """
    return names_of(path, column)


def names_of(path: PathLike | Sequence[PathLike], column: str | None = None, option: str = "column") -> NDArray[Any]:
    """Read names of vectors; `option` is the user's name for `column`."""
    if not is_many(path):
        name, own = split(path if column is None else with_column(os.fspath(path), column, option))  # type: ignore[arg-type]
        return _names_of(name, own, name)
    source, column, called = column_of(path, column, option)
    paths = paths_of(source)
    if column is not None:
        for each in paths:
            if kind_of(each) not in (".parquet", ".h5", ".hdf5"):
                raise ValueError(f"{called} names a column of .parquet files, not of {each}")
    found = [(each, names) for each in paths if len(names := _names_of(each, column, source))]
    kinds = {names.dtype == object: each for each, names in found}
    if len(kinds) > 1:
        raise ValueError(f"{kinds[False]} holds ids that are integers, {kinds[True]} strings: want one kind in all")
    return np.concatenate([names for _, names in found]) if found else np.zeros(0, np.int64)


def _names_of(path: str, column: str | None, source: Any) -> NDArray[Any]:
    """Read the names in one file."""
    try:
        return _read_names(path, column, source)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: ids are not UTF-8 text: {error.reason} at byte {error.start}") from None


def _read_names(path: str, column: str | None, source: Any) -> NDArray[Any]:
    kind, is_local = kind_of(path), "://" not in path
    if is_local:
        check_regular(path)
    if kind == ".txt":
        with opened(path) as file:
            return np.array(file.read().decode("utf-8").splitlines(), dtype=object)
    if kind == ".parquet":
        with opened(path) as file:
            array = names_in(parquet_file(file, path), column, path, source)
    elif is_local:
        array = open_array(path if column is None else with_column(path, column))
    elif kind == ".npy":
        with opened(path) as file:
            array = read_npy(file, path)
    else:
        array = open_many([path])[:]
    return _as_names(array, path if column is None else f"{path}:{column}")


def _as_names(array: NDArray[Any], path: str) -> NDArray[Any]:
    if array.dtype.kind in "iu":
        return as_ids(array, path).reshape(-1)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        array = np.array([one.decode() if isinstance(one, bytes) else one for one in array.reshape(-1)], dtype=object)
    if array.dtype.kind not in "UO" or not all(isinstance(one, str) for one in array.reshape(-1).tolist()):
        raise ValueError(f"{path}: ids must be integers or strings, found {array.dtype}")
    return array.reshape(-1).astype(object)
