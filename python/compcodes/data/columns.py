"""Vectors in .parquet and .hdf5 files, read by optional packages."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["load_hdf5", "load_parquet"]


def load_parquet(path: Path) -> NDArray[Any]:
    """Read a Parquet file whose vectors are one column of lists, or whose columns are all numbers.

    A column of lists may stand among other columns; there must be exactly one.
    """
    pa = _need("pyarrow", extra="parquet", path=path)
    compute = _need("pyarrow.compute", extra="parquet", path=path)
    parquet = _need("pyarrow.parquet", extra="parquet", path=path)
    try:
        schema = parquet.read_schema(path)
        lists = [field.name for field in schema if _is_list(pa, field.type)]
        columns = lists or schema.names
        if len(lists) > 1 or not columns:
            raise ValueError(f"expected one column of lists, found {lists}")
        table = parquet.read_table(path, columns=columns).combine_chunks()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, column in zip(table.column_names, table.columns, strict=True):
        if missing := column.null_count or (column.combine_chunks().flatten().null_count if lists else 0):
            raise ValueError(f"{path}: column {name!r} has {missing} missing values")
    if not lists:
        return np.stack([column.to_numpy() for column in table.columns], axis=1)
    column = table.column(0).combine_chunks()
    lengths = np.unique(compute.list_value_length(column).to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise ValueError(f"{path}: lists in {lists[0]!r} must have one length, found {lengths.tolist()[:5]}")
    values: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1 if len(column) else 0)


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
