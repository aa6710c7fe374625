"""What the vector stores for other libraries share: an index with a string id and a record per vector.

In a folder, the records are in a file whose name depends on the content of the index file: replacing the index replaces
both at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes.data.files import replacing
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.index import Index
from compcodes.quantizers.compositional import CompositionalCodes
from compcodes.quantizers.protocol import QuantizerLike

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Found", "Store"]

_INDEX = "index.cc"
_SURROGATES = "surrogatepass"
"""JSON can hold halves of surrogate pairs, as names of files that are not UTF-8 have them."""
_RECORDS = re.compile(r"records-[0-9a-f]{32}\.jsonl")
_OLD_RECORDS = "records.jsonl"
"""The file of records in stores written by the first versions, whatever the index."""


class Found(NamedTuple):
    """One result of a search."""

    id: str
    record: dict[str, Any]
    score: float
    number: int
    """The id in the index."""


class Store:
    """Vectors as codes, each with an id and a record that JSON can hold.

    Many threads may search while one adds or deletes: a search sees a vector with its record or neither.

    Parameters
    ----------
    quantizer : fitted or unfitted quantizer, optional
        An unfitted one is trained on the first vectors that are added, so there should be many of them. By default
        ``CompositionalCodes(n_codebooks=16, metric="cosine", effort="low")``: 16 bytes per vector.
    """

    def __init__(self, quantizer: QuantizerLike | None = None) -> None:
        if quantizer is None:
            quantizer = CompositionalCodes(n_codebooks=16, metric="cosine", effort="low")
        self._quantizer, self._lock = quantizer, threading.RLock()
        self.index: Index | None = None
        if hasattr(quantizer, "codebooks_"):
            self.index = Index(quantizer)
        self._by_number: dict[int, tuple[str, dict[str, Any]]] = {}
        self._numbers: dict[str, int] = {}
        self._next = 0  # numbers are never used again

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._numbers)

    def add(self, vectors: ArrayLike, ids: Sequence[str], records: Sequence[dict[str, Any]]) -> None:
        """Add vectors; one whose id already exists replaces the earlier one."""
        X = np.asarray(vectors, dtype=np.float32)
        if len({len(X), len(ids), len(records)}) != 1:
            raise ArgumentValueError("ids", f"are {len(ids)} for {len(X)} vectors and {len(records)} records")
        if len(set(ids)) != len(ids):
            raise ArgumentValueError("ids", "name a vector twice")
        for id in ids:
            if not isinstance(id, str):
                raise ArgumentTypeError("ids", f"hold {id!r}: want strings")
        if not len(X):
            return
        if not np.isfinite(X).all():
            row = int(np.argmin(np.isfinite(X).reshape(len(X), -1).all(axis=1)))
            raise ArgumentValueError("vectors", f"row {row} holds NaN or an infinity")
        with self._lock:
            if self.index is None:
                fit = getattr(self._quantizer, "fit", None)
                if fit is None:
                    raise ArgumentTypeError("quantizer", "has neither codebooks_ nor fit")
                fit(X)
                self.index = Index(self._quantizer)
            is_new = np.array([id not in self._numbers for id in ids], dtype=bool)
            old = np.array([self._numbers[id] for id in ids if id in self._numbers], dtype=np.int64)
            first = self._next
            new = np.arange(first, first + int(is_new.sum()))
            numbers = np.empty(len(ids), dtype=np.int64)
            numbers[is_new], numbers[~is_new] = new, old
            # Records first: every vector that a search can find must have one.
            for number, i in zip(new.tolist(), np.flatnonzero(is_new).tolist(), strict=True):
                self._by_number[number] = (ids[i], records[i])
            try:
                self.index.add(X[is_new], new)
                try:
                    self.index.update(X[~is_new], old)
                except BaseException:
                    self.index.remove(new)
                    raise
            except BaseException:
                for number in new.tolist():
                    del self._by_number[number]
                raise
            self._next = first + len(new)
            for number, id, record in zip(numbers.tolist(), ids, records, strict=True):
                self._by_number[number], self._numbers[id] = (id, record), number

    def delete(self, ids: Iterable[str]) -> int:
        """Remove vectors, ignoring unknown ids. Return how many were removed."""
        with self._lock:
            there = [id for id in dict.fromkeys(ids) if id in self._numbers]
            numbers = [self._numbers[id] for id in there]
            if numbers and self.index is not None:
                self.index.remove(np.array(numbers))
            for id, number in zip(there, numbers, strict=True):
                del self._numbers[id], self._by_number[number]
            return len(there)

    def clear(self) -> None:
        """Remove all vectors; the trained quantizer stays."""
        self.delete(list(self._numbers))

    def get(self, id: str) -> dict[str, Any] | None:
        """Return the record of an id."""
        number = self._numbers.get(id)
        return None if number is None else self._by_number[number][1]

    def items(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all ids with their records, in the order they were added."""
        with self._lock:
            return [self._by_number[number] for number in sorted(self._by_number)]

    def search(
        self, vector: ArrayLike, k: int, allows: Callable[[str, dict[str, Any]], bool] | None = None
    ) -> list[Found]:
        """Return the best `k`, best first, or fewer if there are fewer or fewer are allowed."""
        index = self.index
        if index is None or k < 1:
            return []
        filter = None
        if allows is not None:
            with self._lock:
                entries = list(self._by_number.items())
            filter = np.array([number for number, entry in entries if allows(*entry)], dtype=np.int64)
        scores, numbers = index.search(np.asarray(vector, dtype=np.float32), min(k, max(len(index), 1)), filter=filter)
        found = []
        for score, number in zip(scores[0].tolist(), numbers[0].tolist(), strict=True):
            entry = self._by_number.get(number)
            if entry is not None:  # otherwise there was no further result, or it has been deleted meanwhile
                found.append(Found(*entry, score, number))
        return found

    def approximations(self, found: Sequence[Found]) -> NDArray[np.float32]:
        """Return the approximations of results, (len(found), d)."""
        if self.index is None:
            return np.empty((0, 0), np.float32)
        return self.index.reconstruct(np.array([one.number for one in found], dtype=np.int64))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index and the records into a folder, which is created if necessary.

        What was saved there before is replaced as a whole, or kept if writing fails.
        """
        if self.index is None:
            raise ValueError("there is nothing to save: the store has no vectors yet, and no trained quantizer")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock, _held(folder, exclusively=True):
            lines = [json.dumps([number, *entry], ensure_ascii=False) for number, entry in self._by_number.items()]
            try:
                with replacing(folder / _INDEX) as index:
                    self.index.save(index)
                    with replacing(folder / _records_of(index)) as records:
                        text = "".join(f"{line}\n" for line in lines)
                        records.write_text(text, encoding="utf-8", errors=_SURROGATES)
            finally:
                _tidy(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Store:
        """Read what `save` wrote."""
        folder = Path(folder)
        with _held(folder, exclusively=False):
            return cls._loaded(folder)

    @classmethod
    def _loaded(cls, folder: Path) -> Store:
        index = Index.load(folder / _INDEX)
        store = cls(index.quantizer)
        store.index = index
        records = folder / _records_of(folder / _INDEX)
        if not records.exists():
            records = folder / _OLD_RECORDS
        if records.exists():
            with records.open(encoding="utf-8", errors=_SURROGATES) as file:
                for number, id, record in map(json.loads, file):
                    store._by_number[number], store._numbers[id] = (id, record), number
        if not records.exists() or sorted(store._by_number) != sorted(index.ids.tolist()):
            raise ValueError(f"{folder}: {_INDEX} and its records are not of one time; one of them was replaced")
        store._next = max(store._by_number, default=-1) + 1
        return store


@contextmanager
def _held(folder: Path, *, exclusively: bool) -> Iterator[None]:
    """Keep other processes from saving into a folder meanwhile; from reading it, too, if `exclusively`.

    The lock is on the folder itself and ends with the process. Systems without such locks go on without.
    """
    if fcntl is None or not folder.is_dir():
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system that has none
            fcntl.flock(number, fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH)
        yield
    finally:
        with suppress(OSError):  # closing alone leaves it to a child that was forked meanwhile
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


def _records_of(index: Path) -> str:
    """Name the file of records that belongs to an index file."""
    digest = hashlib.blake2b(digest_size=16)
    with index.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return f"records-{digest.hexdigest()}.jsonl"


def _tidy(folder: Path) -> None:
    """Remove records that do not belong to the present index: older ones, or those of a save that failed."""
    with suppress(OSError):
        index = folder / _INDEX
        own = folder / _records_of(index) if index.exists() else None
        for path in folder.iterdir():
            is_old = path.name == _OLD_RECORDS and own is not None and own.exists()
            if is_old or (_RECORDS.fullmatch(path.name) and path != own):
                path.unlink(missing_ok=True)
