"""Training: its two loops, its solver, and the vectors it meets only as sums."""

import signal
import subprocess
import sys

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training import encoders, solver
from compcodes.training.losses import Objective
from compcodes.training.shards import Base, Local
from compcodes.training.trainer import Trainer
from conftest import vectors


class Parts:
    """Vectors in several places: each does what `Local` does, and the loop sees only what that adds up to."""

    def __init__(self, parts):
        self.parts = parts

    @property
    def shape(self):
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    @property
    def weights(self):
        return None if self.parts[0].weights is None else np.concatenate([part.weights for part in self.parts])

    def moments(self, directions):
        first, *rest = (part.moments(directions) for part in self.parts)
        for other in rest:
            first.merge(other)
        return first

    def sample(self, rows):
        first, found = 0, []
        for part in self.parts:
            own = rows[(rows >= first) & (rows < first + part.shape[0])] - first
            found.append(part.sample(own))
            first += part.shape[0]
        return np.concatenate(found)

    def encode(self, coder, report):
        return [part.encode(coder, report) for part in self.parts]

    def part(self, codes, n_codewords, seed, iteration):
        return None

    def renewed(self, coder, codes, report):
        return [part.renewed(coder, own, report) for part, own in zip(self.parts, codes, strict=True)]

    def improve(self, coder, codes, report):
        improved = [part.improve(coder, own, report) for part, own in zip(self.parts, codes, strict=True)]
        return [own for own, _ in improved], sum(loss for _, loss in improved)

    def loss(self, objective, codebooks, codes):
        return sum(part.loss(objective, codebooks, own) for part, own in zip(self.parts, codes, strict=True))

    def equations(self, codes, n_codewords):
        parts = [part.equations(own, n_codewords) for part, own in zip(self.parts, codes, strict=True)]
        return sum(A for A, _ in parts), sum(b for _, b in parts)

    def sides(self, codes, n_codewords, shared, directions):
        parts = zip(self.parts, codes, strict=True)
        found = [part.sides(own, n_codewords, shared, directions) for part, own in parts]
        return sum(uses for uses, _ in found), sum(b for _, b in found)

    def apply(self, codes, n_codewords, P, extra, directions):
        parts = zip(self.parts, codes, strict=True)
        return sum(part.apply(own, n_codewords, P, extra, directions) for part, own in parts)

    def uses(self, codes, n_codewords, selection):
        return sum(part.uses(own, n_codewords, selection) for part, own in zip(self.parts, codes, strict=True))

    def worst(self, objective, codebooks, codes, count):
        parts = [p.worst(objective, codebooks, own, count) for p, own in zip(self.parts, codes, strict=True)]
        errors, X, codes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = np.argsort(-errors, kind="stable")[:count]
        return errors[order], X[order], codes[order]


OBJECTIVES = {
    "plain": Objective(),
    "along": Objective(4.0),
    "metric": Objective(4.0, np.eye(10, dtype=np.float32)[2:4] * np.float32(1.5)),
}


