"""Rows with weights, and those without any: they are as good as absent."""

import numpy as np
import pytest

import compcodes as cc
from compcodes.training import encoders
from compcodes.training.losses import Objective
from compcodes.training.shards import Local
from compcodes.training.trainer import Trainer

WEIGHTLESS = {"n_codebooks": 4, "n_codewords": 32, "anneal": 3, "max_iter": 2, "random_state": 0}


@pytest.fixture(scope="module")
def weightless():
    """Vectors of which few have any weight; the others are long."""
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(6000) < 0.05, rng.choice([0.5, 1.0, 3.0], 6000), 0)
    X = rng.normal(size=(6000, 16)) * np.where(weights > 0, 1, 1e6)[:, None]
    return X.astype(np.float32), weights


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"loss": "reconstruction"},
        {"loss": cc.InnerProduct(2.0, 2.0), "init": "random"},
        {"metric": "cosine"},
        {"selection": "m-selection"},
        {"n_lists": 4},
        {"n_codebooks": 12, "n_codewords": 8, "n_groups": 3},
        {"max_train": 150},
    ],
    ids=str,
)
def test_rows_without_weight_are_as_good_as_absent(weightless, more, tmp_path):
    X, weights = weightless
    kept = weights > 0
    want = cc.CompositionalCodes(**WEIGHTLESS | more).fit(X[kept], sample_weight=weights[kept])
    np.save(tmp_path / "x.npy", X)
    for given in (X, X.astype(np.float64), np.load(tmp_path / "x.npy", mmap_mode="r")):
        found = cc.CompositionalCodes(**WEIGHTLESS | more).fit(given, sample_weight=weights)
        np.testing.assert_array_equal(found.codebooks_, want.codebooks_)
        assert [entry["vectors"] for entry in found.history_] == [entry["vectors"] for entry in want.history_]
    alike = cc.CompositionalCodes(**WEIGHTLESS | more).fit(X[kept])
    for given, equal in ((X, kept), (X, kept.tolist()), (X, 3.0 * kept), (X[kept], np.full(kept.sum(), 1e30))):
        found = cc.CompositionalCodes(**WEIGHTLESS | more).fit(given, sample_weight=equal)
        np.testing.assert_array_equal(found.codebooks_, alike.codebooks_)


def test_batches_of_a_stream_have_rows_without_weight(weightless):
    X, weights = weightless
    kept = weights > 0
    found, want = (cc.CompositionalCodes(**WEIGHTLESS) for _ in range(2))
    for batch in (slice(3000), slice(3000, 6000)):
        own = kept[batch]
        found.partial_fit(X[batch], sample_weight=weights[batch])
        want.partial_fit(X[batch][own], sample_weight=weights[batch][own])
    np.testing.assert_array_equal(found.codebooks_, want.codebooks_)
    assert found.history_[-1]["vectors"] == kept.sum()


@pytest.mark.parametrize("row", [76, 899])
@pytest.mark.parametrize("model", [{}, {"max_train": 100}])
def test_a_row_beside_rows_without_weight_is_named_by_its_own_number(row, model):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(900, 12)).astype(np.float32), 1.0 * (rng.random(900) < 0.6)
    q = cc.CompositionalCodes(2, 8, n_lists=4, effort="low", anneal=1, max_iter=1, **model).fit(X)
    X[row], weights[row] = 3e38, 1
    with pytest.raises(ValueError, match=rf"row {row}\b"):
        q.partial_fit(X, sample_weight=weights)


