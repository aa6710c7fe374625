"""An index as plain NumPy: what `Index` must agree with, after any change."""

import numpy as np

# The index's settings, by name: its metric and its side column.
SETTINGS = {
    "ip": {"metric": "ip"},
    "ip, scale": {"metric": "ip", "scale": True},
    "ip, residuals": {"metric": "ip", "residuals": True},
    "cosine": {"metric": "cosine"},
    "l2": {"metric": "l2"},
    "l2, norms in a byte": {"metric": "l2", "exact_norms": False},
}


def tables(Q, codebooks):
    """Lookup tables as they are defined, (nq, M, K) float32: products added in order, in spans of 64 dimensions."""
    total = np.zeros((len(Q), *codebooks.shape[:2]), np.float32)
    for first in range(0, Q.shape[1], 64):
        partial = np.zeros_like(total)
        for j in range(first, min(first + 64, Q.shape[1])):
            partial += Q[:, None, None, j] * codebooks[None, :, :, j]
        total += partial
    return total


def table_sums(Q, codebooks, codes, bases=None):
    """Scores (nq, n) of the inner product, to the bit: added in float32, m = 0 … M−1, from bases (n, d) on."""
    entries = tables(Q, codebooks)
    scores = np.zeros((len(Q), len(codes)), np.float32) if bases is None else tables(Q, bases[None])[:, 0].copy()
    for m in range(codes.shape[1]):
        scores += entries[:, m, codes[:, m]]
    return scores


def decoded(codebooks, codes, bases=None):
    """Approximations (n, d) float32: codewords added in the order m = 0 … M−1, from bases (n, d) on."""
    total = np.zeros((len(codes), codebooks.shape[2]), np.float32) if bases is None else bases.copy()
    for m in range(codes.shape[1]):
        total += codebooks[m, codes[:, m]]
    return total


