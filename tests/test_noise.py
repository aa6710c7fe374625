"""Training with noise and without: where both are tried, and which is kept."""

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training.trainer import Trainer
from conftest import vectors


def clustered(n, d, seed):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(10, d))[rng.integers(0, 10, n)] + 0.5 * rng.normal(size=(n, d))).astype(np.float32)


def normal(n, d):
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def lost(q, X):
    """The mean squared error of codes that are chosen anew."""
    return float(((X - q.decode(q.encode(X))) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize(
    ("X", "M", "noise_is_better"),
    [(vectors(60, 24), 4, False), (clustered(800, 8, 0), 6, False), (normal(200, 16), 4, True)],
    ids=["fewer vectors", "more bits", "fewer bits"],
)
def test_where_noise_is_doubtful_codes_chosen_anew_decide(X, M, noise_is_better):
    q, noisy, alone = (
        cc.CompositionalCodes(M, 16, loss="reconstruction", anneal=anneal).fit(X) for anneal in (None, 50, 0)
    )
    better, worse = (noisy, alone) if noise_is_better else (alone, noisy)
    np.testing.assert_array_equal(q.codebooks_, better.codebooks_)
    assert lost(q, X) < 0.9 * lost(worse, X)
    seconds = [entry["seconds"] for entry in q.history_]
    assert seconds == sorted(seconds) and (noise_is_better or seconds[0] > better.history_[-1]["seconds"])


@pytest.mark.parametrize(
    ("X", "without", "kept"),
    [
        (normal(100, 16), 0.91, False),
        (normal(100, 16), 0.89, True),
        (normal(512, 4), 0.99, True),
        (normal(512, 4), 1.0, False),
    ],
    ids=["few, a little less", "few, clearly less", "many, a little less", "many, no less"],
)
def test_noise_is_given_up_where_it_loses(monkeypatch, X, without, kept):
    losses = iter([1.0, without])
    monkeypatch.setattr(Trainer, "_anew", lambda self, trained: next(losses))
    q, noisy, noiseless = (
        cc.CompositionalCodes(2, 16, loss="reconstruction", effort="low", anneal=anneal).fit(X)
        for anneal in (None, 10, 0)
    )
    assert not np.array_equal(noisy.codebooks_, noiseless.codebooks_)
    np.testing.assert_array_equal(q.codebooks_, (noiseless if kept else noisy).codebooks_)


@pytest.fixture
def tried(monkeypatch):
    """The iterations with noise of each training."""
    found = []
    run = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda self, init: found.append(self.anneal) or run(self, init))
    return found


def test_noise_is_not_doubted_with_many_vectors_and_few_bits(tried):
    X = vectors(32 * 4, 9)
    for rows, settings, want in [
        (X, {}, [10]),
        (X[1:], {}, [10, 0]),
        (X[:, :8], {}, [10, 0]),
        (X[1:], {"anneal": 2}, [2]),
        (X[1:], {"encoder": "greedy"}, [0]),
    ]:
        tried.clear()
        cc.CompositionalCodes(4, 4, loss="reconstruction", effort="low", **settings).fit(rows)
        assert tried == want


def test_progress_ends_where_noise_leaves_nothing_to_improve():
    told = []
    X = normal(13, 16)
    cc.CompositionalCodes(6, 16, loss="reconstruction").fit(
        X, progress=lambda _, done, total: told.append((done, total))
    )
    assert told[-1][0] == told[-1][1]
    shares = [done / total for done, total in told]
    assert shares == sorted(shares)


@pytest.mark.parametrize("n", [13, 60])
def test_progress_of_both_trainings_is_that_of_one(n):
    told = []
    _core.train(normal(n, 24), 6, 16, progress=lambda done, total: told.append((done, total)))
    assert len({total for _, total in told}) == 1
    assert all(done <= total for done, total in told)


def test_the_first_group_decides_about_noise_in_the_others(tried):
    X = clustered(2000, 8, 0)
    q = cc.CompositionalCodes(16, 16, loss="reconstruction", n_groups=3).fit(X)
    assert tried[-3:] == [25, 0, 0]
    noisy = cc.CompositionalCodes(16, 16, loss="reconstruction", n_groups=3, anneal=25).fit(X)
    assert tried[-2:] == [25, 25]
    assert lost(q, X) < 0.9 * lost(noisy, X)