def trained(shards, objective, selection="group", encoder="local-search", **params):
    encoder = encoders.as_encoder(encoder)
    settings = {"max_iter": 3, "tol": 0.0, "ridge": 1e-3, "seed": 7, "shrinkage": 4.0, "anneal": 3} | params
    return Trainer(shards, 3, 12, selection, encoder=encoder, objective=objective, **settings).run("residual")


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("selection", ["group", "m-selection"])
def test_both_loops_come_to_the_same_codebooks(objective, selection):
    """Up to the rounding of two solvers."""
    X, objective = vectors(900, 10, seed=4), OBJECTIVES[objective]
    norms = _core.norms(X, objective.directions)
    one = trained(Local(X, _core.weights_by_norm(norms, 1.0)), objective, selection)
    codebooks, codes, history = _core.train(
        X,
        3,
        12,
        selection,
        encoding=("local-search", 128),
        eta=objective.eta,
        directions=objective.directions,
        weight_power=1.0,
        anneal=3,
        max_iter=3,
        tol=0.0,
        seed=7,
    )
    np.testing.assert_array_equal(one.codes, codes)
    np.testing.assert_allclose(one.codebooks, codebooks, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([entry["objective"] for entry in one.history], history, rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_both_loops_come_to_the_same_codebooks_in_lists(objective):
    """Of what the same centroids leave; the vectors are lists that lie apart, and most of each is its centroid."""
    X, objective = vectors(900, 10, seed=4), OBJECTIVES[objective]
    X[:300] += 3
    lists = _core.Lists(X[::100].copy(), objective.eta)
    places, _ = lists.assign(X)
    assert len(np.unique(places)) == 9
    weights = _core.weights_by_norm(_core.norms(X, objective.directions), 1.0)
    base = Base(lists.centroids, places, objective.eta)
    one = trained(Local(X, weights, base=base), objective)
    codebooks, codes, history = _core.train(
        X,
        3,
        12,
        encoding=("local-search", 128),
        eta=objective.eta,
        directions=objective.directions,
        weight_power=1.0,
        anneal=3,
        max_iter=3,
        tol=0.0,
        seed=7,
        lists=lists,
    )
    np.testing.assert_array_equal(one.codes, codes)
    np.testing.assert_allclose(one.codebooks, codebooks, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([entry["objective"] for entry in one.history], history, rtol=1e-6)
    without = _core.train(X, 3, 12, eta=objective.eta, weight_power=1.0, anneal=3, max_iter=3, tol=0.0, seed=7)[0]
    assert not np.allclose(without, codebooks, atol=0.1)


@pytest.fixture(scope="module")
def halves():
    """Enough vectors and codebooks for a start in halves, and a model of them."""
    X = vectors(6500, 4, seed=6) * np.random.default_rng(6).gamma(2, size=(6500, 1)).astype(np.float32)
    loss = cc.InnerProduct(4.0, 2.0)
    return X, cc.CompositionalCodes(33, 32, loss=loss, anneal=5, max_iter=1, tol=0, n_groups=1).fit(X)


def test_both_loops_start_in_the_same_halves(halves):
    X, q = halves
    assert _core.halves(len(X), 33, 32, 5) is not None
    codebooks, _, history = _core.train(X, 33, 32, eta=4.0, weight_power=2.0, anneal=5, max_iter=1, tol=0.0)
    np.testing.assert_allclose(q.codebooks_, codebooks, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([entry["objective"] for entry in q.history_], history, rtol=1e-5)


def test_halves_are_trained_wherever_the_vectors_are(halves):
    """The sample comes by weight, so its weights have to come along."""
    X, _ = halves
    norms = _core.norms(X, None)
    weights = _core.weights_by_norm(norms, 2.0)
    cut = np.split(np.arange(len(X)), [100, 100, 4000])
    parts = Parts([Local(X[rows], weights[rows]) for rows in cut if len(rows)])
    settings = {"max_iter": 0, "max_iter_halves": 0, "tol": 0.0, "ridge": 1e-3, "seed": 0, "anneal": 5}
    encoder = encoders.as_encoder("local-search")
    both = [
        Trainer(shards, 33, 32, "group", encoder=encoder, objective=Objective(4.0), **settings).start()
        for shards in (Local(X, weights), parts)
    ]
    np.testing.assert_array_equal(*both)


def test_vectors_without_weight_are_none_of_the_many(halves):
    X, _ = halves
    settings = {"max_iter": 1, "max_iter_halves": 1, "tol": 0.0, "ridge": 1e-3, "seed": 0, "anneal": 5}
    encoder = encoders.as_encoder("local-search")
    weights = np.zeros(len(X))
    for n, in_halves in ((6400, False), (6401, True)):  # 200 for each codeword
        weights[:n] = 1
        trainer = Trainer(Local(X, weights), 33, 32, "group", encoder=encoder, objective=Objective(4.0), **settings)
        assert (trainer._halves("residual") is not None) == in_halves


def test_halves_need_many_vectors_and_codebooks():
    assert _core.halves(51_200, 8, 256, 50) is None  # all vectors take part in each iteration
    assert _core.halves(51_201, 4, 256, 50) is None  # the Gram matrix is small
    saved, *_ = _core.halves(51_201, 8, 256, 50)
    assert 0 < saved < 25
    rows, weights = _core.halves_sample(100_000, 128, None, 256, 0)
    assert weights is None and len(rows) == 64 * 256 and (np.diff(rows) > 0).all() and rows[-1] < 100_000
    rows, _ = _core.halves_sample(100_000, 100_000, None, 256, 0)
    assert len(rows) == 256  # of enormous vectors one per codeword
    heavy = np.zeros(100_000)
    heavy[::50] = 1.0
    rows, weights = _core.halves_sample(100_000, 128, heavy, 256, 0)
    np.testing.assert_array_equal(rows, np.arange(0, 100_000, 50))
    np.testing.assert_array_equal(weights, 1.0)


def test_fewer_iterations_follow_a_start_in_halves(halves):
    """Unless their number is given."""
    X, q = halves
    assert len(q.history_) == 2
    free = cc.CompositionalCodes(33, 32, loss=cc.InnerProduct(4.0, 2.0), effort="low", tol=0, n_groups=1).fit(X)
    assert len(free.history_) == 1 + 4 // 4


def test_the_defaults_of_both_loops_are_the_same():
    X = vectors(300, 6)
    q = cc.CompositionalCodes(2, 8, loss=cc.InnerProduct(4.0, 2.0)).fit(X)
    codebooks, _, history = _core.train(X, 2, 8, eta=4.0, weight_power=2.0)
    np.testing.assert_allclose(q.codebooks_, codebooks, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([entry["objective"] for entry in q.history_], history, rtol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_training_meets_vectors_only_as_sums(objective):
    X, objective = vectors(900, 10, seed=5), OBJECTIVES[objective]
    weights = np.random.default_rng(0).random(900)
    one = trained(Local(X, weights), objective)
    cut = [slice(0, 5), slice(5, 400), slice(400, 900)]
    parts = trained(Parts([Local(X[rows], weights[rows]) for rows in cut]), objective)
    np.testing.assert_array_equal(np.concatenate(parts.codes), one.codes)
    np.testing.assert_allclose(parts.codebooks, one.codebooks, rtol=1e-4, atol=1e-4)
    assert [entry["vectors"] for entry in parts.history] == [900] * len(one.history)


@pytest.mark.parametrize("p", [1, 7, 256, 600])
def test_the_solver_by_blocks_is_numpys(p):
    rng = np.random.default_rng(p)
    factor, b = rng.normal(size=(p, p + 3)), rng.normal(size=(p, 5))
    A, previous = factor @ factor.T, rng.normal(size=(p, 5))
    ridge = 0.1 * np.trace(A) / p
    want = previous + np.linalg.solve(A + ridge * np.eye(p), b - A @ previous)
    found = [solver.solve(A.copy(), b, previous, 0.1, n_jobs=jobs) for jobs in (1, 3)]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], want, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="ridge is 0.1: too small"):
        solver.solve(-A, b, previous, 0.1)


def test_descending_comes_near_the_solution():
    rng = np.random.default_rng(0)
    factor, b = rng.normal(size=(600, 600)) + 100 * np.eye(600), rng.normal(size=(600, 4))
    A = factor @ factor.T + 2.0 * np.eye(600)
    found = solver.descend(lambda P: A @ P, b, np.zeros_like(b), np.diag(A), 0.0)
    want = np.linalg.solve(A, b)
    assert np.linalg.norm(found - want) < 0.01 * np.linalg.norm(want)


def test_what_vectors_add_is_the_same_for_any_threads():
    rng, X = np.random.default_rng(1), vectors(500, 6)
    codes, weights = rng.integers(16, size=(500, 2), dtype=np.uint8), rng.random(500)
    P = rng.normal(size=(32, 6))
    A, b = cc.normal_equations(X, codes, 16, sample_weight=weights)
    plain = [_core.apply(X, codes, 16, P, 0.0, weights, jobs) for jobs in (1, 3)]
    np.testing.assert_array_equal(*plain)
    np.testing.assert_allclose(plain[0], A @ P, rtol=1e-4, atol=1e-3)
    uses, side = _core.sides(X, codes, 16, False, weights)
    np.testing.assert_allclose(uses, np.diag(A), rtol=1e-12)
    np.testing.assert_array_equal(side, b)


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_is_heard_while_a_system_is_solved(monkeypatch):
    tiles, cholesky = [], np.linalg.cholesky

    def interrupted(tile):
        tiles.append(tile)
        if len(tiles) == 3:
            signal.raise_signal(signal.SIGINT)
        return cholesky(tile)

    monkeypatch.setattr(np.linalg, "cholesky", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solver.solve(np.eye(20 * solver.TILE), np.ones((20 * solver.TILE, 3)), np.zeros((20 * solver.TILE, 3)), 1e-3)
    assert len(tiles) == 3


def test_encoders_of_subspaces_improve_codes_too():
    """Where each codebook has dimensions of its own, the nearest codewords are the best code."""
    X = vectors(300, 10)
    q = cc.ProductQuantizer(3, 16).fit(X)
    best = q.encode(X)
    for coder in (q._encoder(q.codebooks_), cc.OptimizedProductQuantizer._encoder(q, q.codebooks_)):
        given = best.copy()
        given[::2] = 0
        codes, before, after = coder.improve(X, given)
        np.testing.assert_array_equal(codes, best)
        np.testing.assert_allclose(before, _core.errors(q.codebooks_, X, given), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(after, _core.errors(q.codebooks_, X, best), rtol=1e-4, atol=1e-4)


def test_an_encoder_of_ones_own_is_a_class_with_two_methods():
    """Exhaustive search, which small codebooks allow."""

    class Exhaustive:
        name, anneals = "exhaustive", False

        def for_training(self):
            return self

        def build(self, codebooks, selection, objective, seed, n_jobs):
            M, K, _ = codebooks.shape
            every = np.stack(np.meshgrid(*[np.arange(K)] * M, indexing="ij"), axis=-1).reshape(-1, M).astype(np.uint8)
            sums = _core.decode(codebooks, every)

            class Coder:
                def encode(self, x, n_jobs=None, progress=None):
                    return every[((x[:, None] - sums) ** 2).sum(axis=2).argmin(axis=1)]

                def improve(self, x, codes, n_jobs=None, progress=None):
                    new = self.encode(x)
                    return new, *(_core.errors(codebooks, x, each) for each in (codes, new))

            return Coder()

    X = vectors(200, 5)
    params = {"max_iter": 5, "tol": 0.0, "ridge": 1e-3, "seed": 0}
    exact, greedy = (
        Trainer(Local(X), 2, 6, "group", encoder=encoder, **params).run("residual")
        for encoder in (Exhaustive(), encoders.Greedy())
    )
    objectives = [entry["objective"] for entry in exact.history]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[0] < greedy.history[0]["objective"]


@pytest.mark.parametrize("n_lists", [None, 5])
def test_parts_that_are_read_where_they_are_train_as_copies_do(X, tmp_path, n_lists):
    """Iterations with noise train on parts: views of arrays in memory, copies of what is mapped from a file."""
    np.save(tmp_path / "x.npy", X)
    model = {"n_codebooks": 2, "n_codewords": 4, "anneal": 3, "max_iter": 2, "n_lists": n_lists}
    model["loss"] = cc.InnerProduct(eta=3.0, weight_power=1.0)
    want = cc.CompositionalCodes(**model).fit(np.load(tmp_path / "x.npy", mmap_mode="r")).codebooks_
    computed = np.load(tmp_path / "x.npy", mmap_mode="r").astype("f8")  # in memory, though it is a memmap
    for rows in (X, X.astype("f8"), np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], computed):
        shards = Local(rows, np.ones(len(rows)))
        part = shards.part(np.zeros((len(rows), 2), np.uint8), 4, 0, 0)
        assert isinstance(part.shards.X, _core.SomeRows) and len(part.shards.X) < len(rows)
        np.testing.assert_array_equal(cc.CompositionalCodes(**model).fit(rows).codebooks_, want)


def test_some_rows_are_rows_that_there_are(X):
    some = _core.SomeRows(X, np.array([3, 0, 3]))
    assert (len(some), some.shape) == (3, (3, 12))
    np.testing.assert_array_equal(_core.norms(some), _core.norms(X[[3, 0, 3]]))
    for rows in ([len(X)], [-1]):
        with pytest.raises(ValueError, match=f"rows are not all below {len(X)}"):
            _core.SomeRows(X, np.array(rows))


LARGE = """
import numpy as np
from compcodes import _core

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

rng = np.random.default_rng(0)
books, X = rng.normal(size=(8, 256, 4)).astype("f4"), rng.normal(size=(100, 4)).astype("f4")
for turn in range(4):
    if turn == 1:  # threads are there, and what they hold
        before = resident()
    encoder = _core.Encoder(books, "group", 4.0, encoding=("local-search", 2), n_jobs=2)
    encoder.encode(X, 2)
    if turn == 1:
        assert resident() > before + 8e6, "an encoder holds the products of its codewords"
    del encoder
assert resident() < before + 8e6, resident() - before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_what_is_large_goes_back_to_the_system():
    subprocess.run([sys.executable, "-c", LARGE], check=True, timeout=120)


@pytest.mark.parametrize("times", [300, 1e5])
def test_a_vector_of_enormous_length_does_not_cost_the_others(times):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(8, 24))
    X = (rng.normal(size=(3000, 8)) @ A * rng.lognormal(sigma=0.3, size=(3000, 1))).astype(np.float32)
    Q, others = (rng.normal(size=(200, 8)) @ A).astype(np.float32), np.delete(X, 7, axis=0)
    X[7] *= times
    with pytest.warns(cc.LengthWarning, match=r"row 7 of X is [\de+.]+ times as long as all others"):
        q = cc.CompositionalCodes(6, 32, effort="low", random_state=0, loss=cc.InnerProduct(2, 4)).fit(X)
    _, true = cc.evaluate.ground_truth(others, Q, k=10)
    assert cc.evaluate.recall(cc.Index(q).add(others).search(Q, 10)[1], true, 10, 10) > 0.5


def test_vectors_far_longer_than_all_others_are_named(tmp_path):
    quick = {"n_codebooks": 2, "n_codewords": 16, "anneal": 1, "max_iter": 1}
    X = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    X[:50] *= np.logspace(3, 6, 50, dtype=np.float32)[:, None]
    np.save(tmp_path / "x.npy", X)
    for given in (X, X.astype(np.float64), np.load(tmp_path / "x.npy", mmap_mode="r")):
        with pytest.warns(cc.LengthWarning, match="row 49 of X and 49 more are up to ") as caught:
            cc.CompositionalCodes(**quick).fit(given)
        assert caught[0].filename == __file__
    with pytest.warns(cc.LengthWarning, match="row 49 of X"):
        cc.CompositionalCodes(**quick).partial_fit(X)
    with pytest.warns(cc.LengthWarning, match="row 49 of X") as caught:
        cc.CompositionalCodes(**quick).fit_transform(X)
    assert caught[0].filename == __file__
    cc.CompositionalCodes(**quick).fit(X, sample_weight=1.0 * (np.arange(2000) >= 50))  # they do not count


def test_lengths_that_spread_are_no_mistake():
    rng = np.random.default_rng(0)
    for n in (5, 21, 100, 3000):
        X = rng.normal(size=(n, 8)) * rng.lognormal(sigma=2, size=(n, 1))
        cc.CompositionalCodes(2, 16, effort="low", random_state=0).fit(X)
    cc.CompositionalCodes(2, 16, effort="low", random_state=0, metric="cosine").fit(np.vstack([X, 1e6 * X[:1]]))
    few = np.zeros((1000, 8))
    few[:7] = X[:7]
    cc.CompositionalCodes(2, 16, effort="low", random_state=0).fit(few)
