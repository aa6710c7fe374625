"""Vectors in .parquet and .hdf5 files, read by optional packages."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes.interop.columns import from_arrow

__all__ = ["columns_of", "load_hdf5", "load_parquet", "names_in", "vectors_of"]


def load_parquet(path: Path, column: str | None = None) -> NDArray[Any]:
    """Read a Parquet file whose vectors are one column of lists, or whose columns are all numbers.

    Without a name there must be exactly one column of lists, possibly among other columns. A named column may also hold
    strings or numbers, such as ids.
    """
    pa = _need("pyarrow", extra="parquet", path=path)
    parquet = _need("pyarrow.parquet", extra="parquet", path=path)
    try:
        schema = parquet.read_schema(path)
        lists = [field.name for field in schema if _is_list(pa, field.type)]
        if column is not None and column not in schema.names:
            raise ValueError(f"no column {column!r}; it holds {', '.join(schema.names) or 'none'}")
        columns = [column] if column is not None else lists or schema.names
        if column is None and (len(lists) > 1 or not columns):
            raise ValueError(f"expected one column of lists, found {lists}: choose one as {path}:NAME")
        others = [
            field.name
            for field in schema
            if field.name in columns
            and not (lists or pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        ]
        if column is None and others:
            raise ValueError(f"column {others[0]!r} is not of numbers, and none is of lists: choose one as {path}:NAME")
        table = parquet.read_table(path, columns=columns)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    read = [_column(path, name, table.column(name)) for name in columns]
    return read[0] if lists or column is not None else np.stack(read, axis=1)


def columns_of(schema: Any, column: str | None, path: Any, choice: str | None = None) -> tuple[list[str], bool]:
    """Return the columns of a schema that hold vectors, and whether it is one column of lists.

    `choice` tells how the user can choose one of several.
    """
    pa = _need("pyarrow", extra="parquet", path=path)
    lists = [field.name for field in schema if _is_list(pa, field.type)]
    if column is not None:
        if column not in schema.names:
            raise ValueError(f"{path}: no column {column!r}; it holds {', '.join(schema.names) or 'none'}")
        if column not in lists:
            raise ValueError(f"{path}: column {column!r} is no column of lists")
        return [column], True
    columns = lists or list(schema.names)
    if len(lists) > 1 or not columns:
        hint = "" if choice is None else f": choose one {choice}"
        raise ValueError(f"{path}: expected one column of lists, found {lists}{hint}")
    return columns, bool(lists)


def vectors_of(table: Any, column: str | None, path: Any) -> NDArray[Any]:
    """Return the vectors in a table that has no other columns, (n, d)."""
    _, is_list = columns_of(table.schema, column, path)
    read = [_column(path, name, table.column(name)) for name in table.column_names]
    return read[0] if is_list else np.stack(read, axis=1)


def names_in(file: Any, column: str | None, path: Any, source: Any) -> NDArray[Any]:
    """Read a column of ids, integers or strings, from an open Parquet file: the named column, or the only one.

    `source` is the user's name for the file, or for all files.
    """
    types = _need("pyarrow", extra="parquet", path=path).types
    schema = file.schema_arrow
    if column is None:
        kinds = (types.is_integer, types.is_string, types.is_large_string)
        names = [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]
        if len(names) != 1:
            held = ", ".join(names) or "none"
            raise ValueError(f"{path}: choose the column of ids as {source}:NAME; it holds {held}")
        column = names[0]
    if column not in schema.names:
        raise ValueError(f"{path}: no column {column!r}; it holds {', '.join(schema.names) or 'none'}")
    return _column(path, column, file.read(columns=[column]).column(column))


def _column(path: Path, name: str, column: Any) -> NDArray[Any]:
    try:
        return from_arrow(column, f"column {name!r}")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def load_hdf5(path: Path, dataset: str | None) -> NDArray[Any]:
    """Open one dataset of an HDF5 file; `dataset` may be omitted if there is only one.

    A dataset that is stored in one uncompressed piece is mapped, others are read.
    """
    h5py = _need("h5py", extra="hdf5", path=path)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path}: not a whole HDF5 file ({error})") from None
    with file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        if dataset is None:
            if len(names) != 1:
                raise ValueError(f"{path}: choose a dataset as {path}:NAME; it holds {', '.join(names) or 'none'}")
            dataset = names[0]
        if not isinstance(file.get(dataset), h5py.Dataset):
            raise ValueError(f"{path}: no dataset {dataset!r}; it holds {', '.join(names) or 'none'}")
        found = file[dataset]
        offset = found.id.get_offset()
        is_plain = found.dtype.kind in "fiub"  # others hold addresses of data stored elsewhere
        if offset is not None and found.size and is_plain:
            return np.memmap(path, found.dtype, mode="r", offset=offset, shape=found.shape)
        return np.asarray(found)


def _is_list(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _need(module: str, *, extra: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(f"{path}: reading it needs {package}; run: pip install 'compcodes[{extra}]'") from None
