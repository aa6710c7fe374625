import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compcodes as cc
from compcodes import evaluate

pytestmark = pytest.mark.isa


def test_recall_counts_the_true_best_among_the_first_found():
    ids = [[5, 1, 2, 3], [9, 8, 7, 6]]
    true_ids = [[1, 2, 4], [9, 6, 7]]
    assert evaluate.recall(ids, true_ids, R=1, P=1) == 0.5
    assert evaluate.recall(ids, true_ids, R=3, P=3) == pytest.approx(4 / 6)
    assert evaluate.recall(ids, true_ids, R=3, P=4) == pytest.approx(5 / 6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 9))
def test_recall_is_the_size_of_the_intersection(seed, R, P):
    rng = np.random.default_rng(seed)
    ids = np.array([rng.permutation(12)[:9] for _ in range(4)])
    true_ids = np.array([rng.permutation(12)[:6] for _ in range(4)])
    expected = np.mean([len({*found[:P]} & {*true[:R]}) / R for found, true in zip(ids, true_ids, strict=True)])
    assert evaluate.recall(ids, true_ids, R=R, P=P) == pytest.approx(expected)


def test_the_curve_holds_recall_at_each_position():
    ids, true_ids = [[3, 0, 1, 2]], [[0, 2]]
    assert evaluate.recall_curve(ids, true_ids, R=2).tolist() == [0, 0.5, 0.5, 1]
    assert [evaluate.recall(ids, true_ids, R=2, P=p) for p in (1, 2, 3, 4)] == [0, 0.5, 0.5, 1]


def test_padding_is_neither_sought_nor_found():
    assert evaluate.recall([[7, -1, -1]], [[7, -1]], R=2, P=3) == 1
    assert evaluate.recall([[8, -1, -1]], [[7, -1]], R=2, P=3) == 0
    assert np.isnan(evaluate.recall([[8]], [[-1]], R=1, P=1))


def test_an_id_found_twice_counts_once():
    assert evaluate.recall([[7, 7, 7]], [[7, 8]], R=2, P=3) == 0.5


NAMES = [f"item {i}" for i in range(6)] + [("a", 1), 7, b"raw"]


@pytest.mark.parametrize("as_strings", [True, False])
def test_recall_of_keys_is_that_of_their_numbers(as_strings):
    rng = np.random.default_rng(0)
    names = np.empty(9, dtype=object)
    names[:] = NAMES if not as_strings else [str(name) for name in NAMES]
    names = names.astype(str) if as_strings else names
    ids, true_ids = (np.array([rng.permutation(9)[:6] for _ in range(5)]) for _ in range(2))
    want = evaluate.recall_curve(ids, true_ids, R=4)
    assert 0 < want[0] < want[-1] < 1
    found, true = names[ids], names[true_ids]
    for one, other in [(found, true), (found.tolist(), true), (found.astype(object), true.tolist())]:
        np.testing.assert_array_equal(evaluate.recall_curve(one, other, R=4), want)
        assert evaluate.recall(one, other, R=4, P=6) == want[-1]


def test_none_among_keys_is_neither_sought_nor_found(quantizer, X, Q):
    assert evaluate.recall([["a", None, None]], [["a", None]], R=2, P=3) == 1
    assert evaluate.recall([["b", None, None]], [["a", None]], R=2, P=3) == 0
    keys = np.array([f"n{i}" for i in range(len(X))])
    index, numbered = cc.Index(quantizer, keys=True).add(X, keys), cc.Index(quantizer).add(X)
    true_ids = evaluate.ground_truth(X, Q, k=5)[1]
    assert evaluate.recall(index.search(Q, 20)[1], keys[true_ids], R=5, P=20) == evaluate.recall(
        numbered.search(Q, 20)[1], true_ids, R=5, P=20
    )


