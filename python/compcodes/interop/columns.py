"""Vectors in the forms people have them in: data frame columns, Arrow arrays, tensors and lists, as numpy arrays.

Nothing is copied if the numbers are already contiguous in CPU memory. None of these packages is imported here, except
pyarrow if an object offers its Arrow capsule and no other way to numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["from_arrow", "plain"]


def plain(value: Any, name: str) -> Any:
    """Return an object that numpy understands, for a column, a frame, a tensor or a list of them.

    Raises
    ------
    TypeError, ValueError
        Rows of different lengths, missing values, columns that hold no vectors, a tensor on another device.
    """
    if isinstance(value, np.ndarray):
        return _stacked(value.tolist(), name) if value.dtype == object and value.ndim == 1 and len(value) else value
    if isinstance(value, (list, tuple)):
        return _stacked(value, name) if value and not isinstance(value[0], (int, float, np.generic)) else value
    if type(value).__module__.startswith("dask.delayed"):  # which seems to have every attribute
        raise ArgumentTypeError(name, f"is a delayed value of Dask: want what it stands for, {name}.compute()")
    if hasattr(value, "tocsr"):
        raise ArgumentTypeError(name, f"is a sparse matrix: want a dense array, {name}.toarray()")
    known = {"pandas": _of_pandas, "polars": _of_polars, "pyarrow": from_arrow, "torch": _of_torch}
    read = known.get(type(value).__module__.partition(".")[0])
    if read is not None:
        return read(value, name)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _widened(np.asarray(value))  # such as an array of JAX
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value, name)
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        return _of_capsule(value, name)
    return value


def _stacked(rows: Sequence[Any], name: str) -> Any:
    """Stack rows of equal length."""
    are_missing = [row is None or type(row).__name__ == "NAType" for row in rows]
    if any(are_missing):
        raise ArgumentValueError(name, f"row {are_missing.index(True)} is missing")
    if all(isinstance(row, (str, bytes)) for row in rows[:1]):
        return rows  # numpy reports what is wrong
    arrays = [np.asarray(plain(row, f"{name} row {at}")) for at, row in enumerate(rows)]
    shapes = [array.shape for array in arrays]
    if len(set(shapes)) > 1:
        at = next(at for at, shape in enumerate(shapes) if shape != shapes[0])
        raise ArgumentValueError(
            name, f"row {at} has shape {shapes[at]}, row 0 has {shapes[0]}: want rows of one length, as np.stack takes"
        )
    return np.stack(arrays)


def _of_pandas(value: Any, name: str) -> Any:
    if not hasattr(value, "ndim"):  # a scalar, such as a timestamp
        return value
    if value.ndim == 2:
        if value.shape[1] == 1:
            return _of_pandas(value.iloc[:, 0], name)
        _check_numbers(value.columns, [getattr(kind, "kind", "") in "fiu" for kind in value.dtypes], name)
        return _complete_of_pandas(value, name)
    kind = str(value.dtype)
    if kind == "object":
        return _stacked(value.tolist(), name) if len(value) else np.zeros((0, 0))
    if "list" in kind:
        return from_arrow(_pyarrow(name).Array.from_pandas(value), name)
    return _complete_of_pandas(value, name)


def _complete_of_pandas(value: Any, name: str) -> NDArray[Any]:
    """Return the numbers of a column or a frame; pandas turns missing values in its own types into objects or NaN."""
    kinds = value.dtypes if value.ndim == 2 else [value.dtype]
    if not all(isinstance(kind, np.dtype) for kind in kinds):
        missing = np.asarray(value.isna()).reshape(len(value), -1).any(axis=1)
        if missing.any():
            raise ArgumentValueError(name, f"row {int(missing.argmax())} has a missing value: fill or drop it")
    array: NDArray[Any] = value.to_numpy()
    return array


def _of_polars(value: Any, name: str) -> Any:
    value = value.collect() if hasattr(value, "collect") else value
    if hasattr(value, "columns"):
        if value.width == 1:
            return _of_polars(value.to_series(0), name)
        _check_numbers(value.columns, [kind.is_numeric() for kind in value.dtypes], name)
        _check_complete(sum(value.null_count().row(0)), name)
        return value.to_numpy()
    _check_complete(value.null_count(), name)
    kind = str(value.dtype)
    if kind.startswith("Array"):
        values: NDArray[Any] = value.to_numpy()
        return values
    if not kind.startswith("List"):
        return value.to_numpy()
    values = value.explode().to_numpy() if len(value) else np.zeros(0)
    return _rows(values, value.list.len().to_numpy(), name)


def from_arrow(value: Any, name: str) -> NDArray[Any]:
    """Read a column, a table, a tensor or one list of pyarrow; lists of one length become rows."""
    pa = _pyarrow(name)
    if isinstance(value, pa.Scalar):
        return _of_scalar(value, name)
    if isinstance(value, pa.Tensor):
        tensor: NDArray[Any] = value.to_numpy()
        return tensor
    if hasattr(value, "to_tensor") and hasattr(value, "non_zero_length"):
        raise ArgumentTypeError(name, f"is a sparse tensor: want a dense one, {name}.to_tensor()")
    if hasattr(value, "column_names"):
        if value.num_columns == 1:
            return from_arrow(value.column(0), name)
        numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in value.schema.types]
        _check_numbers(value.column_names, numbers, name)
        return np.stack([from_arrow(column, name) for column in value.columns], axis=1)
    if hasattr(value, "num_chunks"):
        value = value.chunk(0) if value.num_chunks == 1 else value.combine_chunks()
        if hasattr(value, "num_chunks"):  # data too large for one
            return np.concatenate([from_arrow(chunk, name) for chunk in value.chunks])
    _check_complete(value.null_count, name)
    kind = value.type
    if pa.types.is_struct(kind):  # a frame, according to its capsule
        fields = [kind.field(at).name for at in range(kind.num_fields)]
        return from_arrow(pa.table(value.flatten(), names=fields), name)
    if isinstance(kind, pa.BaseExtensionType):
        return from_arrow(value.storage, name)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        found: NDArray[Any] = value.to_numpy(zero_copy_only=False)
        return found
    lengths = importlib.import_module("pyarrow.compute").list_value_length(value).to_numpy(zero_copy_only=False)
    values = value.flatten()
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise ArgumentTypeError(name, f"holds {kind}: want lists of numbers")
    _check_complete(values.null_count, name)
    return _rows(values.to_numpy(zero_copy_only=False), lengths, name)


def _of_scalar(value: Any, name: str) -> NDArray[Any]:
    """Read an element of a column: a list is one vector."""
    if not value.is_valid:
        raise ArgumentValueError(name, "is missing")
    if hasattr(value, "values"):
        return from_arrow(value.values, name)
    if hasattr(value, "value"):  # of an extension type
        return _of_scalar(value.value, name)
    return np.asarray(value.as_py())


def _of_torch(value: Any, name: str) -> Any:
    if not hasattr(value, "detach"):
        return value
    if value.device.type != "cpu":
        raise ArgumentTypeError(name, f"is on {value.device}: want it in memory of the CPU, {name}.cpu()")
    value = value.detach()
    if str(value.dtype) == "torch.bfloat16":
        value = value.float()  # numpy has no such numbers
    return value.numpy()


def _of_dlpack(value: Any, name: str) -> NDArray[Any]:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentTypeError(name, f"cannot be shared by DLPack: want it in memory of the CPU ({error})") from None


def _of_capsule(value: Any, name: str) -> NDArray[Any]:
    pa = _pyarrow(name)
    if hasattr(value, "__arrow_c_array__"):
        return from_arrow(pa.array(value), name)
    try:
        return from_arrow(pa.chunked_array(value), name)
    except (TypeError, ValueError, pa.ArrowInvalid):
        return from_arrow(pa.table(value), name)


def _pyarrow(name: str) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise ImportError(f"{name}: reading Arrow data needs pyarrow; run: pip install 'compcodes[parquet]'") from None


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers that numpy does not know, such as bfloat16, to float32."""
    return array.astype(np.float32) if "bfloat16" in str(array.dtype) else array


def _rows(values: NDArray[Any], lengths: NDArray[Any], name: str) -> NDArray[Any]:
    different = np.flatnonzero(lengths != lengths[:1]) if len(lengths) else lengths
    if len(different):
        at = int(different[0])
        raise ArgumentValueError(
            name, f"row {at} has {lengths[at]} numbers, row 0 has {lengths[0]}: want rows of one length"
        )
    return values.reshape(len(lengths), int(lengths[0]) if len(lengths) else 0)


def _check_numbers(columns: Iterable[Any], are_numbers: Sequence[bool], name: str) -> None:
    others = [column for column, is_number in zip(columns, are_numbers, strict=True) if not is_number]
    if others:
        named = ", ".join(map(repr, others[:3]))
        raise ArgumentTypeError(
            name, f"has columns that are no numbers, {named}: want a column of vectors, {name}['…']"
        )


def _check_complete(missing: int, name: str) -> None:
    if missing:
        raise ArgumentValueError(name, f"has {missing} missing values: fill or drop them")
