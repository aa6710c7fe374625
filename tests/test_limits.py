"""What each query may find, and all results above a score."""

import numpy as np
import pytest
import scipy.sparse

import compcodes as cc

pytestmark = pytest.mark.isa

KINDS = [{}, {"metric": "cosine"}, {"metric": "l2"}, {"metric": "l2", "exact_norms": False}, {"scale": True}]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def index(request, quantizer, X):
    return cc.Index(quantizer, **request.param).add(X, np.arange(len(X)) * 3 + 5)


@pytest.fixture(scope="module")
def sets(index, Q):
    rng = np.random.default_rng(0)
    sizes = rng.choice([0, 1, 5, 300, len(index)], len(Q))
    return [rng.choice(index.ids, size, replace=False) for size in sizes]


def expected(index, Q, k, allows):
    """Filter the order of all vectors by `allows(query, id)`."""
    scores, ids = index.search(Q, len(index))
    for query in range(len(Q)):
        kept = np.array([allows(query, i) for i in ids[query]])
        found = int(min(kept.sum(), k))
        yield ids[query][kept][:k].tolist() + [-1] * (k - found), scores[query][kept][:k].tolist()


def check(found, want):
    for scores, ids, (want_ids, want_scores) in zip(*found, want, strict=True):
        assert ids.tolist() == want_ids
        assert scores[: len(want_scores)].tolist() == want_scores
        assert np.isneginf(scores[len(want_scores) :]).all()


def test_each_query_has_its_own(index, sets, Q):
    only = list(expected(index, Q, 20, lambda query, i: i in sets[query]))
    without = list(expected(index, Q, 20, lambda query, i: i not in sets[query]))
    columns = int(index.ids.max()) + 1
    matrix = scipy.sparse.lil_matrix((len(Q), columns))
    for query, ids in enumerate(sets):
        matrix[query, ids] = 1
    padded = np.full((len(Q), max(map(len, sets))), -1)
    for query, ids in enumerate(sets):
        padded[query, : len(ids)] = ids
    marks = np.stack([np.isin(index.ids, ids) for ids in sets])
    forms = [
        sets,
        [set(ids.tolist()) for ids in sets],
        tuple([*ids.tolist(), 10**12, -7, *ids[:2].tolist()] for ids in sets),
        matrix.tocsr(),
        matrix.tocoo(),
        scipy.sparse.csr_array(matrix.tocsr()),
        padded,
        marks,
        marks.tolist(),
        np.array([*map(list, sets), None], dtype=object)[:-1],
    ]
    for form in forms:
        check(index.search(Q, 20, filter=form), only)
        check(index.search(Q, 20, exclude=form), without)


def test_limits_go_together(index, sets, Q):
    few = index.ids[::2]
    check(
        index.search(Q, 9, filter=few, exclude=sets),
        list(expected(index, Q, 9, lambda query, i: i in few and i not in sets[query])),
    )
    mine = [ids[:7] for ids in sets]
    check(
        index.search(Q, 9, filter=sets, exclude=mine),
        list(expected(index, Q, 9, lambda query, i: i in sets[query] and i not in mine[query])),
    )
    check(
        index.search(Q, 9, filter=sets, exclude=range(5, 2000, 6)),
        list(expected(index, Q, 9, lambda query, i: i in sets[query] and i not in range(5, 2000, 6))),
    )
    check(index.search(Q, 9, exclude=few), list(expected(index, Q, 9, lambda query, i: i not in few)))
    check(index.search(Q[0], 9, exclude=[sets[0]]), list(expected(index, Q[:1], 9, lambda query, i: i not in sets[0])))


def test_many_queries_and_candidates(quantizer, X):
    # More than a batch of queries, and each beyond the others' sets.
    Q = np.random.default_rng(3).normal(size=(1500, 12)).astype(np.float32)
    index = cc.Index(quantizer).add(X)
    own = index.search(Q, 5)[1]
    _, found = index.search(Q, 5, exclude=own)
    np.testing.assert_array_equal(found, index.search(Q, 10)[1][:, 5:])
    _, found = index.search(Q, 5, exclude=own, rerank=X, n_candidates=len(X) - 5)
    exact = Q.astype(np.float64) @ X.T  # re-ranking is exact but for one rounding
    np.put_along_axis(exact, own, -np.inf, 1)
    np.testing.assert_array_equal(np.sort(found), np.sort(np.argsort(-exact)[:, :5]))
    _, found = index.search(Q, 5, exclude=own, rerank=lambda ids: X[ids], n_candidates=len(X) - 5)
    np.testing.assert_array_equal(np.sort(found), np.sort(np.argsort(-exact)[:, :5]))


