"""The contents of a folder of shards: `manifest.json`, replaced as a whole by every change.

A reader sees the manifest of one version or that of the next, never a mixture. Files that a manifest names are never
modified; those of the version before the current one are kept, so that a process that has read that manifest finds its
files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes.data.files import new_file

__all__ = ["MANIFEST", "Manifest", "Shard", "commit", "crc_of", "fingerprint", "locked", "read"]

MANIFEST = "manifest.json"
FORMAT = "compcodes-shards"
FORMAT_VERSION = 1
DIVIDED_OR_KEYED = 2
"""The version of folders whose vectors are in lists or have keys, which earlier releases do not support."""
STALE = 3600.0
"""Seconds after which an unfinished file without further writes is considered left over from a dead process."""


@dataclass(frozen=True)
class Shard:
    """One index file, and what was removed from it."""

    file: str
    """Name of the index file in the folder."""
    vectors: int
    """The number of vectors it holds, including removed ones."""
    first_id: int
    """The offset added to the ids in the file."""
    lowest_id: int
    """The lowest id of its vectors; −1 if there are none, as for the highest."""
    highest_id: int
    bytes: int
    """Size of the file."""
    crc32: int
    """Checksum of the file."""
    removed: str | None = None
    """Name of a .npy file with the positions of removed vectors, (r,) int64, ascending."""
    n_removed: int = 0
    source: str | None = None
    """What a build made it from, so that an interrupted build can resume after it."""
    removed_crc32: int | None = None
    """Checksum of the file of removed positions; earlier releases wrote none."""


@dataclass(frozen=True)
class Manifest:
    """One version of a sharded index."""

    version: int
    fingerprint: str
    """The fingerprint of the model whose codes all shards hold: see `fingerprint`."""
    model: str
    """Name of the model's file in the folder."""
    shape: tuple[int, int, int]
    """M, K and d."""
    metric: str
    scale: bool
    exact_norms: bool
    residuals: bool
    next_id: int = 0
    """Above every id that there ever was."""
    shards: tuple[Shard, ...] = ()
    n_lists: int | None = None
    """The number of lists, if the model has lists."""
    keys: bool = False
    """Whether vectors are identified by keys."""
    previous: tuple[str, ...] = ()
    """Files of the previous version, which its readers may still open."""

    def files(self) -> set[str]:
        """Return the names of all files that it needs."""
        removed = {shard.removed for shard in self.shards if shard.removed}
        return {self.model} | {shard.file for shard in self.shards} | removed

    @property
    def settings(self) -> tuple[str, bool, bool, bool]:
        """Return what an index with this manifest measures and keeps."""
        return self.metric, self.scale, self.exact_norms, self.residuals


def fingerprint(codebooks: NDArray[np.float32], lists: _core.Lists | None = None) -> str:
    """Identify codebooks (M, K, d), and lists, by a hash of their bytes: other codebooks give codes another meaning."""
    digest = hashlib.sha256(repr(codebooks.shape).encode())
    digest.update(np.ascontiguousarray(codebooks, dtype="<f4").tobytes())
    if lists is not None:
        parts = (lists.centroids, [lists.eta], lists.bonuses, lists.shares, lists.reach)
        for part in parts:
            array = np.ascontiguousarray(part, dtype="<f4")  # of which files keep as much
            digest.update(repr(array.shape).encode() + array.tobytes())
        if lists.gaps:
            digest.update(b"gaps" + np.ascontiguousarray(lists.gaps, dtype="<f4").tobytes())
        if not lists.by_residual:
            digest.update(b"whole")
    return digest.hexdigest()


def crc_of(path: Path) -> int:
    """Return the checksum of a file."""
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            crc = zlib.crc32(piece, crc)
    return crc


