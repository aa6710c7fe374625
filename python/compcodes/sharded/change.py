"""How a sharded index changes: each change writes its files, and then a new version of the manifest."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes.data.files import new_file
from compcodes.errors import ArgumentValueError
from compcodes.index import Index
from compcodes.sharded.manifest import Manifest, Shard, commit, crc_of, fingerprint, read
from compcodes.sharded.opened import Opened, opened

__all__ = ["ENDING", "LARGEST", "compact", "refuse_other", "remove", "take"]

LARGEST = 2**63 - 1
"""The largest id that there can be."""
ENDING = ".compcodes"


def refuse_other(manifest: Manifest, index: Index, name: str) -> None:
    """Refuse what codes of another model, or of other settings, are in."""
    if index.has_keys != manifest.keys:
        have, want = ("keys", "ids") if index.has_keys else ("ids", "keys")
        raise ArgumentValueError("shard", f"has {have}, the index {want} ({name}): want the same")
    lists = index._quantizer._lists
    if (lists is None) != (manifest.n_lists is None):
        have, want = ("no lists", "some") if lists is None else ("lists", "none")
        raise ArgumentValueError("shard", f"has {have}, the index {want} ({name}): want codes of the same model")
    other = fingerprint(index._quantizer.codebooks_, lists)
    if other != manifest.fingerprint:
        raise ArgumentValueError(
            "shard",
            f"is of another model ({name} has the fingerprint {other[:12]}, the index "
            f"{manifest.fingerprint[:12]}): its codes are sums of other codewords",
        )
    if index._core.settings() != manifest.settings:
        raise ArgumentValueError(
            "shard",
            f"has (metric, scale, exact_norms, residuals) {index._core.settings()}, the index {manifest.settings}: "
            "want the same",
        )


def take(
    folder: Path,
    before: Opened,
    files: list[tuple[Path, _core.Index, str | None]],
    first_id: int | None = None,
    order: list[str] | None = None,
) -> None:
    """Add finished files, which are renamed, as shards: in one version, at the end or in the order of their sources.

    `before` is a version that is open already; the new one is not opened.
    """
    checked = [(path, index, source, path.stat().st_size, crc_of(path)) for path, index, source in files]

    def made(current: Manifest | None) -> Manifest:
        assert current is not None
        shards, next_id = list(current.shards), current.next_id
        for path, index, source, size, crc in checked:
            ids = _numbers(index)
            # Keys name vectors; numbers are only to be others than those of all shards.
            by_position = current.keys or bool((ids == np.arange(len(ids))).all())
            first = (next_id if by_position else 0) if first_id is None else first_id
            if first > LARGEST and first_id is None:
                raise ValueError("no ids are left above the largest: give ids")
            low, high = (int(ids.min()) + first, int(ids.max()) + first) if len(ids) else (-1, -1)
            _check_first(index, first)
            if current.keys:
                _refuse_keys(folder, before, index)
            _refuse_known(folder, before, current, shards[len(current.shards) :], ids + first, low, high)
            name = f"shard-{current.version + 1}-{len(shards)}{ENDING}"
            os.replace(path, folder / name)
            shards.append(Shard(name, len(ids), first, low, high, size, crc, source=source))
            next_id = max(next_id, high + 1)
        if order is not None:
            place = {source: at for at, source in enumerate(order)}
            shards.sort(key=lambda shard: place[shard.source or ""])
        return replace(current, shards=tuple(shards), next_id=next_id)

    commit(folder, made)


def _check_first(index: _core.Index, first: int) -> None:
    """Refuse what a reader would: ids beyond int64, if only those of vectors that were removed."""
    try:
        _core.Shards([index], [first], [np.zeros(0, np.int64)])
    except (ValueError, OverflowError):
        raise ArgumentValueError(
            "first_id",
            f"is {first}: want at least 0, and ids of at most 2**63 - 1, also those of vectors that were removed",
        ) from None


def _refuse_known(
    folder: Path, before: Opened, current: Manifest, new: list[Shard], ids: NDArray[np.int64], low: int, high: int
) -> None:
    """Refuse ids that are there already."""
    if not len(ids):
        return
    for shard in new:
        if low <= shard.highest_id and shard.lowest_id <= high:
            raise ValueError(f"ids {low} to {high} overlap those of another shard: give first_id")
    if any(low <= shard.highest_id and shard.lowest_id <= high for shard in current.shards):
        found = opened(folder, before).shards.find(ids)
        if (found >= 0).any():
            raise ValueError(f"ids hold {ids[np.argmax(found >= 0)]}, which the index has already: give first_id")


def _refuse_keys(folder: Path, before: Opened, index: _core.Index) -> None:
    """Refuse keys that are there already."""
    keys = cast("list[str]", index.ids())
    found = opened(folder, before).shards.find(keys)
    if (found >= 0).any():
        raise ValueError(f"ids hold {keys[int(np.argmax(found >= 0))]!r}, which the index has already")


def _numbers(index: _core.Index) -> NDArray[np.int64]:
    """Return the ids of an index, also where it has keys."""
    alone = _core.Shards([index], [0], [np.zeros(0, np.int64)])
    return alone.numbers(alone.positions())


def remove(folder: Path, names: ArrayLike, n_jobs: int | None) -> int:
    """Note as removed the vectors with these names; returns how many there were."""
    count = [0]

    def made(current: Manifest | None) -> Manifest:
        assert current is not None
        now = opened(folder)
        found = now.find(names, n_jobs)
        count[0] = len(np.unique(found))
        starts, shards = now.starts, list(current.shards)
        for i, shard in enumerate(shards):
            own = found[(found >= starts[i]) & (found < starts[i + 1])] - starts[i]
            if not len(own):
                continue
            positions = np.union1d(now.removed[i], own)
            name = f"removed-{current.version + 1}-{i}.npy"
            _save(folder, name, positions)
            shards[i] = replace(shard, removed=name, n_removed=len(positions))
        return replace(current, shards=tuple(shards))

    commit(folder, made)
    return count[0]


def compact(folder: Path, share: float, n_jobs: int | None) -> None:
    """Write the shards anew of whose vectors more than a share was removed."""

    def made(current: Manifest | None) -> Manifest:
        assert current is not None
        now, shards = opened(folder), []
        for i, shard in enumerate(current.shards):
            if shard.n_removed <= share * shard.vectors:
                shards.append(shard)
                continue
            index = _core.Index.load(os.fspath(folder / shard.file), False, n_jobs)
            names = index.ids()
            gone = now.removed[i]
            index.remove([names[at] for at in gone] if isinstance(names, list) else names[gone], n_jobs)
            if not len(index):
                continue
            ids = _numbers(index) + shard.first_id
            name = f"shard-{current.version + 1}-{i}{ENDING}"
            index.save(os.fspath(folder / name), n_jobs)
            path = folder / name
            shards.append(
                replace(
                    shard,
                    file=name,
                    vectors=len(index),
                    lowest_id=int(ids.min()),
                    highest_id=int(ids.max()),
                    bytes=path.stat().st_size,
                    crc32=crc_of(path),
                    removed=None,
                    n_removed=0,
                )
            )
        return replace(current, shards=tuple(shards))

    if any(shard.n_removed > share * shard.vectors for shard in read(folder).shards):
        commit(folder, made)


def _save(folder: Path, name: str, positions: NDArray[np.int64]) -> None:
    partial = new_file(folder)
    try:
        with partial.open("wb") as file:
            np.lib.format.write_array(file, positions, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
