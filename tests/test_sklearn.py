"""The habits that scikit-learn's tools rely on. It is no dependency: skipped where it is not installed."""

import warnings

import numpy as np
import pytest

import compcodes as cc

sklearn = pytest.importorskip("sklearn")


def small(**params):
    return cc.CompositionalCodes(2, 8, loss="reconstruction", anneal=1, max_iter=1, **params)


def test_clone(X):
    from sklearn.base import clone

    q = small(encoder=cc.LocalSearch(rounds=2), shrinkage=1.5).fit(X)
    copied = clone(q)
    assert copied.get_params() == q.get_params()
    with pytest.raises(cc.NotFittedError):
        copied.encode(X)


def test_parameters_of_parameters_are_set_by_name(X):
    from sklearn.model_selection import GridSearchCV

    q = small(encoder=cc.LocalSearch(rounds=2))
    search = GridSearchCV(q, {"encoder__rounds": [1, 2]}, cv=2).fit(X)
    assert search.best_params_["encoder__rounds"] in (1, 2) and q.encoder == cc.LocalSearch(rounds=2)
    assert q.set_params(encoder__rounds=5, max_iter=2).encoder == cc.LocalSearch(rounds=5)
    assert q.set_params(encoder__rounds=7, encoder=cc.LocalSearch(rounds=3)).encoder == cc.LocalSearch(rounds=7)
    with pytest.raises(ValueError, match="encoder__nope cannot be set"):
        q.set_params(max_iter=9, encoder__nope=1)
    assert q.max_iter == 2
    for wrong, match in (
        ({"encoder__beams": 3}, r"encoder__beams cannot be set: encoder is LocalSearch\(.*\), which has \['rounds"),
        ({"loss__eta": 3}, "loss__eta cannot be set: loss is 'reconstruction', which has no parameters"),
        ({"decoder__x": 3}, "decoder__x cannot be set: there is no parameter 'decoder'"),
    ):
        with pytest.raises(ValueError, match=match):
            q.set_params(**wrong)


def test_a_pipeline_ends_in_codes_and_leads_back(X):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), small())
    codes = pipeline.fit_transform(X)
    np.testing.assert_array_equal(codes, pipeline.transform(X))
    assert codes.dtype == np.uint8
    back = pipeline.inverse_transform(codes)
    assert ((back - X) ** 2).sum() < 0.9 * ((X - X.mean(axis=0)) ** 2).sum()
    assert pipeline.score(X) < 0


EVERY = [
    cc.CompositionalCodes,
    cc.ProductQuantizer,
    cc.OptimizedProductQuantizer,
    cc.CartesianKMeans,
    cc.ResidualQuantizer,
    cc.RandomHyperplaneHash,
]


def quick(method, **params):
    few = {"n_bits": 16} if method is cc.RandomHyperplaneHash else {"n_codebooks": 2, "n_codewords": 4, "max_iter": 1}
    few |= {"loss": "reconstruction", "anneal": 0} if method is cc.CompositionalCodes else {}
    return method(**few, **params)


@pytest.mark.parametrize("method", EVERY)
def test_a_pipeline_passes_targets_that_are_ignored(X, method):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = X[:200]
    labels = np.arange(len(X)) % 3
    codes = make_pipeline(StandardScaler(), quick(method)).fit(X).transform(X)
    for y in (labels, labels.tolist(), np.eye(3)[labels]):
        pipeline = make_pipeline(StandardScaler(), quick(method))
        np.testing.assert_array_equal(pipeline.fit(X, y).transform(X), codes)
        np.testing.assert_array_equal(pipeline.fit_transform(X, y), codes)


@pytest.mark.parametrize("y", [np.zeros((40, 12)), np.zeros((1500, 12)), np.zeros(40), 3.0])
def test_queries_that_are_not_named_are_refused(X, y):
    with pytest.raises(TypeError, match=r"y has shape .*: want nothing or targets.*fit\(X, queries=…"):
        small().fit(X, y)


def test_weights_that_are_not_named_are_refused(X):
    q = small().fit(X)
    for fit in (lambda: q.fit(X, None, np.ones(len(X))), lambda: q.partial_fit(X, None, np.ones(len(X)))):
        with pytest.raises(TypeError, match="positional"):
            fit()


@pytest.mark.parametrize("method", EVERY)
def test_a_random_state_is_what_scikit_learn_takes(X, method):
    for kind in (np.random.RandomState, np.random.default_rng):
        a, b, other = (quick(method, random_state=kind(seed)).fit(X).codebooks_ for seed in (1, 1, 2))
        np.testing.assert_array_equal(a, b)
        assert (a != other).any()
    quick(method, random_state=None).fit(X)
    with pytest.raises(TypeError, match="random_state is 'x': want an integer, a numpy Generator or RandomState"):
        quick(method, random_state="x").fit(X)


