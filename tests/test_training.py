"""Training: its two loops, its solver, and the vectors it meets only as sums."""

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training import encoders, solver
from compcodes.training.losses import Objective
from compcodes.training.shards import Local
from compcodes.training.trainer import Trainer
from conftest import vectors


class Parts:
    """Vectors in several places: each does what `Local` does, and the loop sees only what that adds up to."""

    def __init__(self, parts):
        self.parts = parts

    @property
    def shape(self):
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

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

    def improve(self, coder, codes, report):
        improved = [part.improve(coder, own, report) for part, own in zip(self.parts, codes, strict=True)]
        return [own for own, _ in improved], sum(loss for _, loss in improved)

    def loss(self, objective, codebooks, codes):
        return sum(part.loss(objective, codebooks, own) for part, own in zip(self.parts, codes, strict=True))

    def equations(self, codes, n_codewords, directions):
        parts = [part.equations(own, n_codewords, directions) for part, own in zip(self.parts, codes, strict=True)]
        return sum(A for A, _ in parts), sum(b for _, b in parts)

    def apply(self, codes, n_codewords, P, directions):
        return sum(part.apply(own, n_codewords, P, directions) for part, own in zip(self.parts, codes, strict=True))

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


def test_descending_is_the_same_for_any_threads():
    rng = np.random.default_rng(0)
    factor, b = rng.normal(size=(600, 600)) + 100 * np.eye(600), rng.normal(size=(600, 4))
    A = (factor @ factor.T).astype(np.float32)
    found = [
        solver.descend(A, b, np.zeros_like(b), np.diag(A) + 2.0, 0.0, lambda P: 2.0 * P, n_jobs=jobs) for jobs in (1, 3)
    ]
    np.testing.assert_array_equal(*found)
    want = np.linalg.solve(A + 2.0 * np.eye(600), b)
    assert np.linalg.norm(found[0] - want) < 0.01 * np.linalg.norm(want)
