"""The methods beside ours, held against what they are in plain NumPy, and searched by the same index."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compcodes as cc
from compcodes import _core, quantizers, reference
from compcodes.quantizers.opq import eigenvalue_allocation
from compcodes.quantizers.subspaces import edges
from conftest import vectors

pytestmark = pytest.mark.isa

PRODUCT = [cc.ProductQuantizer, cc.OptimizedProductQuantizer, cc.CartesianKMeans]
LEARNED = [*PRODUCT, cc.ResidualQuantizer]
EVERY = [*LEARNED, cc.RandomHyperplaneHash]


def make(kind, **params):
    small = {"n_bits": 32} if kind is cc.RandomHyperplaneHash else {"n_codebooks": 4, "n_codewords": 16, "max_iter": 8}
    return kind(**{**small, **params})


@pytest.fixture(scope="module", params=EVERY, ids=lambda kind: kind.__name__)
def fitted(request, X):
    return make(request.param).fit(X)


def mse(q, X):
    return ((X - q.decode(q.encode(X)).astype(np.float64)) ** 2).sum(axis=1).mean()


def lloyd(X, K, iterations, seed=0):
    """k-means, the readable way: the objective after each iteration."""
    X = X.astype(np.float64)
    means = X[np.random.default_rng(seed).choice(len(X), K, replace=False)]
    objectives = []
    for _ in range(iterations):
        nearest = ((X[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        means = np.array([X[nearest == k].mean(axis=0) if (nearest == k).any() else means[k] for k in range(K)])
        objectives.append(((X - means[nearest]) ** 2).sum(axis=1).mean())
    return objectives


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 700),
    d=st.integers(1, 40),
    K=st.integers(2, 256),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_kmeans_gives_the_means_of_its_clusters(seed, n, d, K, offset):
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32) + np.float32(offset)
    centroids, history = _core.kmeans(X, K, 60, seed)
    assert (np.diff(history) <= 1e-9 * history[0] + 1e-9).all()
    distances = ((X[:, None].astype(np.float64) - centroids) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    assert distances.min(axis=1).mean() <= history[-1] * (1 + 1e-4) + 1e-6
    if len(history) < 60:  # it has settled: every mean is that of the vectors nearest to it, but for ties of float32
        used = np.unique(nearest)
        means = np.array([X[nearest == k].mean(axis=0, dtype=np.float64) for k in used])
        assert np.isclose(means, centroids[used], atol=1e-3 + 1e-6 * offset).all(axis=1).mean() > 0.8


def test_kmeans_is_as_good_as_the_readable_one():
    X = vectors(1500, 6)
    ours = [_core.kmeans(X, 30, 20, seed)[1][-1] for seed in range(5)]
    readable = [lloyd(X, 30, 20, seed)[-1] for seed in range(5)]
    assert np.mean(ours) < 1.1 * np.mean(readable)


@pytest.mark.parametrize(("d", "M"), [(12, 4), (13, 4), (7, 7), (11, 3), (5, 1)])
def test_product_codes_are_the_nearest_codewords_of_each_stretch(d, M):
    X = vectors(500, d)
    q = cc.ProductQuantizer(M, 20, max_iter=5).fit(X)
    codes, parts = q.encode(X), edges(d, M)
    assert [last - first for first, last in parts] == [len(part) for part in np.array_split(range(d), M)]
    for m, (first, last) in enumerate(parts):
        book = q.codebooks_[m].astype(np.float64)
        assert not np.delete(book, np.s_[first:last], axis=1).any()
        distances = ((X[:, None, first:last] - book[:, first:last]) ** 2).sum(axis=2)
        chosen = distances[np.arange(500), codes[:, m]]
        np.testing.assert_allclose(chosen, distances.min(axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", PRODUCT)
@pytest.mark.parametrize(("d", "M"), [(12, 4), (13, 4), (6, 6)])
def test_codebooks_lie_in_orthogonal_subspaces_and_codes_are_the_best(kind, d, M):
    X = vectors(400, d) + 30
    q = kind(M, 6, max_iter=6).fit(X)
    centered = q.codebooks_ - q.codebooks_.mean(axis=1, keepdims=True)
    scale = np.abs(centered).max() ** 2
    for a, b in itertools.combinations(centered, 2):
        assert np.abs(a @ b.T).max() < 1e-4 * scale
    # So the greedy code, that of each subspace alone, is the best of all there are.
    codes = q.encode(X)
    wider = reference.encode_beam(X[:40], q.codebooks_, 12)
    best = reference.errors(X[:40], wider, q.codebooks_)
    np.testing.assert_allclose(reference.errors(X[:40], codes[:40], q.codebooks_), best, rtol=1e-3, atol=1e-3)
    greedy = _core.errors(q.codebooks_, X, _core.Encoder(q.codebooks_).encode(X))
    np.testing.assert_allclose(_core.errors(q.codebooks_, X, codes), greedy, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", LEARNED)
def test_the_objective_never_rises_and_is_that_of_the_training_vectors(kind, X):
    q = make(kind).fit(X)
    objective = [entry["objective"] for entry in q.history_]
    assert [entry["iteration"] for entry in q.history_] == list(range(len(objective)))
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    # Codes are chosen once more after the last means were taken.
    assert 0.9 * objective[-1] <= mse(q, X) <= objective[-1] * (1 + 1e-4)


def test_eigenvalue_allocation_makes_orthogonal_subspaces_of_equal_products():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(4000, 12)) * 2.0 ** np.arange(12) @ np.linalg.qr(rng.normal(size=(12, 12)))[0]).astype("f4")
    rotation = eigenvalue_allocation(X, 4)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(12), atol=1e-9)
    covariance = np.cov((X @ rotation).T)
    logs = np.log2(np.diag(covariance))
    in_order = np.sort(logs).reshape(4, 3).sum(axis=1)
    assert np.ptp(logs.reshape(4, 3).sum(axis=1)) < 0.2 * np.ptp(in_order)
    off = covariance / np.sqrt(np.outer(*2 * [np.diag(covariance)])) - np.eye(12)
    assert np.abs(off).max() < 1e-2


def test_a_learned_rotation_is_better_where_dimensions_depend_on_each_other():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(3000, 16)) * 1.5 ** -np.arange(16) @ np.linalg.qr(rng.normal(size=(16, 16)))[0]).astype("f4")
    plain, allocated, learned = (mse(make(kind, max_iter=20).fit(X), X) for kind in PRODUCT)
    assert learned < allocated < plain


def test_residual_codebooks_are_means_of_what_the_ones_before_leave(X):
    q = make(cc.ResidualQuantizer, beam=1, max_iter=60).fit(X)
    residual = X.astype(np.float64)
    codes = q.encode(X)
    for m, book in enumerate(q.codebooks_.astype(np.float64)):
        nearest = ((residual[:, None] - book) ** 2).sum(axis=2).argmin(axis=1)
        assert (nearest == codes[:, m]).mean() > 0.97  # ties of a Gram matrix in 16 bits
        used = np.unique(nearest)
        means = np.array([residual[nearest == k].mean(axis=0) for k in used])
        assert np.isclose(means, book[used], atol=0.05).all(axis=1).mean() > 0.8
        residual -= book[codes[:, m]]
    assert mse(make(cc.ResidualQuantizer, beam=8).fit(X), X) < mse(q, X)


def test_search_is_that_of_the_decoded_vectors(fitted, X, Q):
    scores, ids = cc.Index(fitted).add(X).search(Q, k=10)
    exact = Q @ fitted.decode(fitted.encode(X)).T
    np.testing.assert_allclose(scores, -np.sort(-exact, axis=1)[:, :10], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.take_along_axis(exact, ids, axis=1), scores, rtol=1e-3, atol=1e-3)


def test_models_and_indexes_keep_their_encoder(fitted, X, tmp_path):
    codes = fitted.encode(X)
    fitted.save(tmp_path / "q.cc")
    loaded = type(fitted).load(tmp_path / "q.cc")
    cc.Index(fitted).add(X[:100]).save(tmp_path / "i.cc")
    index = cc.Index.load(tmp_path / "i.cc").add(X[100:])
    np.testing.assert_array_equal(index.codes, codes)
    for again in (loaded, cc.Quantizer.load(tmp_path / "i.cc"), pickle.loads(pickle.dumps(fitted)), index.quantizer):
        assert type(again) is type(fitted)
        assert again.get_params() == fitted.get_params()
        assert again.history_ == fitted.history_
        np.testing.assert_array_equal(again.encode(X), codes)
        np.testing.assert_array_equal(again.codebooks_, fitted.codebooks_)
    with pytest.raises(ValueError, match=f"holds a {type(fitted).__name__}, not a CompositionalCodes"):
        cc.CompositionalCodes.load(tmp_path / "q.cc")


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_threads(fitted, X):
    one, three = (type(fitted)(**fitted.get_params()).set_params(n_jobs=n).fit(X) for n in (1, 3))
    np.testing.assert_array_equal(one.codebooks_, three.codebooks_)
    np.testing.assert_array_equal(one.encode(X), three.encode(X))
    other = type(fitted)(**fitted.get_params()).set_params(random_state=5).fit(X)
    assert (other.codebooks_ != one.codebooks_).any()
    assert repr(one).startswith(type(fitted).__name__ + "(n_")


@pytest.mark.parametrize("kind", LEARNED)
def test_few_equal_and_constant_vectors(kind):
    X = np.repeat(np.array([[1.0, 2.0, 3.0, 4.0], [5.0, -6.0, 7.0, 8.0], [0, 0, 0, 0]], np.float32), 3, axis=0)
    q = make(kind, n_codebooks=2).fit(X)
    np.testing.assert_allclose(q.decode(q.encode(X)), X, atol=1e-3)
    one = make(kind, n_codebooks=2).fit(X[:1])
    np.testing.assert_allclose(one.decode(one.encode(X[:1])), X[:1], atol=1e-3)
    constant = np.full((50, 3), 1e4, np.float32)
    q = make(kind, n_codebooks=2).fit(constant)
    np.testing.assert_allclose(q.decode(q.encode(constant)), constant, rtol=1e-5)


@pytest.mark.parametrize("kind", LEARNED)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.uint8])
def test_any_real_type_is_taken(kind, dtype):
    X = np.random.default_rng(0).integers(0, 200, size=(300, 8)).astype(dtype)
    a, b = (make(kind).fit(x) for x in (X, X.astype(np.float32)))
    np.testing.assert_array_equal(a.codebooks_, b.codebooks_)
    np.testing.assert_array_equal(a.encode(X[:, ::-1][:, ::-1]), b.encode(X))


def test_no_more_vectors_than_needed_are_read():
    X = vectors(3000, 4)
    q = cc.ProductQuantizer(2, 4, max_iter=3).fit(X)
    chosen = np.sort(np.random.default_rng(0).choice(3000, 1024, replace=False))
    assert q.history_[-1]["objective"] >= mse(q, X[chosen]) * (1 - 1e-4)


def test_hashes_are_the_signs_of_the_projections():
    X = vectors(300, 9)
    q = cc.RandomHyperplaneHash(64).fit(X)
    normals = np.random.default_rng(0).standard_normal((64, 9))
    products = X @ normals.T
    bits = np.unpackbits(q.encode(X), axis=1, bitorder="little")
    clear = np.abs(products) > 1e-3
    np.testing.assert_array_equal(bits[clear], (products > 0)[clear])
    # Eight signs are a codeword, and their sum is near the direction of the vector.
    want = (2.0 * bits - 1) @ normals * np.sqrt(np.pi / 2) / 64
    np.testing.assert_allclose(q.decode(q.encode(X)), want, rtol=1e-4, atol=1e-5)
    many = cc.RandomHyperplaneHash(512).fit(X)
    cosines = (reference.unit_vectors(X) * reference.unit_vectors(many.decode(many.encode(X)))).sum(axis=1)
    assert cosines.min() > 0.95


@pytest.mark.parametrize("n_bits", [8, 24, 64, 72, 128])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_hamming_search_is_the_sorted_distances(n_bits, k):
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(256, size=(300, n_bits // 8)).astype(np.uint8)
    codes[200:] = codes[:100]  # ties
    X = vectors(20, 6)
    q = cc.RandomHyperplaneHash(n_bits).fit(X)
    scores, ids = q.search(X, codes, k)
    distances = np.unpackbits(q.encode(X)[:, None] ^ codes, axis=2).sum(axis=2)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids[:, :300], order)
    np.testing.assert_array_equal(scores[:, :300], -np.take_along_axis(distances, order, axis=1).astype(np.float32))
    assert (ids[:, 300:] == -1).all() and np.isneginf(scores[:, 300:]).all()
    assert not np.signbit(scores[scores == 0]).any()


def test_asymmetric_search_is_the_indexs_and_finds_more():
    X = vectors(3000, 24, seed=3)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Q = vectors(60, 24, seed=3)
    q = cc.RandomHyperplaneHash(64).fit(X)
    codes = q.encode(X)
    asymmetric = q.search(Q, codes, 50, asymmetric=True)
    np.testing.assert_array_equal(asymmetric[1], cc.Index(q).add(X).search(Q, 50)[1])
    true = cc.evaluate.ground_truth(X, Q, k=10)[1]
    found = [cc.evaluate.recall(ids, true, 10, 50) for ids in (asymmetric[1], q.search(Q, codes, 50)[1])]
    assert found[0] > found[1] > 0.1


def test_order_permutations_are_compared_by_spearmans_distance():
    X, Q, anchors = vectors(400, 8), vectors(10, 8, seed=5), vectors(20, 8, seed=2)
    codes = quantizers.order_permutations(X, anchors, 6)
    distances = ((X[:, None].astype(np.float64) - anchors) ** 2).sum(axis=2)
    np.testing.assert_array_equal(codes, np.argsort(distances, axis=1)[:, :6])
    index = cc.Index(cc.CompositionalCodes.from_codebooks(quantizers.permutation_codebooks(20, 6))).add_codes(codes)
    scores, ids = index.search(quantizers.permutation_queries(Q, anchors), k=400)
    ranks = np.argsort(np.argsort(((Q[:, None].astype(np.float64) - anchors) ** 2).sum(axis=2), axis=1), axis=1)
    spearman = ((ranks[:, codes] - np.arange(6)) ** 2).sum(axis=2)
    order = np.argsort(spearman, axis=1, kind="stable")
    np.testing.assert_array_equal(ids, order)  # whole numbers: exact in float32, and so are ties
    np.testing.assert_array_equal(scores, -np.take_along_axis(spearman, order, axis=1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda X: cc.ProductQuantizer(0).fit(X), ValueError, "n_codebooks is 0: want 1 to 256"),
        (lambda X: cc.ProductQuantizer(13).fit(X), ValueError, "n_codebooks is 13: vectors of 12 dimensions"),
        (lambda X: cc.CartesianKMeans(2.5).fit(X), TypeError, "n_codebooks is 2.5"),
        (lambda X: cc.OptimizedProductQuantizer(2, 257).fit(X), ValueError, "n_codewords is 257"),
        (lambda X: cc.ProductQuantizer(2, 4, max_iter=0).fit(X), ValueError, "max_iter is 0: want at least 1"),
        (lambda X: cc.ProductQuantizer(2, 4, random_state=-1).fit(X), ValueError, "random_state is -1"),
        (lambda X: cc.ResidualQuantizer(2, 4, beam=0).fit(X), ValueError, "beam is 0"),
        (lambda X: cc.ResidualQuantizer(2, 4, n_jobs=0).fit(X), ValueError, "n_jobs is 0"),
        (lambda X: cc.ProductQuantizer(2, 4).fit(X[:0]), ValueError, r"X has shape \(0, 12\)"),
        (lambda X: cc.ProductQuantizer(2, 4).fit(X[0]), ValueError, r"want \(n, d\)"),
        (
            lambda X: cc.CartesianKMeans(2, 4).fit(np.where(np.arange(1500)[:, None] == 7, np.nan, X)),
            ValueError,
            "row 7",
        ),
        (lambda X: cc.ProductQuantizer(2, 4).fit(X).encode(X[:, 1:]), ValueError, "X has 11 dimensions"),
        (lambda X: cc.ProductQuantizer(2, 4).fit(X).encode(X * np.inf), ValueError, "X row 0"),
        (lambda X: cc.ProductQuantizer(2, 4).encode(X), cc.NotFittedError, "not fitted"),
        (lambda X: cc.ProductQuantizer().set_params(beam=1), ValueError, "there is no parameter 'beam'"),
        (lambda X: cc.RandomHyperplaneHash(12).fit(X), ValueError, "n_bits is 12: want a multiple of 8"),
        (lambda X: cc.RandomHyperplaneHash(520).fit(X), ValueError, "n_bits is 520"),
        (lambda X: cc.RandomHyperplaneHash(8).fit(X).search(X, [[1, 2]]), ValueError, "codes have shape"),
        (lambda X: cc.RandomHyperplaneHash(8).fit(X).search(X, [[1]], k=0), ValueError, "k is 0"),
        (lambda X: quantizers.order_permutations(X, X[:5], 6), ValueError, "length is 6: want 1 to 5"),
        (
            lambda X: quantizers.order_permutations(X[:, 1:], X[:9], 6),
            ValueError,
            "X has 11 dimensions, anchors has 12",
        ),
        (lambda X: quantizers.permutation_queries(X, X[:300]), ValueError, "the number of anchors is 300"),
        (lambda X: quantizers.permutation_codebooks(300, 6), ValueError, "n_anchors is 300"),
    ],
)
def test_errors_name_the_argument(call, error, message, X):
    with pytest.raises(error, match=message):
        call(X)


def test_an_interrupted_fit_changes_nothing(fitted, X):
    q = pickle.loads(pickle.dumps(fitted))

    def stop(stage, done, total):
        raise KeyboardInterrupt

    if type(q) is not cc.RandomHyperplaneHash:
        with pytest.raises(KeyboardInterrupt):
            q.fit(X[::-1], progress=stop)
    np.testing.assert_array_equal(q.encode(X), fitted.encode(X))
