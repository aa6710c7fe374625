"""Lists: training, searching a part, and the model around them. `test_stateful.py` runs on divided indexes too."""

import copy
import json
import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from compcodes.training.losses import Objective
from compcodes.training.shards import Base, Local
from compcodes.training.trainer import Trainer
from plain import table_sums

SMALL = {"n_codebooks": 3, "n_codewords": 16, "effort": "low", "n_jobs": 2}


def clusters(n=3000, d=12, seed=0, spread=0.4):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(40, d)) * 2
    return (centers[rng.integers(40, size=n)] + spread * rng.normal(size=(n, d))).astype(np.float32)


@pytest.fixture(scope="module")
def X():
    return clusters()


@pytest.fixture(scope="module")
def model(X):
    return cc.CompositionalCodes(n_lists=30, **SMALL).fit(X)


@pytest.fixture(scope="module")
def index(X, model):
    return cc.Index(model).add(X)


# -- training


def test_lists_are_balanced_and_hold_what_is_near(X, model, index):
    sizes = index.list_sizes
    assert sizes.sum() == len(X) and sizes.max() <= 4 * sizes.mean()
    np.testing.assert_array_equal(index.lists, model.assign(X))
    np.testing.assert_array_equal(np.bincount(index.lists, minlength=30), sizes)
    assert index.drift < 1e-6
    off = ((X[:, None] - model.centroids_[None]) ** 2).sum(axis=2)
    if model._lists.eta == 1:
        assert (off.argmin(axis=1) == index.lists).mean() > 0.999


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
def test_lists_of_very_different_lengths(metric):
    rng = np.random.default_rng(3)
    X = clusters(seed=3) * rng.lognormal(0, 1, size=(3000, 1)).astype(np.float32)
    samples, Q = np.split(clusters(400, seed=4), 2)
    model = cc.CompositionalCodes(n_lists=25, metric=metric, **SMALL).fit(X, queries=samples)
    index = cc.Index(model).add(X)
    sizes = index.list_sizes
    assert sizes.max() <= 4 * sizes.mean()
    true = cc.evaluate.ground_truth(X, Q, 10, metric=metric)[1]
    everything = cc.evaluate.recall(index.search(Q, 10, n_probe=25)[1], true, 10, 10)
    found = cc.evaluate.recall(index.search(Q, 10)[1], true, 10, 10)
    assert found > 0.85 * everything


def test_codes_are_better_with_a_centroid(X, model):
    flat = cc.CompositionalCodes(**SMALL).fit(X)
    assert model.score(X) > flat.score(X)
    assert model.history_[-1]["objective"] <= model.history_[0]["objective"]