def read(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises
    ------
    OSError
        It cannot be read.
    ValueError
        It is not a manifest, or is of a later version of the format.
    """
    path = folder / MANIFEST
    if folder.is_file():
        raise ValueError(f"{folder}: is a file, not a folder of shards: want Index.load or Quantizer.load")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a manifest of shards ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path}: not a manifest of shards")
    if content.get("format_version") not in (FORMAT_VERSION, DIVIDED_OR_KEYED):
        raise ValueError(
            f"{path}: version {content.get('format_version')} of the format, this release reads {FORMAT_VERSION} and "
            f"{DIVIDED_OR_KEYED}: update compcodes"
        )
    try:
        given = content.pop("shards")
        if not isinstance(given, list):
            raise TypeError("shards is no list")
        shards = tuple(_made(Shard, shard) for shard in given)
        made: Manifest = _made(Manifest, content)
        M, K, d = made.shape
        manifest = replace(made, shards=shards, shape=(M, K, d), previous=tuple(made.previous))
        for count in (manifest.version, M, K, d):
            _refuse_negative("a count or size", count, most=2**62)
        _refuse_negative("next_id", manifest.next_id, most=2**63)  # one above the largest id
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged ({error})") from None
    for name in manifest.files():
        if name != os.path.basename(name) or name in ("", ".", "..") or "\0" in name:
            raise ValueError(f"{path}: damaged (names the file {name!r} outside its folder)")
    names = [shard.file for shard in manifest.shards]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: damaged (names the file {max(names, key=names.count)!r} twice)")
    return manifest


_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "str | None": (str, type(None)),
}


def _made(kind: Any, content: dict[str, Any]) -> Any:
    found = {field.name: content[field.name] for field in fields(kind) if field.name in content}
    for field in fields(kind):
        value, kinds = found.get(field.name), _KINDS.get(str(field.type))
        if field.name not in found or kinds is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{field.name} is {value!r}")
    made = kind(**found)
    if kind is Shard:
        for name in ("vectors", "first_id", "bytes", "crc32", "n_removed"):
            _refuse_negative(name, getattr(made, name))
        if not -1 <= made.lowest_id <= made.highest_id < 2**63:
            raise ValueError(f"lowest_id is {made.lowest_id}, highest_id {made.highest_id}")
        if made.removed_crc32 is not None:
            _refuse_negative("removed_crc32", made.removed_crc32)
    return made


def _refuse_negative(name: str, value: Any, most: int = 2**63 - 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}")


def commit(folder: Path, change: Callable[[Manifest | None], Manifest]) -> Manifest:
    """Replace the manifest by what `change` makes of the current one, which is None if there is none yet.

    Writers take turns. `change` may rename finished files into the folder; after an error they are deleted.
    """
    with locked(folder):
        current = read(folder) if (folder / MANIFEST).exists() else None
        try:
            made = _committed(folder, current, change(current))
        except BaseException:
            if current is not None:
                with contextlib.suppress(OSError, ValueError):
                    _tidy(folder, read(folder))  # the new one, if the error came after it was put in place
            raise
        _tidy(folder, made)
    return made


def _committed(folder: Path, current: Manifest | None, made: Manifest) -> Manifest:
    """Write the manifest, which replaces the current one."""
    version = 0 if current is None else current.version + 1
    made = replace(made, version=version, previous=tuple(sorted(current.files())) if current else ())
    more = {"n_lists": made.n_lists, "keys": made.keys}
    is_more = made.n_lists is not None or made.keys
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": DIVIDED_OR_KEYED if is_more else FORMAT_VERSION,
    } | asdict(made)
    if not is_more:  # as before there were any
        content = {name: value for name, value in content.items() if name not in more}
    for shard in content["shards"]:
        if shard["removed_crc32"] is None:  # as before there was any
            del shard["removed_crc32"]
    partial = new_file(folder)
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / MANIFEST)
    finally:
        partial.unlink(missing_ok=True)
    sync(folder)
    return made


def sync(folder: Path) -> None:
    """Make renames in the folder survive a power cut, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _tidy(folder: Path, manifest: Manifest) -> None:
    """Delete what neither this version nor the one before needs."""
    kept = manifest.files() | set(manifest.previous)
    for path in folder.iterdir():
        ours = path.name.startswith(("shard-", "removed-")) and path.name not in kept
        with contextlib.suppress(OSError):
            left = path.name.startswith(".compcodes-") and time.time() - path.stat().st_mtime > STALE
            if ours or left:
                path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out; the lock of a process that dies is released."""
    try:
        import fcntl
    except ImportError:  # without it, only one process may write at a time
        yield
        return
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
