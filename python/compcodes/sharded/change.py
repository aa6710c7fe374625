"""How a sharded index changes: each change writes its files, and then a new version of the manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes.data.files import new_file
from compcodes.errors import ArgumentValueError
from compcodes.sharded.manifest import Manifest, Shard, commit, crc_of, fingerprint, read
from compcodes.sharded.opened import Known, Opened, numbers, open_shards, opened

__all__ = ["ENDING", "LARGEST", "compact", "other_shards", "refuse_begun", "refuse_shard", "remove", "take"]

LARGEST = 2**63 - 1
"""The largest possible id."""
ENDING = ".compcodes"


def refuse_shard(manifest: Manifest, shard: _core.Index, name: str) -> None:
    """Reject a shard whose codes belong to a model, or whose settings, other than those of the index."""
    for what, have, want in _differences(manifest, shard):
        if what == "fingerprint":
            raise ArgumentValueError(
                "shard",
                f"is of another model ({name} has the fingerprint {have[:12]}, the index {want[:12]}): its codes are "
                "sums of other codewords",
            )
        words = {"keys": ("ids", "keys"), "lists": ("no lists", "lists")}
        texts = [words[what][value] if what in words else f"{what}={value!r}" for value in (have, want)]
        raise ArgumentValueError("shard", f"has {texts[0]}, the index {texts[1]} ({name}): want the same")


def refuse_begun(manifest: Manifest, own: _core.Index, path: Path) -> None:
    """Refuse to continue with a folder that was begun with another model or other settings than are given now."""
    begun = f"the index in {os.fspath(path)!r} was begun with"
    for what, have, want in _differences(manifest, own):
        if what == "fingerprint":
            raise ArgumentValueError(
                "quantizer",
                f"is another model than {begun} (it has the fingerprint {have[:12]}, the index {want[:12]}): want "
                "that, or another folder",
            )
        if what == "lists":
            texts = ["lists" if value else "no lists" for value in (have, want)]
            raise ArgumentValueError("quantizer", f"has {texts[0]}, {begun} {texts[1]}: want that, or another folder")
        raise ArgumentValueError(what, f"is {have!r}, {begun} {want!r}: want that, or another folder")


def _differences(manifest: Manifest, index: _core.Index) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences between an index and the manifest: name, and both values."""
    model = index.model()
    names = ("keys", "lists", "fingerprint", "metric", "scale", "exact_norms", "residuals")
    name, divided = fingerprint(model.codebooks, model.lists), manifest.n_lists is not None
    have = index.has_keys(), model.lists is not None, name, *index.settings()
    want = manifest.keys, divided, manifest.fingerprint, *manifest.settings
    yield from (each for each in zip(names, have, want, strict=True) if each[1] != each[2])


def take(
    folder: Path,
    before: Opened,
    path: Path,
    source: str | None,
    first_id: int | None = None,
    argument: str = "shard",
    order: list[str] | None = None,
) -> Opened:
    """Add a finished file, by renaming it, as a shard: at the end, or in the order of their sources.

    `before` is a version that is already open; returns the new one. `argument` is the user's argument that gives the
    ids, or the vectors that get some.
    """
    index, size, crc = _core.Index.load(os.fspath(path), True), path.stat().st_size, crc_of(path)

    def made(current: Manifest) -> Manifest:
        refuse_shard(current, index, os.fspath(path))
        own = numbers(index)
        # Keys identify vectors; their numbers only need to differ from those of all shards.
        by_position = current.keys or bool((own == np.arange(len(own))).all())
        first = (current.next_id if by_position else 0) if first_id is None else first_id
        if first > LARGEST and first_id is None:
            other = "first_id" if argument == "shard" else "ids"
            raise ArgumentValueError(
                other, f"is None, and no ids are left above the largest, which is {LARGEST}: give {other}"
            )
        _check_first(index, first)
        low, high = (int(own.min()) + first, int(own.max()) + first) if len(own) else (-1, -1)
        blamed = "first_id" if argument == "shard" and first_id is not None else argument
        shared = [shard for shard in current.shards if low <= shard.highest_id and shard.lowest_id <= high]
        if current.keys:
            _refuse_known(folder, before, cast("list[str]", index.ids()), 0, argument)
            if shared:
                raise ArgumentValueError(
                    blamed, f"is {first}, and the numbers {low} to {high} are those of {shared[0].file}: want None"
                )
        elif shared:
            _refuse_known(folder, before, own + first, first, blamed)
        name = f"shard-{current.version + 1}-{len(current.shards)}{ENDING}"
        shards = [*current.shards, Shard(name, len(own), first, low, high, size, crc, source=source)]
        if order is not None:
            place: dict[str | None, int] = {source: at for at, source in enumerate(order)}
            for shard in shards:
                if shard.source not in place:  # another process has added it in the meantime
                    raise other_shards(folder, shard.source or shard.file)
            shards.sort(key=lambda shard: place[shard.source])
        os.replace(path, folder / name)
        return replace(current, shards=tuple(shards), next_id=max(current.next_id, high + 1))

    return _changed(folder, before, made)


