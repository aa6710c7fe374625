"""The metric that sample queries give: errors in directions that they use count more."""

import json
import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training import losses
from conftest import vectors

D = 24


@pytest.fixture(scope="module")
def X():
    return vectors(3000, D)


@pytest.fixture(scope="module")
def Q():
    """Queries that keep to 4 dimensions of 24, nearly."""
    basis = np.linalg.qr(vectors(D, 4))[0]
    return (vectors(1600, 4) @ basis.T + 0.05 * vectors(1600, D)).astype(np.float32)


@pytest.fixture(scope="module")
def fitted(X, Q):
    loss = cc.InnerProduct(eta=2, weight_power=0, demand=0, metric=0.9)
    return cc.CompositionalCodes(3, 16, loss=loss, anneal=5, max_iter=5, tol=0).fit(X, queries=Q)


def stretch(A):
    return np.eye(A.shape[1]) + A.T.astype(np.float64) @ A


@pytest.mark.parametrize("metric", [0.3, 0.9])
def test_the_square_of_the_stretch_is_the_second_moment(Q, metric):
    W = Q.T.astype(np.float64) @ Q
    W = metric * W * D / np.trace(W) + (1 - metric) * np.eye(D)
    L = stretch(losses.directions(Q, metric))
    np.testing.assert_allclose(L @ L / np.trace(L @ L), W / np.trace(W), atol=2e-3)


def test_alike_directions_are_not_stretched():
    assert losses.directions(np.eye(D, dtype=np.float32), 1.0).shape == (0, D)
    assert losses.directions(np.zeros((5, D), np.float32), 0.5).shape == (0, D)
    assert losses.directions(np.ones((5, 1), np.float32), 0.5).shape == (0, 1)
    huge = losses.directions(np.full((5, D), 3e38, np.float32), 1.0)
    assert len(huge) >= 1
    assert np.isfinite(huge).all()


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("loss", [cc.InnerProduct(metric=1), cc.InnerProduct(demand=0.5), cc.InnerProduct()])
def test_a_few_queries_are_enough(X, Q, count, loss):
    X, Q = X[:300], Q[:count]
    made = [cc.CompositionalCodes(2, 8, loss=loss, anneal=1, max_iter=1) for loss in (loss, None)]
    q, plain = made[0].fit(X, queries=Q), made[1].fit(X)
    off, without = (np.square((X - q.decode(q.encode(X))) @ Q.T).mean() for q in (q, plain))
    assert off < (X @ Q.T).var(axis=0).mean() / 3  # their scores are told apart
    if loss.metric == 1:
        assert off < without / 10
        directions = q.directions_ / np.linalg.norm(q.directions_, axis=1, keepdims=True)
        np.testing.assert_allclose(Q @ directions.T @ directions, Q, atol=1e-3)  # the queries lie in them
    else:
        assert q.directions_.shape == (0, D)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [0, 1e-44, 1e30])
def test_queries_of_any_size_will_do(X, size):
    loss = cc.InnerProduct(metric=1)
    q = cc.CompositionalCodes(2, 8, loss=loss, anneal=1, max_iter=1).fit(X[:300], queries=X[300:400] * size)
    assert len(q.encode(X)) == len(X)


def test_codes_are_those_of_stretched_vectors(fitted, X):
    """The metric is a change of basis: encoding in it with codebooks in it is encoding as ever."""
    L = stretch(fitted.directions_)
    assert np.linalg.cond(L) > 2
    codebooks, moved = (fitted.codebooks_ @ L).astype(np.float32), (X @ L).astype(np.float32)
    want = _core.Encoder(codebooks, "group", 2.0, ("greedy", 0)).encode(moved)
    greedy = pickle.loads(pickle.dumps(fitted)).set_params(encoder="greedy")
    assert (greedy.encode(X) == want).all(axis=1).mean() > 0.99  # but for rounding
    errors = _core.errors(fitted.codebooks_, X, want, 2.0, directions=fitted.directions_)
    np.testing.assert_allclose(errors, _core.errors(codebooks, moved, want, 2.0), rtol=1e-3, atol=1e-4)


def test_training_lowers_the_loss_in_the_metric(fitted, X):
    objectives = [entry["objective"] for entry in fitted.history_]
    assert len(objectives) > 2
    assert objectives == sorted(objectives, reverse=True)
    errors = _core.errors(fitted.codebooks_, X, fitted.encode(X), 2.0, directions=fitted.directions_)
    assert errors.mean() < 1.05 * objectives[-1]


@pytest.mark.parametrize("selection", ["m-selection", "m-combination"])
def test_shared_codebooks_stay_shared(X, Q, selection):
    loss = cc.InnerProduct(metric=0.9)
    q = cc.CompositionalCodes(2, 8, selection, loss=loss, anneal=2, max_iter=2).fit(X[:500], queries=Q)
    assert len(q.directions_) > 0
    np.testing.assert_array_equal(q.codebooks_[0], q.codebooks_[1])


