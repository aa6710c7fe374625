"""Digests of what the compiled core computes from seeded inputs: a JSON object on standard output.

    python tests/digests.py JOBS

`test_same_bits.py` runs it on each instruction set, in tiny chunks, and on other numbers of threads.
"""

import hashlib
import itertools
import json
import sys

import numpy as np

import compcodes as cc
from compcodes import _core

SELECTIONS = ["group", "m-selection", "m-combination"]
ETAS = {"reconstruction": 1.0, "inner product": 4.0}
ENCODINGS = {
    "greedy": {"encoding": ("greedy", 0)},
    "beam": {"encoding": ("beam", 5)},
    "local search": {"encoding": ("local-search", 6), "start": ("greedy", 0)},
    "local search from a beam": {"encoding": ("local-search", 6), "start": ("beam", 3)},
}
# (M, K, d): tails of registers, tiles and panels; one codebook; many dimensions.
SHAPES = [(4, 16, 12), (3, 100, 37), (1, 7, 5), (8, 33, 130)]


def digest(*arrays):
    state = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        state.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return state.hexdigest()[:16]


def clusters(n, d, seed=0):
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(20, d))
    return (centers[rng.integers(20, size=n)] + rng.normal(size=(n, d))).astype(np.float32)


def shared(codebooks, selection):
    return codebooks if selection == "group" else np.repeat(codebooks[:1], len(codebooks), axis=0)


def encoding(jobs):
    """Codes and losses of every encoder, selection and loss."""
    for (M, K, d), selection in itertools.product(SHAPES, SELECTIONS):
        X, rng = clusters(211, d), np.random.default_rng(M)
        # Codewords near vectors: sums of all orders then differ little, and so do losses.
        books = shared((X[rng.integers(len(X), size=(M, K))] / M + rng.normal(size=(M, K, d))).astype("f4"), selection)
        rows = np.linalg.qr(rng.normal(size=(d, 3)))[0].T.astype(np.float32)
        for (loss, eta), (name, options) in itertools.product(ETAS.items(), ENCODINGS.items()):
            for moved, directions in ((0, None), (100, None), (0, rows)):
                there = (books + np.float32(moved / M)).astype(np.float32)
                encoder = _core.Encoder(there, selection, eta, n_jobs=jobs, directions=directions, **options)
                codes = encoder.encode(X + np.float32(moved), jobs)
                improved = encoder.improve(X + np.float32(moved), rng.integers(M, K, codes.shape).astype("u1"), jobs)
                of = f"{M}×{K}×{d} {selection}, {loss}, {name}, moved by {moved}, directions {directions is not None}"
                yield f"encode {of}", digest(codes)
                yield f"improve {of}", digest(*improved)
        yield f"errors {M}×{K}×{d} {selection}", digest(_core.errors(books, X, codes, 4.0, jobs))
        yield f"bounds {M}×{K}×{d} {selection}", digest(_core.error_bounds(books, X, codes, jobs))
        yield f"decode {M}×{K}×{d} {selection}", digest(_core.decode(books, codes, jobs))


