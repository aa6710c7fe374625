import pickle
import warnings

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training.demand import demand
from conftest import vectors

pytestmark = pytest.mark.isa

SELECTIONS = ["group", "m-selection", "m-combination"]


def objective(q, X):
    return _core.errors(q.codebooks_, X, q.encode(X)).mean()


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("init", ["residual", "random"])
def test_the_objective_never_rises(X, selection, init):
    q = cc.CompositionalCodes(3, 16, selection, init=init, max_iter=8, tol=0).fit(X)
    objectives = [entry["objective"] for entry in q.history_]
    assert len(objectives) > 2
    assert objectives == sorted(objectives, reverse=True)
    assert [entry["iteration"] for entry in q.history_] == list(range(len(objectives)))
    assert q.codebooks_.shape == (3, 16, X.shape[1])
    assert q.codebooks_.dtype == np.float32


def test_schemes_are_ordered_as_property_3_says(X):
    """Each scheme may start from the solution of the more constrained one, and then ends no worse."""

    def fit(selection, init="residual"):
        q = cc.CompositionalCodes(4, 16, selection, loss="reconstruction", init=init).fit(X)
        return q.history_[-1]["objective"], q.codebooks_

    combination, codebooks = fit("m-combination")
    selection, codebooks = fit("m-selection", codebooks)
    group, _ = fit("group", codebooks)
    assert group < 0.9 * selection
    assert selection <= 1.02 * combination  # encoding is not exact


def test_shared_codebooks_are_equal_and_combinations_distinct(X):
    q = cc.CompositionalCodes(4, 16, "m-combination", max_iter=3).fit(X)
    assert (q.codebooks_ == q.codebooks_[0]).all()
    codes = np.sort(q.encode(X), axis=1)
    assert (codes[:, 1:] != codes[:, :-1]).all()


@pytest.mark.parametrize("selection", SELECTIONS)
def test_one_codebook_is_kmeans(X, selection):
    q = cc.CompositionalCodes(1, 16, selection, loss="reconstruction").fit(X)
    distances = ((X[:, None, :] - q.codebooks_[0]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(q.encode(X)[:, 0], distances.argmin(axis=1))


@pytest.mark.parametrize("n", [1, 2, 5, 31])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_fewer_vectors_than_codewords(n, selection):
    X = vectors(n, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = cc.CompositionalCodes(3, 64, selection).fit(X)
    # With a codeword a vector to spare everything can be reproduced, and nearly is.
    assert objective(q, X) <= 0.05 * X.var(axis=0).sum() + 1e-6 * (X**2).sum()


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((50, 3), np.float32),
        np.ones((300, 1), np.float32),
        np.repeat(vectors(3, 4), 100, axis=0),
        np.eye(9, dtype=np.float32),
        vectors(300, 1),
        vectors(300, 4) * np.float32(1e30),
        vectors(300, 4) * np.float32(1e-30),
    ],
    ids=["zero", "constant", "duplicates", "identity", "line", "huge", "tiny"],
)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_odd_data_has_a_defined_result(X, selection):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = cc.CompositionalCodes(2, 8, selection, max_iter=4).fit(X)
    error, energy = objective(q, X), float((X.astype(np.float64) ** 2).sum(axis=1).mean())
    assert np.isfinite(error)
    assert error <= energy
    if len(np.unique(X, axis=0)) <= 3:
        assert error <= 1e-6 * energy  # conjugate gradients stop short of the last digits


def test_the_same_seed_gives_the_same_model_for_any_number_of_threads(X):
    fits = [cc.CompositionalCodes(3, 16, max_iter=3, random_state=7, n_jobs=jobs).fit(X) for jobs in (1, 3)]
    for q in fits[1:]:
        np.testing.assert_array_equal(q.codebooks_, fits[0].codebooks_)
    other = cc.CompositionalCodes(3, 16, max_iter=3, random_state=8).fit(X)
    assert (other.codebooks_ != fits[0].codebooks_).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint64])
def test_every_dtype_and_layout_gives_the_codes_of_float32(dtype, tmp_path):
    whole = np.abs(vectors(400, 6) * 3).round().astype(np.float32)
    q = cc.CompositionalCodes(2, 16, max_iter=2).fit(whole)
    want = q.encode(whole)
    typed = whole.astype(dtype)
    np.save(tmp_path / "x.npy", typed)
    wide = np.zeros((800, 9), dtype)
    wide[::2, ::-1][:, :6] = typed
    for view in (
        typed,
        np.asfortranarray(typed),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        wide[::2, ::-1][:, :6],
    ):
        np.testing.assert_array_equal(q.encode(view), want)


