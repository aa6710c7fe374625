"""compcodes in ann-benchmarks and VIBE: scan codes, re-rank the best of them with the vectors."""

import numpy as np

import compcodes as cc

from ..base.module import BaseANN

METRICS = {"angular": "cosine", "cosine": "cosine", "normalized": "ip", "ip": "ip", "euclidean": "l2"}


class Compcodes(BaseANN):
    """`n_codebooks` bytes per vector; with `n_lists`, an inverted file of so many lists."""

    def __init__(self, metric, n_codebooks, n_lists=0, effort="default"):
        if metric not in METRICS:
            raise NotImplementedError(f"compcodes has no metric {metric!r}: it has {', '.join(METRICS)}")
        self._metric, self._n_codebooks, self._n_lists, self._effort = metric, n_codebooks, n_lists, effort
        self._search = {}
        self.name = f"compcodes({n_codebooks} bytes, {n_lists} lists)"

    def fit(self, X):
        """Train on the vectors, encode them, and keep them for re-ranking."""
        self._X = np.ascontiguousarray(X, dtype=np.float32)
        lists = {"n_lists": self._n_lists} if self._n_lists else {}
        metric = METRICS[self._metric]
        q = cc.CompositionalCodes(self._n_codebooks, metric=metric, effort=self._effort, max_train=200_000, **lists)
        # Queries come one after another, each on one thread, as the rules have it; building takes all cores.
        self._index = cc.Index(q.fit(self._X)).add(self._X)
        self._index.n_jobs = 1

    def set_query_arguments(self, n_candidates, n_probe=None):
        """How many of the best by code are compared exactly, and how many lists are looked into."""
        self._search = {"n_candidates": n_candidates} | ({} if n_probe is None else {"n_probe": n_probe})
        self.name = f"compcodes({self._n_codebooks} bytes, {self._n_lists} lists, {self._search})"

    def query(self, q, n):
        """Find the `n` best for one query."""
        return self._find(q, n)[0]

    def batch_query(self, X, n):
        """Find the `n` best for each query, in one call on all cores."""
        self._index.n_jobs = None
        try:
            self.res = self._find(X, n)
        finally:
            self._index.n_jobs = 1

    def _find(self, queries, n):
        search = dict(self._search)
        candidates = search.pop("n_candidates", 10 * n)
        if candidates <= n:  # nothing is left to choose from: the order of the codes is the answer
            return self._index.search(queries, n, **search)[1]
        return self._index.search(queries, n, rerank=self._X, n_candidates=candidates, **search)[1]
