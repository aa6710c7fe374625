"""Training, encoding and searching on Dask, with a cluster of two processes and without one."""

import numpy as np
import pytest

import compcodes as cc

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

RNG = np.random.default_rng(0)
WORDS = RNG.normal(size=(60, 12)) * 20
BYTES = (RNG.integers(0, 60, 8_000)[:, None] == np.arange(60)) @ WORDS + RNG.normal(size=(8_000, 12)) * 6
BYTES = (BYTES + 128).clip(0, 255).astype(np.uint8)
FLOATS = (BYTES / 37 + RNG.normal(size=BYTES.shape) / 10).astype(np.float32)  # no scores tie
SMALL = {"n_codebooks": 3, "n_codewords": 16, "effort": "low", "max_iter": 2, "anneal": 3}


@pytest.fixture(scope="module")
def client():
    with (
        # Whatever workers hold is written to disk at once, and read when it is needed.
        dask.config.set({"distributed.worker.memory.target": 1e-6, "distributed.worker.memory.spill": 1e-6}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GB"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def blocks(X, *ends):
    """Delayed blocks of rows up to each of `ends`."""
    return [dask.delayed(block) for block in np.split(X, ends)]


PARTITIONS = [(), (4_000,), (0, 1, 1, 3000, 3001, 7_000)]


QUERIES = {"queries": FLOATS[::200]}
WEIGHTS = {"sample_weight": RNG.random(8_000)}
SOME = {"sample_weight": np.where(np.arange(8_000) < 3500, 0, WEIGHTS["sample_weight"])}


@pytest.mark.parametrize("ends", PARTITIONS[1:])
@pytest.mark.parametrize(
    ("parameters", "given"),
    [
        ({"loss": "reconstruction"}, WEIGHTS),
        ({"loss": cc.InnerProduct(2.0, 1.0, metric=0.5, demand=0.5)}, QUERIES),
        ({"loss": cc.InnerProduct(2.0, 0.0), "metric": "cosine", "selection": "m-combination"}, {}),
        ({"loss": cc.InnerProduct(2.0, 1.0), "max_train": 2000}, WEIGHTS),
        ({"loss": cc.InnerProduct(2.0, 1.0)}, SOME),
        ({"loss": cc.InnerProduct(2.0)}, {}),
    ],
    ids=["weights", "queries", "cosine", "sample", "some", "chosen"],
)
def test_blocks_in_this_process_give_the_codebooks_of_the_whole(parameters, given, ends):
    for steps in ({"anneal": 0, "max_iter": 1}, {"anneal": 1, "max_iter": 0}):
        model = cc.CompositionalCodes(**SMALL | steps | parameters)
        local = model.fit(FLOATS, **given)
        codebooks, history, loss = local.codebooks_, local.history_, local.loss_
        model.fit(blocks(FLOATS, *ends), **given)
        assert model.loss_ == loss
        assert [entry["vectors"] for entry in model.history_] == [entry["vectors"] for entry in history]
        # Sums of float64 in another order. Many iterations would part: where a codeword is rounded to another float32,
        # a code may change, and with it all that follows.
        objectives = [[entry["objective"] for entry in each] for each in (model.history_, history)]
        np.testing.assert_allclose(*objectives, rtol=2e-3)
        if steps["anneal"] == 0:
            np.testing.assert_allclose(model.codebooks_, codebooks, atol=1e-3)


def test_integers_give_the_same_bits_whatever_the_partition():
    model = cc.CompositionalCodes(**SMALL, loss="reconstruction")
    want = model.fit(BYTES).codebooks_
    for ends in PARTITIONS:
        np.testing.assert_array_equal(model.fit(blocks(BYTES, *ends)).codebooks_, want)


def test_sums_of_many_workers_are_added_in_a_tree(monkeypatch):
    from compcodes.training import spread

    monkeypatch.setattr(spread, "FAN", 2)
    monkeypatch.setattr(spread.Here, "places", lambda _: [None] * 7)
    for loss in ("reconstruction", cc.InnerProduct(2.0, 0.0)):
        model = cc.CompositionalCodes(**SMALL | {"anneal": 0, "max_iter": 1}, loss=loss)
        want = model.fit(BYTES).codebooks_
        found = model.fit(blocks(BYTES, *range(500, 8000, 500))).codebooks_
        if loss == "reconstruction":
            np.testing.assert_array_equal(found, want)
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3)


def test_a_cluster_gives_the_same_bits_too(client):
    model = cc.CompositionalCodes(**SMALL, loss="reconstruction")
    want = model.fit(BYTES).codebooks_
    chunked = da.from_array(BYTES, chunks=((3000, 1, 0, 2000, 2999), (5, 7)))
    seen = []
    model.fit(chunked, progress=lambda *at: seen.append(at))
    np.testing.assert_array_equal(model.codebooks_, want)
    assert seen[-1][1] <= seen[-1][2] and {stage for stage, _, _ in seen} == {"fit"}
    model.set_params(max_train=3000)
    np.testing.assert_array_equal(model.fit(chunked).codebooks_, model.fit(BYTES).codebooks_)


def test_wrong_rows_are_named_by_their_number_in_the_whole(client):
    wrong = FLOATS.copy()
    wrong[7_003, 4] = np.nan
    model = cc.CompositionalCodes(**SMALL)
    for X in (blocks(wrong, 4, 5000), da.from_array(wrong, chunks=(3000, 12))):
        with pytest.raises(ValueError, match="X row 7003 holds NaN"):
            model.fit(X)
    assert not hasattr(model, "codebooks_")
    with pytest.raises(ValueError, match="5 and 12 dimensions"):
        model.fit([dask.delayed(FLOATS[:10]), dask.delayed(FLOATS[:10, :5])])
    with pytest.raises(ValueError, match="no rows"):
        model.fit([dask.delayed(FLOATS[:0])])
    with pytest.raises(ValueError, match="want \\(n, d\\)"):
        model.fit(da.zeros((5,)))
    with pytest.raises(ValueError, match="sample_weight has shape"):
        model.fit(da.from_array(FLOATS), sample_weight=np.ones(5))


def test_encoding_is_lazy_and_the_same(client):
    model = cc.CompositionalCodes(**SMALL).fit(FLOATS)
    want = model.encode(FLOATS)
    X = da.from_array(FLOATS, chunks=((3000, 1, 0, 2000, 2999), (5, 7)))
    codes = model.encode(X)
    assert isinstance(codes, da.Array) and codes.dtype == np.uint8 and codes.chunks == (X.chunks[0], (3,))
    np.testing.assert_array_equal(codes.compute(), want)
    np.testing.assert_array_equal(model.encode(X[X[:, 0] > 0]).compute(scheduler="sync"), want[FLOATS[:, 0] > 0])
    listed = cc.CompositionalCodes(**SMALL, n_lists=5).fit(FLOATS)
    np.testing.assert_array_equal(listed.encode(X).compute(), listed.encode(FLOATS))
    with pytest.raises(ValueError, match="lists cannot be given for a dask array"):
        listed.encode(X, lists=listed.assign(FLOATS))
    product = cc.ProductQuantizer(3, 16).fit(FLOATS)
    np.testing.assert_array_equal(product.encode(X).compute(), product.encode(FLOATS))
    wrong = FLOATS.copy()
    wrong[5000, 1] = np.inf
    with pytest.raises(ValueError, match="X row 5000 holds"):
        model.encode(da.from_array(wrong, chunks=(3000, 12))).compute()
    with pytest.raises(ValueError, match="9 dimensions, the model has 12"):
        model.encode(X[:, :9])


@pytest.mark.parametrize("ends", PARTITIONS[1:])
@pytest.mark.parametrize(
    ("parameters", "given"),
    [
        ({"loss": "reconstruction", "metric": "l2"}, {}),
        ({"loss": cc.InnerProduct(2.0, 1.0)}, WEIGHTS),
        ({"loss": cc.InnerProduct(2.0, 1.0)}, SOME),
        ({"loss": cc.InnerProduct(2.0, 0.0), "metric": "cosine"}, {}),
        ({"loss": cc.InnerProduct(2.0, 1.0, metric=0.5, demand=0.5), "max_train": 2000}, QUERIES),
    ],
    ids=["l2", "weights", "some", "cosine", "sample"],
)
def test_lists_of_blocks_are_those_of_the_whole(parameters, given, ends):
    model = cc.CompositionalCodes(**SMALL | {"anneal": 0, "max_iter": 1, "n_lists": 20} | parameters)
    local = model.fit(FLOATS, **given)
    codebooks, objectives = local.codebooks_, [entry["objective"] for entry in local.history_]
    lists, state = local.assign(FLOATS), local._lists.__reduce__()[1]
    model.fit(blocks(FLOATS, *ends), **given)
    np.testing.assert_array_equal(model.assign(FLOATS), lists)
    for found, want in zip(model._lists.__reduce__()[1], state, strict=True):  # centroids, shares, reach: to the bit
        np.testing.assert_array_equal(found, want)
    np.testing.assert_allclose([entry["objective"] for entry in model.history_], objectives, rtol=2e-3)
    np.testing.assert_allclose(model.codebooks_, codebooks, atol=1e-3)


def test_lists_are_trained_on_a_cluster(client):
    model = cc.CompositionalCodes(**SMALL | {"max_train": 3000}, loss="reconstruction", list_size=300)
    want = model.fit(BYTES).codebooks_
    centroids = model.centroids_
    model.fit(da.from_array(BYTES, chunks=((3000, 1, 0, 2000, 2999), (5, 7))))
    np.testing.assert_array_equal(model.centroids_, centroids)
    np.testing.assert_allclose(model.codebooks_, want, atol=0.5)  # of residuals, whose sums are rounded
    assert len(centroids) == 27 and model.history_[-1]["vectors"] == 3000


def test_a_cluster_tries_losses_and_chooses_the_same(client):
    model = cc.CompositionalCodes(**SMALL | {"anneal": 0, "max_iter": 1})
    want, seen = model.fit(FLOATS, queries=FLOATS[::50]).loss_, []
    model.fit(da.from_array(FLOATS, chunks=(3000, 12)), queries=FLOATS[::50], progress=lambda *at: seen.append(at))
    assert model.loss_ == want
    assert len([stage for stage, _, _ in seen if stage == "choose loss"]) > 3


def test_masked_blocks_are_refused():
    X = np.random.default_rng(0).normal(size=(300, 7)).astype(np.float32)
    D = da.ma.masked_greater(da.from_array(X, chunks=(100, 7)), 1)
    m = cc.CompositionalCodes(3, 8, effort="low", anneal=0, max_iter=1).fit(X)
    for work in (lambda: m.encode(D).compute(), lambda: cc.CompositionalCodes(3, 8, anneal=0, max_iter=1).fit(D)):
        with pytest.raises(TypeError, match="masked"):
            work()
