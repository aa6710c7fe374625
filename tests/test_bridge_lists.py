"""Inverted files of faiss, taken over with their lists; and models of whole vectors in lists, as some of them are."""

import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes.interop import _faiss_lists
from conftest import vectors

faiss = pytest.importorskip("faiss")
D, N_LISTS = 16, 12
METRICS = {"ip": faiss.METRIC_INNER_PRODUCT, "l2": faiss.METRIC_L2}


@pytest.fixture(scope="module")
def data():
    """Clouds of unequal sizes, so that lists are too."""
    centers = 2 * vectors(6, D, seed=5)
    X = vectors(1500, D) + centers[np.arange(1500) ** 2 % 6]
    return X, vectors(20, D, seed=1) + centers[np.arange(20) % 6]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Training on so few vectors takes longer with many."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


def trained(X, factory, metric, by_residual=None):
    index = faiss.index_factory(D, factory, METRICS[metric])
    within = inner(index)
    if by_residual is not None:
        within.by_residual = by_residual
    if "OPQ" in factory:
        faiss.downcast_VectorTransform(index.chain.at(0)).niter = 3
    index.train(X)
    if "HNSW" in factory:
        faiss.downcast_index(within.quantizer).hnsw.efSearch = 4 * N_LISTS  # finds the nearest centroids, as ours does
    return index


def inner(index):
    return faiss.downcast_index(faiss.try_extract_index_ivf(faiss.downcast_index(index)))


def assert_same(theirs, ours, Q, k, n_probe):
    inner(theirs).nprobe = n_probe
    want_scores, want_ids = theirs.search(Q, k)
    scores, ids = ours.search(Q, k, n_probe=n_probe)
    found = want_ids >= 0  # ours goes on to more lists where these hold fewer than k
    want_scores = np.where(found, -want_scores if ours.metric == "l2" else want_scores, scores)
    np.testing.assert_allclose(scores, want_scores, rtol=1e-4, atol=1e-4)
    for row, want, own in zip(ids, want_ids, scores, strict=True):
        for one in want[(want >= 0) & ~np.isin(want, row)]:  # equal codes, of which the other one was kept
            assert np.isclose(own, own[-1], rtol=1e-4, atol=1e-4)[want == one].all()


