"""Vectors in several files: a folder, a pattern or a list, read piece by piece, locally or from object stores."""

from __future__ import annotations

import glob
import importlib
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes.data.columns import columns_of, vectors_of

__all__ = [
    "Files",
    "Piece",
    "files_of",
    "is_many",
    "kind_of",
    "open_many",
    "opened",
    "parquet_file",
    "paths_of",
    "split_column",
    "state_of",
]

PathLike: TypeAlias = str | os.PathLike[str]

KINDS = (".npy", ".fvecs", ".bvecs", ".ivecs", ".parquet")
PIECE = 1 << 26
"""The approximate number of bytes of vectors in a piece."""
_VALUES = {".fvecs": "<f4", ".bvecs": "u1", ".ivecs": "<i4"}


@dataclass(frozen=True)
class Piece:
    """Some vectors of one file: everything that a worker needs to read them."""

    path: str
    first: int
    """The first row in the file, or for Parquet the row group."""
    last: int
    rows: int
    dim: int
    column: str | None = None

    def load(self) -> NDArray[Any]:
        """Read them, (rows, d).

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            Its content differs from when it was opened.
        """
        kind = kind_of(self.path)
        with opened(self.path) as file:
            if kind == ".parquet":
                array = _row_groups(file, self.path, range(self.first, self.last), self.column)
            else:
                layout = _layout(file, self.path, kind)
                file.seek(layout.start + self.first * layout.stride)
                raw = file.read((self.last - self.first) * layout.stride)
                array = layout.rows_of(raw, self.path)
        if array.shape != (self.rows, self.dim):
            raise ValueError(
                f"{self.path}: rows {self.first} to {self.last} have shape {array.shape}, they had "
                f"{(self.rows, self.dim)}: was the file changed?"
            )
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


@dataclass(frozen=True)
class Files:
    """The vectors of several files, one after the other, as an array (n, d) that is read piece by piece.

    It has `shape`, `dtype` and `len`; a slice of it, or an array of row numbers, is read on access.
    """

    _pieces: tuple[Piece, ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, d)."""
        return len(self), self._pieces[0].dim if self._pieces else 0

    @property
    def itemsize(self) -> int:
        """Bytes per number."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        return int(self._starts[-1])

    def pieces(self) -> list[Piece]:
        """Return the pieces, in order."""
        return list(self._pieces)

    def piece_sizes(self) -> tuple[list[int], int]:
        """Return the number of rows of each piece, and d."""
        return [piece.rows for piece in self._pieces], self.shape[1]

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[NDArray[Any]]:
        """Read rows from `first` up to `last`, a piece at a time."""
        last = len(self) if last is None else last
        for start, piece in zip(self._starts, self._pieces, strict=False):
            a, b = max(first, int(start)), min(last, int(start) + piece.rows)
            if a < b:
                yield piece.load()[a - start : b - start]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        if isinstance(rows, slice):
            first, last, step = rows.indices(len(self))
            if step == 1:
                found = list(self.blocks(first, last))
                return np.concatenate(found) if found else np.zeros((0, self.shape[1]), self.dtype)
            rows = np.arange(first, last, step)
        wanted = np.asarray(rows)
        wanted = np.where(wanted < 0, wanted + len(self), wanted)
        out = np.empty((len(wanted), self.shape[1]), self.dtype)
        of = np.searchsorted(self._starts, wanted, side="right") - 1
        for piece in np.unique(of):
            own = of == piece
            out[own] = self._pieces[piece].load()[wanted[own] - self._starts[piece]]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0] + [piece.rows for piece in self._pieces])


def is_many(path: Any) -> bool:
    """Whether a path is meant for `open_many`: a folder, a pattern, a list, or a path outside the local file system."""
    if isinstance(path, (list, tuple)):
        return True
    name = os.fspath(path)
    return "://" in name or _is_local_many(name) or split_column(name)[1] is not None


def split_column(path: PathLike) -> tuple[str, str | None]:
    """Return the path of several files, and the column that is named after it, as in ``"folder:column"``.

    A path that exists under the whole name, or ends like a file of vectors, names no column.
    """
    name = os.fspath(path)
    many, _, column = name.rpartition(":")
    if not many or not column or {"/", os.sep} & set(column) or kind_of(name) in KINDS:
        return name, None
    if "://" in many:
        is_column = kind_of(many) in KINDS or not _exists(name)
    else:
        is_column = _is_local_many(many) and not os.path.exists(name)
    return (many, column) if is_column else (name, None)


def _is_local_many(name: str) -> bool:
    return os.path.isdir(name) or (glob.has_magic(name) and not os.path.exists(name))


def _exists(name: str) -> bool:
    system, path = _system(name)
    return glob.has_magic(path) or bool(system.exists(path))


