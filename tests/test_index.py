import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compcodes as cc
from compcodes import reference

pytestmark = pytest.mark.isa


@pytest.fixture(scope="module")
def index(quantizer, X):
    return cc.Index(quantizer).add(X)


def test_search_is_the_full_sort_of_table_sums(index, quantizer, X, Q):
    scores, ids = index.search(Q, k=50)
    tables = reference.tables(Q, quantizer.codebooks_)
    want_scores, want_ids = reference.search(tables, quantizer.encode(X), 50)
    np.testing.assert_allclose(scores, want_scores, rtol=1e-5)
    exact = Q @ quantizer.decode(quantizer.encode(X)).T
    np.testing.assert_allclose(np.take_along_axis(exact, ids, 1), scores, rtol=1e-4, atol=1e-4)
    assert (ids == want_ids).mean() > 0.9  # the tables differ in their last bits, and with them near ties
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64


def test_ties_go_to_the_lower_position(quantizer):
    index = cc.Index(quantizer).add_codes(np.ones((300, 4), np.uint8))
    _, ids = index.search(np.ones((2, 12)), k=7)
    np.testing.assert_array_equal(ids, [[0, 1, 2, 3, 4, 5, 6]] * 2)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), k=st.integers(1, 450))
def test_pieces_add_up_to_the_whole(quantizer, X, Q, cuts, k):
    X = X[:400]
    codes = quantizer.encode(X)
    edges = [0, *sorted(cuts), 400]
    pieces = cc.Index(quantizer)
    for first, last in zip(edges, edges[1:]):  # noqa: B905, RUF007
        pieces.add_codes(codes[first:last])
    whole = cc.Index(quantizer).add(X)
    for a, b in zip(pieces.search(Q, k), whole.search(Q, k), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(pieces.codes, codes)


def test_more_than_there_are_is_padded(quantizer, X):
    scores, ids = cc.Index(quantizer).add(X[:3]).search(X[:2], k=5)
    assert (ids[:, 3:] == -1).all()
    assert np.isneginf(scores[:, 3:]).all()
    assert sorted(ids[0, :3]) == [0, 1, 2]
    scores, ids = cc.Index(quantizer).search(X[:2], k=2)
    assert (ids == -1).all()


def test_one_query_is_a_batch_of_one(index, Q):
    one, many = index.search(Q[0], k=5), index.search(Q, k=5)
    np.testing.assert_array_equal(one[0][0], many[0][0])
    np.testing.assert_array_equal(one[1][0], many[1][0])
    assert index.search(np.zeros((0, 12)), k=5)[1].shape == (0, 5)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_threads_and_batches_change_nothing(quantizer, Q, jobs):
    codes = np.random.default_rng(3).integers(16, size=(40_000, 4)).astype(np.uint8)
    index = cc.Index(quantizer, n_jobs=jobs).add_codes(codes)
    want = cc.Index(quantizer, n_jobs=1).add_codes(codes).search(Q, k=100)
    for got in (
        index.search(Q, k=100),
        [np.concatenate(a) for a in zip(*(index.search(q, 100) for q in Q), strict=True)],
    ):
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])


def test_ids(quantizer, X, Q):
    index = cc.Index(quantizer).add(X[:100], ids=np.arange(100) * 3 + 7)
    plain = cc.Index(quantizer).add(X[:100])
    np.testing.assert_array_equal(index.search(Q, 10)[1], plain.search(Q, 10)[1] * 3 + 7)
    index.add(X[:2])
    np.testing.assert_array_equal(index.ids[-2:], [305, 306])
    np.testing.assert_array_equal(index.reconstruct([7, 305]), quantizer.decode(quantizer.encode(X[[0, 0]])))
    with pytest.raises(ValueError, match="no id 8"):
        index.reconstruct([8])


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([1, 2], ValueError, "shape"),
        ([1, 2, 2], ValueError, "2 twice"),
        ([1, 2, -3], ValueError, r"ids\[2\] is -3"),
        ([1, 2, 7], ValueError, "has already"),
        ([1.0, 2.0, 3.0], TypeError, "dtype"),
        (np.uint64([1, 2, 2**63]), ValueError, "beyond int64"),
    ],
)
def test_wrong_ids_are_named_and_nothing_is_added(quantizer, X, ids, error, message):
    index = cc.Index(quantizer).add(X[:1], ids=[7])
    with pytest.raises(error, match=message):
        index.add(X[:3], ids=ids)
    assert len(index) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_rerank_gives_exact_scores(index, X, Q, dtype, tmp_path):
    np.save(tmp_path / "x.npy", X.astype(dtype))
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    scores, ids = index.search(Q, k=10, rerank=stored, n_candidates=len(X))
    want_scores, want_ids = cc.evaluate.ground_truth(stored, Q, k=10)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(scores, want_scores, rtol=1e-5)
    fewer = index.search(Q, k=10, rerank=stored)[1]
    plain = index.search(Q, k=10)[1]
    assert cc.evaluate.recall(fewer, want_ids, 10, 10) > cc.evaluate.recall(plain, want_ids, 10, 10)