@pytest.mark.filterwarnings("ignore::compcodes.LengthWarning")
@pytest.mark.parametrize("n_groups", [1, 3])
def test_a_row_without_weight_is_named_where_it_stands(weightless, n_groups):
    X, weights = weightless
    X = X.copy()
    row = int(np.flatnonzero(weights > 0)[20])
    X[row] = np.nan
    with pytest.raises(ValueError, match=f"row {row} "):
        cc.CompositionalCodes(12, 8, n_groups=n_groups, effort="low").fit(X, sample_weight=weights)
    X[row] = 1e38
    if n_groups > 1:
        with pytest.raises(ValueError, match=f"row {row} holds values too large for groups"):
            cc.CompositionalCodes(12, 8, n_groups=n_groups, loss="reconstruction").fit(X, sample_weight=weights)


@pytest.mark.parametrize("objective", [Objective(), Objective(4.0), Objective(4.0, 1.5 * np.eye(10, dtype="f4")[2:4])])
@pytest.mark.parametrize("init", ["residual", "random"])
def test_the_steps_of_training_leave_out_rows_without_weight(weightless, objective, init):
    """Weights by length can be 0 too."""
    X, weights = weightless
    X = np.ascontiguousarray(X[:, :10])
    kept = weights > 0
    both = [Local(X, weights), Local(X[kept], weights[kept])]
    settings = {"max_iter": 3, "tol": 0.0, "ridge": 1e-3, "seed": 7, "shrinkage": 4.0, "anneal": 3}
    all_, alone = (
        Trainer(shards, 3, 32, "group", encoder=encoders.as_encoder("local-search"), objective=objective, **settings)
        for shards in both
    )
    books = all_.start(init)
    np.testing.assert_array_equal(books, alone.start(init))
    assert all_.moments.mean_weight == alone.moments.mean_weight
    np.testing.assert_array_equal(all_.moments.deviation, alone.moments.deviation)
    books[:, 20:] = 1e9  # not used
    codes = all_.encode(books)
    np.testing.assert_array_equal(codes[kept], alone.encode(books))
    uses, own = (t.shards.uses(c, 32, "group") for t, c in ((all_, codes), (alone, codes[kept])))
    np.testing.assert_array_equal(uses, own)
    assert (uses == 0).sum() >= 30
    np.testing.assert_array_equal(all_.reseeded(books, codes), alone.reseeded(books, codes[kept]))


@pytest.mark.parametrize("more", [{}, {"n_lists": 3}, {"n_groups": 3}, {"max_train": 100}, {"metric": "cosine"}])
def test_weights_of_zero_vectors_alone(more):
    X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    X[:250] = 0
    q = cc.CompositionalCodes(6, 16, anneal=1, max_iter=1, **more).fit(X, sample_weight=1.0 * (np.arange(500) < 250))
    lists = q.assign(X[:1]) if "n_lists" in more else None
    np.testing.assert_allclose(q.decode(q.encode(X[:1], lists=lists), lists), 0, atol=1e-6)


@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
@pytest.mark.parametrize("n_lists", [20, 60])  # learnt from a sample, and from all
def test_lists_are_near_the_rows_that_have_weight(n_lists, metric):
    X = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    heavy = np.arange(5000) < 500

    def error(weights):
        q = cc.CompositionalCodes(2, 16, n_lists=n_lists, metric=metric, anneal=1, max_iter=1)
        centroids = q.fit(X, sample_weight=weights).centroids_
        rows = X[heavy] / (np.linalg.norm(X[heavy], axis=1)[:, None] if metric == "cosine" else 1)
        return ((rows[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).mean()

    assert error(np.where(heavy, 100.0, 1.0)) < 0.95 * error(None)


@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
@pytest.mark.parametrize("weight", [3.0, 1e-30, 1e30])
def test_lists_of_a_first_batch_with_equal_weights_are_those_of_fit(weight, metric):
    X = np.random.default_rng(0).normal(size=(1500, 10)).astype(np.float32)
    q, stream = (cc.CompositionalCodes(3, 16, n_lists=4, metric=metric, anneal=1, max_iter=1) for _ in range(2))
    stream.partial_fit(X, sample_weight=np.full(1500, weight))
    np.testing.assert_array_equal(stream.centroids_, q.fit(X).centroids_)