def in_lanes(terms):
    """Sums over the last axis in float64: in eight lanes in turn, which are added in pairs."""
    terms = np.pad(terms, [(0, 0), (0, -terms.shape[1] % 8)])
    terms = terms.reshape(len(terms), terms.shape[1] // 8, 8)
    a, b, c, d, e, f, g, h = np.add.accumulate(terms, axis=1)[:, -1].T
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def exact_scores(metric, Q, codebooks, codes, bases=None):
    """Scores (nq, n) as an index orders them, to the bit: table sums of inner products in float32; distances and
    cosines of the decoded vectors in float64, which are rounded to float32 afterwards."""
    if metric == "ip":
        return table_sums(Q, codebooks, codes, bases)
    X, Q = decoded(codebooks, codes, bases).astype(np.float64), Q.astype(np.float64)
    scores = np.zeros((len(Q), len(X)))
    if metric == "l2":
        for query, q in enumerate(Q):
            scores[query] = -in_lanes((q - X) ** 2)
    else:
        norms = in_lanes(X * X)
        for query, q in enumerate(Q):
            squares = np.add.accumulate(q**2)[-1] * norms
            np.divide(in_lanes(q * X), np.sqrt(squares), out=scores[query], where=squares > 0)
    return scores.clip(-1, 1) if metric == "cosine" else scores


def metric_scores(metric, Q, X):
    """Scores (nq, n) in float64 as the metric defines them; a zero vector has cosine 0."""
    Q, X = np.asarray(Q, np.float64), np.asarray(X, np.float64)
    if metric == "l2":
        return -((Q[:, None] - X[None]) ** 2).sum(axis=2)
    scores = Q @ X.T
    if metric == "cosine":
        norms = np.linalg.norm(Q, axis=1)[:, None] * np.linalg.norm(X, axis=1)
        scores = np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
    return scores


class Plain:
    """Rows of id, code and vector in the order they were added, and the largest id there ever was."""

    def __init__(self, codebooks, metric="ip", scale=False, exact_norms=True, residuals=False, centroids=None):
        self.centroids, self.lists = centroids, np.zeros(0, np.int64)
        self.codebooks = codebooks.astype(np.float64)
        self.books, self.metric, self.scaled = codebooks, metric, scale
        M, _, d = codebooks.shape
        self.ids, self.codes, self.X = np.zeros(0, np.int64), np.zeros((0, M), np.uint8), np.zeros((0, d), np.float32)
        # What multiplies the inner product of each row.
        self.scales = np.zeros(0)
        self.largest = -1
        # Whether rows may be in another order than where they come from: others were added after some were removed.
        self.was_removed = self.is_mixed = False

    def __len__(self):
        return len(self.ids)

    def decode(self, codes, lists=None):
        total = sum(self.codebooks[m][codes[:, m]] for m in range(codes.shape[1]))
        return total if self.centroids is None else total + self.centroids[lists].astype(np.float64)

    def bases(self):
        return None if self.centroids is None else self.centroids[self.lists]

    def next_ids(self, n):
        """No id is ever used again, be it removed or not."""
        return self.largest + 1 + np.arange(n)

    def add(self, codes, ids=None, X=None, lists=None):
        """Rows with these codes; without `X` their scale is 1, and the vectors to rank by are the approximations."""
        ids = self.next_ids(len(codes)) if ids is None else np.asarray(ids, np.int64)
        self.is_mixed |= self.was_removed and len(codes) > 0
        lists = np.zeros(len(codes), np.int64) if lists is None else lists
        scales = self.scales_of(codes, X, lists)
        self.lists = np.concatenate([self.lists, lists])
        self.ids = np.concatenate([self.ids, ids])
        self.codes = np.concatenate([self.codes, codes])
        self.X = np.concatenate([self.X, self.decode(codes, lists).astype(np.float32) if X is None else X])
        self.scales = np.concatenate([self.scales, scales])
        self.largest = max(self.largest, int(ids.max(initial=-1)))

    def update(self, codes, ids, X, lists=None):
        """Other codes and vectors in the place of those with these ids."""
        position = {int(identity): at for at, identity in enumerate(self.ids)}
        at = [position[int(identity)] for identity in ids]
        lists = np.zeros(len(codes), np.int64) if lists is None else lists
        self.codes[at], self.X[at], self.scales[at] = codes, X, self.scales_of(codes, X, lists)
        self.lists[at] = lists

    def scales_of(self, codes, X, lists):
        """What multiplies the inner products of some rows."""
        approximations = self.decode(codes, lists)
        scales = np.ones(len(codes))
        if self.scaled and X is not None:
            wide = X.astype(np.float64)
            squares, products = (wide**2).sum(axis=1), (wide * approximations).sum(axis=1)
            usable = (products > 0) & (squares > 0)
            scales[usable] = np.clip(squares[usable] / products[usable], 0.25, 4)
            scales[~usable] = np.nan  # whatever the index chooses
        return scales

    def remove(self, ids):
        kept = ~np.isin(self.ids, ids)
        self.was_removed |= not kept.all()
        if not kept.any():
            self.was_removed = self.is_mixed = False
        self.ids, self.codes, self.X, self.scales, self.lists = (
            column[kept] for column in (self.ids, self.codes, self.X, self.scales, self.lists)
        )

    def merge(self, other, given):
        """Add another's rows, which keep their ids if they were given some."""
        first = len(self)
        self.add(other.codes, other.ids if given else None, other.X, other.lists)
        self.scales[first:] = other.scales

    def scores(self, Q):
        """Scores (nq, n), and how far those of the index may be off."""
        if not self.scaled:
            exact = exact_scores(self.metric, Q, self.books, self.codes, self.bases())
            return exact, np.zeros_like(exact)
        approximations = self.decode(self.codes, self.lists)
        lengths = np.linalg.norm(Q, axis=1)[:, None], np.linalg.norm(approximations, axis=1)
        rounding = 1e-5 * (lengths[0] + lengths[1]) ** 2
        scores = metric_scores("ip", Q, approximations) * np.nan_to_num(self.scales, nan=1)
        slack = 0.01 * np.abs(scores) + rounding
        slack[:, np.isnan(self.scales)] = np.inf
        return scores, slack

    def check(self, found, Q, k, mask):
        """Fail unless `found` are the k best of the rows in `mask`."""
        scores, slack = self.scores(Q)
        assert found[0].dtype == np.float32 and found[1].dtype == np.int64
        assert found[0].shape == found[1].shape == (len(Q), k)
        if not slack.any():
            want = best(scores, self.ids, k, mask)
            np.testing.assert_array_equal(found[1], want[1])
            assert (found[0] + 0).tobytes() == (want[0] + 0).tobytes()
            return
        check_ranking(found, scores, slack, self.ids, k, mask)

    def check_reranked(self, found, Q, k, candidates):
        """Fail unless `found` are the k best of `candidates` (nq, n_candidates) ids by the vectors themselves."""
        scores = metric_scores(self.metric, Q, self.X)
        slack = 1e-5 * ((np.linalg.norm(Q, axis=1)[:, None] + np.linalg.norm(self.X, axis=1)) ** 2 + 1)
        for row in range(len(Q)):
            one = slice(row, row + 1)
            mask = np.isin(self.ids, candidates[row])
            check_ranking([part[one] for part in found], scores[one], slack[one], self.ids, k, mask, rounded=True)


def best(scores, ids, k, mask):
    """The k best by a full sort; equal ones in the order they were added."""
    at = np.flatnonzero(mask)
    top = np.full((len(scores), k), -np.inf, np.float32), np.full((len(scores), k), -1, np.int64)
    for query, row in enumerate(scores[:, at]):
        order = np.argsort(-row, kind="stable")[:k]
        top[0][query, : len(order)], top[1][query, : len(order)] = row[order], ids[at[order]]
    return top


def check_ranking(found, scores, slack, ids, k, mask, rounded=False):
    """Fail unless `found` are the k best of the rows in `mask`, each score within `slack` (nq, n) of `scores`.

    Scores that were `rounded` after they were in order may be equal in any order.
    """
    position = {int(identity): at for at, identity in enumerate(ids)}
    n = min(k, int(np.count_nonzero(mask)))
    for query, (row, names) in enumerate(zip(*found, strict=True)):
        assert (names[n:] == -1).all() and np.isneginf(row[n:]).all()
        at = np.array([position[int(name)] for name in names[:n]], int)
        assert len(set(at)) == n and mask[at].all()
        row = row[:n].astype(np.float64)
        falls, ties = np.diff(row) < 0, np.diff(row) == 0
        in_order = falls | (ties & (rounded | (np.diff(at) > 0)))
        assert in_order.all(), "not sorted, or ties out of order"
        off = np.abs(row - scores[query, at])
        assert (off <= slack[query, at]).all(), f"scores are off by {off.max()}"
        left = mask.copy()
        left[at] = False
        if n and left.any():
            assert (scores[query, left] - slack[query, left] <= row[-1]).all(), "a better one was left out"
