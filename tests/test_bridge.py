import numpy as np
import pytest

import compcodes as cc
from conftest import vectors

faiss = pytest.importorskip("faiss")
D = 16


@pytest.fixture(scope="module")
def data():
    return vectors(3000, D), vectors(30, D, seed=1)


def kinds(metric):
    pq = faiss.IndexPQ(D, 4, 6, metric)
    rotation = faiss.OPQMatrix(D, 4)
    rotation.niter = 3
    rotated = faiss.IndexPreTransform(rotation, faiss.IndexPQ(D, 4, 8, metric))
    residual = faiss.IndexResidualQuantizer(D, 3, 5, metric, faiss.AdditiveQuantizer.ST_decompress)
    local = faiss.IndexLocalSearchQuantizer(D, 3, 4, metric, faiss.AdditiveQuantizer.ST_decompress)
    named = faiss.IndexIDMap2(faiss.IndexPQ(D, 8, 4, metric))
    wide = faiss.IndexPQ(D, 8, 8, metric)
    return {"pq": pq, "opq": rotated, "rq": residual, "lsq": local, "ids": named, "pq8": wide}


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("kind", list(kinds(faiss.METRIC_L2)))
def test_results_are_those_of_faiss(data, metric, kind):
    X, Q = data
    theirs = kinds(faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2)[kind]
    theirs.train(X)
    if kind == "ids":
        theirs.add_with_ids(X, np.arange(len(X)) * 5 + 3)
    else:
        theirs.add(X)
    ours = cc.Index.from_faiss(theirs)
    assert (len(ours), ours.metric) == (len(X), metric)
    want_scores, want_ids = theirs.search(Q, 20)
    scores, ids = ours.search(Q, 20)
    if metric == "l2":
        want_scores = -want_scores
    np.testing.assert_allclose(scores, want_scores, rtol=1e-3, atol=1e-3 * np.abs(want_scores).max())
    for row, want, row_scores in zip(ids, want_ids, scores, strict=True):
        # What one of the two does not have is as good as its last: equal codes, or equal but for rounding.
        others = row_scores[~np.isin(row, want)]
        np.testing.assert_allclose(others, row_scores[-1], rtol=1e-3, atol=1e-3)
    ours.add(X[:5])
    assert len(ours) == len(X) + 5


def fast_scans(metric):
    norm = (
        faiss.AdditiveQuantizer.ST_LUT_nonorm
        if metric == faiss.METRIC_INNER_PRODUCT
        else faiss.AdditiveQuantizer.ST_norm_rq2x4
    )
    return {
        "pq": faiss.IndexPQFastScan(D, 8, 4, metric),
        "rq": faiss.IndexResidualQuantizerFastScan(D, 5, 4, metric, norm),
        "lsq": faiss.IndexLocalSearchQuantizerFastScan(D, 3, 4, metric, norm),
    }


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("kind", ["pq", "rq", "lsq"])
def test_codes_of_fast_scan_are_unblocked(data, metric, kind):
    X = data[0][:1001]
    theirs = fast_scans(faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2)[kind]
    theirs.train(X)
    assert len(cc.Index.from_faiss(theirs)) == 0
    theirs.add(X)
    ours = cc.Index.from_faiss(theirs)
    assert ours.bytes_per_vector - (5 if metric == "l2" else 0) == -(-ours.codes.shape[1] // 2)
    np.testing.assert_allclose(ours.reconstruct(ours.ids), theirs.sa_decode(theirs.sa_encode(X)), rtol=1e-4, atol=1e-5)


def test_what_is_not_a_sum_of_codewords_is_refused(data):
    X, _ = data
    with pytest.raises(TypeError, match="IndexFlat"):
        cc.Index.from_faiss(faiss.IndexFlatIP(D))
    for factory, advice in [
        ("Flat", r"IndexFlat.*reconstruct_n\(\)"),
        ("IVF4,Flat", "IndexIVFFlat.*make_direct_map"),
        ("IVF4,PQ4x4", "IndexIVFPQ.*the original vectors are better"),
        ("HNSW8,Flat", r"IndexHNSWFlat.*over an IndexFlat.*downcast_index\(index.storage\)"),
        ("SQ8", "IndexScalarQuantizer.*reconstruct_n"),
        ("PQ4x4,RFlat", "IndexRefine.*base_index"),
        ("LSH", "IndexLSH: want IndexPQ"),
    ]:
        other = faiss.index_factory(D, factory)
        other.train(X)
        with pytest.raises(TypeError, match=advice):
            cc.Index.from_faiss(other)
    with pytest.raises(TypeError, match="want a faiss index"):
        cc.Index.from_faiss(X)
    with pytest.raises(ValueError, match="not trained"):
        cc.Index.from_faiss(faiss.IndexPQ(D, 4, 8))
    large = faiss.IndexPQ(D, 2, 10)
    large.train(X)
    with pytest.raises(ValueError, match="10 bits"):
        cc.Index.from_faiss(large)