def test_anything_with_array_is_taken(quantizer, X):
    class Frame:
        def __array__(self, dtype=None, copy=None):
            return X

    np.testing.assert_array_equal(quantizer.encode(Frame()), quantizer.encode(X))
    np.testing.assert_array_equal(quantizer.encode(X[:3].tolist()), quantizer.encode(X[:3]))


def test_sample_weight_pulls_the_codebooks():
    X = vectors(600, 4)
    weight = np.where(np.arange(600) < 300, 1.0, 0.0)
    q = cc.CompositionalCodes(1, 8, loss="reconstruction").fit(X, sample_weight=weight)
    alone = cc.CompositionalCodes(1, 8, loss="reconstruction", init=q.codebooks_).fit(X[:300])
    assert objective(q, X[:300]) <= 1.02 * objective(alone, X[:300])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 47, 48, 1499])
def test_the_row_of_a_bad_number_is_named(quantizer, X, value, row):
    bad = X.copy()
    bad[row, 3] = value
    bad[1499, 11] = np.nan
    with pytest.raises(ValueError, match=f"X row {row} holds NaN"):
        quantizer.encode(bad)
    with pytest.raises(ValueError, match=r"X row \d+ holds NaN"):
        cc.CompositionalCodes(2, 4).fit(bad)
    with pytest.raises(ValueError, match="X row 0 holds NaN"):
        quantizer.encode(np.full((1, 12), 1e300))


def test_training_beyond_the_range_of_float32_names_the_data(X):
    huge = X * np.float32(3e38 / np.abs(X).max())
    with pytest.raises(ValueError, match="X holds values too large"):
        cc.CompositionalCodes(2, 16).fit(huge)
    for share in (0.3, 0.003):
        large = huge * np.float32(share)
        q = cc.CompositionalCodes(2, 16).fit(large)
        approximation = q.decode(q.encode(large)).astype(float)
        assert np.linalg.norm(approximation - large) < 0.9 * np.linalg.norm(large.astype(float))


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        (np.zeros(12), ValueError, r"X has shape \(12,\): want \(n, d\)"),
        (np.zeros((2, 3, 4)), ValueError, "want"),
        (np.zeros((5, 11)), ValueError, "X has 11 dimensions, the model has 12"),
        (np.zeros((5, 12), complex), TypeError, "X has dtype complex128"),
        (np.zeros((5, 12), bool), TypeError, "X has dtype bool"),
        (np.zeros((5, 12), ">f4"), TypeError, "foreign byte order"),
        (np.full((5, 12), "a"), TypeError, "X has dtype"),
        (np.full((5, 12), None), TypeError, "X has dtype object"),
    ],
)
def test_a_wrong_argument_is_named(quantizer, argument, error, message):
    with pytest.raises(error, match=message):
        quantizer.encode(argument)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"n_codebooks": 0}, ValueError, "n_codebooks is 0: want 1 to 256"),
        ({"n_codebooks": 257}, ValueError, "n_codebooks is 257"),
        ({"n_codebooks": 2.0}, TypeError, r"n_codebooks is 2.0: want an integer"),
        ({"n_codewords": 1}, ValueError, "n_codewords is 1: want 2 to 256"),
        ({"n_codewords": 257}, ValueError, "n_codewords is 257"),
        ({"selection": "all"}, ValueError, "selection is 'all'"),
        ({"encoder": "best"}, ValueError, "encoder is 'best'"),
        ({"loss": "hinge"}, ValueError, "loss is 'hinge'"),
        ({"init": "zeros"}, ValueError, "init is 'zeros'"),
        ({"init": np.zeros((1, 2, 3))}, ValueError, r"init has shape \(1, 2, 3\)"),
        ({"max_iter": -1}, ValueError, "max_iter is -1"),
        ({"tol": np.nan}, ValueError, "tol is nan"),
        ({"tol": None}, TypeError, "tol is None"),
        ({"n_jobs": "a"}, TypeError, "n_jobs is 'a'"),
        ({"n_jobs": 2**70}, ValueError, "n_jobs is"),
        ({"init": np.full((8, 256, 12), np.nan)}, ValueError, "init holds NaN"),
        ({"ridge": 0}, ValueError, "ridge is 0"),
        ({"random_state": -1}, ValueError, "random_state is -1"),
        ({"random_state": "a"}, TypeError, "random_state is 'a'"),
        ({"n_jobs": 0}, ValueError, "n_jobs is 0"),
        (
            {"selection": "m-combination", "n_codebooks": 5, "n_codewords": 4},
            ValueError,
            "5 different codewords",
        ),
    ],
)
def test_a_wrong_parameter_is_named(X, params, error, message):
    with pytest.raises(error, match=message):
        cc.CompositionalCodes(**params).fit(X)


