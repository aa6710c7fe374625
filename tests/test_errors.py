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
        (lambda q, X: cc.Index(q, metric=3), TypeError, "metric", 'is 3: want "ip", "cosine" or "l2"'),
        (
            lambda q, X: cc.CompositionalCodes.from_codebooks(q.codebooks_, by_residual=False),
            ValueError,
            "by_residual",
            "is False, and there are no centroids of lists",
        ),
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


class Wrong:
    """A quantizer of somebody's that gives what it likes."""

    def __init__(self, codebooks, codes=None):
        self.codebooks_, self.codes = codebooks, codes

    def encode(self, X):
        return self.codes


def keyed(q, X):
    return cc.Index(q, keys=True).add(X[:3], ["a", "b", "c"])


def of(q, X, **how):
    return cc.Index(q, **how).add(X)


def merged(q, X, other, **how):
    return of(q, X, **how).merge(other)


def with_nan(books):
    books = np.array(books)
    books[1, 2, 3] = np.nan
    return books


FOUND, TRUE = [[1, 2, 3, 4]], [[2, 4]]

# A call that is refused, and the argument that it is about.
REFUSED = [
    (lambda q, X: of(q, X).add(X[:2], [5000, 3]), "ids"),
    (lambda q, X: of(q, X).add(X[:2], [5000, 5000]), "ids"),
    (lambda q, X: of(q, X).add(X[:2], [5000, -1]), "ids"),
    (lambda q, X: of(q, X).add(X[:2], [5000]), "ids"),
    (lambda q, X: cc.Index(q).add(X[:1], [2**63 - 1]).add(X[:1]), "ids"),
    (lambda q, X: of(q, X).remove([3, 5000]), "ids"),
    (lambda q, X: of(q, X).reconstruct([5000]), "ids"),
    (lambda q, X: of(q, X).update(X[:1], [5000]), "ids"),
    (lambda q, X: of(q, X).update(X[:2], [3, 3]), "ids"),
    (lambda q, X: keyed(q, X).add(X[:1], ["a"]), "ids"),
    (lambda q, X: keyed(q, X).add(X[:2], ["d", "d"]), "ids"),
    (lambda q, X: keyed(q, X).add(X[:1]), "ids"),
    (lambda q, X: keyed(q, X).remove(["d"]), "ids"),
    (lambda q, X: keyed(q, X).update(X[:1], ["d"]), "ids"),
    (lambda q, X: cc.Index(q).add_codes(np.full((1, 4), 16, np.uint8)), "codes"),
    (lambda q, X: cc.Index(q).add_codes(np.zeros((1, 3), np.uint8)), "codes"),
    (lambda q, X: cc.Index(q, residuals=True).add_codes(np.zeros((1, 4), np.uint8)), "codes"),
    (lambda q, X: cc.Index(q).add_codes(np.zeros((1, 4), np.uint8), lists=[0]), "lists"),
    (lambda q, X: q.decode(np.full((1, 4), 16, np.uint8)), "codes"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X[:-1]), "rerank"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X[:, :5]), "rerank"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X * np.nan), "rerank"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X, rerank_ids=[1]), "rerank_ids"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X[:2], rerank_ids=[1, 1]), "rerank_ids"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X[:2], rerank_ids=[1, 2]), "rerank_ids"),
    (lambda q, X: keyed(q, X).search(X[:2], 2, rerank=X[:2], rerank_ids=["a", "a"]), "rerank_ids"),
    (lambda q, X: keyed(q, X).search(X[:2], 2, rerank=X[:1], rerank_ids=["a"]), "rerank_ids"),
    (lambda q, X: of(q, X).search(X[:2], 5, filter=np.ones(3, bool)), "filter"),
    (lambda q, X: of(q, X).search(X[:2], 5, exclude=np.ones(3, bool)), "exclude"),
    (lambda q, X: of(q, X).search(X[:2], 5, filter=np.ones((2, 3), bool)), "filter"),
    (lambda q, X: of(q, X).search(X[:2], 5, exclude=np.ones((2, 3), bool)), "exclude"),
    (lambda q, X: of(q, X).search(X[:2], 5, rerank=X, certify=True), "certify"),
    (lambda q, X: of(q, X).search(X[:2], 2**62), "k"),
    (lambda q, X: of(q, X).search_above(X[:2], [1.0, 2.0, 3.0]), "score"),
    (lambda q, X: of(q, X, n_jobs=0), "n_jobs"),
    (lambda q, X: of(q, np.r_[X[:3], np.full((1, 12), 1e20)], metric="l2"), "X"),
    (lambda q, X: cc.CompositionalCodes.from_codebooks(with_nan(q.codebooks_)), "codebooks"),
    (lambda q, X: cc.CompositionalCodes.from_codebooks(np.zeros((0, 4, 3))), "codebooks"),
    (lambda q, X: merged(q, X, of(cc.CompositionalCodes.from_codebooks(q.codebooks_ + 1), X)), "other"),
    (lambda q, X: merged(q, X, of(q, X, metric="l2")), "other"),
    (lambda q, X: merged(q, X, cc.Index(q).add(X[:1], [3])), "other"),
    (lambda q, X: merged(q, X, keyed(q, X)), "other"),
    (lambda q, X: keyed(q, X).merge(keyed(q, X)), "other"),
    (lambda q, X: keyed(q, X).merge(of(q, X)), "other"),
    (lambda q, X: cc.Index(Wrong(np.zeros((4, 3)))), "quantizer"),
    (lambda q, X: cc.Index(Wrong(q.codebooks_, np.zeros((1, 4), np.uint8))).add(X), "quantizer"),
    (lambda q, X: cc.Index(Wrong(q.codebooks_, np.zeros((1, 4)))).add(X[:1]), "quantizer"),
    (lambda q, X: cc.Index(Wrong(q.codebooks_, np.full((1, 4), 16, np.uint8))).add(X[:1]), "quantizer"),
    (lambda q, X: cc.search_together([of(q, X), of(q, X, metric="l2")], X[:1], rerank=[X, X]), "indexes"),
    (lambda q, X: cc.CompositionalCodes().set_params(size=3), "size"),
    (lambda q, X: cc.CompositionalCodes(2, 16, loss="reconstruction").fit(np.clip(X, -1, 1) * np.float32(3.4e38)), "X"),
    (lambda q, X: cc.evaluate.recall(FOUND, TRUE * 2, 1, 1), "ids"),
    (lambda q, X: cc.evaluate.recall(FOUND, TRUE, 3, 1), "R"),
    (lambda q, X: cc.evaluate.recall(FOUND, TRUE, 1, 5), "P"),
    (lambda q, X: cc.evaluate.recall((X, np.array(FOUND)), TRUE), "ids"),
    (lambda q, X: cc.evaluate.recall(FOUND, [1, 2], 1, 1), "true_ids"),
    (lambda q, X: cc.evaluate.recall(FOUND, [[1, 2], [1]], 1, 1), "true_ids"),
    (lambda q, X: cc.evaluate.recall(FOUND, [["a"]], 1, 1), "true_ids"),
    (lambda q, X: cc.evaluate.recall([[{}]], [["a"]], 1, 1), "ids"),
    (lambda q, X: cc.evaluate.vector_error(X, X[1:]), "approximations"),
    (lambda q, X: cc.evaluate.vector_error(X[:0], X[:0]), "X"),
    (lambda q, X: cc.evaluate.inner_product_error(X, X, X[:1], [[9999]]), "true_ids"),
    (lambda q, X: cc.evaluate.inner_product_error(X, X, X[:1], [[-1]]), "true_ids"),
    (lambda q, X: cc.evaluate.inner_product_error(X, X, X[:2], [[1]]), "true_ids"),
    (lambda q, X: cc.evaluate.mean_average_precision(FOUND, [[]]), "relevant"),
    (lambda q, X: cc.evaluate.mean_average_precision(FOUND, [[1], [2]]), "relevant"),
    (lambda q, X: cc.evaluate.mean_average_precision(FOUND, [[1]], query_ids=[1]), "relevant"),
    (lambda q, X: cc.evaluate.ukbench_score([[1, 2]], [0, 0, 0]), "ids"),
    (lambda q, X: cc.evaluate.ukbench_score(FOUND, [[0]]), "groups"),
    (lambda q, X: cc.evaluate.ukbench_score(FOUND, [0] * 5, [0, 0]), "query_groups"),
    (lambda q, X: cc.evaluate.ground_truth(X, X[:1, :3], 1), "Q"),
    (lambda q, X: cc.Index.from_faiss(3), "index"),
]


@pytest.mark.parametrize(("call", "argument"), REFUSED)
def test_what_is_refused_carries_its_argument(quantizer, X, call, argument):
    with pytest.raises(errors.ArgumentError) as caught:
        call(quantizer, X)
    assert caught.value.argument == argument


def test_a_name_takes_the_place_of_the_argument():
    error = errors.ArgumentValueError("X", "has 3 dimensions")
    assert (str(error), error.told("x.npy")) == ("X has 3 dimensions", "x.npy has 3 dimensions")
    part = errors.ArgumentValueError("quantizer", ".encode gave nothing")
    assert (str(part), part.told("q")) == ("quantizer.encode gave nothing", "q.encode gave nothing")
    element = errors.ArgumentTypeError("ids", "[3] is 'a'")
    assert (str(element), element.told("--ids")) == ("ids[3] is 'a'", "--ids[3] is 'a'")
    again = pickle.loads(pickle.dumps(element))
    assert (type(again), str(again)) == (errors.ArgumentTypeError, "ids[3] is 'a'")
