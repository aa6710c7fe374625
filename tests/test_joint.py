"""The joint update: codebooks of all groups at once, for an error along x that counts more."""

import numpy as np
import pytest

import compcodes as cc
from compcodes.training import joint
from compcodes.training.joint import Joint

COLUMNS = [slice(0, 3), slice(3, 5)]
M, K, N = 2, 4, 60


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(N, 5)).astype("f4")


@pytest.fixture
def codes():
    return [np.random.default_rng(1 + g).integers(K, size=(N, M)).astype(np.uint8) for g in range(2)]


@pytest.fixture
def words():
    return [np.random.default_rng(3 + g).normal(size=(M, K, own.stop - own.start)) for g, own in enumerate(COLUMNS)]


def made(vectors, codes, weights=None, beta=3.0, base=None):
    left = vectors if base is None else vectors - base
    norms = np.linalg.norm(vectors.astype(float), axis=1)
    return Joint(lambda rows, rest: (left if rest else vectors)[rows], norms, codes, COLUMNS, weights, beta, 1)


def least_squares(vectors, codes, words, weights, beta, ridge, left):
    """Codebooks by one dense system: each vector has a row for each dimension, which the loss weighs."""
    places, first = [], 0
    for own in COLUMNS:
        width = own.stop - own.start
        places.append(first + np.arange(M * K * width).reshape(M, K, width))
        first += M * K * width
    start = np.concatenate([own.ravel() for own in words])
    A, b = np.zeros((first, first)), np.zeros(first)
    for i, (x, rest) in enumerate(zip(vectors.astype(float), left.astype(float), strict=True)):
        B = np.zeros((5, first))
        for place, own, code in zip(places, COLUMNS, codes, strict=True):
            for m, k in enumerate(code[i]):
                B[np.arange(5)[own], place[m, k]] += 1
        W = weights[i] * (np.eye(5) + beta * np.outer(x, x) / (x @ x or 1.0))
        A += B.T @ W @ B
        b += B.T @ W @ rest
    near = np.zeros(first)
    for place, own in zip(places, codes, strict=True):
        uses = np.concatenate([np.bincount(codes_m, weights, K) for codes_m in own.T])
        near[place.ravel()] = ridge * uses.mean()
    solution = np.linalg.solve(A + np.diag(near), b + near * start)
    return [solution[place] for place in places]


@pytest.mark.parametrize("size", [1.0, 1e-15, 1e15])
@pytest.mark.parametrize("based", [False, True])
def test_it_goes_to_the_least_squares(vectors, codes, words, monkeypatch, size, based):
    monkeypatch.setattr(joint, "STEPS", 100)
    monkeypatch.setattr(joint, "NUMBERS", 200)  # chunks of forty vectors
    weights = np.random.default_rng(9).uniform(0.5, 2, N)
    base = 0.3 * np.roll(vectors, 1, axis=0) if based else None
    left = vectors if base is None else vectors - base
    wanted = least_squares(vectors, codes, words, weights, 3.0, 0.01, left)
    scaled = None if base is None else (base * size).astype("f4")
    update = made((vectors * size).astype("f4"), codes, weights, base=scaled).update
    found = update([(own * size).astype("f4") for own in words], [0.0, 0.0], 0.01)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got / size, want, atol=2e-3)


def test_a_pull_draws_codewords_to_their_mean(vectors, codes, words):
    words = [own.astype("f4") for own in words]
    free, held = (made(vectors, codes).update(words, [pull, 0.0], 1e-3) for pull in (0.0, 1e4))
    assert np.ptp(held[0], axis=1).max() < np.ptp(free[0], axis=1).min()
    assert np.ptp(held[1], axis=1).min() > 0.1


def test_vectors_of_length_0_and_weights_of_0_do_no_harm(vectors, codes, words, monkeypatch):
    monkeypatch.setattr(joint, "STEPS", 100)
    words = [own.astype("f4") for own in words]
    vectors[:2] = 0  # they weigh, and their errors have no direction to count more along
    weights = np.r_[np.ones(30), np.zeros(30)]
    found = made(vectors, codes, weights).update(words, [0.0, 0.0], 0.01)
    wanted = least_squares(vectors, codes, words, weights, 3.0, 0.01, vectors)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-3)
    for got, own in zip(made(vectors, codes, np.zeros(N)).update(words, [0.0, 0.0], 0.01), words, strict=True):
        np.testing.assert_array_equal(got, own)  # nothing is better


def test_a_row_far_smaller_than_the_others_is_trained_on():
    Y = np.random.default_rng(0).normal(size=(200, 20)).astype(np.float32)
    trained = []
    for size in (1e-39, 0):
        Y[0] *= np.float32(size)
        q = cc.CompositionalCodes(4, 16, n_groups=2, effort="low", anneal=0, max_iter=1).fit(Y)
        assert np.isfinite(q.codebooks_).all()
        trained.append(-q.score(Y))
    assert trained[0] == pytest.approx(trained[1], rel=0.1)  # it is as good as a row of zeros, which has no weight