FACTORIES = [
    ("IVF12,PQ8x4", True),
    ("IVF12,PQ8x4", False),
    ("IVF12,PQ4x6", True),
    ("IVF12,RQ4x4_Nfloat", True),
    ("IVF12,RQ4x4_Nfloat", False),
    ("IVF12,LSQ3x4_Nfloat", True),
    ("IVF12,PRQ2x2x5_Nfloat", True),
    ("IVF12,PLSQ2x2x4_Nfloat", True),
    ("IVF12_HNSW,PQ8x4", True),
    ("OPQ4,IVF12,PQ4x4", True),
    ("OPQ4,IVF12,PQ4x4", False),
]


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize(("factory", "by_residual"), FACTORIES)
def test_any_number_of_lists_gives_what_faiss_finds_in_them(data, factory, by_residual, metric):
    X, Q = data
    theirs = trained(X, factory, metric, by_residual)
    theirs.add(X)
    ours = cc.Index.from_faiss(theirs)
    assert (len(ours), ours.metric, ours.quantizer.centroids_.shape) == (len(X), metric, (N_LISTS, D))
    sizes = [inner(theirs).invlists.list_size(i) for i in range(N_LISTS)]
    assert ours.list_sizes.tolist() == sizes and max(sizes) > 2 * min(sizes) and ours.drift < 1e-6
    for n_probe in (1, 4, N_LISTS):
        assert_same(theirs, ours, Q, 10, n_probe)
    np.testing.assert_array_equal(ours.ids, np.arange(len(X)))


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize(
    "factory", ["PQ8x4fs", "PQ8x4fsr", "PQ8x4fs_64", "PQ4x4fsr_96", "RQ3x4fs", "RQ3x4fsr", "LSQ3x4fsr", "PRQ2x2x4fs"]
)
def test_codes_of_fast_scan_lists_are_unblocked(data, factory, metric):
    X, _ = data
    norms = "" if metric == "ip" or factory.startswith("PQ") else "_32_Nrq2x4"
    theirs = trained(X, f"IVF12,{factory}{norms}", metric)
    assert len(cc.Index.from_faiss(theirs)) == 0
    theirs.add(X[:1001])
    ours = cc.Index.from_faiss(theirs)
    assert ours.quantizer._lists.by_residual == ("fsr" in factory) == theirs.by_residual
    assert ours.bytes_per_vector - (5 if metric == "l2" else 0) == -(-ours.codes.shape[1] // 2) + 4
    lists = theirs.quantizer.search(X[:1001], 1)[1][:, 0]
    np.testing.assert_array_equal(ours.lists, lists)
    own = getattr(theirs, "pq", None) or theirs.aq
    base = theirs.quantizer.reconstruct_n(0, N_LISTS)[lists] * theirs.by_residual
    want = base + own.decode(own.compute_codes(X[:1001] - base))
    np.testing.assert_allclose(ours.reconstruct(ours.ids), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by_residual", [True, False])
def test_files_and_changes_keep_the_lists(data, by_residual, tmp_path):
    X, Q = data
    theirs = trained(X, "IVF12,PQ8x4", "l2", by_residual)
    theirs.add(X[:1000])
    ours = cc.Index.from_faiss(theirs)
    ours.save(tmp_path / "index.cc")
    copies = [cc.Index.load(tmp_path / "index.cc", mmap=mmap) for mmap in (False, True)]
    for copy in [*copies, pickle.loads(pickle.dumps(ours))]:
        assert copy.quantizer._lists.by_residual == by_residual
        for n_probe in (3, N_LISTS):
            np.testing.assert_array_equal(copy.search(Q, 10, n_probe=n_probe), ours.search(Q, 10, n_probe=n_probe))
        copy.add(X[1000:])
        copy.remove(np.arange(0, 1500, 7))
        copy.update(X[:3], [1, 2, 3])
        assert (len(copy), copy.list_sizes.sum()) == (1285, 1285)
        # Into the list of the nearest centroid, and no worse than faiss' own codes of the same vectors.
        added = np.setdiff1d(np.arange(1000, 1500), np.arange(0, 1500, 7))
        at = np.searchsorted(copy.ids, added)
        np.testing.assert_array_equal(copy.lists[at], theirs.quantizer.search(X[added], 1)[1][:, 0])
        off = ((X[added] - copy.reconstruct(added)) ** 2).sum()
        assert off <= 1.001 * ((X[added] - theirs.sa_decode(theirs.sa_encode(X[added]))) ** 2).sum()
        assert copy.search(X[added], 1, n_probe=1)[1].shape == (len(added), 1)
    assert len(ours.merge(cc.Index.from_faiss(theirs))) == 2000


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_removed_and_given_ids_and_empty_lists_are_as_in_faiss(data, metric):
    X, Q = data
    theirs = trained(X, "IVF40,PQ4x4", metric)
    ids = np.random.default_rng(2).permutation(len(X)) * 3 + 2**33
    theirs.add_with_ids(X, ids)
    theirs.remove_ids(ids[:500])
    full = theirs.quantizer.search(X[700:701], 1)[1][0, 0]
    one = faiss.rev_swig_ptr(theirs.invlists.get_ids(int(full)), theirs.invlists.list_size(int(full))).copy()
    theirs.remove_ids(one)
    ours = cc.Index.from_faiss(theirs)
    assert ours.list_sizes[full] == 0
    np.testing.assert_array_equal(ours.ids, np.sort(np.setdiff1d(ids[500:], one)))
    for n_probe in (2, 40):
        assert_same(theirs, ours, Q, 10, n_probe)


def test_ids_of_a_map_around_an_inverted_file_are_taken(data):
    X, Q = data
    theirs = trained(X, "IDMap,IVF12,PQ4x4", "ip")
    theirs.add_with_ids(X, np.arange(len(X)) * 2 + 7)
    ours = cc.Index.from_faiss(theirs)
    np.testing.assert_array_equal(ours.ids, np.arange(len(X)) * 2 + 7)
    assert_same(theirs, ours, Q, 10, 5)
    theirs.index.add(X[:2])  # past the map
    with pytest.raises(ValueError, match="it names 1500 vectors, and the index within has others"):
        cc.Index.from_faiss(theirs)


@pytest.mark.parametrize("factory", ["IVF12,PQ8x4", "IVF12,PQ8x4fs"])
def test_none_and_one_vector(data, factory):
    X, Q = data
    theirs = trained(X, factory, "ip")
    empty = cc.Index.from_faiss(theirs)
    assert len(empty) == 0 and empty.search(Q, 2)[1].max() == -1
    theirs.add(X[:1])
    ours = cc.Index.from_faiss(theirs)
    assert ours.search(Q, 2)[1].tolist() == [[0, -1]] * len(Q)
    assert len(empty.add(X)) == len(X)


def test_a_search_goes_through_as_many_lists_as_that_of_faiss(data):
    X, Q = data
    theirs = trained(X, "IVF12,PQ8x4", "l2")
    theirs.add(X)
    for nprobe, want in ((1, 1), (5, 5), (12, 12), (99, 12)):
        theirs.nprobe = nprobe
        ours = cc.Index.from_faiss(theirs)
        np.testing.assert_array_equal(ours.search(Q, 5), ours.search(Q, 5, n_probe=want))
        np.testing.assert_array_equal(ours.search(Q, 5, recall=0.99), ours.search(Q, 5, n_probe=12))


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_centroids_of_another_metric_are_compared_at_all_lists(data, metric):
    X, Q = data
    quantizer, coarse = (faiss.IndexFlatL2(D), "l2") if metric == "ip" else (faiss.IndexFlatIP(D), "ip")
    theirs = faiss.IndexIVFPQ(quantizer, D, N_LISTS, 4, 4, METRICS[metric])
    theirs.train(X)
    theirs.add(X)
    with pytest.warns(
        UserWarning, match=f"has the metric '{coarse}', the index itself '{metric}': .* other ones"
    ) as told:
        ours = cc.Index.from_faiss(theirs)
    assert [warning.filename for warning in told] == [__file__]
    assert_same(theirs, ours, Q, 10, N_LISTS)


def test_tens_of_thousands_of_lists():
    centroids = vectors(65_536, 4)
    quantizer = faiss.IndexFlatL2(4)
    quantizer.add(centroids)
    theirs = faiss.IndexIVFPQ(quantizer, 4, len(centroids), 2, 4)
    X = vectors(400, 4, seed=3)
    theirs.train(X)
    theirs.add(X)
    ours = cc.Index.from_faiss(theirs)
    assert (ours.list_sizes > 0).sum() < 400 == len(ours)
    theirs.nprobe = 300
    scores, _ = theirs.search(X[:5], 3)
    np.testing.assert_allclose(ours.search(X[:5], 3, n_probe=300)[0], -scores, rtol=1e-4, atol=1e-4)


def test_what_lists_cannot_express_is_refused(data, monkeypatch):
    X, _ = data
    theirs = trained(X, "IVF12,PQ8x4", "ip")
    theirs.add_with_ids(X[:3], np.array([4, 9, 4]))
    with pytest.raises(ValueError, match="IndexIVFPQ: its ids hold 4 twice; .*cc.Index"):
        cc.Index.from_faiss(theirs)
    theirs.reset()
    theirs.add_with_ids(X[:2], np.array([4, -9]))
    with pytest.raises(ValueError, match="IndexIVFPQ: its ids hold -9"):
        cc.Index.from_faiss(theirs)
    monkeypatch.setattr(_faiss_lists, "_MOST", 11)
    with pytest.raises(ValueError, match="it has 12 lists: want at most 11"):
        cc.Index.from_faiss(theirs)
    quantizer = faiss.IndexLSH(D, 8)
    lsh = faiss.IndexIVFPQ(quantizer, D, 8, 4, 4)
    lsh.is_trained = True
    with pytest.raises(TypeError, match="its lists are those of a IndexLSH, without centroids"):
        cc.Index.from_faiss(lsh)


@pytest.fixture(scope="module")
def whole(data):
    """A model whose lists choose, and are no part of approximations; and the same without lists."""
    X, _ = data
    flat = cc.CompositionalCodes(4, 16, effort="low", random_state=0, loss="reconstruction").fit(X)
    centroids = X[::100] + np.float32(0.5)
    return cc.CompositionalCodes.from_codebooks(flat.codebooks_, centroids=centroids, by_residual=False), flat


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
@pytest.mark.filterwarnings("ignore::compcodes.index.MetricWarning")
def test_all_lists_of_whole_vectors_are_an_index_without_lists(data, whole, metric):
    X, Q = data
    model, flat = whole
    codes, lists = flat.encode(X), model.assign(X)
    divided = cc.Index(model, metric).add_codes(codes, lists=lists)
    plain = cc.Index(flat, metric).add_codes(codes)
    np.testing.assert_array_equal(model.decode(codes, lists), flat.decode(codes))
    np.testing.assert_array_equal(divided.reconstruct(divided.ids), flat.decode(codes))
    np.testing.assert_array_equal(divided.search(Q, 20, recall=1), plain.search(Q, 20))
    # The lists that centroids choose, and only those.
    centroids = model.centroids_.astype(np.float64)
    rank = Q @ centroids.T - (metric == "l2") * (centroids**2).sum(1) / 2
    for i, best in enumerate(np.argsort(-rank, axis=1)[:, :3]):
        want = plain.search(Q[i], 20, filter=np.isin(lists, best))
        np.testing.assert_array_equal(divided.search(Q[i], 20, n_probe=3), want)


def test_models_of_whole_vectors_encode_and_learn_them(data, whole, tmp_path):
    X, _ = data
    model, flat = whole
    plain = cc.CompositionalCodes.from_codebooks(flat.codebooks_)
    np.testing.assert_array_equal(model.encode(X), plain.encode(X))
    assert model.score(X) == plain.score(X)
    np.testing.assert_array_equal(model.error_bound(X), plain.error_bound(X))
    model.save(tmp_path / "model.cc")
    loaded = cc.CompositionalCodes.load(tmp_path / "model.cc")
    assert not loaded._lists.by_residual and not pickle.loads(pickle.dumps(model))._lists.by_residual
    np.testing.assert_array_equal(loaded.encode(X), model.encode(X))
    np.testing.assert_array_equal(loaded.partial_fit(X).codebooks_, plain.partial_fit(X).codebooks_)
    residual = cc.CompositionalCodes.from_codebooks(flat.codebooks_, centroids=model.centroids_)
    with pytest.raises(ValueError, match="different models"):
        cc.Index(model).add(X).merge(cc.Index(residual).add(X))
    shards = cc.ShardedIndex.create(tmp_path / "shards", model)
    cc.Index(residual).add(X).save(tmp_path / "other.cc")
    with pytest.raises(ValueError, match="other"):
        shards.add_shard(tmp_path / "other.cc")


def test_the_order_of_ids_of_ones_own_is_not_known(data):
    """Rows of `rerank` in the order of adding would be taken for those of other vectors."""
    X, Q = data
    theirs = trained(X, f"IVF{N_LISTS},PQ8", "ip")
    ids = np.random.default_rng(3).permutation(9000)[: len(X)]
    theirs.add_with_ids(X, ids)
    ours = cc.Index.from_faiss(theirs)
    assert ours.ids.tolist() == sorted(ids)
    with pytest.raises(ValueError, match="rerank needs rerank_ids"):
        ours.search(Q, 3, rerank=X)
    best = ids[(Q @ X.T).argmax(axis=1)]
    found = ours.search(Q, 1, rerank=X, rerank_ids=ids, n_candidates=500, n_probe=N_LISTS)[1][:, 0]
    assert (found == best).mean() >= 0.9
    assert_same(theirs, ours, Q, 5, N_LISTS)


@pytest.mark.parametrize("factory", ["PQ8", f"IVF{N_LISTS},PQ8"])
def test_an_index_of_the_model_adopts_the_metric(data, factory, tmp_path):
    X, Q = data
    theirs = faiss.index_factory(D, factory, faiss.METRIC_L2)
    theirs.train(X)
    theirs.add(X)
    ours = cc.Index.from_faiss(theirs)
    other = cc.Index(ours.quantizer).add(X)
    assert other.metric == "l2"
    np.testing.assert_array_equal(other.search(Q, 5)[1], ours.search(Q, 5)[1])
    ours.save(tmp_path / "index.cc")
    assert cc.Index.load(tmp_path / "index.cc").quantizer.metric_ == "l2"