def test_wrong_weights_and_empty_data_are_refused(X):
    q = cc.CompositionalCodes(2, 4)
    for weight in (np.ones(3), -np.ones(len(X)), np.full(len(X), np.nan), np.zeros(len(X))):
        with pytest.raises(ValueError, match="sample_weight"):
            q.fit(X, sample_weight=weight)
    with pytest.raises(ValueError, match="at least one"):
        q.fit(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="at least one dimension"):
        q.fit(np.zeros((3, 0)))
    with pytest.raises(cc.NotFittedError, match="fit"):
        q.encode(X)


def test_nothing_is_encoded_to_nothing(quantizer):
    assert quantizer.encode(np.zeros((0, 12), np.float32)).shape == (0, 4)
    assert quantizer.decode(np.zeros((0, 4), np.uint8)).shape == (0, 12)


def test_codes_are_checked(quantizer):
    with pytest.raises(ValueError, match="codeword 16"):
        quantizer.decode(np.full((1, 4), 16, np.uint8))
    with pytest.raises(ValueError, match="codes have shape"):
        quantizer.decode(np.zeros((1, 5), np.uint8))
    with pytest.raises(ValueError, match="range from"):
        quantizer.decode(np.full((1, 4), 300))
    with pytest.raises(TypeError, match="dtype"):
        quantizer.decode(np.zeros((1, 4)))
    np.testing.assert_array_equal(quantizer.decode([[1, 2, 3, 4]]), quantizer.decode(np.uint8([[1, 2, 3, 4]])))


def test_a_failed_fit_leaves_the_model_as_it_was(X):
    q = cc.CompositionalCodes(2, 4, max_iter=1).fit(X)
    before = q.codebooks_
    with pytest.raises(ValueError, match="NaN"):
        q.fit(np.full((10, 12), np.nan))
    assert q.codebooks_ is before


def test_habits_of_scikit_learn(quantizer, X):
    clone = cc.CompositionalCodes(**quantizer.get_params())
    assert clone.get_params() == quantizer.get_params()
    assert clone.set_params(n_codebooks=2).n_codebooks == 2
    with pytest.raises(ValueError, match="no parameter 'depth'"):
        clone.set_params(depth=3)
    assert repr(clone) == "CompositionalCodes(n_codebooks=2, n_codewords=16, selection='group', max_iter=5)"
    thawed = pickle.loads(pickle.dumps(quantizer))
    np.testing.assert_array_equal(thawed.encode(X), quantizer.encode(X))


def test_codebooks_are_read_only_and_may_be_replaced(quantizer, X):
    with pytest.raises(ValueError, match="read-only"):
        quantizer.codebooks_[0, 0, 0] = 1
    q = pickle.loads(pickle.dumps(quantizer)).set_params(encoder="greedy")
    codes = q.encode(X)
    q.codebooks_ = q.codebooks_[::-1].copy()
    np.testing.assert_array_equal(np.sort(q.encode(X)), np.sort(codes[:, ::-1]))


def test_another_encoder_is_taken_up_at_once(quantizer, X):
    q = pickle.loads(pickle.dumps(quantizer))
    losses = []
    for encoder in ("greedy", cc.LocalSearch(rounds=1), cc.LocalSearch(rounds=30)):
        codes = q.set_params(encoder=encoder).encode(X)
        losses.append(_core.errors(q.codebooks_, X, codes, q.loss_["eta"]).mean())
    assert losses[0] > losses[1] > losses[2]


def test_the_loss_says_what_was_given_and_what_was_chosen(X, tmp_path):
    q = cc.CompositionalCodes(2, 8, loss=cc.InnerProduct(eta=3), anneal=2, max_iter=2).fit(X)
    assert q.loss_["eta"] == 3
    assert q.loss_["weight_power"] in (0, 1, 2, 3, 4)
    q.save(tmp_path / "q.cc")
    again = cc.CompositionalCodes.load(tmp_path / "q.cc")
    assert again.loss_ == q.loss_
    assert again.get_params()["loss"] == cc.InnerProduct(eta=3)
    assert repr(again) == repr(q)
    np.testing.assert_array_equal(again.encode(X), q.encode(X))
    plain = cc.CompositionalCodes(2, 8, loss=cc.Reconstruction(), max_iter=2).fit(X)
    assert plain.loss_ == {"name": "reconstruction"}