def test_keys_may_be_integers(quantizer, X, Q):
    keys = np.arange(len(X)) * 3
    true = keys[evaluate.ground_truth(X, Q, k=5)[1]]
    found = cc.Index(quantizer, keys=True).add(X, keys.tolist()).search(Q, 20)[1]
    want = evaluate.recall(found, true.astype(object), R=5, P=20)
    assert 0 < want < 1
    for one, other in [(found, true), (found.tolist(), true.tolist()), (true, found[:, :5])]:
        assert evaluate.recall(one, other, R=5, P=5) == evaluate.recall(found[:, :5], true, R=5, P=5)
    assert evaluate.recall(found, true, R=5, P=20) == want
    assert evaluate.recall([["a", 5]], [[5]], R=1, P=2) == evaluate.recall([[5, 7]], [["a", 5]], R=2, P=2) * 2 == 1


@pytest.mark.parametrize(
    ("ids", "true_ids", "R", "P", "message"),
    [
        ([[1]], [[1], [2]], 1, 1, "ids has 1 queries, true_ids has 2"),
        ([[1]], [[1]], 2, 1, "R must be from 1 to the 1 columns of true_ids, got 2"),
        ([[1]], [[1]], 1, 2, "P must be from 1 to the 1 columns of ids, got 2"),
        ([1], [[1]], 1, 1, r"ids must be a 2-D array of ids or keys, got shape \(1,\)"),
        ([["a"]], [[1]], 1, 1, "ids holds keys, true_ids does not"),
        ((np.zeros((1, 1)), np.array([[1]])), [[1]], 1, 1, r"ids is a tuple \(scores, ids\): pass its second"),
        ([["a", "b"], ["c"]], [["a"], ["c"]], 1, 1, "ids has rows of different lengths"),
        ([[1]], [[1], [1, 2]], 1, 1, "true_ids has rows of different lengths"),
        ([[1]], [["a"]], 1, 1, "true_ids holds keys, ids does not"),
        (np.array(["a"]), [["a"]], 1, 1, r"ids must be a 2-D array of ids or keys, got shape \(1,\)"),
        ([[1]], [[1.0]], 1, 1, "true_ids must be a 2-D array of ids or keys, .* of float64"),
    ],
)
def test_errors_name_the_argument(ids, true_ids, R, P, message):
    with pytest.raises(ValueError, match=message):
        evaluate.recall(ids, true_ids, R=R, P=P)


def test_ground_truth_is_the_sorted_inner_products():
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(50, 6)).astype("f4"), rng.normal(size=(7, 6)).astype("f4")
    scores, ids = evaluate.ground_truth(X, Q, k=5)
    exact = Q @ X.T
    assert np.array_equal(ids, np.argsort(-exact, axis=1)[:, :5])
    np.testing.assert_allclose(scores, np.take_along_axis(exact, ids, axis=1), rtol=1e-5)


def test_ground_truth_reads_any_type_and_map(tmp_path):
    rng = np.random.default_rng(0)
    X, Q = rng.integers(0, 255, (300, 9)).astype("u1"), rng.normal(size=(5, 9)).astype("f4")
    want = evaluate.ground_truth(X.astype("f4"), Q, k=7)
    np.save(tmp_path / "x.npy", X)
    calls = []
    for form in (X, X.astype("f2"), np.load(tmp_path / "x.npy", mmap_mode="r"), np.asfortranarray(X)):
        scores, ids = evaluate.ground_truth(form, Q, k=7, progress=lambda *call: calls.append(call))
        assert np.array_equal(ids, want[1]) and np.array_equal(scores, want[0])
    assert calls[-1] == ("exact search", 1500, 1500)