def open_many(source: PathLike | Sequence[PathLike], column: str | None = None) -> Files:
    """Open the vector files of a folder, a pattern such as ``"data/*.parquet"``, or a list of paths.

    Only their headers are read. Files are ordered by name, or as given in a list. Paths with a protocol, such as
    ``s3://bucket/folder``, are opened with fsspec.

    Parameters
    ----------
    source : str, path or list of these
        ``.npy``, ``.fvecs``, ``.bvecs``, ``.ivecs`` and ``.parquet``; from a folder, all files with these endings but
        hidden ones.
        ``"folder:column"`` and ``"data/*.parquet:column"`` name the column, too.
    column : str, optional
        The column of vectors in Parquet files. By default the only column of lists, or all columns of numbers.

    Returns
    -------
    Files
        Can be passed to `fit`, `Index` and `ShardedIndex.build`, which read it piece by piece.

    Raises
    ------
    OSError
        A file cannot be read.
    ValueError
        There are no files; one is damaged; they differ in d or type; or `column` is not in one of them.
    ImportError
        A package that is needed is not installed.
    """
    return files_of(source, column)


def column_of(
    source: PathLike | Sequence[PathLike], column: str | None, option: str
) -> tuple[PathLike | Sequence[PathLike], str | None, str]:
    """Split a source and the column that it names, if `column` names none, and tell what the user calls the latter."""
    if isinstance(source, (list, tuple)):
        return source, column, f"{option} {column}"
    name, own = split_column(source)  # type: ignore[arg-type]
    if own is None:
        return name, column, f"{option} {column}"
    if column is not None:
        raise ValueError(f"{name}:{own} names a column already: leave out {column}")
    return name, own, f"{name}:{own}"


def files_of(source: PathLike | Sequence[PathLike], column: str | None = None, option: str = "column") -> Files:
    """Open many files; `option` is the user's name for `column`."""
    source, column, called = column_of(source, column, option)
    pieces: list[Piece] = []
    kinds: dict[np.dtype[Any], str] = {}
    dims: dict[int, str] = {}
    for path in paths_of(source):
        if column is not None and kind_of(path) != ".parquet":
            raise ValueError(f"{called} names a column of .parquet files, not of {path}")
        own, dtype = _pieces_of(path, column, source)
        # Workers, and this process after a change of directory, read the same files.
        absolute = path if "://" in path else str(Path(path).absolute())
        pieces += [replace(piece, path=absolute) for piece in own]
        if own:
            kinds.setdefault(dtype, path)
            dims.setdefault(own[0].dim, path)
    for what, found in (("dimensions", dims), ("types", kinds)):
        if len(found) > 1:
            (one, at), (other, there) = list(found.items())[:2]
            raise ValueError(f"{at} and {there} hold vectors of different {what}: {one} and {other}")
    return Files(tuple(pieces), next(iter(kinds), np.dtype(np.float32)))


