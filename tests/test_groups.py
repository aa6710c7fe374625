"""Groups of codebooks: beyond sixteen, each group has dimensions of its own."""

import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.quantizers._fitting import trainer_of
from compcodes.training.grouping import _shares, grouped, splits
from compcodes.training.rest import Rest
from compcodes.training.shards import Local
from compcodes.training.splitting import best_split

QUICK = {"n_codebooks": 6, "n_codewords": 16, "n_groups": 3, "anneal": 3, "max_iter": 2}
"""A short training."""


@pytest.fixture(scope="module")
def X():
    """1,500 × 20 whose variances fall from 16 to 1/16, in a random basis."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    return (rng.normal(size=(1500, 20)) * np.logspace(0.6, -0.6, 20) @ basis).astype("f4")


@pytest.fixture(scope="module")
def made(X):
    return cc.CompositionalCodes(**QUICK, loss=cc.InnerProduct(eta=4.0, weight_power=0.0)).fit(X)


def loss(q, X, codes, eta):
    return _core.errors(q.codebooks_, X, codes, eta)


def test_a_model_in_groups_encodes_decodes_and_searches(X, made):
    assert made.n_groups_ == 3
    assert made.codebooks_.shape == (6, 16, 20)
    codes = made.encode(X)
    decoded = made.decode(codes)
    np.testing.assert_allclose(decoded, sum(made.codebooks_[m][codes[:, m]] for m in range(6)), rtol=1e-5, atol=1e-5)
    assert ((X - decoded) ** 2).sum() < 0.35 * (X**2).sum()
    scores, ids = cc.Index(made).add(X).search(X[:50], 10)
    np.testing.assert_allclose(scores[:, 0], (X[:50] @ decoded.T).max(axis=1), rtol=1e-4)
    true = cc.evaluate.ground_truth(X, X[:50], 10)[1]
    assert cc.evaluate.recall(ids, true, 10, 10) > 0.4


def test_codebooks_of_different_groups_are_orthogonal(made):
    centered = made.codebooks_ - made.codebooks_.mean(axis=1, keepdims=True)
    products = np.einsum("akd,bld->abkl", centered, centered)
    sizes = np.sqrt(np.einsum("aakk->a", products))
    apart = np.abs(products).max(axis=(2, 3)) / np.outer(sizes, sizes)
    groups = made._groups
    assert (groups.trunk, groups.members) == (3, [2, 1])
    group = np.array([0, 0, 1])
    assert (apart[3:, 3:][group[:, None] != group] < 1e-6).all()
    assert (apart[3:, 3:][group[:, None] == group] > 1e-3).all()
    assert (apart[:3] > 1e-3).all()


def test_a_trunk_is_chosen_anew_with_the_groups_at_hand(X, made):
    parts = made._groups.parts()
    coder = _core.Encoder(made.codebooks_, "group", 1.0, ("beam", 4), groups=parts)
    codes = coder.encode(X)
    alone = _core.Encoder(made.codebooks_[:3], "group", 1.0, ("beam", 4)).encode(X)
    assert (codes[:, :3] != alone).any()
    one_way = np.hstack([alone, codes[:, 3:]])
    _, before, after = coder.improve(X, one_way)
    assert after.mean() < before.mean()
    assert loss(made, X, codes, 1.0).mean() < before.mean()


def test_the_error_along_x_counts_across_groups(X, made):
    codes = made.encode(X)
    plain = cc.CompositionalCodes(**QUICK, loss="reconstruction").fit(X)
    alone = _core.Encoder(made.codebooks_, "group", 1.0, ("local-search", 128), groups=made._groups.parts()).encode(X)
    assert loss(made, X, codes, 4.0).mean() < 0.97 * loss(made, X, alone, 4.0).mean()
    assert loss(made, X, alone, 1.0).mean() < loss(made, X, codes, 1.0).mean()
    assert loss(plain, X, plain.encode(X), 4.0).mean() > loss(made, X, codes, 4.0).mean()


@pytest.mark.parametrize("encoder", ["greedy", "beam", "local-search"])
def test_improving_never_raises_a_loss(X, made, encoder):
    coder = _core.Encoder(made.codebooks_, "group", 4.0, (encoder, 4), groups=made._groups.parts())
    given = np.random.default_rng(0).integers(16, size=(len(X), 6)).astype(np.uint8)
    codes, before, after = coder.improve(X, given)
    np.testing.assert_array_equal(before, loss(made, X, given, 4.0))
    np.testing.assert_array_equal(after, loss(made, X, codes, 4.0))
    assert (after <= before).all()
    assert after.mean() < 0.5 * before.mean()


def test_codes_do_not_depend_on_threads_or_batches(X, made):
    codes = made.encode(X)
    np.testing.assert_array_equal(np.concatenate([made.encode(X[:7]), made.encode(X[7:])]), codes)
    one = cc.CompositionalCodes(**QUICK, loss=cc.InnerProduct(eta=4.0, weight_power=0.0), n_jobs=1).fit(X)
    np.testing.assert_array_equal(one.codebooks_, made.codebooks_)
    np.testing.assert_array_equal(one.encode(X), codes)


def test_files_and_pickles_encode_alike(X, made, tmp_path):
    made.save(tmp_path / "model.cc")
    codes = made.encode(X)
    for same in (cc.Quantizer.load(tmp_path / "model.cc"), pickle.loads(pickle.dumps(made))):
        assert (same.n_groups_, same.n_groups) == (3, 3)
        np.testing.assert_array_equal(same.encode(X), codes)
    cc.Index(made).add(X).save(tmp_path / "index.cc")
    index = cc.Index.load(tmp_path / "index.cc")
    index.add(X[:5])
    np.testing.assert_array_equal(index.quantizer.encode(X), codes)


def test_a_file_without_groups_is_of_the_version_before(X, made, tmp_path):
    cc.CompositionalCodes(2, 4, max_iter=1, anneal=0).fit(X).save(tmp_path / "one.cc")
    made.save(tmp_path / "groups.cc")
    assert b'{\\"version\\":2}' in (tmp_path / "one.cc").read_bytes()
    assert b'{\\"version\\":3}' in (tmp_path / "groups.cc").read_bytes()


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_metrics(X, metric):
    lengths = np.linspace(1, 5 if metric == "cosine" else 1, len(X), dtype="f4")
    q = cc.CompositionalCodes(**QUICK, metric=metric).fit(X * lengths[:, None])
    true = cc.evaluate.ground_truth(X, X[:100], 10, metric=metric)[1]
    ids = cc.Index(q).add(X).search(X[:100], 10)[1]
    assert cc.evaluate.recall(ids, true, 10, 10) > 0.4


def test_weights_and_queries_are_used(X):
    Q = X[:, :] * [8, *[1] * 19]
    q = cc.CompositionalCodes(**QUICK, loss=cc.InnerProduct(2.0, 1.0, 0.5, 0.9)).fit(X, queries=Q)
    assert len(q.directions_) > 0
    other = cc.CompositionalCodes(**QUICK, loss=cc.InnerProduct(2.0, 1.0)).fit(X)

    def off(q):
        return np.abs((X - q.decode(q.encode(X))) @ Q.T).mean()

    assert off(q) < off(other)
    weights = np.where(np.arange(len(X)) < 100, 1.0, 1e-3)
    heavy = cc.CompositionalCodes(**QUICK, loss="reconstruction").fit(X, sample_weight=weights)
    plain = cc.CompositionalCodes(**QUICK, loss="reconstruction").fit(X)
    assert heavy.score(X[:100]) > plain.score(X[:100])


def test_how_many_groups():
    assert [grouped("auto", M, 256, 384) for M in (1, 10, 11, 16, 17, 32, 64, 256)] == [1, 1, 2, 2, 3, 4, 8, 32]
    assert [grouped("auto", M, 256, 384, joint=True) for M in (10, 16, 17)] == [1, 1, 3]
    assert [grouped("auto", M, 16, 384) for M in (16, 64, 65, 256)] == [1, 1, 2, 4]
    assert grouped("auto", 32, 256, 3) == 3
    assert grouped(5, 16, 256, 384) == 5


def test_groups_have_equally_much_to_say():
    variances = np.logspace(2, -2, 32)
    shares = _shares(variances, 128)
    assert shares.sum() == pytest.approx(128)
    for groups in splits(np.diag(variances), 16, 256, 4)[:2]:
        assert groups.members == [4] * 4
        own = [shares[np.abs(groups.basis[:, groups.columns(g)]).argmax(axis=0)].sum() for g in range(4)]
        assert np.ptp(own) <= shares.max()
        np.testing.assert_allclose(groups.basis.T @ groups.basis, np.eye(32), atol=1e-6)
    # Members count: two codebooks have twice as much to say as one.
    uneven = splits(np.diag(variances), 3, 256, 2)
    assert [groups.sizes for groups in uneven[2:]] == [[22, 10]] * 2
    assert all(groups.members == [2, 1] for groups in uneven)
    for groups in splits(np.zeros((6, 6)), 4, 16, 3) + splits(np.diag([1e9, *[1e-9] * 5]), 4, 16, 3):
        assert min(groups.sizes) >= 1
        assert sum(groups.sizes) == 6


def test_a_split_is_chosen_by_what_it_leaves():
    rng = np.random.default_rng(0)
    # Clusters in the 8 largest of 16 components: what tells them apart belongs together.
    centers = rng.normal(size=(64, 8)) * 4
    X = np.hstack([centers[rng.integers(64, size=4000)], rng.normal(size=(4000, 8))]).astype("f4")
    X[:, :8] += 0.1 * rng.normal(size=(4000, 8)).astype("f4")
    model = cc.CompositionalCodes(4, 64, anneal=2, max_iter=1)
    nothing = Rest(Local(X), np.zeros((1, 64, 16), "f4"), np.zeros((4000, 1), "u1"))
    groups = best_split(trainer_of(model, Local(X), 0, None), nothing, 2)
    together = [np.abs(groups.basis[:8, groups.columns(g)]).max() > 0.5 for g in range(2)]
    assert together == [True, False]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_groups": 0}, "n_groups is 0"),
        ({"n_groups": 2.0}, "n_groups is 2.0: want an integer"),
        ({"n_groups": "many"}, "n_groups is 'many'"),
        ({"n_groups": 7}, "n_groups is 7: 6 codebooks make no more groups"),
        ({"n_codebooks": 30, "n_groups": 21}, "n_groups is 21: vectors of 20 dimensions have no more groups"),
        ({"n_codebooks": 65, "n_groups": 1}, "n_codebooks is 65 in 1 group: want at most 64"),
        ({"selection": "m-selection"}, "selection is 'm-selection', in 3 groups"),
        ({"selection": "m-combination", "n_codebooks": 65, "n_codewords": 80, "n_groups": "auto"}, "selection is"),
        ({"init": np.zeros((6, 16, 20))}, "init is an array, for 3 groups"),
        ({"n_codebooks": 257}, "n_codebooks is 257: want 1 to 256"),
    ],
)
def test_what_cannot_be_is_refused(X, params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cc.CompositionalCodes(**(QUICK | params)).fit(X)


def test_streams_take_one_group(X, made):
    with pytest.raises(ValueError, match="n_groups is 3"):
        made.partial_fit(X)
    with pytest.raises(ValueError, match="n_groups"):
        cc.CompositionalCodes(**QUICK).partial_fit(X)


def test_up_to_16_codebooks_are_one_group_where_several_cannot_be_trained():
    X = np.random.default_rng(0).standard_normal((8192, 2), dtype=np.float32)
    few = {"n_codebooks": 11, "encoder": cc.LocalSearch(1), "anneal": 0, "max_iter": 0, "loss": "reconstruction"}
    assert cc.CompositionalCodes(**few).fit(X).n_groups_ == 2
    start = cc.CompositionalCodes(**few).partial_fit(X)
    assert start.n_groups_ == 1
    assert cc.CompositionalCodes(**few, init=start.codebooks_).fit(X).n_groups_ == 1
    assert cc.CompositionalCodes(**few, selection="m-selection").fit(X).n_groups_ == 1
    assert cc.CompositionalCodes(**few, max_train=8000).fit(X).n_groups_ == 1
    assert cc.CompositionalCodes(**(few | {"encoder": "greedy"})).fit(X).n_groups_ == 1
    with pytest.raises(ValueError, match="n_groups is more than one: want 1 for partial_fit"):
        cc.CompositionalCodes(**(few | {"n_codebooks": 4, "n_groups": 2})).partial_fit(X)


def test_a_trunk_and_one_group_are_updated_together(X):
    parameters = {"n_codebooks": 6, "n_codewords": 16, "anneal": 3, "max_iter": 2}
    for loss in (cc.InnerProduct(eta=4.0, weight_power=0.0), cc.Reconstruction()):
        q = cc.CompositionalCodes(**parameters, n_groups=2, loss=loss).fit(X)
        objectives = [entry["objective"] for entry in q.history_]
        assert len(objectives) == 3 and objectives[2] < objectives[1] < 0.98 * objectives[0]


def test_groups_know_what_a_trunk_leaves_of_vectors_it_has_not_seen(monkeypatch):
    words = cc.data.glove()[1].astype(np.float32)[:4000]
    words = words[np.random.default_rng(0).permutation(4000)]
    q = cc.CompositionalCodes(24, 64, n_groups=5, anneal=4, max_iter=1, loss="reconstruction")

    def error(few):
        monkeypatch.setattr("compcodes.training.groups.FEW", few)
        codes = q.fit(words[:2000]).encode(words[2000:])
        return np.square(q.decode(codes) - words[2000:]).sum()

    assert error((16, 64)) < 0.97 * error((0, 0))


@pytest.mark.parametrize("weights", ["none", "half", "one"])
def test_vectors_without_weight_may_be_all_that_a_trunk_has_not_seen(X, weights):
    own = {"none": None, "half": np.arange(1500) % 2, "one": 1.0 * (np.arange(1500) == 3)}[weights]
    q = cc.CompositionalCodes(**QUICK).fit(X, sample_weight=own)
    assert np.isfinite(q.codebooks_).all()


def test_constant_and_tiny_data():
    for X in (np.ones((5, 4), "f4"), np.zeros((3, 4), "f4"), np.eye(4, dtype="f4") * 1e30):
        q = cc.CompositionalCodes(4, 4, n_groups=2, anneal=1, max_iter=1).fit(X)
        np.testing.assert_allclose(q.decode(q.encode(X)), X, atol=1e-5 * np.abs(X).max())


def test_codebooks_beyond_64_without_groups_are_refused():
    books = np.random.default_rng(0).normal(size=(65, 2, 3)).astype("f4")
    with pytest.raises(ValueError, match="65 codebooks without groups"):
        cc.CompositionalCodes.from_codebooks(books).encode(np.zeros((1, 3)))


def test_a_row_that_is_not_finite_is_named(X, made):
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        made.encode(bad)
    with pytest.raises(ValueError, match="row 7"):
        cc.CompositionalCodes(**QUICK).fit(bad)


def test_a_row_that_is_too_large_is_named_where_a_sample_is_trained_on(X):
    Y = X.copy()
    Y[1200:1400] = 3e38  # many, so that there is no warning of one that is longer than all others
    with pytest.raises(ValueError, match="X row 1[23][0-9][0-9] holds values too large"):
        cc.CompositionalCodes(**QUICK, max_train=200).fit(Y)


def test_groups_of_vectors_in_lists_know_the_error_along_x(X):
    lists = QUICK | {"n_lists": 8}
    plain, along = (cc.CompositionalCodes(**lists, loss=cc.InnerProduct(eta, 0.0)).fit(X) for eta in (1.0, 8.0))
    assert along.n_groups_ == 3

    def error(q):
        places = q.assign(X)
        left = X - q.decode(q.encode(X, lists=places), places)
        return (left**2).sum(axis=1).mean(), (((left * X).sum(axis=1) / np.linalg.norm(X, axis=1)) ** 2).mean()

    squares, shares = zip(error(plain), error(along), strict=True)
    assert shares[1] < 0.3 * shares[0]
    assert squares[1] + 7 * shares[1] < squares[0] + 7 * shares[0]


def test_few_vectors_make_small_groups():
    assert [grouped("auto", 64, 256, 768, n) for n in (100, 4096, 8192, 100_000)] == [32, 16, 8, 8]
    assert [grouped("auto", 16, 256, 768, n) for n in (100, 8191, 8192)] == [1, 1, 2]


def test_one_long_row_is_not_all_that_counts(X):
    long = X.copy()
    long[7] *= 1000
    with pytest.warns(cc.LengthWarning, match="row 7 of X is .* times as long"):
        q = cc.CompositionalCodes(**QUICK).fit(long)
    others = np.delete(X, 7, axis=0)
    assert ((others - q.decode(q.encode(others))) ** 2).sum() < 0.2 * (others**2).sum()


def test_weights_may_leave_too_few_vectors_for_the_lists(X):
    weights = np.zeros(len(X))
    weights[5:9] = 1
    assert cc.CompositionalCodes(**QUICK, n_lists=4).fit(X, sample_weight=weights).centroids_.shape == (4, 20)
    with pytest.raises(ValueError, match="n_lists is 5: want at most 4, the number of vectors to train on"):
        cc.CompositionalCodes(**QUICK, n_lists=5).fit(X, sample_weight=weights)
