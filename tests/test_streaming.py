"""Online learning, and training on samples."""

import copy
import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training.shards import Local
from conftest import vectors

pytestmark = pytest.mark.isa


def held_out(q, X):
    return _core.errors(q.codebooks_, X, q.encode(X), q.loss_.get("eta", 1.0)).mean()


@pytest.fixture(scope="module")
def stream():
    return vectors(6000, 12, seed=3)


@pytest.mark.parametrize("selection", ["group", "m-selection", "m-combination"])
@pytest.mark.parametrize("loss", ["reconstruction", cc.InnerProduct(eta=4, weight_power=0)])
def test_a_stream_comes_near_the_batch(selection, loss):
    """On average over two data sets: the optimum that one training run finds varies by some percent."""
    params = {"n_codebooks": 4, "n_codewords": 16, "selection": selection, "loss": loss}
    streamed, whole, first = [], [], []
    for seed in (3, 4):
        data = vectors(3600, 12, seed=seed)
        learn, others = data[:2400], data[2400:]
        q = cc.CompositionalCodes(**params)
        for batch in np.split(learn, 4):
            q.partial_fit(batch)
        streamed.append(held_out(q, others))
        whole.append(held_out(cc.CompositionalCodes(**params).fit(learn), others))
        first.append(held_out(cc.CompositionalCodes(**params).fit(learn[:600]), others))
        assert (q.codebooks_ == q.codebooks_[0]).all() == (selection != "group")
        assert [entry["vectors"] for entry in q.history_[-3:]] == [1200, 1800, 2400]
    assert np.mean(np.divide(streamed, whole)) < (1.05 if selection == "group" else 1.12)
    if selection == "group":  # a shared codebook has few numbers to learn: the first batch suffices
        assert np.mean(np.divide(streamed, first)) < 1


def test_what_is_kept_are_the_sums_of_the_paper(stream):
    """Without forgetting they would be those of all batches; the last batch's share is exact."""
    q = cc.CompositionalCodes(2, 8, loss="reconstruction", anneal=0, max_iter=1).partial_fit(stream[:500])
    A, b = cc.normal_equations(stream[:500], q.encode(stream[:500]), 8)
    assert np.trace(q._past.A) == np.trace(A) == 1000
    np.testing.assert_allclose(q._past.b.sum(axis=0), b.sum(axis=0), rtol=1e-6)
    before = q._past
    q.partial_fit(stream[500:800], sample_weight=np.full(300, 2.0))
    kept = (np.trace(q._past.A) - 2 * 2.0 * 300) / np.trace(before.A)
    assert 0 < kept < 1
    np.testing.assert_allclose(
        q._past.b.sum(axis=0), kept * before.b.sum(axis=0) + 4 * stream[500:800].sum(axis=0, dtype=float), rtol=1e-6
    )


@pytest.mark.parametrize("loss", ["reconstruction", cc.InnerProduct(eta=4, weight_power=0)])
def test_a_small_batch_does_not_undo_a_fit_nor_a_file(stream, loss, tmp_path):
    learn, others = stream[:4800], stream[4800:]
    q = cc.CompositionalCodes(3, 16, loss=loss).fit(learn)
    q.save(tmp_path / "q.cc")
    before = held_out(q, others)
    for model in (q, cc.CompositionalCodes.load(tmp_path / "q.cc")):
        model.partial_fit(learn[:200])
        assert held_out(model, others) < 1.02 * before
        assert model.history_[-1]["vectors"] == 5000


def test_the_same_batches_give_the_same_model_for_any_threads_and_copies(stream):
    models = []
    for jobs in (1, 3):
        q = cc.CompositionalCodes(3, 16, loss=cc.InnerProduct(3, 1), anneal=3, n_jobs=jobs).partial_fit(stream[:700])
        models += [q, pickle.loads(pickle.dumps(q)), copy.deepcopy(q)]
    for q in models:
        q.partial_fit(stream[700:1400]).partial_fit(stream[1400:2000])
        np.testing.assert_array_equal(q.codebooks_, models[0].codebooks_)


def test_a_failed_batch_leaves_the_model_as_it_was(stream):
    q = cc.CompositionalCodes(2, 8, max_iter=1, anneal=2).partial_fit(stream[:500])
    before, history, past = q.codebooks_, q.history_, q._past

    def stop(*_):
        raise LookupError("enough")

    for error, message, call in [
        (
            ValueError,
            "X row 3 holds NaN",
            lambda: q.partial_fit(np.where(np.arange(20)[:, None] == 3, np.nan, stream[:20])),
        ),
        (ValueError, "X has 5 features", lambda: q.partial_fit(stream[:10, :5])),
        (ValueError, "at least one vector", lambda: q.partial_fit(stream[:0])),
        (ValueError, "sample_weight", lambda: q.partial_fit(stream[:5], sample_weight=[1])),
        (LookupError, "enough", lambda: q.partial_fit(stream, progress=stop)),
        (ValueError, "n_codebooks is 3, the model has 2", lambda: q.set_params(n_codebooks=3).partial_fit(stream)),
    ]:
        with pytest.raises(error, match=message):
            call()
        assert q.codebooks_ is before and q.history_ is history and q._past is past
    fresh = cc.CompositionalCodes(2, 8)
    with pytest.raises(LookupError, match="enough"):
        fresh.partial_fit(stream, progress=stop)
    assert not hasattr(fresh, "codebooks_")


def test_codebooks_that_were_replaced_are_what_a_batch_goes_on_from(stream):
    q = cc.CompositionalCodes(2, 8, loss="reconstruction", max_iter=1).partial_fit(stream[:1000])
    other = cc.CompositionalCodes(2, 8, loss="reconstruction", random_state=5).fit(stream)
    q.codebooks_ = other.codebooks_
    q.partial_fit(stream[:100])
    assert held_out(q, stream) < 1.02 * held_out(other, stream)