def paths_of(source: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the paths of a folder, a pattern or a list, in the order in which they are read.

    Raises
    ------
    ValueError
        There are none.
    """
    paths = _paths(source)
    if not paths:
        raise ValueError(f"{source}: no vector files, want some of {', '.join(KINDS)}")
    return paths


def _paths(source: PathLike | Sequence[PathLike]) -> list[str]:
    if isinstance(source, (list, tuple)):
        return [os.fspath(path) for path in source]
    name = os.fspath(source)  # type: ignore[arg-type]
    if "://" in name:
        system, path = _system(name)
        if glob.has_magic(path):
            found = [each for each in system.glob(path) if _is_hidden(path) or not _is_hidden(each)]
        elif system.isdir(path):
            found = [each for each in system.ls(path, detail=False) if kind_of(each) in KINDS and not _is_hidden(each)]
        else:
            found = [path]
        return sorted(map(system.unstrip_protocol, found))
    if not kind_of(name) and not os.path.exists(name) and not glob.has_magic(name):
        raise FileNotFoundError(f"{name}: no such file or folder")
    if os.path.isdir(name):
        found = [path.name for path in Path(name).iterdir()]
        found = [each for each in found if kind_of(each) in KINDS and not _is_hidden(each)]
        return sorted(os.path.join(Path(name), each) for each in found)
    return sorted(glob.glob(name)) if glob.has_magic(name) else [name]


def _is_hidden(path: str) -> bool:
    """Whether the name begins with a dot: no vectors, such as what macOS keeps about each file, ``._0.npy``."""
    return path.replace(os.sep, "/").rpartition("/")[2].startswith(".")


def _pieces_of(path: str, column: str | None, source: Any) -> tuple[list[Piece], np.dtype[Any]]:
    """Return the pieces of a file, and the type of its numbers; `source` is the user's name for all files."""
    kind = kind_of(path)
    if kind not in KINDS:
        raise ValueError(f"{path}: unknown kind of vector file {kind!r}, expected one of {', '.join(KINDS)}")
    with opened(path) as file:
        if kind == ".parquet":
            return _parquet_pieces(file, path, column, source)
        layout = _layout(file, path, kind)
    step = max(1, PIECE // max(layout.stride, 1))
    bounds = [*range(0, layout.rows, step), layout.rows]
    pairs = itertools.pairwise(bounds)
    return [Piece(path, a, b, b - a, layout.dim) for a, b in pairs], layout.dtype


@dataclass(frozen=True)
class _Layout:
    """The position of rows in a file that has them at a fixed stride."""

    start: int
    stride: int
    skip: int
    """Bytes at the beginning of a row that are not values."""
    rows: int
    dim: int
    dtype: np.dtype[Any]

    def rows_of(self, raw: bytes, path: str) -> NDArray[Any]:
        table = np.frombuffer(raw, np.uint8)
        if len(table) % self.stride:
            raise ValueError(f"{path}: cut off")
        table = table.reshape(-1, self.stride)
        if self.skip:
            dims = np.ascontiguousarray(table[:, : self.skip]).view("<i4")[:, 0]
            if (dims != self.dim).any():
                raise ValueError(f"{path}: a vector claims {dims[dims != self.dim][0]} dimensions, not {self.dim}")
        return np.ascontiguousarray(table[:, self.skip :]).view(self.dtype)


def _layout(file: BinaryIO, path: str, kind: str) -> _Layout:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if kind == ".npy":
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except ValueError as error:
            raise ValueError(f"{path}: not a whole .npy file of numbers ({error})") from None
        if len(shape) != 2 or dtype.kind not in "fiu" or (fortran and min(shape) > 1):
            order = " in Fortran order" if fortran else ""
            raise ValueError(
                f"{path}: vectors must be a 2-D array of numbers in C order, found shape {shape} of {dtype}{order}"
            )
        layout = _Layout(file.tell(), shape[1] * dtype.itemsize, 0, shape[0], shape[1], dtype)
    else:
        dtype = np.dtype(_VALUES[kind])
        head = file.read(4)
        if len(head) < 4:
            raise ValueError(f"{path}: no vectors in it, {size} bytes")
        (dim,) = struct.unpack("<i", head)
        stride = 4 + dim * dtype.itemsize
        if dim < 1 or size % stride:
            raise ValueError(f"{path}: {size} bytes are not a whole number of vectors of {dim} dimensions")
        layout = _Layout(0, stride, 4, size // stride, dim, dtype)
    if layout.start + layout.rows * layout.stride > size:
        raise ValueError(f"{path}: cut off, {size} bytes are fewer than {layout.rows} vectors take")
    return layout


def _parquet_pieces(file: BinaryIO, path: str, column: str | None, source: Any) -> tuple[list[Piece], np.dtype[Any]]:
    whole = parquet_file(file, path)
    meta = whole.metadata
    choice = "by column=NAME" if isinstance(source, (list, tuple)) else f"as {source}:NAME"
    names, is_list = columns_of(whole.schema_arrow, column, path, choice)
    column = names[0] if is_list else None  # the same vectors, whether their column was named or found
    filled = [i for i in range(meta.num_row_groups) if meta.row_group(i).num_rows]
    if not filled:
        return [], np.dtype(np.float32)
    head = next(whole.iter_batches(batch_size=1, row_groups=filled[:1], columns=names))
    one = vectors_of(_need("pyarrow", "parquet", path).Table.from_batches([head]), column, path)
    dim, dtype = one.shape[1], one.dtype
    pieces, first, rows = [], 0, 0
    most = max(1, PIECE // max(1, dim * dtype.itemsize))
    for i in range(meta.num_row_groups):
        count = meta.row_group(i).num_rows
        if rows and rows + count > most:
            pieces.append(Piece(path, first, i, rows, dim, column))
            first, rows = i, 0
        rows += count
    pieces.append(Piece(path, first, meta.num_row_groups, rows, dim, column))
    return [piece for piece in pieces if piece.rows], dtype


def _row_groups(file: BinaryIO, path: str, groups: range, column: str | None) -> NDArray[Any]:
    whole = parquet_file(file, path)
    names, _ = columns_of(whole.schema_arrow, column, path)
    # The reader shares out the threads of one process.
    return vectors_of(whole.read_row_groups(list(groups), columns=names, use_threads=False), column, path)


def parquet_file(file: Any, path: str) -> Any:
    """Open a Parquet file; only its end is read."""
    parquet = _need("pyarrow.parquet", "parquet", path)
    invalid = importlib.import_module("pyarrow").ArrowInvalid
    try:
        return parquet.ParquetFile(file)
    except invalid as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from None


def kind_of(path: str) -> str:
    """Return the ending of a path."""
    return os.path.splitext(path)[1].lower()


def opened(path: str) -> Any:
    """Open a file for reading, here or beyond the local file system."""
    if "://" not in path:
        return open(path, "rb")
    system, name = _system(path)
    return system.open(name, "rb")


def _system(path: str) -> tuple[Any, str]:
    system, name = _need("fsspec.core", "dask", path).url_to_fs(path)
    return system, name


def state_of(path: str) -> list[str]:
    """Return what distinguishes a file from its replacement: size, and time or tag, if the file system knows them."""
    if "://" not in path:
        stat = os.stat(path)
        return [str(stat.st_size), str(stat.st_mtime_ns)]
    system, name = _system(path)
    info = system.info(name)
    return [f"{key} {info[key]}" for key in ("size", "ETag", "etag", "md5Hash", "LastModified", "mtime") if key in info]


def _need(module: str, extra: str, path: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(f"{path}: reading it needs {package}; run: pip install 'compcodes[{extra}]'") from None