def pair(seed=0, n=57, d=6):
    """Vectors and approximations of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype("f4")
    return X, (X + 0.3 * rng.normal(size=(n, d))).astype("f4")


def test_vector_error_by_hand_and_against_numpy():
    assert evaluate.vector_error([[3, 4], [1, 0]], [[0, 0], [1, 1]]) == (25 + 1) / 2
    X, approximate = pair()
    assert evaluate.vector_error(X, approximate) == pytest.approx(((X - approximate) ** 2).sum(axis=1).mean())


def test_inner_product_error_by_hand_and_against_numpy():
    # Query (1, 2): off by |1·1| for row 0 and |2·(−3)| for row 1; query (0, 1) by 3 for row 1 alone.
    X, approximate = [[5, 5], [0, 0]], [[4, 5], [0, 3]]
    assert evaluate.inner_product_error(X, approximate, [[1, 2], [0, 1]], [[1, 0], [1, -1]]) == (1 + 6 + 3) / 3
    X, approximate = pair()
    Q = pair(1, n=9)[0]
    true = evaluate.ground_truth(X, Q, k=20)[1]
    want = np.mean([abs(q @ (X[i] - approximate[i])) for q, row in zip(Q, true, strict=True) for i in row])
    assert evaluate.inner_product_error(X, approximate, Q, true) == pytest.approx(want)


def test_symmetric_error_by_hand_and_against_numpy():
    assert evaluate.symmetric_error([[2], [1]], [[1], [1]]) == (9 + 1 + 1 + 0) / 4
    X, approximate = pair()
    X64, approximate64 = X.astype("f8"), approximate.astype("f8")
    want = ((X64 @ X64.T - approximate64 @ approximate64.T) ** 2).mean()
    assert evaluate.symmetric_error(X, approximate) == pytest.approx(want, rel=1e-9)
    assert evaluate.symmetric_error(X, X) == 0


@pytest.mark.parametrize("size", [1, 10, 57])
def test_errors_are_the_same_in_batches(size, monkeypatch):
    monkeypatch.setattr(evaluate, "_CHUNK", 7)
    X, approximate = pair()
    Q = pair(1, n=9)[0]
    true = evaluate.ground_truth(X, Q, k=57)[1]

    def batches():
        return (approximate[i : i + size] for i in range(0, len(X), size))

    assert evaluate.vector_error(X, batches()) == pytest.approx(evaluate.vector_error(X, approximate))
    assert evaluate.symmetric_error(X, batches()) == pytest.approx(evaluate.symmetric_error(X, approximate))
    assert evaluate.inner_product_error(X, batches(), Q, true) == pytest.approx(
        evaluate.inner_product_error(X, approximate, Q, true)
    )


@pytest.mark.parametrize("error", [evaluate.vector_error, evaluate.symmetric_error])
def test_errors_want_an_approximation_of_each_row(error):
    X, approximate = pair()
    for wrong, message in [
        (approximate[:5], r"approximations have 5 rows, X has shape \(57, 6\)"),
        (np.concatenate([approximate, approximate]), "approximations have 114 rows or more, X has shape"),
        (approximate[:, :3], "approximations have 3 columns, X has shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            error(X, wrong)
    with pytest.raises(ValueError, match=r"X has shape \(0, 6\): there is nothing to compare"):
        error(X[:0], approximate[:0])


def test_inner_product_error_wants_true_rows():
    X, approximate = pair()
    for Q, true, message in [
        (X[:2], [[0]], "true_ids has 1 queries, Q has 2"),
        (X[:1], [[57]], "true_ids range from 57 to 57: want rows of the 57 of X"),
        (X[:1], [[-2]], "true_ids range from -2 to -2"),
        (X[:1], [[-1]], "true_ids names no vector"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluate.inner_product_error(X, approximate, Q, true)


def area(ranks, n_relevant):
    """The area under the curve through (recall, precision) before and after each hit, point by point."""
    points = []
    for hits, rank in enumerate(ranks):
        points += [(hits / n_relevant, hits / rank if rank else 1), ((hits + 1) / n_relevant, (hits + 1) / (rank + 1))]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points[::2], points[1::2], strict=True))


def test_mean_average_precision_by_hand():
    mean = evaluate.mean_average_precision
    assert mean([[1, 2, 3]], [[1]]) == 1
    assert mean([[2, 1, 3]], [[1]]) == (0 + 1 / 2) / 2
    assert mean([[7, 3, 5, 9]], [[5, 7]]) == pytest.approx((1 + 1) / 2 / 2 + (1 / 2 + 2 / 3) / 2 / 2)
    assert mean([[1, 2], [9, 8]], [[1], [7]]) == 0.5
    assert mean([[1, -1]], [[1, 2]]) == 0.5
    # The query, found first, is taken out: 1 is then first.
    assert mean([[0, 1, 2]], [[1]], query_ids=[0]) == 1
    assert mean([[5, 5, 1]], [[5, 1]]) == 1
    assert np.isnan(mean(np.zeros((0, 3), int), []))


@given(st.integers(0, 2**32 - 1))
def test_mean_average_precision_is_the_area_under_the_curve(seed):
    rng = np.random.default_rng(seed)
    row, wanted = rng.permutation(12)[:9], rng.choice(12, 4, replace=False)
    want = area([i for i, found in enumerate(row) if found in wanted], 4)
    assert evaluate.mean_average_precision([row], [wanted]) == pytest.approx(want)


def test_mean_average_precision_wants_relevant_ids():
    for relevant, own, message in [
        ([], None, "relevant has 0 queries, ids has 1"),
        ([[]], None, r"relevant\[0\] is empty"),
        ([[3]], [3], r"relevant\[0\] holds the query itself, 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluate.mean_average_precision([[1, 2]], relevant, query_ids=own)


def test_ukbench_score_counts_the_first_four():
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    perfect = [[i // 4 * 4 + j for j in range(4)] for i in range(8)]
    assert evaluate.ukbench_score(perfect, groups) == 4
    assert evaluate.ukbench_score([[0, 4, 1, 5, 2], [4, -1, -1, -1, -1]], groups, [0, 1]) == (2 + 1) / 2
    assert np.isnan(evaluate.ukbench_score(np.zeros((0, 4), int), groups, []))


def test_ukbench_score_wants_groups_of_all():
    for ids, groups, own, message in [
        ([[0, 1, 2]], [0] * 4, [0], "ids has 3 columns: want the first 4"),
        ([[0, 1, 2, 9]], [0] * 4, [0], "ids range from 0 to 9: want rows of the 4 of groups"),
        ([[0, 1, 2, 3]], [0] * 4, None, r"groups has shape \(4,\), ids has 1 queries"),
        ([[0, 1, 2, 3]], [0] * 4, [0, 1], r"query_groups has shape \(2,\), ids has 1 queries"),
        ([[0, 1, 2, 3]], [[0]], [0], r"groups has shape \(1, 1\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluate.ukbench_score(ids, groups, own)


def test_errors_of_codes_in_batches(quantizer, X):
    codes = quantizer.encode(X)
    batches = list(quantizer.decode_batches(codes, 400))
    assert [len(batch) for batch in batches] == [400, 400, 400, 300]
    assert np.array_equal(np.concatenate(batches), quantizer.decode(codes))
    assert evaluate.vector_error(X, quantizer.decode_batches(codes)) == pytest.approx(
        evaluate.vector_error(X, quantizer.decode(codes))
    )


def test_batches_are_decoded_when_they_are_read(quantizer, X):
    codes = quantizer.encode(X)
    codes[700] = 255  # there are 16 codewords
    batches = quantizer.decode_batches(codes, 500)
    assert len(next(batches)) == 500
    with pytest.raises(ValueError, match="255"):
        next(batches)


def test_decoding_in_batches_checks_its_arguments_at_once(quantizer, X):
    codes = quantizer.encode(X)
    with pytest.raises(ValueError, match="batch_size is 0: want at least 1"):
        quantizer.decode_batches(codes, 0)
    with pytest.raises(ValueError, match="codes have shape"):
        quantizer.decode_batches(codes[:, :2])
    with pytest.raises(cc.NotFittedError):
        cc.CompositionalCodes().decode_batches(codes)