def _changed(folder: Path, before: Opened | None, change: Callable[[Manifest], Manifest]) -> Opened:
    """Make a new version of the folder, if it can be opened; return it. Files that `before` has open are reused."""
    new: list[Opened] = []

    def made(current: Manifest | None) -> Manifest:
        assert current is not None
        manifest = change(current)
        parts = open_shards(folder, manifest, slice(None), before.known if before is not None else Known())
        new.append(Opened(manifest, *parts))
        return manifest

    manifest = commit(folder, made)
    return replace(new[0], manifest=manifest)


def other_shards(folder: Path, source: str) -> ArgumentValueError:
    """Return the error of a build in a folder that holds a shard of something else."""
    return ArgumentValueError(
        "path",
        f"is {os.fspath(folder)!r}, which holds shards of other vectors or of another number of shards "
        f"({source}): want another folder, or the vectors, ids and n_shards that it was begun with",
    )


def _check_first(index: _core.Index, first: int) -> None:
    """Reject what a reader would: ids beyond int64, even if only those of vectors that were removed."""
    try:
        _core.Shards([index], [first], [np.zeros(0, np.int64)])
    except (ValueError, OverflowError):
        raise ArgumentValueError(
            "first_id",
            f"is {first}: want at least 0, and ids of at most 2**63 - 1, also those of vectors that were removed",
        ) from None


def _refuse_known(
    folder: Path, before: Opened, names: NDArray[np.int64] | list[str], first: int, argument: str
) -> None:
    """Reject ids or keys that already exist, in terms of the user's arguments; `first` is included in the ids."""
    found = opened(folder, before).shards.find(names)
    if not (found >= 0).any():
        return
    at, kind = int(np.argmax(found >= 0)), "key" if isinstance(names, list) else "id"
    known = f"{before.names.read(names[at : at + 1], (1,)).tolist()[0]!r}, which the index has already"
    problem = {
        "ids": f"hold {known}: want others",
        "first_id": f"is {first}, which gives a vector of the shard the id {known}: want another",
        "X": f"has a row whose number is the id {known}: give ids",
    }.get(argument, f"has the {kind} {known}: want others" + (", or give first_id" if kind == "id" else ""))
    raise ArgumentValueError(argument, problem)


def remove(folder: Path, before: Opened, names: ArrayLike, n_jobs: int | None) -> tuple[Opened, int]:
    """Record the removal of the vectors with these names; return the new version, and how many there were."""
    count = [0]

    def made(current: Manifest) -> Manifest:
        now = opened(folder, before)
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
            shards[i] = replace(shard, removed=name, n_removed=len(positions), removed_crc32=crc_of(folder / name))
        return replace(current, shards=tuple(shards))

    return _changed(folder, before, made), count[0]


def compact(folder: Path, before: Opened, share: float, n_jobs: int | None) -> Opened:
    """Rewrite the shards from which more than a share of the vectors was removed; return the current version."""

    def made(current: Manifest) -> Manifest:
        now, shards = opened(folder, before), []
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
            ids = numbers(index) + shard.first_id
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
                    removed_crc32=None,
                )
            )
        return replace(current, shards=tuple(shards))

    if any(shard.n_removed > share * shard.vectors for shard in read(folder).shards):
        return _changed(folder, before, made)
    return opened(folder, before)


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