def test_training_counts_errors_along_the_vectors():
    """The update given the centroids is where the gradient of the loss of the whole vectors is 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)).astype(np.float32)
    centroids = rng.normal(size=(5, 6)).astype(np.float32)
    places = rng.integers(5, size=400)
    for directions in (None, np.array([[0.6, 0.8, 0, 0, 0, 0]], np.float32)):
        shards = Local(X, base=Base(centroids, places, eta=6.0))
        trainer = Trainer(shards, 2, 8, "group", 5, 1e-3, 1e-6, 0, objective=Objective(6.0, directions))
        codebooks = trainer.start("random")
        codes = trainer.encode(codebooks)
        for _ in range(12):
            codebooks = trainer.update(codebooks, codes)
        best = trainer.loss(codebooks, codes)
        assert best < trainer.loss(trainer.start("random"), codes)
        for _ in range(20):
            moved = codebooks + rng.normal(size=codebooks.shape).astype(np.float32) * 0.01
            assert trainer.loss(moved, codes) > best


def test_sizes_by_word_and_by_size(X):
    assert len(cc.CompositionalCodes(n_lists="auto", **SMALL).fit(X[:900]).centroids_) == 30
    assert len(cc.CompositionalCodes(list_size=100, **SMALL).fit(X[:900]).centroids_) == 9
    assert cc.CompositionalCodes(**SMALL).fit(X[:900]).centroids_ is None


def test_the_same_for_any_threads(X):
    one, two = (cc.CompositionalCodes(n_lists=20, **{**SMALL, "n_jobs": jobs}).fit(X[:1500]) for jobs in (1, 2))
    assert one.centroids_.tobytes() == two.centroids_.tobytes()
    assert one.codebooks_.tobytes() == two.codebooks_.tobytes()


def test_sample_queries_choose_the_reach(X):
    rng = np.random.default_rng(5)
    Q = rng.normal(size=(300, 12)).astype(np.float32)
    near = cc.CompositionalCodes(n_lists=40, **SMALL).fit(X)
    far = cc.CompositionalCodes(n_lists=40, **SMALL).fit(X, queries=Q)
    index = cc.Index(far).add(X)
    true = index.search(Q, 10, n_probe=40)[1]
    for recall in (0.8, 0.95):
        found = cc.evaluate.recall(index.search(Q, 10, recall=recall)[1], true, 10, 10)
        assert found > recall - 0.12
    assert near._lists.reach != far._lists.reach


@pytest.mark.parametrize("kind", ["duplicates", "few", "as many lists as vectors", "one list", "zeros"])
def test_odd_data_has_a_result(kind):
    rng = np.random.default_rng(0)
    X, n_lists = rng.normal(size=(200, 5)).astype(np.float32), 8
    if kind == "duplicates":
        X = np.repeat(X[:2], 100, axis=0)
    elif kind == "few":
        X = X[:10]
    elif kind == "as many lists as vectors":
        X, n_lists = X[:30], 30
    elif kind == "one list":
        n_lists = 1
    else:
        X = np.zeros_like(X)
    index = cc.Index(cc.CompositionalCodes(n_lists=n_lists, **SMALL).fit(X)).add(X)
    ids = index.search(X[:5], len(X))[1]
    assert index.list_sizes.sum() == len(X)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.broadcast_to(np.arange(len(X)), (5, len(X))))


def test_partial_fit_keeps_the_lists(X):
    model = cc.CompositionalCodes(n_lists=12, **SMALL).partial_fit(X[:1000])
    centroids = model.centroids_
    before = model.score(X[2000:])
    for first in (1000, 1500):
        model.partial_fit(X[first : first + 500])
    np.testing.assert_array_equal(model.centroids_, centroids)
    assert model.score(X[2000:]) > before * 1.2
    assert model.history_[-1]["vectors"] == 2000


# -- the model


def test_assign_encode_decode_belong_together(X, model):
    lists = model.assign(X)
    codes = model.encode(X, lists=lists)
    np.testing.assert_array_equal(codes, model.encode(X))
    decoded = model.decode(codes, lists)
    flat = cc.CompositionalCodes.from_codebooks(model.codebooks_)
    np.testing.assert_allclose(decoded, model.centroids_[lists] + flat.decode(codes), rtol=1e-4, atol=1e-4)
    batches = list(model.decode_batches(codes, 700, lists))
    np.testing.assert_array_equal(np.concatenate(batches), decoded)
    bounds = model.error_bound(X)
    off = np.linalg.norm(X.astype(np.float64) - decoded, axis=1)
    assert (bounds >= off).all() and (bounds <= off * (1 + 1e-6) + 1e-9).all()
    assert -model.score(X) == pytest.approx((off**2).mean())


def test_copies_and_files_keep_the_lists(X, model, tmp_path):
    model.save(tmp_path / "model.cc")
    for other in (
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        copy.copy(model),
        cc.CompositionalCodes.load(tmp_path / "model.cc"),
    ):
        np.testing.assert_array_equal(other.centroids_, model.centroids_)
        assert other._lists.reach == model._lists.reach and other._lists.eta == model._lists.eta
        assert other._lists.gaps == model._lists.gaps != []
        np.testing.assert_array_equal(other._lists.bonuses, model._lists.bonuses)
        np.testing.assert_array_equal(other.encode(X[:50]), model.encode(X[:50]))
        assert other.n_lists == 30


def version(path):
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["compcodes"])["version"], header


def test_only_files_with_lists_are_of_version_3(X, model, index, tmp_path):
    flat = cc.CompositionalCodes(**{**SMALL, "n_codewords": 32}).fit(X[:600])  # half bytes are of version 3 too
    for name, thing, want in [
        ("flat model", flat, 2),
        ("flat index", cc.Index(flat).add(X[:50]), 2),
        ("model", model, 3),
        ("index", index, 3),
    ]:
        thing.save(tmp_path / name)
        found, header = version(tmp_path / name)
        assert found == want
        assert ("centroids" in header) == (want == 3)
        assert "needs version" not in header["__metadata__"]
        assert ("n_lists" in header["__metadata__"]["parameters"]) == (want == 3)


# -- searching


def test_all_lists_are_a_search_of_all(X, model, index):
    """To the bit: the sums of tables from the product with the centroid on, ties to what was added first."""
    Q = X[::100]
    scores, ids = index.search(Q, 15, n_probe=30)
    sums = table_sums(Q, model.codebooks_, index.codes, model.centroids_[index.lists])
    order = np.argsort(-sums, axis=1, kind="stable")[:, :15]
    np.testing.assert_array_equal(ids, order)
    assert scores.tobytes() == np.take_along_axis(sums, order, axis=1).tobytes()
    again = index.search(Q, 15, recall=1)
    np.testing.assert_array_equal(again[1], ids)


def test_more_lists_find_more(X, index):
    Q = X[::30] + 0.1
    true = index.search(Q, 10, n_probe=30)[1]
    recalls = [cc.evaluate.recall(index.search(Q, 10, n_probe=n)[1], true, 10, 10) for n in (1, 2, 4, 8, 16, 30)]
    assert recalls == sorted(recalls) and recalls[-1] == 1
    assert cc.evaluate.recall(index.search(Q, 10)[1], true, 10, 10) > 0.9


def test_a_filter_widens_the_search(X, index):
    allowed = np.flatnonzero(index.lists == 7)[:20]
    Q = -X[allowed]  # whose best lists are others
    scores, ids = index.search(Q, 20, filter=allowed, n_probe=1)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.broadcast_to(np.sort(allowed), ids.shape))
    np.testing.assert_array_equal(ids, index.search(Q, 20, filter=allowed, n_probe=30)[1])
    assert np.isfinite(scores).all()


def test_reranking_is_of_the_lists_gone_through(X, index):
    Q = X[:40]
    few = index.search(Q, 5, rerank=X, n_probe=2)
    shortlist = index.search(Q, 50, n_probe=2)[1]
    want = np.take_along_axis(shortlist, np.argsort(-np.einsum("qd,qcd->qc", Q, X[shortlist]), axis=1), axis=1)
    np.testing.assert_array_equal(few[1], want[:, :5])
    by_id = index.search(Q, 5, rerank=lambda ids: X[ids], n_probe=2)
    np.testing.assert_array_equal(by_id[1], few[1])


@pytest.mark.isa
def test_any_batch_finds_the_same(X, index):
    Q = X[:300] * 0.9
    whole = index.search(Q, 7, n_probe=3)
    for size in (1, 70):
        parts = [index.search(Q[first : first + size], 7, n_probe=3) for first in range(0, 140, size)]
        for part, both in enumerate(zip(*parts, strict=True)):
            assert np.concatenate(both).tobytes() == whole[part][:140].tobytes()


def test_drift_tells_of_other_vectors(X, model):
    index = cc.Index(model)
    assert index.drift == 0
    index.add(X[::2])
    assert index.drift < 0.15
    index.add(np.repeat(X[:3], 2000, axis=0))
    assert index.drift > 0.4


def test_many_small_additions_are_one_large_one(X, model):
    whole, parts = cc.Index(model, "l2"), cc.Index(model, "l2")
    whole.add(X[:500])
    rng = np.random.default_rng(0)
    first = 0
    while first < 500:
        n = min(int(rng.integers(1, 40)), 500 - first)
        parts.add(X[first : first + n])
        first += n
    for n_probe in (2, 30):
        for one, other in zip(
            whole.search(X[:60], 9, n_probe=n_probe), parts.search(X[:60], 9, n_probe=n_probe), strict=True
        ):
            assert one.tobytes() == other.tobytes()


# -- errors


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_lists": 0}, "n_lists is 0"),
        ({"n_lists": 301}, "n_lists is 301: want at most 300"),
        ({"n_lists": "many"}, "n_lists is 'many'"),
        ({"list_size": 0}, "list_size is 0"),
        ({"n_lists": 4, "list_size": 10}, "list_size and n_lists are both given"),
    ],
)
def test_wrong_parameters(X, parameters, message):
    with pytest.raises(ValueError, match=message):
        cc.CompositionalCodes(**parameters, **SMALL).fit(X[:300])


def test_wrong_arguments(X, model, index):
    codes = index.codes[:5]
    flat = cc.Index(cc.CompositionalCodes.from_codebooks(model.codebooks_)).add(X[:100])
    for wrong, message in [
        (lambda: index.search(X[:2], 3, n_probe=0), "n_probe is 0"),
        (lambda: index.search(X[:2], 3, recall=1.5), "recall is 1.5: want 0 to 1"),
        (lambda: index.search(X[:2], 3, n_probe=2, recall=0.5), "both given"),
        (lambda: flat.search(X[:2], 3, n_probe=2), "n_probe goes with an index of lists"),
        (lambda: cc.Index(model).add_codes(codes), "lists are missing"),
        (lambda: cc.Index(model).add_codes(codes, lists=[0, 1, 2, 3, 30]), "lists range from 0 to 30: want 0 to 29"),
        (lambda: cc.Index(model).add_codes(codes, lists=[0, 1]), "lists have shape"),
        (lambda: flat.add_codes(codes, lists=[0] * 5), "lists are given"),
        (lambda: model.decode(codes), "lists are missing"),
        (lambda: flat.quantizer.assign(X), "has no lists"),
        (lambda: index.merge(flat), "different models"),
        (lambda: index.search(np.full((1, 12), 3e38, np.float32), 1, n_probe=2), "Q"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
    assert index.search(X[:2], 3, n_probe=10**6)[1].tolist() == index.search(X[:2], 3, n_probe=30)[1].tolist()


def test_wrong_files(index, tmp_path):
    index.save(tmp_path / "index.cc")
    found, header = version(tmp_path / "index.cc")
    assert found == 3
    begin, end = header["positions"]["data_offsets"]
    content = bytearray((tmp_path / "index.cc").read_bytes())
    content[8 + int.from_bytes(content[:8], "little") + (begin + end) // 2] ^= 1
    (tmp_path / "index.cc").write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        cc.Index.load(tmp_path / "index.cc")


# -- as many lists for each query as it takes


def numbers(index, Q, **reach):
    """The number of lists that each query searches."""
    shards = _core.Shards([index._core], [0], [np.zeros(0, np.int64)])
    return shards.probes(np.ascontiguousarray(Q, np.float32), **reach)


@pytest.fixture(scope="module")
def words():
    """Vectors, and queries like them."""
    rows = cc.data.glove()[1][np.random.default_rng(0).permutation(20_000)[:8400], ::2].astype(np.float32)
    return np.split(np.ascontiguousarray(rows), [8000])


QUICK = SMALL | {"n_lists": 80, "loss": "reconstruction", "anneal": 0, "max_iter": 0}


def gap_for(lists, recall):
    """Linear between measurements."""
    gaps, shares = np.array(lists.gaps).T
    at = int(np.searchsorted(shares, np.float32(recall)))
    return np.interp(recall, shares, gaps) if at < len(gaps) else None


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
def test_lists_within_a_gap_of_the_best_are_searched(words, metric):
    X, Q = words
    model = cc.CompositionalCodes(metric=metric, **QUICK).fit(X)
    index = cc.Index(model, metric=metric).add(X)
    true = cc.evaluate.ground_truth(X, Q, k=10, metric=metric)[1]
    asked = Q / np.linalg.norm(Q, axis=1, keepdims=True) if metric == "cosine" else Q
    scores = asked.astype(np.float64) @ model.centroids_.T.astype(np.float64)
    norms = np.linalg.norm(asked, axis=1)
    if metric == "l2":
        scores -= 0.5 * (model.centroids_.astype(np.float64) ** 2).sum(axis=1)
    else:
        scores += norms[:, None] * model._lists.bonuses
    top = np.sort(scores, axis=1)[:, -5:].mean(axis=1)
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    places = np.take_along_axis(ranks, model.assign(X)[true], axis=1)
    for recall in (0.5, 0.8, 0.9, 0.95):
        floor = top - gap_for(model._lists, recall) * (1 if metric == "l2" else norms)
        near = np.abs(scores - floor[:, None]) < 1e-4
        lowest, highest = (
            ((scores >= floor[:, None]) & ~near).sum(axis=1),
            ((scores >= floor[:, None]) | near).sum(axis=1),
        )
        own = numbers(index, Q, recall=recall)
        assert ((own >= lowest.clip(1)) & (own <= highest.clip(1))).all()
        assert len(set(own)) > 1 and abs((places < own[:, None]).mean() - recall) < 0.04
        found = index.search(Q, 5, recall=recall)
        for row in range(0, 400, 23):
            alone = index.search(Q[row], 5, n_probe=int(own[row]))
            np.testing.assert_array_equal(found[1][row], alone[1][0])
            np.testing.assert_array_equal(found[0][row], alone[0][0])


def test_fewer_vectors_are_searched_than_with_as_many_lists_for_each(words):
    X, Q = words
    model = cc.CompositionalCodes(**QUICK).fit(X)
    index = cc.Index(model).add(X)
    lists = model._lists
    same = _core.Lists(lists.centroids, lists.eta, lists.bonuses, lists.shares, np.array(lists.reach, np.float64))
    assert lists.gaps and not same.gaps
    model._lists = same
    uniform = cc.Index(model).add(X)
    by_gap, by_number = (numbers(each, Q, recall=0.95) for each in (index, uniform))
    assert len(set(by_number)) == 1 < len(set(by_gap)) and by_gap.mean() < 0.9 * by_number.mean()
    true = uniform.search(Q, 10, recall=1)[1]
    recalls = [cc.evaluate.recall(each.search(Q, 10)[1], true, 10, 10) for each in (index, uniform)]
    assert recalls[0] > recalls[1] - 0.02


def test_gaps_hold_for_their_metric_only(X, model):
    """Distances differ by other amounts than products do."""
    assert model._lists.gaps
    Q = X[::30]
    with pytest.warns(cc.MetricWarning):
        other = cc.Index(model, metric="l2").add(X)
    assert len(set(numbers(other, Q, recall=0.95))) == 1 < len(set(numbers(cc.Index(model).add(X), Q, recall=0.95)))


def test_a_filter_widens_what_gaps_leave(X, index):
    Q = X[:40]
    ids = np.arange(0, 3000, 100)
    found = index.search(Q, 20, recall=0.5, filter=ids)[1]
    assert (found >= 0).all() and np.isin(found, ids).all()
    np.testing.assert_array_equal(index.search(Q, 30, recall=0.5, filter=ids)[1].shape, (40, 30))


def test_queries_of_any_length_search_the_same_lists(index, X):
    Q = X[:50]
    want = numbers(index, Q, recall=0.9)
    for power in (-60, 40):
        np.testing.assert_array_equal(numbers(index, Q * np.float32(2.0) ** power, recall=0.9), want)
    assert numbers(index, np.zeros((1, 12)), recall=0.9) == 30  # all are as good


def test_centroids_of_the_core_are_checked():
    with pytest.raises(ValueError, match="centroids"):
        _core.Lists(np.zeros((0, 3), np.float32))
    with pytest.raises(ValueError, match="bonuses are 2"):
        _core.Lists(np.zeros((3, 3), np.float32), bonuses=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="reach"):
        _core.Lists(np.zeros((3, 3), np.float32), reach=np.array([[2, 0.5], [1, 0.7]]))
    with pytest.raises(ValueError, match="gaps"):
        _core.Lists(np.zeros((3, 3), np.float32), gaps=np.array([[2, 0.5], [1, 0.7]]))


def test_a_quantizer_without_the_lists_is_refused(X, index, model, tmp_path):
    index.save(tmp_path / "index.cc")
    other = cc.CompositionalCodes.from_codebooks(model.codebooks_)
    with pytest.raises(ValueError, match="other lists"):
        cc.Index.load(tmp_path / "index.cc", quantizer=other)
    loaded = cc.Index.load(tmp_path / "index.cc", quantizer=model)
    np.testing.assert_array_equal(loaded.add(X[:9]).lists[-9:], index.lists[:9])


def test_probes_are_measured_alike_for_vectors_of_any_size():
    Z = np.random.default_rng(0).normal(size=(1000, 10)).astype(np.float32)
    for metric in ("ip", "l2"):
        kinds = dict(n_lists=10, loss="reconstruction", metric=metric, effort="low", anneal=0, max_iter=1)
        fits = [cc.CompositionalCodes(3, 8, **kinds).fit(Z * np.float32(2.0) ** power) for power in (0, 100)]
        assert fits[0]._lists.reach == fits[1]._lists.reach
