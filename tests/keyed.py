"""An index with keys behind the interface of one with ids, so that what is tested of the one is tested of the other."""

import copy

import numpy as np

import compcodes as cc


def key(number):
    """The key of a vector: of each kind that there is."""
    number = int(number)
    kinds = str(number), number, ("a", number), str(number).encode(), f"\0{number}", f"é{number}"
    return kinds[number % len(kinds)]


def number(name):
    """The number that a key is that of; −1 for none."""
    if name is None:
        return -1
    text = name.decode() if isinstance(name, bytes) else name[1] if isinstance(name, tuple) else name
    return int(text.lstrip("\0é") if isinstance(text, str) else text)


class Keyed:
    """An index in which each vector has the key of its number; numbers are chosen as an index chooses ids."""

    def __init__(self, index, following=0):
        self.index, self.following = index, following

    @classmethod
    def new(cls, quantizer, **settings):
        return cls(cc.Index(quantizer, **settings, keys=True))

    def around(self, index):
        """Another index with the same vectors."""
        return Keyed(index, self.following)

    def __copy__(self):
        return self.around(copy.copy(self.index))

    def __reduce__(self):
        return Keyed, (self.index, self.following)

    def __len__(self):
        return len(self.index)

    def __getattr__(self, name):
        if name.startswith("__") or name == "index":
            raise AttributeError(name)
        return getattr(self.index, name)

    @property
    def ids(self):
        return self._numbers(self.index.ids)

    def add(self, X, ids=None):
        ids = self._new(len(X), ids)
        self.index.add(X, [*map(key, ids)])
        return self._with(ids)

    def add_codes(self, codes, ids=None, lists=None):
        ids = self._new(len(codes), ids)
        self.index.add_codes(codes, [*map(key, ids)], lists=lists)
        return self._with(ids)

    def update(self, X, ids):
        self.index.update(X, [*map(key, ids)])
        return self

    def remove(self, ids):
        return self.index.remove([*map(key, ids)])

    def reset(self):
        self.index.reset()
        return self

    def merge(self, other):
        self.index.merge(other.index if isinstance(other, Keyed) else other)
        return self._with(other.ids)

    def reconstruct(self, ids):
        return self.index.reconstruct([*map(key, ids)])

    def search(self, Q, k, *, filter=None, rerank=None, rerank_ids=None, **options):
        if filter is not None and getattr(filter, "dtype", np.dtype(int)).kind != "b":
            filter = [*map(key, filter)]
        if rerank_ids is not None:
            rerank_ids = [*map(key, rerank_ids)]
        vectors_of = rerank
        if callable(vectors_of):

            def rerank(wanted):
                return vectors_of(self._numbers(wanted))

        scores, names, *rest = self.index.search(Q, k, filter=filter, rerank=rerank, rerank_ids=rerank_ids, **options)
        return scores, self._numbers(names), *rest

    def _new(self, n, ids):
        return self.following + np.arange(n) if ids is None else ids

    def _with(self, ids):
        self.following = max(self.following, int(np.max(ids, initial=-1)) + 1)
        return self

    @staticmethod
    def _numbers(names):
        return np.array([number(name) for name in names.ravel()], np.int64).reshape(names.shape)
