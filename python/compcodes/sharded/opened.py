"""One version of a folder of shards, open for searching."""

from __future__ import annotations

import errno
import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._names import Names
from compcodes.errors import ArgumentValueError
from compcodes.sharded import manifest as manifests
from compcodes.sharded.manifest import Manifest, Shard

__all__ = ["Known", "Opened", "numbers", "open_shards", "opened", "verify"]

Known: TypeAlias = dict[tuple[str, int, int, int], _core.Index]
"""Open indexes, by the file's path, inode, time and size."""


@dataclass(frozen=True)
class Opened:
    """A manifest, and its shards mapped into memory."""

    manifest: Manifest
    removed: tuple[NDArray[np.int64], ...]
    """The positions that are removed from each shard."""
    shards: _core.Shards
    known: Known

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def has_keys(self) -> bool:
        """Whether vectors are identified by keys."""
        return self.manifest.keys

    @property
    def ids(self) -> NDArray[Any]:
        """Return the names of all vectors that are not removed, in order."""
        return self.named(self.shards.positions())

    @property
    def names(self) -> Names:
        """Return how its vectors are identified."""
        return Names(self.manifest.keys)

    def named(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of the vectors at positions of any shape, with −1 for −1; or their keys."""
        names = self.names.read(self.shards.names(np.ravel(positions)), positions.shape)
        return names.reshape(positions.shape)

    def find(self, names: ArrayLike, n_jobs: int | None = None) -> NDArray[np.int64]:
        """Return the positions of vectors with these names, all of which must exist."""
        wanted = self.names.some(names, len(self.shards))
        found = self.shards.find(wanted, n_jobs)
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            name = self.names.read(wanted[at : at + 1], (1,)).tolist()[0]
            raise ArgumentValueError(
                "ids", f"hold {name!r}, and the index has no {'key' if self.names.keyed else 'id'} {name!r}"
            )
        return found

    def contains(self, name: int | str) -> bool:
        """Tell whether there is a vector of this name, in the form the core takes."""
        one: Any = [name] if isinstance(name, str) else np.array([name], np.int64)
        return bool(self.shards.find(one)[0] >= 0)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Return how many vectors there are before each shard, and in all, including removed ones."""
        return np.cumsum([0] + [shard.vectors for shard in self.manifest.shards])


def opened(folder: Path, before: Opened | None = None) -> Opened:
    """Open the current version of a folder; files that `before` has open are not opened again.

    Raises
    ------
    OSError
        A file cannot be read.
    ValueError
        A file is damaged, or is not what the manifest says.
    """
    while True:
        manifest = manifests.read(folder)
        try:
            return Opened(
                manifest, *open_shards(folder, manifest, slice(None), before.known if before is not None else {})
            )
        except FileNotFoundError:
            # Two versions were made in the meantime, and the files were deleted.
            if manifests.read(folder).version == manifest.version:
                raise


def open_shards(
    folder: Path, manifest: Manifest, some: slice, known: Known
) -> tuple[tuple[NDArray[np.int64], ...], _core.Shards, Known]:
    """Map some of the shards, a slice of them, as one searchable whole; with the positions removed from each."""
    shards, now = manifest.shards[some], Known()
    removed = tuple(_removed(folder, shard) for shard in shards)
    for shard in shards:
        path = folder / shard.file
        stat = path.stat()
        if stat.st_size != shard.bytes:
            raise ValueError(f"{path}: has {stat.st_size} bytes, the manifest says {shard.bytes}")
        key = os.fspath(path), stat.st_ino, stat.st_mtime_ns, stat.st_size
        index = known[key] if key in known else _core.Index.load(os.fspath(path), True)
        if len(index) != shard.vectors:
            raise ValueError(f"{path}: holds {len(index)} vectors, the manifest says {shard.vectors}")
        if (index.settings(), index.has_keys()) != (manifest.settings, manifest.keys):
            raise ValueError(f"{path}: measures or keeps something else than the manifest says")
        now[key] = index
    if now:
        offsets = [shard.first_id for shard in shards]
        return removed, _core.Shards(list(now.values()), offsets, list(removed)), now
    empty = _core.Index.load(os.fspath(folder / manifest.model), False)  # represents no shards
    return (), _core.Shards([empty], [0], [np.zeros(0, np.int64)]), now


def numbers(index: _core.Index) -> NDArray[np.int64]:
    """Return the ids of an index, even if it has keys."""
    alone = _core.Shards([index], [0], [np.zeros(0, np.int64)])
    return alone.numbers(alone.positions())


def verify(folder: Path, now: Opened) -> None:
    """Read all files, and compare them with what the manifest says.

    Raises
    ------
    OSError
        A file cannot be read.
    ValueError
        A file is damaged.
    """
    try:
        _verify(folder, now.manifest)
    except FileNotFoundError as error:
        if manifests.read(folder).version == now.manifest.version:
            raise
        text = f"is of version {now.manifest.version}, which the folder keeps no longer: call refresh()"
        raise FileNotFoundError(errno.ENOENT, text, error.filename) from None


def _verify(folder: Path, manifest: Manifest) -> None:
    path = folder / manifest.model
    model = _core.Index.load(os.fspath(path), False)  # which checks the checksums in it
    name = manifests.fingerprint(model.model().codebooks, model.model().lists)
    lists = model.model().lists
    have = name, model.model().codebooks.shape, None if lists is None else len(lists), model.settings()
    want = manifest.fingerprint, manifest.shape, manifest.n_lists, manifest.settings
    if (*have, model.has_keys(), len(model)) != (*want, manifest.keys, 0):
        raise ValueError(f"{path}: damaged (it is not the model that the manifest says)")
    ranges = []
    for shard in manifest.shards:
        path = folder / shard.file
        crc = manifests.crc_of(path)
        if crc != shard.crc32:
            raise ValueError(f"{path}: damaged (its checksum is {crc:08x}, the manifest says {shard.crc32:08x})")
        _removed(folder, shard)
        ids = numbers(_core.Index.load(os.fspath(path), True)) + shard.first_id
        ends = (int(ids.min()), int(ids.max())) if len(ids) else (-1, -1)
        if ends != (shard.lowest_id, shard.highest_id) or ends[1] >= manifest.next_id:
            raise ValueError(f"{path}: has ids from {ends[0]} to {ends[1]}, the manifest says something else")
        if len(ids):
            ranges.append((*ends, ids))
    ranges.sort(key=lambda each: each[0])
    highest: list[Any] = []
    for low, high, ids in ranges:
        highest = [each for each in highest if each[1] >= low]
        for other in highest:
            if len(twice := np.intersect1d(ids, other[2])):
                raise ValueError(f"{folder / manifests.MANIFEST}: damaged (shards share the id {twice[0]})")
        highest.append((low, high, ids))


def _removed(folder: Path, shard: Shard) -> NDArray[np.int64]:
    if shard.removed is None:
        if shard.n_removed:
            raise ValueError(f"{folder / manifests.MANIFEST}: damaged (names no file of what {shard.file} lacks)")
        return np.zeros(0, np.int64)
    path = folder / shard.removed
    content = path.read_bytes()
    crc = zlib.crc32(content)
    if shard.removed_crc32 is not None and crc != shard.removed_crc32:
        raise ValueError(f"{path}: damaged (its checksum is {crc:08x}, the manifest says {shard.removed_crc32:08x})")
    try:
        positions = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a whole .npy file ({error})") from None
    if positions.dtype != np.int64 or positions.shape != (shard.n_removed,):
        raise ValueError(f"{path}: holds {positions.dtype} {positions.shape}, want int64 ({shard.n_removed},)")
    if (np.diff(positions) <= 0).any() or (len(positions) and not 0 <= positions[0] <= positions[-1] < shard.vectors):
        raise ValueError(f"{path}: holds positions that do not ascend, or are beyond the {shard.vectors} of its shard")
    return np.asarray(positions)