@pytest.mark.parametrize(
    "method", [cc.ProductQuantizer, cc.OptimizedProductQuantizer, cc.CartesianKMeans, cc.ResidualQuantizer]
)
def test_the_methods_beside_it_have_the_same_habits(X, method):
    from sklearn.base import clone
    from sklearn.utils.validation import check_is_fitted

    q = clone(method(n_codebooks=2, n_codewords=8))
    codes = q.fit_transform(X)
    check_is_fitted(q)
    np.testing.assert_array_equal(codes, q.transform(X))
    np.testing.assert_allclose(q.score(X), -((q.inverse_transform(codes) - X) ** 2).sum(axis=1).mean(), rtol=1e-5)


def test_a_grid_search_finds_that_more_codewords_are_better(X):
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(small(), {"n_codewords": [2, 16]}, cv=2).fit(X)
    assert search.best_params_ == {"n_codewords": 16}
    np.testing.assert_allclose(
        search.score(X), -((search.best_estimator_.decode(search.transform(X)) - X) ** 2).sum(axis=1).mean(), rtol=1e-5
    )


def test_it_is_seen_whether_it_is_fitted(X):
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted

    q = small()
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(q)
    check_is_fitted(q.fit(X))
    assert not get_tags(q).target_tags.required


def checked(method):
    few = {"n_bits": 16} if method is cc.RandomHyperplaneHash else {"n_codebooks": 1, "n_codewords": 3, "max_iter": 1}
    few |= {"anneal": 0, "encoder": "greedy"} if method is cc.CompositionalCodes else {}
    return method(n_jobs=1, **few)


def exceptions(estimator):
    """What scikit-learn asks that these estimators do not promise, and why."""
    found = {"check_complex_data": "numbers of a wrong type are a TypeError, here as everywhere in this package"}
    if isinstance(estimator, cc.CompositionalCodes):
        why = "where training starts is drawn from the rows: a row that is there twice is not one of twice the weight"
        found["check_sample_weight_equivalence_on_dense_data"] = why
    if isinstance(estimator, cc.RandomHyperplaneHash):
        found["check_estimators_nan_inf"] = (
            "fit draws hyperplanes by the dimension alone, and does not read the vectors"
        )
    return found


def every_check():
    from sklearn.utils.estimator_checks import parametrize_with_checks

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they do not inherit from scikit-learn, which is no dependency
        return parametrize_with_checks([checked(method) for method in EVERY], expected_failed_checks=exceptions)


@every_check()
@pytest.mark.filterwarnings("ignore")
def test_what_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", EVERY)
def test_codes_in_data_frames(X, method):
    from sklearn import config_context
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    q = quick(method).fit(X)
    codes = q.encode(X)
    names = q.get_feature_names_out().tolist()
    assert names == [f"{method.__name__.lower()}{m}" for m in range(codes.shape[1])]
    for kind in ("pandas", "polars"):
        frames = pytest.importorskip(kind)
        for found in (clone(q).set_output(transform=kind).fit_transform(X), q.set_output(transform=kind).transform(X)):
            assert isinstance(found, frames.DataFrame)
            assert list(found.columns) == names
            np.testing.assert_array_equal(found.to_numpy(), codes)
    assert isinstance(clone(q.set_output()).fit(X).transform(X), frames.DataFrame)  # None leaves it as it was
    np.testing.assert_array_equal(q.set_output(transform="default").transform(X), codes)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=np.arange(len(X)) + 7)
    assert list(q.set_output(transform="pandas").transform(frame).index) == list(frame.index)
    pipeline = make_pipeline(StandardScaler(), quick(method)).set_output(transform="pandas")
    assert list(pipeline.fit_transform(frame).index) == list(frame.index)
    with config_context(transform_output="polars"):
        assert "polars" in str(type(quick(method).fit(X).transform(X)))
    with pytest.raises(ValueError, match="transform is 'csv': want one of default, pandas, polars"):
        q.set_output(transform="csv")


def test_a_search_over_effort_and_queries_by_name(X, Q):
    from sklearn.model_selection import GridSearchCV

    few = cc.CompositionalCodes(2, 4, loss=cc.InnerProduct(2.0, 0.0, 0.5, 0.0), anneal=0, max_iter=1)
    search = GridSearchCV(few, {"encoder": ["greedy", cc.Beam(2)]}, cv=2).fit(X, queries=Q)
    assert search.best_estimator_.loss_["demand"] == 0.5