def test_wrong_limits_are_named(index, Q):
    n = len(Q)
    for argument in ("filter", "exclude"):
        for value, error, message in [
            ([[1]] * (n - 1), ValueError, f"has {n - 1} rows for {n} queries"),
            (np.zeros((n + 1, len(index)), bool), ValueError, f"has {n + 1} rows"),
            (np.zeros((n, 7), bool), ValueError, f"has 7 columns, the index holds {len(index)} vectors"),
            (np.zeros(7, bool), ValueError, f"has 7 entries, the index holds {len(index)} vectors"),
            (scipy.sparse.csr_matrix((n + 1, 5)), ValueError, "rows for"),
            ([[1.5]] * n, TypeError, r"\[0\] has shape \(1,\), float64"),
            ([1.5], TypeError, "has dtype float64"),
            (np.zeros((n, 2, 2), int), ValueError, "has shape"),
            ("abc", TypeError, "is 'abc': want ids"),
        ]:
            with pytest.raises(error, match=f"{argument}.*{message}"):
                index.search(Q, 3, **{argument: value})


def test_all_above_a_score(index, sets, Q):
    scores, ids = index.search(Q, len(index))
    floors = scores[np.arange(len(Q)), np.random.default_rng(1).integers(0, 300, len(Q))]
    for floor in (floors, floors.astype(np.float64), float(np.median(scores)), scores.max() + 1, scores.min()):
        indptr, found, found_scores = index.search_above(Q, floor)
        each = np.broadcast_to(np.float64(floor), len(Q))
        counts = (scores >= each[:, None]).sum(1)
        np.testing.assert_array_equal(indptr, np.concatenate([[0], np.cumsum(counts)]))
        for query, count in enumerate(counts):
            np.testing.assert_array_equal(found[indptr[query] : indptr[query + 1]], ids[query, :count])
            np.testing.assert_array_equal(found_scores[indptr[query] : indptr[query + 1]], scores[query, :count])
    between = np.nextafter(floors.astype(np.float64), np.inf)  # above the score itself, as float32 it is the score
    strict = index.search_above(Q, between)
    np.testing.assert_array_equal(np.diff(strict.indptr), (scores > floors[:, None]).sum(1))
    few = index.search_above(Q, floors, exclude=sets)
    for query in range(len(Q)):
        part = slice(*few.indptr[query : query + 2])
        kept = ids[query][scores[query] >= floors[query]]
        want = [i for i in kept if i not in sets[query]]
        assert few.ids[part].tolist() == want
    one = index.search_above(Q[0], floors[0])
    assert len(one.indptr) == 2
    scipy.sparse.csr_array((few.scores, few.ids, few.indptr))


def test_wrong_scores_are_named(index, Q):
    for score, message in [
        (np.nan, "NaN"),
        (np.inf, "infinity"),
        (np.zeros(3), r"shape \(3,\)"),
        ("high", "is not an array of numbers|dtype"),
    ]:
        with pytest.raises((ValueError, TypeError), match=f"score .*{message}"):
            index.search_above(Q, score)


def test_keys_above_a_score(quantizer, X, Q):
    index = cc.Index(quantizer, keys=True).add(X, [f"n{i}" for i in range(len(X))])
    plain = cc.Index(quantizer).add(X)
    found, want = index.search_above(Q, 1.0), plain.search_above(Q, 1.0)
    assert found.ids.tolist() == [f"n{i}" for i in want.ids]
    empty = cc.Index(quantizer, keys=True).search_above(Q, 1.0)
    assert empty.ids.shape == (0,) and empty.indptr.tolist() == [0] * (len(Q) + 1)


def test_too_much_padding_is_refused_before_it_is_made(quantizer, X):
    index = cc.Index(quantizer).add(X)
    with pytest.raises(ValueError, match=f"k is 1000000000, of {len(X)} vectors there are"):
        index.search(X[0], 10**9)
    with pytest.raises(ValueError, match="k is 1000000000"):
        index.search(X[0], 10**9, rerank=X)
    with pytest.raises(ValueError, match="k is 1000000000"):
        cc.evaluate.ground_truth(X, X[:1], 10**9)
