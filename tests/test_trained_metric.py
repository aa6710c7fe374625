"""Models know the metric that they are for."""

import json
import pickle
import warnings

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from conftest import vectors

QUICK = {"n_codebooks": 4, "n_codewords": 32, "anneal": 4, "max_iter": 3}
"""A short training."""


@pytest.fixture(scope="module")
def X():
    """2,000 × 32 in 40 clusters, of lengths that are log-normal (σ = 1.5)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 32))[rng.integers(40, size=2000)] + 0.5 * rng.normal(size=(2000, 32))
    return (X / np.linalg.norm(X, axis=1, keepdims=True) * rng.lognormal(sigma=1.5, size=(2000, 1))).astype("f4")


@pytest.fixture(scope="module")
def cosine(X):
    return cc.CompositionalCodes(**QUICK, metric="cosine").fit(X)


def unit(X):
    return (X / np.maximum(np.linalg.norm(X.astype("f8"), axis=1, keepdims=True), 1e-300)).astype("f4")


def found(q, X, Q):
    true = cc.evaluate.ground_truth(X, Q, 10, metric="cosine")[1]
    return cc.evaluate.recall(cc.Index(q).add(X).search(Q, 10)[1], true, 10, 10)


def test_recall_by_cosine_does_not_depend_on_lengths(X, cosine):
    Q = X[:200]
    of_unit = found(cc.CompositionalCodes(**QUICK, metric="cosine").fit(unit(X)), unit(X), Q)
    assert found(cosine, X, Q) == pytest.approx(of_unit, abs=0.02)
    other = cc.CompositionalCodes(**QUICK).fit(X)  # learns the long ones
    with pytest.warns(cc.MetricWarning):
        ids = cc.Index(other, "cosine").add(X).search(Q, 10)[1]
    assert cc.evaluate.recall(ids, cc.evaluate.ground_truth(X, Q, 10, metric="cosine")[1], 10, 10) < of_unit - 0.1


def test_codes_by_cosine_do_not_depend_on_lengths(X, cosine):
    codes = cosine.encode(X)
    powers = 2.0 ** np.random.default_rng(1).integers(-30, 30, (len(X), 1))
    np.testing.assert_array_equal(cosine.encode((X * powers).astype("f4")), codes)
    lengths = np.random.default_rng(1).lognormal(sigma=3, size=(len(X), 1))
    assert (cosine.encode((X * lengths).astype("f4")) == codes).all(axis=1).mean() > 0.98  # but for rounding
    again = cc.CompositionalCodes(**QUICK, metric="cosine").fit((X * powers).astype("f4"))
    np.testing.assert_array_equal(again.codebooks_, cosine.codebooks_)


def test_decoded_vectors_are_directions(X, cosine):
    lengths = np.linalg.norm(cosine.decode(cosine.encode(X)), axis=1)
    assert 0.7 < lengths.mean() < 1.1
    assert -cosine.score(X) == pytest.approx(cc.evaluate.vector_error(unit(X), cosine.decode(cosine.encode(X))), 1e-3)
    assert cosine.loss_["weight_power"] == 0


def test_sample_queries_have_length_one_too(X):
    loss = cc.InnerProduct(eta=2, weight_power=0, demand=0.5, metric=0.5)
    Q = X[:300]
    longer = Q * 2.0 ** np.random.default_rng(2).integers(-9, 9, (300, 1))
    q = cc.CompositionalCodes(**QUICK, metric="cosine", loss=loss)
    codebooks = [q.fit(X, queries=queries).codebooks_ for queries in (Q, longer)]
    np.testing.assert_array_equal(*codebooks)


@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float64])
def test_any_type_of_rows_and_rows_of_zeros(kind):
    X = (np.abs(vectors(600, 8)) * 40).astype(kind)
    X[::100] = 0
    q = cc.CompositionalCodes(2, 8, metric="cosine", anneal=1, max_iter=1, max_train=500).fit(X)
    assert len(cc.Index(q).add(X)) == 600
    np.testing.assert_array_equal(q.encode(X), q.encode(X.astype("f4")))
    X = X.astype("f8")
    for wrong in (np.nan, np.inf, 1e300):
        X[7, 3] = wrong
        for work in (q.encode, q.fit):
            with pytest.raises(ValueError, match="X row 7 holds NaN"):
                work(X)


def test_a_stream_by_cosine(X):
    q = cc.CompositionalCodes(2, 16, metric="cosine", anneal=1, max_iter=1).partial_fit(X[:1000])
    q.partial_fit(X[1000:] * np.float32(1e6))
    assert np.abs(q.codebooks_).max() < 3
    with pytest.raises(ValueError, match="metric is 'ip', the model has 'cosine'"):
        q.set_params(metric="ip").partial_fit(X)


def test_the_metric_chooses_the_loss(X):
    for metric, loss, name in [
        ("ip", None, "inner-product"),
        ("cosine", None, "inner-product"),
        ("l2", None, "reconstruction"),
        ("l2", "inner-product", "inner-product"),
        ("cosine", cc.Reconstruction(), "reconstruction"),
    ]:
        q = cc.CompositionalCodes(2, 8, metric=metric, loss=loss, anneal=1, max_iter=1)
        assert q.get_params()["loss"] is loss
        assert q.fit(X[:300]).loss_["name"] == name
        assert q.metric_ == metric
    with pytest.raises(ValueError, match="metric is 'cosin': want one of 'ip', 'cosine', 'l2'"):
        cc.CompositionalCodes(metric="cosin").fit(X)
    assert "metric='l2'" in repr(cc.CompositionalCodes(metric="l2"))


def test_an_index_takes_the_metric_of_its_model(X, cosine):
    assert cc.Index(cosine).metric == "cosine"
    assert cc.Index(cc.ProductQuantizer(2, 8).fit(X)).metric == "ip"
    assert cc.Index(cc.CompositionalCodes.from_codebooks(cosine.codebooks_)).metric == "ip"


def test_an_index_of_another_metric_says_so(X, cosine, tmp_path):
    plain = {
        metric: cc.CompositionalCodes(2, 8, metric=metric, loss=loss, anneal=1, max_iter=1).fit(X[:300])
        for metric, loss in [("ip", "reconstruction"), ("l2", None)]
    }
    weighted = cc.CompositionalCodes(2, 8, anneal=1, max_iter=1).fit(X[:300])
    for q, metric in [(cosine, "ip"), (cosine, "l2"), (weighted, "cosine"), (weighted, "l2"), (plain["l2"], "ip")]:
        with pytest.warns(cc.MetricWarning, match=f"fit the model with metric='{metric}'"):
            index = cc.Index(q, metric)
        assert index.metric == metric
    index.add(X).save(tmp_path / "index")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cc.Index(plain["ip"], "l2")  # the same training
        for metric in ("ip", "cosine", "l2"):
            cc.Index(cc.CompositionalCodes.from_codebooks(cosine.codebooks_), metric)
        again = cc.Index.load(tmp_path / "index")  # it was said when the index was made
        pickle.loads(pickle.dumps(again))
    assert again.metric == "ip"


def test_files_and_pickles_keep_it(X, cosine, tmp_path):
    cosine.save(tmp_path / "q")
    cc.Index(cosine).add(X).save(tmp_path / "i")
    index = cc.Index.load(tmp_path / "i")
    for again in (cc.CompositionalCodes.load(tmp_path / "q"), pickle.loads(pickle.dumps(cosine)), index.quantizer):
        assert (again.metric, again.metric_, again.loss) == ("cosine", "cosine", None)
        np.testing.assert_array_equal(again.encode(X), cosine.encode(X))
    np.testing.assert_array_equal(index.add(X).codes[2000:], cosine.encode(X))
    changed = pickle.loads(pickle.dumps(cosine)).set_params(metric="ip")  # for another fit: this model is as it was
    np.testing.assert_array_equal(changed.encode(X), cosine.encode(X))
    changed.save(tmp_path / "q")
    np.testing.assert_array_equal(cc.CompositionalCodes.load(tmp_path / "q").encode(X), cosine.encode(X))


def test_models_of_releases_that_knew_no_metric(cosine, X):
    stored = json.loads(cosine._parameters())
    del stored["metric"]
    stored["loss"] = "inner-product"
    old = cc.CompositionalCodes._restored(cosine.codebooks_.copy(), "group", stored)
    assert (old.metric, old.metric_, old.loss) == ("ip", None, "inner-product")
    assert json.loads(old._parameters()).keys() == stored.keys() | {"metric"}
    state = {name: value for name, value in vars(old).items() if name not in ("metric", "metric_")}
    unpickled = cc.CompositionalCodes.__new__(cc.CompositionalCodes)
    unpickled.__setstate__(state)
    assert unpickled.get_params()["metric"] == "ip"
    np.testing.assert_array_equal(unpickled.encode(X), old.encode(X))
    with pytest.raises(ValueError, match='metric is "cosin": want "ip", "cosine" or "l2"'):
        _core.Model(cosine.codebooks_, metric="cosin")


def test_scikit_learn_clones_it():
    clone = pytest.importorskip("sklearn.base").clone
    assert clone(cc.CompositionalCodes(metric="cosine")).get_params()["metric"] == "cosine"


def test_the_command_knows_it(X, tmp_path, capsys):
    from compcodes.cli import main

    np.save(tmp_path / "x.npy", X[:400])
    x, model, index = (str(tmp_path / name) for name in ("x.npy", "model", "index"))
    size = ("--codebooks", "2", "--codewords", "8", "--anneal", "1", "--iterations", "1")
    assert main(["fit", x, "-o", model, *size, "--metric", "cosine"]) == 0
    assert "metric: cosine, loss: inner-product" in capsys.readouterr().out
    assert main(["info", model]) == 0
    assert "trained for       cosine" in capsys.readouterr().out
    assert main(["build", model, x, "-o", index, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metric"] == "cosine"
    assert "warning" not in result
    assert main(["build", model, x, "-o", index, "--metric", "ip"]) == 0
    assert "compcodes: warning: the model was trained for the metric 'cosine'" in capsys.readouterr().err


@pytest.mark.parametrize("method", [cc.ProductQuantizer, cc.OptimizedProductQuantizer, cc.ResidualQuantizer])
def test_methods_without_a_metric_say_that_lengths_are_not_for_cosines(method):
    X = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    few = {"n_codebooks": 2, "n_codewords": 8, "max_iter": 1}
    with pytest.warns(cc.MetricWarning, match="vectors of different lengths.*scale vectors to length 1 before fit"):
        cc.Index(method(**few).fit(X), "cosine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cc.Index(method(**few).fit(unit), "cosine")
        cc.Index(method(**few).fit(X), "l2")
        cc.Index(method(**few).fit(X))