def test_demand_is_the_sum_of_reciprocal_ranks():
    X, Q = vectors(300, 6), vectors(40, 6)
    ranks = np.argsort(np.argsort(-(Q @ X.T), axis=1, kind="stable"), axis=1)
    want = np.where(ranks < 100, 1 / (1 + ranks), 0).sum(axis=0)
    np.testing.assert_allclose(demand(X, Q, 0, None), want / want.mean(), rtol=1e-12)


def test_vectors_that_queries_find_are_approximated_better():
    X = vectors(4000, 12)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    asked = X[X[:, 0] > 0][:600]
    Q = asked + 2 * np.eye(12)[0]
    loss = cc.InnerProduct(eta=2, weight_power=0)
    errors = []
    for queries in (None, Q):
        q = cc.CompositionalCodes(2, 32, loss=loss, anneal=4, max_iter=4).fit(X, queries=queries)
        wanted = demand(X, Q.astype(np.float32), 0, None)
        errors.append(np.average(_core.errors(q.codebooks_, X, q.encode(X), 2.0), weights=wanted))
    assert q.loss_["demand"] > 0
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: cc.InnerProduct(eta=0.5),
        lambda: cc.InnerProduct(weight_power=-1),
        lambda: cc.InnerProduct(eta=np.nan),
        lambda: cc.InnerProduct(demand=1.5),
        lambda: cc.InnerProduct(metric=-0.1),
        lambda: cc.LocalSearch(rounds=-1),
    ],
)
def test_parameters_of_losses_and_encoders_are_checked(make):
    with pytest.raises(ValueError, match="want"):
        make()


@pytest.mark.parametrize("value", ["high", True, [1.0]])
def test_parameters_of_losses_are_numbers(value):
    with pytest.raises(TypeError, match="metric is .*: want a number, or None"):
        cc.InnerProduct(metric=value)


def test_max_iter_zero_keeps_the_start(X):
    start = vectors(8, 12).reshape(2, 4, 12)
    q = cc.CompositionalCodes(2, 4, init=start, max_iter=0).fit(X)
    np.testing.assert_array_equal(q.codebooks_, start)
    assert len(q.history_) == 1


def test_rows_that_are_not_aligned_are_not_misread(quantizer, X):
    """Fields of records begin anywhere: such strides are no multiples of the number's size, and they are copied."""
    for kind in ("f4", "i4", "f8"):
        records = np.zeros(50, [("id", "i2"), ("v", kind, (12,))])
        records["v"] = (X[:50] * 8).round()
        np.testing.assert_array_equal(quantizer.encode(records["v"]), quantizer.encode((X[:50] * 8).round()))
    aligned = np.zeros(50, [("id", "i4"), ("v", "f4", (12,))])
    aligned["v"] = X[:50]
    np.testing.assert_array_equal(quantizer.encode(aligned["v"]), quantizer.encode(X[:50]))


def test_masked_arrays_are_refused(quantizer, X):
    with pytest.raises(TypeError, match="masked"):
        quantizer.encode(np.ma.masked_greater(X, 0))
    np.testing.assert_array_equal(quantizer.encode(np.ma.array(X)), quantizer.encode(X))


def test_the_callers_arrays_stay_the_callers(X):
    start = X[:8].reshape(2, 4, 12).copy()
    q = cc.CompositionalCodes(2, 4, init=start, max_iter=0).fit(X)
    start[:] = 0
    assert q.codebooks_.any()


def test_parameters_set_after_fit_are_for_the_next_fit(X, tmp_path):
    q = cc.CompositionalCodes(2, 8, max_iter=1).fit(X)
    codes = q.encode(X)
    q.set_params(selection="m-selection", n_codebooks=3)
    np.testing.assert_array_equal(q.encode(X), codes)
    q.save(tmp_path / "model.cc")
    np.testing.assert_array_equal(cc.CompositionalCodes.load(tmp_path / "model.cc").encode(X), codes)


@pytest.mark.parametrize(
    ("params", "given", "message"),
    [
        ({"shrinkage": 1e300}, {}, "shrinkage is 1e"),
        ({}, {"sample_weight": np.full(300, 1e300)}, r"sample_weight\[0\] is 1e"),
        ({}, {"queries": np.full((3, 6), np.nan)}, "queries row 0"),
    ],
)
def test_values_beyond_what_sums_hold_are_refused_by_name(params, given, message):
    with pytest.raises(ValueError, match=message):
        cc.CompositionalCodes(2, 8, **params).fit(vectors(300, 6), **given)
