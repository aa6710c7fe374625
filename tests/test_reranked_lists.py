"""Re-ranked search through lists compares the candidates of a query while the next query scans.

It finds, to the bit, what a search for candidates and exact scores for them find in two steps: what is done where
vectors come from a callable.
"""

import numpy as np
import pytest

import compcodes as cc
from keyed import key

N, D, N_LISTS = 1500, 21, 32
CASES = {
    "ip": {"metric": "ip", "n_codebooks": 3},
    "l2": {"metric": "l2", "n_codebooks": 3},
    "cosine": {"metric": "cosine", "n_codebooks": 2},
    "pairs of nibbles": {"metric": "ip", "n_codebooks": 16},
}
ROWS = {
    "float32": np.ascontiguousarray,
    "float16": lambda X: X.astype(np.float16),
    "uint8": lambda X: X.astype(np.uint8),
    "columns": np.asfortranarray,  # whose rows do not lie end to end
}

pytestmark = pytest.mark.isa


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    centers = rng.integers(20, 200, size=(60, D))
    return (centers[rng.integers(60, size=N)] + rng.integers(-20, 20, size=(N, D))).astype(np.float32)


@pytest.fixture(scope="module")
def Q(X):
    return X[::12] * 0.9 + 1


@pytest.fixture(scope="module", params=CASES)
def index(request, X):
    settings = {"n_codewords": 16, "n_lists": N_LISTS, "effort": "low", "n_jobs": 2}
    return cc.Index(cc.CompositionalCodes(**settings, **CASES[request.param]).fit(X[:600])).add(X)


def in_two_steps(index, X, Q, k, ids=None, **options):
    """Candidates first, then the vectors of their ids, whose numbers are of 32 bits."""
    at = {name: row for row, name in enumerate(index.ids if ids is None else ids)}
    return index.search(Q, k, rerank=lambda names: X[[at[name] for name in names]], **options)


def check(found, want):
    for one, other in zip(found, want, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert list(one.flat) == list(other.flat) if one.dtype == object else one.tobytes() == other.tobytes()


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_any_type(index, X, Q, rows):
    stored = ROWS[rows](X)
    # The last has every vector compared, in more than one part; the first is of the usual kind.
    for n_queries, k, n_candidates, n_probe in ((125, 5, 30, 3), (7, 1, 1, 1), (1, 10, 1100, 20), (9, 20, N, N_LISTS)):
        options = {"n_candidates": n_candidates, "n_probe": n_probe}
        want = in_two_steps(index, X, Q[:n_queries], k, **options)
        check(index.search(Q[:n_queries], k, rerank=stored, **options), want)
    # The rows' own ids say the same as their order.
    check(index.search(Q, 5, rerank=stored, rerank_ids=index.ids), in_two_steps(index, X, Q, 5))


def test_small_numbers_keep_their_values_in_16_bits(index, X, Q):
    tiny = (X * 2.0**-22).astype(np.float16)  # many below 2⁻¹⁴, where fractions get shorter
    want = in_two_steps(index, tiny.astype(np.float32), Q, 5, n_probe=3)
    check(index.search(Q, 5, rerank=tiny, n_probe=3), want)
    assert (want[0] != 0).any()


def test_allowed_and_forbidden_vectors(index, X, Q):
    rng = np.random.default_rng(2)
    own = [rng.choice(N, size=40 + i % 90, replace=False) for i in range(len(Q))]
    for options in (
        {"filter": np.arange(0, N, 3)},
        {"filter": rng.choice(N, 12, replace=False)},
        {"exclude": np.arange(N // 2)},
        {"filter": own},
        {"exclude": own},
        {"filter": range(100, 160), "exclude": own},
    ):
        for k in (4, 100):
            found = index.search(Q, k, rerank=X, n_probe=2, **options)
            check(found, in_two_steps(index, X, Q, k, n_probe=2, **options))


def test_more_than_there_are(index, X, Q):
    few = np.arange(9)
    scores, ids = index.search(Q, 40, rerank=X, filter=few, n_probe=1)
    check((scores, ids), in_two_steps(index, X, Q, 40, filter=few, n_probe=1))
    assert (np.sort(ids[:, :9], axis=1) == few).all()
    assert (ids[:, 9:] == -1).all() and np.isneginf(scores[:, 9:]).all()


def test_after_removal_and_with_ids_and_keys(index, X, Q):
    changed = cc.Index(index.quantizer, index.metric).add(X)
    changed.remove(np.arange(0, N, 4))
    kept = np.setdiff1d(np.arange(N), np.arange(0, N, 4))
    check(changed.search(Q, 6, rerank=X[kept], n_probe=3), in_two_steps(changed, X[kept], Q, 6, n_probe=3))
    given = cc.Index(index.quantizer, index.metric).add(X, ids=np.arange(N) * 7 + 3)
    check(given.search(Q, 6, rerank=X, n_probe=3), in_two_steps(given, X, Q, 6, n_probe=3))
    names = [*map(key, range(N))]
    keyed = cc.Index(index.quantizer, index.metric, keys=True).add(X, names)
    check(keyed.search(Q, 6, rerank=X, n_probe=3), in_two_steps(keyed, X, Q, 6, ids=names, n_probe=3))
    check(keyed.search(Q, 6, rerank=X, n_probe=3)[:1], index.search(Q, 6, rerank=X, n_probe=3)[:1])


def test_threads_and_batches(index, X, Q):
    one, two = (cc.Index(index.quantizer, index.metric, n_jobs=n).add(X) for n in (1, 2))
    want = one.search(Q, 5, rerank=X, n_probe=3)
    check(two.search(Q, 5, rerank=X, n_probe=3), want)
    for size in (1, 3, 30):
        parts = [two.search(Q[first : first + size], 5, rerank=X, n_probe=3) for first in range(0, 60, size)]
        check([np.concatenate(part) for part in zip(*parts, strict=True)], [found[:60] for found in want])


def test_a_row_that_is_not_finite_is_named(index, X, Q):
    for dtype in (np.float32, np.float16):
        for value in (np.inf, np.nan):
            bad = X.astype(dtype)
            row = index.search(Q, 1, n_probe=2)[1][100, 0]
            bad[row, 3] = value
            with pytest.raises(ValueError, match=f"rerank.*row {row}"):
                index.search(Q, 5, rerank=bad, n_probe=2)
