"""Vectors in .parquet and .hdf5 files, read by optional packages."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["columns_of", "load_hdf5", "load_parquet", "vectors_of"]


def load_parquet(path: Path) -> NDArray[Any]:
    """Read a Parquet file whose vectors are one column of lists, or whose columns are all numbers.

    A column of lists may stand among other columns; there must be exactly one.
    """
    pa = _need("pyarrow", extra="parquet", path=path)
    parquet = _need("pyarrow.parquet", extra="parquet", path=path)
    try:
        names, _ = columns_of(parquet.read_schema(path), None, path)
        table = parquet.read_table(path, columns=names)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from None
    return vectors_of(table, None, path)


def columns_of(schema: Any, column: str | None, path: Any) -> tuple[list[str], bool]:
    """Return the columns of a schema that vectors are in, and whether that is one column of lists."""
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
        raise ValueError(f"{path}: expected one column of lists, found {lists}")
    return columns, bool(lists)


def vectors_of(table: Any, column: str | None, path: Any) -> NDArray[Any]:
    """Return the vectors in a table that has no other columns, (n, d)."""
    compute = _need("pyarrow.compute", extra="parquet", path=path)
    _, is_list = columns_of(table.schema, column, path)
    table = table.combine_chunks()
    for name, values in zip(table.column_names, table.columns, strict=True):
        if missing := values.null_count or (values.combine_chunks().flatten().null_count if is_list else 0):
            raise ValueError(f"{path}: column {name!r} has {missing} missing values")
    if not is_list:
        return np.stack([values.to_numpy() for values in table.columns], axis=1)
    values = table.column(0).combine_chunks()
    lengths = np.unique(compute.list_value_length(values).to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        name = table.column_names[0]
        raise ValueError(f"{path}: lists in {name!r} must have one length, found {lengths.tolist()[:5]}")
    flat: NDArray[Any] = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(values), -1 if len(values) else 0)


def load_hdf5(path: Path, dataset: str | None) -> NDArray[Any]:
    """Open one dataset of an HDF5 file; `dataset` may be left out where there is only one.

    A dataset that is stored in one uncompressed piece is mapped, any other is read.
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
        if offset is not None and found.size:
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
