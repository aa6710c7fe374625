"""Errors carry the argument that they are about."""

import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes import errors


@pytest.mark.parametrize(
    ("call", "kind", "argument", "problem"),
    [
        (lambda q, X: q.encode(X[:, :3]), ValueError, "X", "has 3 dimensions, the model has 12"),
        (lambda q, X: q.encode(X[0]), ValueError, "X", "has shape (12,): want (n, d) (Reshape your data: one"),
        (lambda q, X: q.encode([["a"]]), TypeError, "X", "has dtype <U1: want real numbers"),
        (lambda q, X: q.encode([[1], [2, 3]]), ValueError, "X", "row 1 has shape (2,), row 0 has (1,): want rows of "),
        (lambda q, X: q.encode({}), TypeError, "X", "has dtype object: want real numbers"),
        (lambda q, X: q.encode(np.where(np.arange(12) == 5, np.nan, X)), ValueError, "X", "row 0 holds NaN"),
        (lambda q, X: cc.Index(q).add(X).search(X[:2] * np.inf), ValueError, "Q", "row 0 holds NaN"),
        (lambda q, X: cc.evaluate.ground_truth(X, X[:2] * np.nan, 1), ValueError, "Q", "row 0 holds NaN"),
        (lambda q, X: cc.Index(q, metric="cosin"), ValueError, "metric", 'is "cosin": want "ip", "cosine" or "l2"'),
        (lambda q, X: cc.Index(q, metric="l2", scale=True), ValueError, "scale", 'goes with metric "ip", not "l2"'),
        (lambda q, X: cc.Index(q).add(X).search(X, 5, rerank=X, n_candidates=2), ValueError, "n_candidates", "is 2: "),
        (lambda q, X: cc.Index(q).add(X).search(X, rerank={0: X[0]}), TypeError, "rerank", "is a dict: want rows of "),
        (lambda q, X: cc.CompositionalCodes(tol=-1).fit(X), ValueError, "tol", "is -1: want a finite number"),
        (lambda q, X: cc.CompositionalCodes(loss="none").fit(X), ValueError, "loss", "is 'none': want one of "),
        (lambda q, X: cc.CompositionalCodes(encoder="none").fit(X), ValueError, "encoder", "is 'none': want one of "),
        (lambda q, X: q.fit(X, sample_weight=-(X[:, 0] ** 2)), ValueError, "sample_weight", "[0] is -"),
    ],
)
def test_an_error_tells_argument_and_problem(quantizer, X, call, kind, argument, problem):
    with pytest.raises(kind) as caught:
        call(quantizer, X)
    error = caught.value
    assert isinstance(error, errors.ArgumentError)
    assert (error.argument, error.problem[: len(problem)]) == (argument, problem)
    assert str(error) == error.told(argument)


def test_a_name_takes_the_place_of_the_argument():
    error = errors.ArgumentValueError("X", "has 3 dimensions")
    assert (str(error), error.told("x.npy")) == ("X has 3 dimensions", "x.npy has 3 dimensions")
    element = errors.ArgumentTypeError("ids", "[3] is 'a'")
    assert (str(element), element.told("--ids")) == ("ids[3] is 'a'", "--ids[3] is 'a'")
    again = pickle.loads(pickle.dumps(element))
    assert (type(again), str(again)) == (errors.ArgumentTypeError, "ids[3] is 'a'")
