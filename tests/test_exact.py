"""Exact search against plain float64, for every data set that float32 can hold."""

import os
import subprocess
import sys

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.evaluate import ground_truth

METRICS = ["ip", "cosine", "l2"]
N, D, NQ = 4000, 64, 6


def scores_in_float64(X, Q, metric):
    X, Q = X.astype("f8"), Q.astype("f8")
    if metric == "l2":
        return -((Q[:, None] - X[None]) ** 2).sum(axis=2)
    if metric == "cosine":
        X, Q = ((A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300)) for A in (X, Q))
    return np.einsum("qj,nj->qn", Q, X)


def check(X, Q, metric, k=10):
    """Scores are those of float64, rounded, and no row that is left out is better than the last."""
    want = scores_in_float64(X, Q, metric)
    scores, ids = ground_truth(X, Q, k, metric=metric)
    # numpy sums in another order: its last digits, of the largest terms, may differ.
    scale = np.abs(want) if metric == "l2" else np.einsum("qj,nj->qn", *(np.abs(A.astype("f8")) for A in (Q, X)))
    room = 1e-13 * (1 if metric == "cosine" else scale)
    room = np.broadcast_to(room, want.shape)
    at = np.take_along_axis(want, ids, axis=1)
    near = np.take_along_axis(room, ids, axis=1)
    with np.errstate(over="ignore"):
        assert (scores >= (at - near - 6e-8 * np.abs(at)).astype("f4")).all()
        assert (scores <= (at + near + 6e-8 * np.abs(at)).astype("f4")).all()
    assert (np.diff(at, axis=1) <= near[:, 1:] + near[:, :-1]).all()
    left = want.copy()
    np.put_along_axis(left, ids, -np.inf, axis=1)
    assert (left.max(axis=1) <= at[:, -1] + near[:, -1] + room.max(axis=1) * (metric != "l2")).all()
    return ids


def data(n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype("f4"), rng.normal(size=(NQ, d)).astype("f4")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("shift", [0, 1, 100, 300, 1000, 1e5])
def test_data_off_the_origin(metric, shift):
    X, Q = data()
    check(X + np.float32(shift), Q + np.float32(shift), metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spread", [1.5, 18])
def test_lengths_of_any_spread_and_rows_of_zeros(metric, spread):
    X, Q = data()
    lengths = 10 ** np.random.default_rng(1).uniform(-spread, spread, (N, 1))
    X = (X * lengths).astype("f4")
    X[::50] = 0
    Q[0] = 0
    check(X, Q, metric)
    check(X, Q, metric, k=N // 2)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e19, 1e30, 7e37])
def test_magnitudes_near_the_ends(metric, size):
    X, Q = (np.ascontiguousarray(A.clip(-4, 4) * np.float32(size)) for A in data())
    check(X, Q, metric)


def test_beyond_float32_scores_are_infinite_and_in_order():
    X = np.array([[1e30], [3e30], [2e30], [-1e30], [1.0]], "f4")
    scores, ids = ground_truth(X, X[:1], 5)
    assert ids.tolist() == [[1, 2, 0, 4, 3]]
    assert scores.tolist() == [[np.inf, np.inf, np.inf, np.float32(1e30), -np.inf]]
    scores, ids = ground_truth(X, X[:1], 5, metric="l2")
    assert ids.tolist() == [[0, 2, 4, 1, 3]]  # 2e30 and 1 are both 1e30 away; in float64 the second is no farther
    index = cc.Index(cc.CompositionalCodes.from_codebooks(np.zeros((1, 2, 1), "f4"))).add_codes(np.zeros((5, 1), "u1"))
    assert index.search(X[:1], 5, rerank=X)[1].tolist() == [[1, 2, 0, 4, 3]]


@pytest.mark.parametrize("metric", METRICS)
def test_equal_scores_go_to_the_lower_row(metric):
    X, Q = data()
    X = np.tile(X[:7], (600, 1))
    ids = ground_truth(X, Q, 1000, metric=metric)[1]
    best = check(X[:7], Q, metric, k=7)
    np.testing.assert_array_equal(ids[:, :600], best[:, :1] + 7 * np.arange(600))
    np.testing.assert_array_equal(ids[:, 600:], best[:, 1:2] + 7 * np.arange(400))


def test_scores_that_float32_cannot_tell_apart_are_ordered_by_float64():
    X = np.ones((300, 4), "f4")
    X[:, 0] = 1 + np.arange(300) * np.float32(2**-23)
    big = np.array([[1, 1e9, 0, 0]], "f4")  # the product in float32 is 1e9 for all
    scores, ids = ground_truth(X, big, 5)
    assert ids.tolist() == [[299, 298, 297, 296, 295]]
    assert len(set(scores[0].tolist())) == 1


def test_bits_do_not_depend_on_instructions_threads_or_chunks(tmp_path):
    X, Q = data(n=3000)
    X[:1000] += 300
    np.savez(tmp_path / "in.npz", X=X, Q=Q)
    code = """if True:
        import sys, numpy as np
        from compcodes.evaluate import ground_truth
        data = np.load(sys.argv[1])
        X, Q = data["X"], data["Q"]
        found = [ground_truth(X, Q, 50, metric=m, n_jobs=j) for m in ("ip", "cosine", "l2") for j in (1, 3)]
        np.savez(sys.argv[2], *[a for pair in found for a in pair])
    """
    results = []
    for i, env in enumerate([*({"COMPCODES_ISA": isa} for isa in _core.isas()), {"COMPCODES_CHUNK": "7"}]):
        out = tmp_path / f"{i}.npz"
        command = [sys.executable, "-c", code, str(tmp_path / "in.npz"), str(out)]
        subprocess.run(command, env={**os.environ, **env}, check=True, timeout=120)
        results.append([array.tobytes() for array in np.load(out).values()])
    assert len(results[0]) == 12
    assert all(result == results[0] for result in results)
    assert results[0][:2] == results[0][2:4]