def steps(jobs):
    """What a training is made of."""
    for d, selection in itertools.product((12, 37), SELECTIONS):
        X, weights = clusters(700, d), np.random.default_rng(0).random(700)
        books = _core.residual_kmeans(X, 3, 16, selection, 0, jobs)
        codes = _core.Encoder(books, selection, n_jobs=jobs).encode(X, jobs)
        yield f"residual k-means {d} {selection}", digest(books)
        yield (
            f"along {d} {selection}",
            digest(_core.apply(X, codes, 16, np.ones((48, d)), 3.0, weights, jobs, directions=books[0, :1])),
        )
        errors = np.where(codes[:, 0] == 3, 100.0, 1.0)
        uses = _core.uses(codes, 16, selection) * np.uint64(0)
        _, vectors, worst = _core.worst(X, codes, errors, len(uses))
        yield f"re-seed {d} {selection}", digest(_core.reseed(books, uses, vectors, worst, selection))
        moments = _core.Moments(X, weights, books[0, :1], jobs)
        yield f"moments {d} {selection}", digest(moments.deviation, moments.variance, moments.mean_weight)
        yield f"noise {d} {selection}", digest(_core.perturbed(books, moments.deviation, selection, 0, 1, 5))
        trained = _core.train(X, 3, 16, selection, eta=3.0, weight_power=1.0, anneal=1, max_iter=1, n_jobs=jobs)
        yield f"the crate's training {d} {selection}", digest(*trained)
    for d in (5, 130):
        X = clusters(700, d)
        yield f"k-means {d}", digest(*_core.kmeans(X, 40, 5, 0, jobs))
        codes = np.random.default_rng(1).integers(16, size=(700, 3)).astype("u1")
        yield f"normal equations {d}", digest(*_core.normal_equations(X, codes, 16, None, jobs))
        yield f"norms {d}", digest(_core.norms(X, None, jobs))
        A, P = np.abs(X[:d] @ X[:d].T), X[:d].astype("f8")
        yield f"product {d}", digest(_core.multiply(A, P, jobs))
        yield f"sums {d}", digest(_core.sums(X, codes, 16, jobs))
        words = [clusters(9, d // 5, seed) for seed in range(5)]
        yield f"subspaces {d}", digest(_core.SubspaceEncoder(words).encode(X))


def training(jobs):
    """Whole fits, and what is found with them."""
    X, Q = clusters(400, 12), clusters(23, 12, seed=1)
    losses = {
        "reconstruction": cc.Reconstruction(),
        "inner product": cc.InnerProduct(eta=4, weight_power=1, demand=0, metric=0),
        "metric": cc.InnerProduct(eta=2, weight_power=0, demand=0, metric=0.9),
        "chosen": cc.InnerProduct(),
    }
    encoders = [cc.Greedy(), cc.Beam(3), cc.LocalSearch(4)]
    for selection, (loss, how), encoder in itertools.product(SELECTIONS, losses.items(), encoders):
        if loss == "chosen" and (selection, encoder) != ("group", encoders[-1]):
            continue  # it takes as long as nine of the others, and its steps are theirs
        model = cc.CompositionalCodes(
            3, 16, selection, loss=how, encoder=encoder, anneal=2, max_iter=2, tol=0, n_jobs=jobs
        )
        model.fit(X, queries=Q)
        yield f"fit {selection}, {loss}, {encoder}", digest(model.codebooks_, model.encode(X))
    for method in (cc.ProductQuantizer, cc.ResidualQuantizer, cc.OptimizedProductQuantizer, cc.CartesianKMeans):
        model = method(3, 16, n_jobs=jobs).fit(X)
        yield f"fit {method.__name__}", digest(model.codebooks_, model.encode(X))


def searching(jobs):
    """Exact search, and the index of every metric and side column."""
    for d, metric in itertools.product((3, 12, 130), ("ip", "cosine", "l2")):
        X, Q = clusters(1500, d), clusters(60, d, seed=1)
        yield f"ground truth {d} {metric}", digest(*_core.exact_search(X, Q, 10, metric, jobs))
    X, Q = clusters(3000, 12), clusters(60, 12, seed=1)
    books = _core.residual_kmeans(X[:700], 4, 32, n_jobs=jobs)
    model = cc.CompositionalCodes.from_codebooks(books)
    sides = [("ip", {}), ("ip", {"scale": True}), ("ip", {"residuals": True}), ("cosine", {}), ("l2", {})]
    for metric, side in [*sides, ("l2", {"exact_norms": False})]:
        index, of = cc.Index(model, metric, jobs, **side).add(X), f"{metric} {side}"
        for part in (Q, Q[0]):
            yield f"search {of} {part.ndim}", digest(*index.search(part, 20))
        yield f"filtered search {of}", digest(*index.search(Q, 20, filter=np.arange(0, 3000, 7)))
        yield f"rerank {of}", digest(*index.search(Q, 20, rerank=X, n_candidates=60))
        if "residuals" in side:
            yield f"certify {of}", digest(*index.search(Q, 20, rerank=X, n_candidates=60, certify=True))
    codes = np.random.default_rng(0).integers(256, size=(700, 5)).astype("u1")
    yield "hamming", digest(*_core.hamming_search(codes, codes[:9], 20, jobs))


if __name__ == "__main__":
    jobs = int(sys.argv[1])
    parts = encoding, steps, training, searching
    print(json.dumps({"isa": _core.isa()} | {name: value for part in parts for name, value in part(jobs)}))