def test_files_and_pickles_keep_it(fitted, X, tmp_path):
    fitted.save(tmp_path / "q.cc")
    for again in (cc.CompositionalCodes.load(tmp_path / "q.cc"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.directions_, fitted.directions_)
        np.testing.assert_array_equal(again.encode(X[:300]), fitted.encode(X[:300]))
    cc.Index(fitted).add(X[:300]).save(tmp_path / "i.cc")
    np.testing.assert_array_equal(cc.Index.load(tmp_path / "i.cc").add(X[:300]).codes[300:], fitted.encode(X[:300]))


def test_a_stream_goes_on_in_it(fitted, X, Q):
    """And forgets it with a fit that has none."""
    q = pickle.loads(pickle.dumps(fitted))
    fresh = vectors(3000, D)
    before = _core.errors(q.codebooks_, fresh, q.encode(fresh), 2.0, directions=q.directions_).mean()
    q.partial_fit(fresh)
    after = _core.errors(q.codebooks_, fresh, q.encode(fresh), 2.0, directions=q.directions_).mean()
    assert after < 1.1 * before  # the optimum that a stream finds varies by some percent
    np.testing.assert_array_equal(q.directions_, fitted.directions_)
    assert q.set_params(anneal=1, max_iter=1).fit(X).directions_.shape == (0, D)


def test_it_is_chosen_where_queries_keep_to_few_directions_and_finds_more(X, Q):
    true = cc.evaluate.ground_truth(X, Q[:600], 10)[1]
    found = {}
    for metric in (None, 0.0):
        loss = cc.InnerProduct(demand=0.0, metric=metric)
        q = cc.CompositionalCodes(3, 16, loss=loss, anneal=4, max_iter=4).fit(X, queries=Q[600:])
        ids = cc.Index(q).add(X).search(Q[:600], 10)[1]
        found[metric] = cc.evaluate.recall(ids, true, 10, 10)
        assert (q.loss_["metric"] > 0) == (metric is None)
    assert found[None] > 1.5 * found[0.0], found


def test_directions_are_checked(X):
    books = np.zeros((2, 4, D), np.float32)
    for rows, message in [
        (np.ones((2, D), np.float32), "not orthogonal"),
        (np.full((1, D), np.nan, np.float32), "NaN"),
        (np.ones((1, 3), np.float32), "directions have 3 dimensions, the codebooks have 24"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.Encoder(books, directions=rows)


def test_the_loss_says_what_was_used(X):
    params = {"n_codebooks": 2, "n_codewords": 8, "anneal": 1, "max_iter": 1}
    for queries in (None, np.zeros((9, D))):
        q = cc.CompositionalCodes(**params, loss=cc.InnerProduct(eta=2, weight_power=1, metric=0.9)).fit(
            X, queries=queries
        )
        assert q.loss_["metric"] == 0
        assert q.directions_.shape == (0, D)
    with pytest.raises(ValueError, match=r"queries has shape \(0, 24\)"):
        q.fit(X, queries=np.zeros((0, D)))


def test_directions_are_read_only_and_may_be_replaced(fitted, X):
    q = pickle.loads(pickle.dumps(fitted)).set_params(encoder="greedy")
    codes = q.encode(X)
    q.directions_ = np.zeros((0, D), np.float32)
    assert (q.encode(X) != codes).any()
    for array in (fitted.directions_, pickle.loads(pickle.dumps(fitted)).directions_, q.codebooks_):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


ROW = [1.0] * D


@pytest.mark.parametrize("rows", [ROW, [[1.0]], [[np.inf] * D], [[np.nan] * D], [ROW, ROW], [[1e3] * D]])
def test_wrong_directions_are_refused(fitted, rows):
    with pytest.raises(ValueError, match="directions"):
        _core.Model(fitted.codebooks_, directions=np.array(rows, np.float32))


@pytest.mark.parametrize(
    "loss", [None, "x", [], {"name": "inner-product", "zz": 1}, {"name": "inner-product", "eta": []}]
)
def test_damaged_losses_are_refused_on_loading(fitted, loss):
    stored = json.loads(fitted._parameters()) | {"fitted_loss": loss}
    with pytest.raises(ValueError, match="the model's loss"):
        cc.CompositionalCodes._restored(fitted.codebooks_.copy(), "group", stored)


@pytest.mark.parametrize("history", [None, "abc", [1]])
def test_damaged_histories_are_refused_on_loading(fitted, history):
    stored = json.loads(fitted._parameters()) | {"history": history}
    with pytest.raises(ValueError, match="the model's history"):
        cc.CompositionalCodes._restored(fitted.codebooks_.copy(), "group", stored)