def test_a_sample_is_trained_on_and_its_weights(stream, tmp_path):
    np.save(tmp_path / "x.npy", stream)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    params = {"n_codebooks": 2, "n_codewords": 8, "loss": "reconstruction", "max_iter": 2, "anneal": 2}
    q = cc.CompositionalCodes(**params, max_train=900).fit(mapped)
    assert {entry["vectors"] for entry in q.history_} == {900}
    np.testing.assert_array_equal(q.codebooks_, cc.CompositionalCodes(**params, max_train=900).fit(stream).codebooks_)
    assert (q.codebooks_ != cc.CompositionalCodes(**params).fit(stream).codebooks_).any()
    whole = cc.CompositionalCodes(**params, max_train=6000).fit(stream)
    np.testing.assert_array_equal(whole.codebooks_, cc.CompositionalCodes(**params).fit(stream).codebooks_)
    # Rows without weight are no training vectors, so they take no place in the sample.
    weight = np.where(np.arange(6000) % 6 == 0, 1.0, 0.0)
    weighted = cc.CompositionalCodes(**params, max_train=1000).fit(stream, sample_weight=weight)
    np.testing.assert_array_equal(
        weighted.codebooks_, cc.CompositionalCodes(**params).fit(stream[::6], sample_weight=np.ones(1000)).codebooks_
    )
    for wrong, error in [(0, ValueError), (2.5, TypeError), (True, TypeError)]:
        with pytest.raises(error, match="max_train is"):
            cc.CompositionalCodes(max_train=wrong).fit(stream)


def test_a_sample_holds_the_rows_with_most_weight_and_stands_for_all():
    X = np.arange(20_000.0, dtype=np.float32)[:, None]
    weights = np.random.default_rng(0).pareto(1.0, size=20_000)
    weights[::7] = 0
    shards = Local(X, weights)
    sample = shards.sampled(5000, seed=3)
    rows = sample.X[:, 0].astype(int)
    assert len(rows) == len(set(rows)) == 5000
    assert (np.diff(rows) > 0).all()
    assert (weights[rows] > 0).all()
    assert set(np.argsort(weights)[-50:]) <= set(rows)
    for values in (np.ones(20_000), np.arange(20_000.0), weights):  # weighted sums over the sample are those over all
        whole = (weights * values).sum() / weights.mean()
        assert abs((sample.weights * values[rows]).sum() / whole - 1) < 0.03
    assert shards.sampled(20_000, 3) is shards
    few = shards.sampled(np.count_nonzero(weights), 3)
    np.testing.assert_array_equal(few.weights, weights[weights > 0])


def test_an_error_in_a_sample_names_the_row_it_was_taken_from(stream):
    X = stream.copy()
    X[5999] = np.nan
    with pytest.raises(ValueError, match="X row 5999"):
        cc.CompositionalCodes(2, 8, loss="reconstruction", max_train=5990, random_state=1).fit(X)


def test_tiny_weights_weigh_as_large_ones_do(stream):
    params = {"n_codebooks": 2, "n_codewords": 8, "loss": "reconstruction", "max_iter": 2, "anneal": 2}
    tiny, one = (cc.CompositionalCodes(**params).fit(stream, sample_weight=np.full(6000, w)) for w in (5e-324, 1.0))
    np.testing.assert_array_equal(tiny.codebooks_, one.codebooks_)


def test_a_sample_finds_the_long_vectors_that_inner_products_want():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 16)).astype(np.float32)
    X[rng.choice(20_000, 300, replace=False)] *= 6
    Q = rng.normal(size=(300, 16)).astype(np.float32)
    true = cc.evaluate.ground_truth(X, Q, 1)[1]

    def found(**params):
        q = cc.CompositionalCodes(4, 32, loss=cc.InnerProduct(2.0, 4.0), anneal=6, max_iter=4, **params).fit(X)
        return cc.evaluate.recall(cc.evaluate.ground_truth(q.decode(q.encode(X)), Q, 1)[1], true, 1, 1)

    assert found(max_train=1500) > found() - 0.1


def test_codebooks_of_small_data_do_not_fit_its_noise():
    """Without the pull the loss of other vectors is much larger than need be; with it training cannot diverge."""
    rng = np.random.default_rng(0)
    X, others = rng.normal(size=(250, 16)), rng.normal(size=(600, 16))
    pulled, free = (  # with noise, since training without it fits less, and might be chosen
        held_out(cc.CompositionalCodes(4, 32, loss="reconstruction", shrinkage=s, anneal=50).fit(X), others)
        for s in (4.0, 0.0)
    )
    assert pulled < 0.95 * free
    assert held_out(cc.CompositionalCodes(4, 32, loss="reconstruction", shrinkage=1e6).fit(X), others) < 17
    with pytest.raises(ValueError, match="shrinkage is -1"):
        cc.CompositionalCodes(shrinkage=-1).fit(X)


@pytest.mark.parametrize("weight", [1e-310, 1e-300, 1e-50, 1e-30, 1e30])
def test_a_batch_with_weights_of_any_magnitude_leaves_a_good_model(weight):
    X = vectors(300, 8)
    loss = cc.InnerProduct(4.0, 1.0, 0.0, 0.0)
    q = cc.CompositionalCodes(2, 8, loss=loss, anneal=2, max_iter=2).fit(X)
    before = held_out(q, X)
    q.partial_fit(X, sample_weight=np.full(len(X), weight))
    assert held_out(q, X) < 1.1 * before
