"""Vector files of every format: the extension chooses the reader."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes.data.columns import load_hdf5, load_parquet
from compcodes.data.many import is_many, split_column
from compcodes.data.vecs import load_vecs

__all__ = ["load", "load_ids", "load_queries", "save"]

PathLike: TypeAlias = str | os.PathLike[str]

# "file.h5:dataset" names a dataset in the file, or a column. The ending keeps "C:\vectors.npy" a path.
_WITH_DATASET = re.compile(r"(?P<path>.+\.(?:h5|hdf5|parquet)):(?P<dataset>.+)", re.IGNORECASE)


def load(path: PathLike) -> NDArray[Any]:
    """Open a file of vectors.

    Parameters
    ----------
    path : str or path
        ``.npy``, ``.fvecs``, ``.bvecs`` and ``.ivecs`` are mapped into memory, not read. ``.parquet`` (one
        column of lists, or one number column per dimension; needs ``compcodes[parquet]``) is read; write
        ``file.parquet:name`` to choose a column. ``.h5``
        and ``.hdf5`` (needs ``compcodes[hdf5]``) are mapped where the dataset is stored in one piece; write
        ``file.h5:name`` to choose a dataset. Numbers in a foreign byte order are read, and converted.

    Returns
    -------
    (n, d) array, read-only if it is mapped

    Raises
    ------
    OSError
        If the file cannot be opened.
    ValueError
        If its content is not a set of vectors: wrong format, cut off, or not two-dimensional.
    ImportError
        If the format needs a package that is not installed.
    """
    return _vectors(path, open_array(path))


def load_queries(path: PathLike) -> NDArray[Any]:
    """Open a file of queries: like `load`, but a single vector (d,) is also accepted, and becomes (1, d)."""
    array = open_array(path)
    return _vectors(path, array[None, :] if array.ndim == 1 else array)


def load_ids(path: PathLike) -> NDArray[np.int64]:
    """Read a file of ids, integers of any shape in any format of `load`, as int64."""
    return as_ids(open_array(path), path)


def as_ids(array: NDArray[Any], path: PathLike) -> NDArray[np.int64]:
    """Take the array in a file as ids."""
    if array.dtype.kind not in "iu":
        raise ValueError(f"{path}: ids must be integers, found {array.dtype}")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{path}: ids must fit 64-bit signed integers, found {array.max()}")
    return np.array(array, np.int64)


def save(path: PathLike, array: ArrayLike) -> None:
    """Write an array as .npy; the file appears only when it is complete.

    It is written to ``.compcodes-….part`` in the same folder, a new file with random letters, and renamed. A link stays
    a link, and the permissions of a file that is replaced stay the same.

    Raises
    ------
    OSError
        The file cannot be written; the error names it.
    """
    path = Path(path)
    if path.suffix.lower() != ".npy":
        raise ValueError(f"{path}: results are written as .npy, give a name that ends so")
    array = np.asarray(array)
    try:
        with replacing(path) as partial, partial.open("r+b") as file:
            # Through its method alone: numpy's own way of writing files reports neither why a write failed nor where.
            np.lib.format.write_array(_Writer(file), array, allow_pickle=False)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


class _Writer:
    """The only method of a file that writing an array needs."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


@contextmanager
def replacing(path: PathLike) -> Iterator[Path]:
    """Provide a new file, to be written in the block; it then replaces `path` as a whole.

    If the block fails, the file is deleted, and `path` is unchanged.
    """
    target = Path(os.path.realpath(path))
    partial = new_file(target.parent)
    try:
        yield partial
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        if target.exists():
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        partial.replace(target)
        _sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system can: later renames then never precede it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def new_file(folder: Path) -> Path:
    """Create a file that nobody else has, with the permissions of any new file.

    (`tempfile` has no function for this: its files can be read by their owner alone.)
    """
    while True:
        path = folder / f".compcodes-{secrets.token_hex(6)}.part"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path


def is_vector_file(path: PathLike) -> bool:
    """Whether `load` knows the extension."""
    suffix = Path(split(path)[0]).suffix.lower()
    return suffix in _READERS or suffix in _HDF5


def check_regular(path: PathLike) -> None:
    """Reject a pipe or a device: it cannot be mapped, and opening it may block forever."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(errno.EINVAL, "is a pipe or a device, want a regular file", os.fspath(path))


def with_column(path: str, column: str | None, option: str = "--column") -> str:
    """Return the path of a column or dataset in a file; `option` is the user's name for the column."""
    if column is None:
        return path
    name, own = split(path)
    if own is not None:
        raise ValueError(f"{path} names a column already: leave out {option} {column}")
    if Path(name).suffix.lower() not in (".parquet", *_HDF5):
        raise ValueError(f"{option} {column} names a column of a .parquet or .h5 file, not of {name}")
    return f"{path}:{column}"


def file_of(path: PathLike) -> str:
    """The path without the name of a dataset in the file, or of a column of many files."""
    return split(path)[0]


def open_array(path: PathLike) -> NDArray[Any]:
    """Open the array in a file, whatever its shape and type."""
    name, dataset = split(path)
    if is_many(name):
        raise ValueError(f"{name} stands for many files, and one is wanted here: data.open_many opens many")
    suffix = Path(name).suffix.lower()
    if suffix not in _READERS and suffix not in _HDF5:
        known = ", ".join((*_READERS, *_HDF5))
        if not suffix and not os.path.exists(name):
            raise FileNotFoundError(f"{name}: no such file or folder")
        raise ValueError(f"{name}: unknown kind of vector file {suffix!r}, expected one of {known}")
    check_regular(name)
    with open(name, "rb"):  # otherwise each reader reports a missing file in its own words
        pass
    if suffix in _HDF5:
        return load_hdf5(Path(name), dataset)
    return load_parquet(Path(name), dataset) if suffix == ".parquet" else _READERS[suffix](Path(name))


def _vectors(path: PathLike, array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"{path}: vectors must be a 2-D array of numbers, found shape {array.shape} of {array.dtype}")
    if array.dtype.isnative and array.flags.aligned:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def split(path: PathLike) -> tuple[str, str | None]:
    """Return the file, or the path of several files, and the name of a dataset in it if one is given."""
    name = os.fspath(path)
    match = _WITH_DATASET.fullmatch(name)
    return (match["path"], match["dataset"]) if match else split_column(name)


def read_npy(file: Any, path: PathLike, mmap_mode: Literal["r"] | None = None) -> NDArray[Any]:
    """Read, or map, the array of numbers or strings in a .npy file, given open or as a path."""
    try:
        array: NDArray[Any] = np.load(file, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a whole .npy file of numbers ({error})") from None
    return array


def _load_npy(path: Path) -> NDArray[Any]:
    return read_npy(path, path, "r")


_READERS: dict[str, Callable[[Path], NDArray[Any]]] = {
    ".npy": _load_npy,
    ".fvecs": load_vecs,
    ".bvecs": load_vecs,
    ".ivecs": load_vecs,
    ".parquet": load_parquet,
}
_HDF5 = (".h5", ".hdf5")
