"""Bounds of the error of inner products, and results that are proven exact with them."""

from fractions import Fraction

import numpy as np
import pytest

import compcodes as cc

pytestmark = pytest.mark.isa


def exact(X, Q, k):
    """Scores in float64, rounded to float32; of equal ones the first first."""
    scores = (Q.astype(np.float64) @ X.T.astype(np.float64)).astype(np.float32)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, 1), ids


@pytest.fixture(scope="module")
def index(quantizer, X):
    return cc.Index(quantizer, residuals=True).add(X)


@pytest.mark.parametrize("magnitude", [1e-40, 1e-30, 1e-3, 1.0, 1e10, 1e30])
def test_bounds_hold_in_exact_arithmetic(magnitude):
    rng = np.random.default_rng(0)
    spread = 10.0 ** rng.uniform(-6, 0, size=(30, 9))
    X = (magnitude * spread * rng.normal(size=(30, 9))).astype(np.float32)
    q = cc.CompositionalCodes.from_codebooks((magnitude * rng.normal(size=(3, 8, 9))).astype(np.float32))
    codes = rng.integers(8, size=(30, 3)).astype(np.uint8)
    bounds = q.error_bound(X, codes)
    assert bounds.dtype == np.float64
    for x, approximation, bound in zip(X, q.decode(codes), bounds, strict=True):
        pairs = zip(x.tolist(), approximation.tolist(), strict=True)
        square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
        assert square <= Fraction(float(bound)) ** 2 <= square * (1 + Fraction(1, 10**14))


def test_bounds_are_of_the_codes_that_encode_chooses(quantizer, X):
    bounds = quantizer.error_bound(X)
    np.testing.assert_array_equal(bounds, quantizer.error_bound(X, quantizer.encode(X)))
    np.testing.assert_allclose(bounds, np.linalg.norm(X - quantizer.decode(quantizer.encode(X)), axis=1), rtol=1e-5)


@pytest.mark.parametrize("n_candidates", [5, 40, 200, 1000])
def test_what_is_certified_is_exact(index, X, Q, n_candidates):
    scores, ids, certified = index.search(Q, k=5, rerank=X, n_candidates=n_candidates, certify=True)
    want_scores, want_ids = exact(X, Q, 5)
    np.testing.assert_array_equal(ids[certified], want_ids[certified])
    np.testing.assert_array_equal(scores[certified], want_scores[certified])
    # None where five candidates cannot prove anything, all where these are most of the vectors.
    assert certified.dtype == bool
    if n_candidates == 5:
        assert not certified.all()
    if n_candidates == 1000:
        assert certified.all()


@pytest.mark.parametrize("magnitude", [2.0**-130, 2.0**-60, 2.0**60])
def test_magnitudes_prove_nothing_false(magnitude, X, Q):
    X, Q = (magnitude * X).astype(np.float32), (magnitude * Q).astype(np.float32)
    q = cc.CompositionalCodes.from_codebooks(X[:32].reshape(2, 16, 12) / 2)
    index = cc.Index(q, residuals=True).add(X)
    for n_candidates in (3, 100, 1499):
        _, ids, certified = index.search(Q, k=3, rerank=X, n_candidates=n_candidates, certify=True)
        np.testing.assert_array_equal(ids[certified], exact(X, Q, 3)[1][certified])


def test_filters_and_ids_are_certified_too(quantizer, X, Q):
    names = np.arange(len(X)) * 3 + 7
    index = cc.Index(quantizer, residuals=True).add(X[:500], names[:500]).add(X[500:], names[500:])
    mask = np.arange(len(X)) % 2 == 0
    _, ids, certified = index.search(Q, k=4, rerank=X, n_candidates=300, filter=mask, certify=True)
    want = names[mask][exact(X[mask], Q, 4)[1]]
    assert certified.any()
    np.testing.assert_array_equal(ids[certified], want[certified])
    # Fewer than the candidates are allowed: all are compared.
    _, ids, certified = index.search(Q, k=4, rerank=X, n_candidates=40, filter=names[:3], certify=True)
    assert certified.all()
    assert (ids[:, 3] == -1).all()


def test_residuals_change_no_other_search_and_survive(index, quantizer, X, Q, tmp_path):
    plain = cc.Index(quantizer).add(X)
    for a, b in zip(index.search(Q, 20), plain.search(Q, 20), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (index.bytes_per_vector, plain.bytes_per_vector) == (7, 2)
    want = index.search(Q, 5, rerank=X, n_candidates=60, certify=True)
    index.save(tmp_path / "index.cc")
    merged = cc.Index(quantizer, residuals=True).add(X[:900]).merge(cc.Index(quantizer, residuals=True).add(X[900:]))
    removed = cc.Index(quantizer, residuals=True).add(np.concatenate([X, 9 * X[:20]]))
    removed.remove(np.arange(len(X), len(X) + 20))
    loaded = [cc.Index.load(tmp_path / "index.cc", mmap=mmap) for mmap in (False, True)]
    for other in (*loaded, merged, removed):
        for a, b in zip(other.search(Q, 5, rerank=X, n_candidates=60, certify=True), want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_cannot_be_certified_is_an_error(index, quantizer, X, Q):
    for settings in ({"metric": "l2"}, {"metric": "cosine"}, {"scale": True}):
        with pytest.raises(ValueError, match="residuals goes with metric"):
            cc.Index(quantizer, residuals=True, **settings)
        with pytest.raises(ValueError, match="certify goes with an index of metric"):
            cc.Index(quantizer, **settings).search(Q, rerank=X, certify=True)
    with pytest.raises(ValueError, match="certify goes with rerank"):
        index.search(Q, certify=True)
    with pytest.raises(ValueError, match="codes alone do not tell"):
        cc.Index(quantizer, residuals=True).add_codes(quantizer.encode(X))


def test_scores_beyond_float32_prove_nothing():
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(900, 8)) * 1e19).astype(np.float32)
    Q = (rng.normal(size=(60, 8)) * 1e19).astype(np.float32)
    q = cc.CompositionalCodes(2, 16, anneal=1, max_iter=1, loss=cc.InnerProduct(2, 0)).fit(X)
    index = cc.Index(q, residuals=True).add(X)
    with pytest.raises(ValueError, match=r"Q row \d+ is too large: its inner products are beyond float32"):
        index.search(Q, k=5, rerank=X, n_candidates=300, certify=True)
    Q *= np.float32(2.0**-10)
    assert index.search(Q, k=5, rerank=X, n_candidates=900, certify=True)[2].all()
