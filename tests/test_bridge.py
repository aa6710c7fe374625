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


@pytest.mark.parametrize("bbs", [32, 64, 96, 128])
@pytest.mark.parametrize("M", [1, 7, 8])
def test_blocks_of_any_size_are_unblocked(bbs, M):
    theirs = faiss.IndexPQFastScan(2 * M, M, 4, faiss.METRIC_L2, bbs)
    faiss.copy_array_to_vector(vectors(16 * M, 2).ravel(), theirs.pq.centroids)
    theirs.is_trained = True
    for n in (1, 64, 333):
        X = vectors(n, 2 * M, seed=n)
        theirs.reset()
        theirs.add(X)
        packed = theirs.pq.compute_codes(X)
        codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(n, -1)[:, :M]
        np.testing.assert_array_equal(cc.Index.from_faiss(theirs).codes, codes)


def indexed(X, factory, metric=faiss.METRIC_L2):
    index = faiss.index_factory(D, factory, metric)
    index.train(X)
    if factory.startswith("IDMap"):
        index.add_with_ids(X, np.arange(len(X)) * 2 + 7)
    else:
        index.add(X)
    return index


@pytest.mark.parametrize("factory", ["PRQ2x2x5", "PLSQ2x2x4", "IDMap,PRQ2x2x5"])
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
def test_additive_codes_of_subspaces_are_taken(data, factory, metric):
    X = data[0][:900]
    theirs = indexed(X, factory, metric)
    ours = cc.Index.from_faiss(theirs)
    inner = faiss.downcast_index(theirs.index) if "IDMap" in factory else theirs
    assert ours.codes.shape == (900, 4)
    np.testing.assert_allclose(ours.reconstruct(ours.ids), inner.sa_decode(inner.sa_encode(X)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("factory", "why", "exact"),
    [
        ("Flat", "IndexFlat: it holds vectors, not codes", True),
        ("IDMap,Flat", "IndexIDMap: it holds vectors, not codes", True),
        ("IDMap2,Flat", "IndexIDMap2: it holds vectors", True),
        ("HNSW8,Flat", "IndexHNSWFlat: a graph over an IndexFlat", True),
        ("HNSW8,SQ8", "IndexHNSWSQ: a graph over an IndexScalarQuantizer", False),
        ("NSG8,Flat", "IndexNSGFlat: a graph over an IndexFlat", True),
        ("IVF4,Flat", "IndexIVFFlat: it holds vectors in lists", True),
        ("IDMap,IVF4,Flat", "IndexIDMap: it holds vectors in lists", True),
        ("IVF4,PQ4+4", "IndexIVFPQR: its codes are refined by those of a second product quantizer", False),
        ("IVF4,SQ8", "IndexIVFScalarQuantizer: its codes are no codewords", False),
        ("IVF4,PQ1x9", "IndexIVFPQ: its codes have 9 bits", False),
        ("OPQ4,IVF4,SQ8", "IndexPreTransform: its codes are no codewords", False),
        ("PCA8,IVF4,PQ4x4", "IndexPreTransform: vectors go through a PCAMatrix with a bias", False),
        ("PCA8,Flat", "IndexPreTransform: it holds vectors", False),
        ("PCA8,PQ4x4", "IndexPreTransform: vectors go through a PCAMatrix with a bias", False),
        ("L2norm,PQ4x4", "IndexPreTransform: vectors go through a NormalizationTransform, which is not linear", False),
        ("SQ8", "IndexScalarQuantizer: its codes are no codewords", False),
        ("IVF4,Flat,RFlat", "IndexRefineFlat: two indexes in one", True),
        ("LSH", "IndexLSH: its codes are no sums of codewords", False),
        ("PQ1x9", "IndexPQ: its codes have 9 bits", False),
    ],
)
def test_one_refusal_says_what_to_call_and_calling_it_works(data, factory, why, exact):
    X = data[0][:1100]
    theirs = indexed(X, factory)
    with pytest.raises((TypeError, ValueError), match=why) as refused:
        cc.Index.from_faiss(theirs)
    message = str(refused.value)
    code = message[message.index("X = ") if "X = " in message else message.index("q = ") :]
    assert ("original vectors" in message) == (not exact)
    assert 'metric="l2"' in code and ("n_lists=4" in code) == ("IVF4" in factory)
    made = {"cc": cc, "faiss": faiss, "index": theirs, "X": X}
    code = code.replace(
        "CompositionalCodes(n_codebooks=8", "CompositionalCodes(n_codebooks=2, n_codewords=4, max_iter=0"
    )
    exec(code, made)
    if exact:
        np.testing.assert_allclose(made["X"], X, rtol=1e-4, atol=1e-5)
    else:
        assert ((made["X"] - X) ** 2).sum() < (X**2).sum() or factory == "L2norm,PQ4x4"
    assert len(made["new"]) == len(X)
    assert made["new"].ids[:2].tolist() == ([7, 9] if "IDMap" in factory else [0, 1])


@pytest.mark.parametrize("factory", ["HNSW8,PQ4x8", "PQ4x4,RFlat", "IVF4,PQ4x4,RFlat", "IVF4,Flat"])
def test_what_holds_codes_and_more_is_opened_by_the_call_that_is_named(data, factory):
    X = data[0][:1100]
    theirs = indexed(X, factory, faiss.METRIC_INNER_PRODUCT)
    if factory == "IVF4,Flat":  # ids of its own: not what reconstruct_n can return
        theirs.reset()
        theirs.add_with_ids(X, np.arange(len(X)) + 5)
    with pytest.raises(TypeError) as refused:
        cc.Index.from_faiss(theirs)
    message = str(refused.value)
    assert 'metric="l2"' not in message
    if factory == "IVF4,Flat":
        assert "on the original vectors X and the ids that you gave them: q = " in message
        assert message.endswith("cc.Index(q).add(X, ids=ids)") and "reconstruct_n" not in message
        return
    call = message[message.index("cc.Index.from_faiss") :].split(", and give")[0]
    new = eval(call, {"cc": cc, "faiss": faiss, "index": theirs})
    # The factory gives HNSW over PQ the metric L2, whatever it is asked for.
    assert (len(new), new.metric) == (len(X), "ip" if theirs.metric_type == faiss.METRIC_INNER_PRODUCT else "l2")


def test_advice_for_what_holds_no_vectors_or_few(data):
    X = data[0]
    for empty in (faiss.IndexFlat(D), indexed(X[:1100], "IVF4,Flat")):
        empty.reset()
        with pytest.raises(TypeError, match="on the original vectors X: q = ") as refused:
            cc.Index.from_faiss(empty)
        assert "reconstruct_n" not in str(refused.value)
    few = indexed(X[:1100], "IVF32,Flat")
    few.reset()
    few.add(X[:10])
    with pytest.raises(TypeError, match="n_lists=10"):
        cc.Index.from_faiss(few)


def test_what_cannot_reconstruct_is_not_asked_to(data):
    X = data[0][:1100]
    shards, parts = faiss.IndexShards(D), [faiss.IndexPQ(D, 4, 4) for _ in range(2)]
    for part in parts:
        shards.add_shard(part)
    shards.train(X)
    shards.add(X)
    with pytest.raises(TypeError, match="IndexShards: .* on the original vectors X: q = "):
        cc.Index.from_faiss(shards)


def test_what_is_no_trained_faiss_index_is_refused(data):
    X, _ = data
    with pytest.raises(TypeError, match="want a faiss index"):
        cc.Index.from_faiss(X)
    with pytest.raises(TypeError, match="IndexBinaryFlat: it holds bits.*RandomHyperplaneHash"):
        cc.Index.from_faiss(faiss.IndexBinaryFlat(16))
    for factory in ("PQ4", "IVF4,Flat", "OPQ4,PQ4"):
        with pytest.raises(ValueError, match=r"not trained: call index.train\(X\) and index.add\(X\) first$"):
            cc.Index.from_faiss(faiss.index_factory(D, factory))
