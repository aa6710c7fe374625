"""Distances and cosines are right for all that float32 can hold, and what it cannot hold is refused."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc

OLD = Path(__file__).parent / "data" / "index-v1"
M, K, D = 4, 32, 16
KEPT = [{}, {"metric": "cosine"}, {"metric": "l2"}, {"metric": "l2", "exact_norms": False}]
KEPT += [{"scale": True}, {"residuals": True}]


def model(seed=0, scale=1.0, shift=0.0):
    """Codebooks whose sums are of variance `scale`² around `shift`; code 0 stands for the shift itself."""
    books = scale * np.random.default_rng(seed).normal(size=(M, K, D)) / M**0.5
    books[:, 0] = 0
    return cc.CompositionalCodes.from_codebooks((books + np.float64(shift) / M).astype(np.float32))


def random_codes(n, seed=1):
    return np.random.default_rng(seed).integers(K, size=(n, M)).astype(np.uint8)


def exact(metric, X, Q):
    X, Q = X.astype(np.float64), Q.astype(np.float64)
    if metric == "l2":
        return -np.stack([((q - X) ** 2).sum(axis=1) for q in Q])
    norms = np.sqrt((Q**2).sum(axis=1))[:, None] * np.sqrt((X**2).sum(axis=1))
    return np.divide(Q @ X.T, norms, out=np.zeros_like(norms), where=norms > 0)


def check(index, Q, k=10, rtol=1e-6):
    """The k best are those of the decoded vectors in float64, in that order, and their scores are rounded."""
    want = exact(index.metric, index.reconstruct(index.ids), Q)
    scores, ids = index.search(Q, k)
    at = np.searchsorted(index.ids, ids)
    np.testing.assert_allclose(scores, np.take_along_axis(want, at, 1), rtol=rtol, atol=1e-38)
    # Sums in another order differ in their last bits.
    best = -np.sort(-want, axis=1)[:, :k]
    error = 1e-15 if index.metric == "cosine" else 0
    np.testing.assert_allclose(np.take_along_axis(want, at, 1), best, rtol=1e-14, atol=error)
    assert all(len(set(row)) == k for row in ids)
    if index.metric == "cosine":
        assert abs(scores).max() <= 1


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("shift", [1, 100, 300, 1000, 1e4, -1e6])
def test_off_the_origin(metric, shift):
    q = model(shift=shift)
    codes = random_codes(3000)
    Q = q.decode(codes[:20]) + np.random.default_rng(2).normal(size=(20, D)).astype(np.float32)
    check(cc.Index(q, metric).add_codes(codes), Q)
    check(cc.Index(q, metric).add_codes(codes), Q - np.float32(shift))


@pytest.mark.parametrize("far", [1e5, 1e7])
def test_queries_far_from_all_vectors(far):
    q = model()
    Q = far + np.random.default_rng(2).normal(size=(20, D))
    check(cc.Index(q, "l2").add_codes(random_codes(3000)), Q.astype(np.float32))


@pytest.mark.parametrize("exact_norms", [True, False])
def test_clusters_far_apart(exact_norms):
    books = np.array(model().codebooks_)
    books[0] = 1e5 * np.random.default_rng(3).normal(size=(K, D))
    q = cc.CompositionalCodes.from_codebooks(books)
    codes = random_codes(3000)
    check(cc.Index(q, "l2", exact_norms=exact_norms).add_codes(codes), q.decode(codes[:20]) + np.float32(0.25))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e-22, 1e-30, 1e-42, 1e15])
def test_any_spread_of_lengths(metric, scale):
    """Nine orders of magnitude, and vectors of zeros."""
    books = np.zeros((M, K, D))
    rng = np.random.default_rng(4)
    books[0] = rng.normal(size=(K, D)) * 10 ** rng.uniform(-6, 3, size=(K, 1))
    books[1, : K // 2] = 1e-5 * rng.normal(size=(K // 2, D))
    books[:, 0] = 0
    q = cc.CompositionalCodes.from_codebooks((books * scale).astype(np.float32))
    codes = random_codes(3000)
    codes[::100, :2] = 0
    Q = np.concatenate([q.decode(codes[1:20]), scale * rng.normal(size=(10, D))]).astype(np.float32)
    # Squares of what is below 1e-19 are denormal in float32, and so are their distances.
    check(cc.Index(q, metric).add_codes(codes), Q, rtol=1e-6 if metric == "cosine" or scale > 1e-16 else 1)


def test_a_vector_near_zero_among_others_spoils_no_cosine():
    q = model()
    books = np.array(q.codebooks_)
    books[:, 1] = 1e-12
    index = cc.Index(cc.CompositionalCodes.from_codebooks(books), "cosine")
    codes = random_codes(3000)
    codes[7], codes[8] = 0, 1
    check(index.add_codes(codes), np.random.default_rng(5).normal(size=(50, D)).astype(np.float32), k=100)


def test_a_query_of_zeros_has_cosine_0_with_all():
    scores, ids = cc.Index(model(), "cosine").add_codes(random_codes(500)).search(np.zeros(D), 5)
    assert (scores == 0).all()
    np.testing.assert_array_equal(ids, [range(5)])


@pytest.mark.parametrize(
    ("metric", "large"), [("l2", 1e20), ("l2", 3e38), ("cosine", 3e38)], ids=["square", "sum", "cosine"]
)
def test_what_float32_cannot_hold_is_refused_by_row(metric, large):
    books = np.array(model().codebooks_)
    books[:, 1] = large
    q = cc.CompositionalCodes.from_codebooks(books)
    index = cc.Index(q, metric).add_codes(random_codes(100) // 2 * 2)
    codes = random_codes(90) // 2 * 2
    codes[33] = codes[61] = 1
    with pytest.raises(ValueError, match="row 33 is too large"):
        index.add_codes(codes)
    vectors = q.decode(codes[:33])
    if metric == "l2":
        with pytest.raises(ValueError, match="row 33 is too large"):
            index.add(np.concatenate([vectors, np.full((1, D), min(3e38, M * large))]))
    assert len(index) == 100
    check(index, vectors)


@pytest.mark.parametrize("how", [{}, {"exact_norms": False}, {"keys": True}])
def test_vectors_whose_square_float32_cannot_hold_are_refused_by_row(how):
    X = np.random.default_rng(0).normal(size=(50, D)).astype(np.float32)
    index = cc.Index(model(), "l2", **how).add(X, [*range(50)])
    far = X[:20].copy()
    far[[7, 9]] = [[1e20], [2e19]]  # of which codes, and so their approximations, are as good as any
    for refused in (
        lambda: index.add(far, [*range(50, 70)]),
        lambda: index.update(far, [*range(20)]),
        lambda: cc.Index(model(), "l2").add(far),
    ):
        with pytest.raises(cc.errors.ArgumentValueError, match="^X row 7 is too large: its square is beyond float32"):
            refused()
    assert len(index) == 50
    far[[7, 9]] = 1e18
    index.add(far, [*range(50, 70)])
    scores, _ = index.search(X, 70, rerank=np.concatenate([X, far]))
    assert np.isfinite(scores).all()  # −∞ is no vector's score
    assert len(cc.Index(model(), "ip").add(far * 100)) == 20  # squares do not count there


def test_a_query_too_far_away_is_refused_by_row():
    index = cc.Index(model(), "l2").add_codes(random_codes(100))
    Q = np.zeros((3, D))
    Q[1] = 1e20
    with pytest.raises(ValueError, match="Q row 1 is too far away"):
        index.search(Q)
    assert np.isfinite(index.search(Q / 1e2)[0]).all()


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_an_emptied_index_can_be_kept_and_filled_again(tmp_path, kept):
    X = np.random.default_rng(6).normal(size=(60, D)).astype(np.float32)
    index = cc.Index(model(), **kept).add(X)
    index.remove(index.ids)
    index.save(tmp_path / "index.cc")
    old = sorted(OLD.glob("*-emptied.cc"))
    assert len(old) == 6
    for path in old:
        assert len(cc.Index.load(path)) == 0
    loaded = [cc.Index.load(tmp_path / "index.cc", mmap=mmap) for mmap in (False, True)]
    for empty in (index, *loaded, copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        assert len(empty) == 0
        assert (empty.search(X[:3], 2)[1] == -1).all()
        empty.add(10 * X)
        fresh = cc.Index(index.quantizer, **kept).add(10 * X, ids=empty.ids)
        for a, b in zip(empty.search(X[:3], 20), fresh.search(X[:3], 20), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ["cosine", "l2", "l2-byte", "ip", "scale", "residuals"])
def test_files_of_earlier_versions_are_searched_and_grow(tmp_path, name, mmap):
    index = cc.Index.load(OLD / f"{name}.cc", mmap=mmap)
    assert len(index) == 150
    Q = np.random.default_rng(7).normal(size=(30, 6)).astype(np.float32) + 6
    if index.metric != "ip":
        check(index, Q)
    want = index.search(Q, 150)
    if name not in ("scale", "residuals"):
        index.add_codes(index.codes[:40])
        if index.metric != "ip":
            check(index, Q)
    index.save(tmp_path / "again.cc")
    again = cc.Index.load(tmp_path / "again.cc", mmap=mmap)
    for a, b in zip(again.search(Q, 190), index.search(Q, 190), strict=True):
        np.testing.assert_array_equal(a, b)
    again.remove(again.ids[150:])
    for a, b in zip(again.search(Q, 150), want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kept", KEPT[1:4], ids=str)
def test_lengths_that_grow_begin_new_runs(tmp_path, kept):
    """Of intervals, in the file; what is found is what an index finds that was filled at once."""
    books = np.array(model().codebooks_)
    books[0] *= 4.0 ** np.arange(K)[:, None] / 4.0**12
    q = cc.CompositionalCodes.from_codebooks(books)
    codes = random_codes(16_000)
    codes = codes[np.argsort(codes[:, 0], kind="stable")]
    index = cc.Index(q, **kept)
    for part in np.array_split(codes, 7):
        index.add_codes(part)
    Q = q.decode(codes[::800]) + np.float32(0.01)
    check(index, Q)
    index.save(tmp_path / "index.cc")
    content = (tmp_path / "index.cc").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["runs"]["shape"][0] > 1
    assert header["edges"]["shape"] == [header["runs"]["shape"][0], 257]
    loaded = [cc.Index.load(tmp_path / "index.cc", mmap=mmap) for mmap in (False, True)]
    once = cc.Index(q, **kept).add_codes(codes)
    mask = np.random.default_rng(8).random(len(codes)) < 0.1
    for other in (*loaded, once):
        for search in ({}, {"filter": mask}):
            for a, b in zip(other.search(Q, 30, **search), index.search(Q, 30, **search), strict=True):
                np.testing.assert_array_equal(a, b)
    gone = np.flatnonzero(np.random.default_rng(9).random(len(codes)) < 0.3)
    for other in (index, once, *loaded):
        other.remove(gone)
        check(other, Q)
    index.save(tmp_path / "index.cc")
    check(cc.Index.load(tmp_path / "index.cc"), Q)


def test_inner_products_beyond_float32_are_refused_by_row():
    books = np.array(model().codebooks_, dtype=np.float64)
    index = cc.Index(cc.CompositionalCodes.from_codebooks((books / np.abs(books).max() * 1e30).astype(np.float32)))
    index.add_codes(np.arange(60, dtype=np.uint8).reshape(-1, len(books)) % books.shape[1])
    fine, beyond = np.full((3, D), 1e-3), np.full((1, D), 1e12)
    assert np.isfinite(index.search(fine, 5)[0]).all()
    for search in (
        lambda Q: index.search(Q, 5),
        lambda Q: index.search(Q, 5, rerank=np.ones((len(index), D))),
        lambda Q: index.search_above(Q, 0.0),
    ):
        with pytest.raises(ValueError, match="Q row 3 is too large: its inner products are beyond float32"):
            search(np.concatenate([fine, beyond]))


@pytest.mark.parametrize("loss", ["inner-product", "reconstruction"])
def test_vectors_near_the_end_of_float32_are_named(loss):
    X = np.clip(np.random.default_rng(0).normal(size=(300, 6)), -1, 1) * 3.4e38
    with pytest.raises(ValueError, match="^X "):
        cc.CompositionalCodes(2, 16, loss=loss, effort="low").fit(X)