def test_wrong_rerank_is_named(index, X, Q):
    with pytest.raises(ValueError, match="rerank has 3 rows, the index holds 1500 vectors"):
        index.search(Q, rerank=X[:3])
    with pytest.raises(ValueError, match="rerank has 5 dimensions"):
        index.search(Q, rerank=X[:, :5])
    with pytest.raises(ValueError, match="n_candidates is 3: want at least k"):
        index.search(Q, k=5, rerank=X, n_candidates=3)
    with pytest.raises(ValueError, match="n_candidates goes with rerank"):
        index.search(Q, k=5, n_candidates=30)


@pytest.mark.parametrize(
    ("query", "k", "error", "message"),
    [
        (np.zeros((2, 11)), 3, ValueError, "Q has 11 dimensions, the model has 12"),
        (np.zeros((2, 3, 4)), 3, ValueError, "Q has shape"),
        (np.full((2, 12), np.nan), 3, ValueError, "Q row 0"),
        (np.full((2, 12), 1e300), 3, ValueError, "Q row 0"),
        (np.zeros((2, 12), complex), 3, TypeError, "Q has dtype complex128"),
        (np.zeros((2, 12)), 0, ValueError, "k is 0"),
        (np.zeros((2, 12)), 1.5, TypeError, "k is 1.5"),
    ],
)
def test_a_wrong_search_is_named(index, query, k, error, message):
    with pytest.raises(error, match=message):
        index.search(query, k)


def test_what_describes_an_index(index, quantizer, X):
    assert len(index) == 1500
    assert index.bytes_per_vector == 2  # four codes of 16 codewords
    np.testing.assert_array_equal(index.quantizer.codebooks_, quantizer.codebooks_)
    assert "1,500 vectors of 12 dimensions, 4 codes of 16" in repr(index)
    np.testing.assert_array_equal(index.codes, quantizer.encode(X))
    with pytest.raises(ValueError, match='metric is "dot"'):
        cc.Index(quantizer, metric="dot")
    with pytest.raises(cc.NotFittedError):
        cc.Index(cc.CompositionalCodes())


METRICS = ["ip", "cosine", "l2"]


def true_scores(metric, X, Q):
    X, Q = X.astype(np.float64), Q.astype(np.float64)
    if metric == "l2":
        return -((Q[:, None, :] - X) ** 2).sum(axis=2)
    scores = Q @ X.T
    return scores if metric == "ip" else scores / np.linalg.norm(X, axis=1) / np.linalg.norm(Q, axis=1)[:, None]


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_decoded_vectors(quantizer, X, Q, metric):
    index = cc.Index(quantizer, metric)
    for part in np.array_split(X[np.argsort((X**2).sum(axis=1))], 4):  # norms grow
        index.add(part)
    scores, ids = index.search(Q, k=len(X))
    want = true_scores(metric, quantizer.decode(index.codes), Q)
    np.testing.assert_array_equal(np.sort(ids), np.arange(len(X))[None].repeat(len(Q), axis=0))
    tolerance = {"ip": 1e-4, "cosine": 1e-6, "l2": 1e-6}[metric]
    np.testing.assert_allclose(
        scores, np.take_along_axis(want, ids, 1), rtol=tolerance, atol=tolerance * abs(want).max()
    )
    assert (np.diff(scores, axis=1) <= 0).all()
    assert index.bytes_per_vector == {"ip": 2, "cosine": 3, "l2": 7}[metric]


@pytest.mark.parametrize("metric", METRICS)
def test_ground_truth_and_rerank_are_the_metrics(quantizer, X, Q, metric):
    want = true_scores(metric, X, Q)
    scores, ids = cc.evaluate.ground_truth(X, Q, k=20, metric=metric)
    np.testing.assert_allclose(scores, -np.sort(-want, axis=1)[:, :20], rtol=1e-4, atol=1e-4)
    index = cc.Index(quantizer, metric).add(X)
    reranked = index.search(Q, k=20, rerank=X, n_candidates=len(X))
    np.testing.assert_allclose(reranked[0], scores, rtol=1e-4, atol=1e-4)
    assert (reranked[1] == ids).mean() > 0.99


