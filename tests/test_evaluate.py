import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compcodes import evaluate


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


@pytest.mark.parametrize(
    ("ids", "true_ids", "R", "P", "message"),
    [
        ([[1]], [[1], [2]], 1, 1, "ids has 1 queries, true_ids has 2"),
        ([[1]], [[1]], 2, 1, "R must be from 1 to the 1 columns of true_ids, got 2"),
        ([[1]], [[1]], 1, 2, "P must be from 1 to the 1 columns of ids, got 2"),
        ([1], [[1]], 1, 1, r"ids must be a 2-D array of integers, got shape \(1,\)"),
        ([[1]], [[1.0]], 1, 1, "true_ids must be a 2-D array of integers, .* of float64"),
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