def test_norms_in_one_byte_find_the_same(quantizer, X, Q):
    exact, byte = (cc.Index(quantizer, "l2", exact_norms=e).add(X) for e in (True, False))
    assert (exact.bytes_per_vector, byte.bytes_per_vector) == (7, 3)
    for a, b in zip(byte.search(Q, 10), exact.search(Q, 10), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_scale_makes_a_vector_score_itself_right(quantizer, X):
    index = cc.Index(quantizer, scale=True).add(X)
    scores, ids = index.search(X[:50], k=len(X))
    own = scores[ids == np.arange(50)[:, None]]
    np.testing.assert_allclose(own, (X[:50] ** 2).sum(axis=1), rtol=0.012)
    assert index.bytes_per_vector == 3
    with pytest.raises(ValueError, match="scale goes with metric"):
        cc.Index(quantizer, "l2", scale=True)


@pytest.mark.parametrize("metric", METRICS)
def test_removed_vectors_are_not_found_and_others_are(quantizer, X, Q, metric):
    index = cc.Index(quantizer, metric).add(X)
    gone = np.arange(0, 1500, 3)
    assert index.remove(gone) == 500
    kept = np.setdiff1d(np.arange(1500), gone)
    np.testing.assert_array_equal(index.ids, kept)
    plain = cc.Index(quantizer, metric).add(X[kept], ids=kept)
    found, want = index.search(Q, 30)[1], plain.search(Q, 30)[1]
    np.testing.assert_array_equal(found, want)
    assert not np.isin(found, gone).any()
    everything = {"rerank": X[kept], "n_candidates": 1000}
    np.testing.assert_array_equal(index.search(Q, 5, **everything)[1], plain.search(Q, 5, **everything)[1])
    with pytest.raises(ValueError, match="no id 3"):
        index.remove([4, 3])
    assert len(index) == 1000
    index.add(X[:1])
    assert index.ids[-1] == 1500
    assert index.remove(index.ids) == 1001
    assert (index.search(Q, 2)[1] == -1).all()


@pytest.mark.parametrize("metric", METRICS)
def test_a_filter_finds_the_best_of_what_it_allows(quantizer, X, Q, metric):
    index = cc.Index(quantizer, metric).add(X, ids=np.arange(1500) + 10)
    _, ids = index.search(Q, k=1500)
    rng = np.random.default_rng(0)
    for share in (0.9, 0.1, 0.002):
        mask = rng.random(1500) < share
        allowed = np.flatnonzero(mask) + 10
        want = [row[np.isin(row, allowed)][:7] for row in ids]
        for filter in (mask, allowed, rng.permutation(np.append(allowed, [5, 99999]))):
            found = index.search(Q, 7, filter=filter)[1]
            for row, wanted in zip(found, want, strict=True):
                np.testing.assert_array_equal(row[row >= 0], wanted)
    part = index.search(Q, 7, filter=range(100, 300))[1]
    for row, all_ids in zip(part, ids, strict=True):
        np.testing.assert_array_equal(row, all_ids[(all_ids >= 100) & (all_ids < 300)][:7])
    assert set(index.search(Q, 7, filter=range(100, 300, 50))[1].ravel()) == {100, 150, 200, 250, -1}
    assert (index.search(Q, 7, filter=[])[1] == -1).all()
    np.testing.assert_array_equal(index.search(Q, 7, filter=range(2**70))[1], ids[:, :7])
    assert (index.search(Q, 7, filter=range(2**64, 2**65))[1] == -1).all()
    for wrong, error in ((np.ones(3, bool), ValueError), (np.ones((2, 2), int), ValueError), ([0.5], TypeError)):
        with pytest.raises(error, match="filter"):
            index.search(Q, filter=wrong)


def test_merged_indexes_are_one(quantizer, X, Q):
    whole = cc.Index(quantizer).add(X)
    halves = cc.Index(quantizer).add(X[:700]).merge(cc.Index(quantizer).add(X[700:]))
    np.testing.assert_array_equal(halves.search(Q, 9)[1], whole.search(Q, 9)[1])
    with pytest.raises(ValueError, match="different models or settings"):
        halves.merge(cc.Index(quantizer, "l2"))
    with pytest.raises(ValueError, match="already"):
        cc.Index(quantizer).add(X[:3], ids=[1, 2, 3]).merge(cc.Index(quantizer).add(X[:1], ids=[2]))
    with pytest.raises(TypeError, match="other is"):
        whole.merge(5)
    doubled = whole.merge(whole)
    assert len(doubled) == 3000


def test_absurd_counts_are_refused(index, Q):
    for k in (10**13, 2**31, 2**59, 2**62, 2**64, 10**30):
        with pytest.raises(ValueError, match="k is"):
            index.search(Q, k)
        with pytest.raises(ValueError, match="k is"):
            cc.evaluate.ground_truth(Q, Q, k)
    with pytest.raises(TypeError, match=r"quantizer is 'model\.cc'"):
        cc.Index("model.cc")


def test_a_later_fit_of_the_model_changes_no_index(X, Q):
    q = cc.CompositionalCodes(2, 8, max_iter=1).fit(X)
    index = cc.Index(q).add(X)
    want = index.search(Q, 5)[1]
    q.set_params(random_state=1).fit(-3 * X)
    np.testing.assert_array_equal(index.codes, cc.Index(index.quantizer).add(X).codes)
    np.testing.assert_array_equal(index.search(Q, 5)[1], want)
