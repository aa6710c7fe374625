"""Shards answer as one index whatever it is asked: of lists, filters of each query, proofs, floors, keys."""

import json
import shutil

import numpy as np
import pytest

import compcodes as cc

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 12)).astype(np.float32)
X[100:140] = X[:40]  # ties
Q = RNG.normal(size=(9, 12)).astype(np.float32)
GONE = np.r_[0, 119, 130:300, 1499]
LEFT = np.setdiff1d(np.arange(1500), GONE)
KEYS = [f"key {i}" for i in range(1500)]


@pytest.fixture(scope="module")
def models():
    few = {"n_codebooks": 3, "n_codewords": 16, "effort": "low", "max_iter": 1, "anneal": 0}
    return {n: cc.CompositionalCodes(**few, n_lists=n).fit(X) for n in (None, 25)}


def pair(model, folder, keys=False, **settings):
    """One index, and shards, of the same vectors, of which some were removed."""
    whole = cc.Index(model, **settings, keys=keys).add(X, KEYS if keys else None)
    index = cc.ShardedIndex.create(folder, model, **settings, keys=keys)
    for rows in np.split(np.arange(1500), [120, 121, 121, 900]):
        index.add(X[rows], [KEYS[row] for row in rows] if keys else None)
    gone = [KEYS[row] for row in GONE] if keys else GONE
    assert whole.remove(gone) == index.remove(gone) == len(GONE)
    return whole, index


def same(found, want):
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


def questions(whole):
    """Arguments of searches."""
    n, keyed = len(whole), whole.has_keys
    ids = [int(i) for i in RNG.integers(0, 1600, 60)]
    named = [KEYS[i] if i < 1500 else "none" for i in ids] if keyed else ids
    each = [named[:q] for q in (0, 3, 60, 1, 7, 9, 20, 2, 5)]
    mask, marks = RNG.random(n) < 0.1, RNG.random((len(Q), n)) < 0.05
    for limit in (named, each, mask, marks):
        yield {"filter": limit}
        yield {"exclude": limit}
    yield {"filter": mask, "exclude": each}
    if not keyed:
        yield {"filter": range(7, 1400, 3), "exclude": range(0, 1400, 2)}
    if whole.list_sizes is not None:
        yield from ({"n_probe": 1}, {"n_probe": 4}, {"recall": 0.3}, {"recall": 1}, {"n_probe": 2, "filter": each})
    yield {"rerank": X[LEFT], "n_candidates": 40}
    names = np.array(KEYS, object) if keyed else np.arange(1500)
    order = RNG.permutation(1500)
    yield {"rerank": X[order], "rerank_ids": names[order], "filter": each}
    row = {key: i for i, key in enumerate(KEYS)} if keyed else None
    yield {"rerank": lambda wanted: X[[row[key] for key in wanted] if keyed else wanted]}


@pytest.mark.parametrize("n_lists", [None, 25])
@pytest.mark.parametrize(
    "settings",
    [{}, {"metric": "l2"}, {"metric": "cosine"}, {"scale": True}, {"residuals": True}, {"keys": True}],
    ids=["ip", "l2", "cosine", "scale", "residuals", "keys"],
)
@pytest.mark.filterwarnings("ignore::compcodes.index.MetricWarning")
def test_shards_answer_as_one_index(models, tmp_path, settings, n_lists):
    whole, index = pair(models[n_lists], tmp_path / "index", **settings)
    assert len(index) == len(LEFT) and index.has_keys == ("keys" in settings)
    same([index.ids], [whole.ids])
    for k in (1, 10, 1600):
        same(index.search(Q, k), whole.search(Q, k))
    for asked in questions(whole):
        same(index.search(Q, 10, **asked), whole.search(Q, 10, **asked))
        if not asked.keys() - {"filter", "exclude"}:
            same(index.search_above(Q, -8.0, **asked), whole.search_above(Q, -8.0, **asked))
    if "residuals" in settings:
        for certified in ({"rerank": X[LEFT]}, {"rerank": lambda ids: X[ids], "exclude": [1, 2]}):
            found = index.search(Q, 3, certify=True, n_candidates=800, **certified)
            same(found, whole.search(Q, 3, certify=True, n_candidates=800, **certified))
            assert found[2].any()
    names = whole.ids[[5, 1, 900]]
    same([index.reconstruct(names)], [whole.reconstruct(names)])
    if n_lists is not None:
        same([index.list_sizes], [whole.list_sizes])
        assert "25 lists" in repr(index)
    index.compact()
    same(index.search(Q, 20), whole.search(Q, 20))
    same([index.ids], [whole.ids])
    index = cc.ShardedIndex.open(index.path)
    version = json.loads((index.path / "manifest.json").read_text())["format_version"]
    assert version == (1 if n_lists is None and "keys" not in settings else 2)


def test_keys_are_those_of_one_index(models, tmp_path):
    whole, index = pair(models[None], tmp_path / "index", keys=True)
    assert "key 1" in index and "key 0" not in index and "none" not in index and 5 not in index
    for change in (whole, index):
        change.add(X[:2], ["key 0", "key 130"])  # whose vectors were removed
    same([index.ids], [whole.ids])
    same(index.search(Q, 1500), whole.search(Q, 1500))
    with pytest.raises(ValueError, match="'key 130', which the index has"):
        index.add(X[:1], ["key 130"])
    with pytest.raises(ValueError, match="ids hold 'key 119', and the index has no key 'key 119'"):
        index.remove(["key 119"])
    with pytest.raises(ValueError, match="give a key for each vector"):
        index.add(X[:1])
    with pytest.raises(ValueError, match="has ids, the index keys"):
        index.add_shard(cc.Index(models[None]).add(X[:1]))
    with pytest.raises(ValueError, match="first_id"):
        index.add_shard(index.empty().add(X[:1], ["new"]), first_id=5)


def test_lists_must_be_those_of_the_model(models, tmp_path):
    index = cc.ShardedIndex.build(tmp_path / "index", models[25], X, 4)
    whole = cc.Index(models[25]).add(X)
    same(index.search(Q, 10, n_probe=3), whole.search(Q, 10, n_probe=3))
    index.add_shard(cc.Index(models[25]).add(X[:3]))
    path = tmp_path / "other"
    cc.Index(models[25]).add(X[:3]).save(path)
    assert len(index.add_shard(path)) == 1506
    with pytest.raises(ValueError, match="shard has no lists, the index lists"):
        index.add_shard(cc.Index(models[None]).add(X[:3]))
    other = cc.CompositionalCodes.from_codebooks(models[25].codebooks_, centroids=models[25].centroids_[:20])
    with pytest.raises(ValueError, match="another model"):
        index.add_shard(cc.Index(other, "ip").add(X[:3]))
    flat = cc.ShardedIndex.create(tmp_path / "flat", models[None])
    with pytest.raises(ValueError, match="shard has lists, the index no lists"):
        flat.add_shard(cc.Index(models[25]).add(X[:3]))
    for wrong, match in [
        ({"n_probe": 0}, "n_probe is 0"),
        ({"recall": 2.0}, "recall is 2"),
        ({"n_probe": 1, "recall": 0.5}, "both given"),
        ({"certify": True}, "residuals=True"),
    ]:
        with pytest.raises(ValueError, match=match):
            index.search(Q, 3, **wrong)
    with pytest.raises(ValueError, match="goes with an index of lists"):
        flat.search(Q, 3, n_probe=1)
    with pytest.raises(ValueError, match="residuals=True"):
        flat.search(Q, 3, certify=True)


@pytest.mark.parametrize("settings", [{"residuals": True}, {"keys": True}], ids=["residuals", "keys"])
@pytest.mark.parametrize("n_lists", [None, 25])
def test_workers_answer_as_one_index(models, tmp_path, settings, n_lists):
    pytest.importorskip("distributed")
    from distributed import Client

    whole, index = pair(models[n_lists], tmp_path / "index", **settings)
    with Client(processes=False, n_workers=3, threads_per_worker=1, dashboard_address=None) as client:
        for k in (1, 10, 1600):
            same(index.search(Q, k, client=client), whole.search(Q, k))
        for asked in questions(whole):
            same(index.search(Q, 10, client=client, **asked), whole.search(Q, 10, **asked))
        asked = {"exclude": [list(whole.ids[:5])] * len(Q)}
        same(index.search_above(Q, 0.5, client=client, **asked), whole.search_above(Q, 0.5, **asked))
        if "residuals" in settings:
            found = index.search(Q, 3, rerank=X[LEFT], certify=True, n_candidates=800, client=client)
            same(found, whole.search(Q, 3, rerank=X[LEFT], certify=True, n_candidates=800))
        with pytest.raises(ValueError, match="filter has 7 entries"):
            index.search(Q, 3, filter=np.ones(7, bool), client=client)
        empty = cc.ShardedIndex.create(tmp_path / "empty", models[n_lists])
        same(empty.search(Q, 3, client=client), empty.search(Q, 3))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_workers_order_what_float32_cannot_tell_apart(tmp_path, metric):
    pytest.importorskip("distributed")
    from distributed import Client

    far = (X + 3000).astype(np.float32)
    model = cc.CompositionalCodes(3, 16, max_iter=1, anneal=0, metric=metric).fit(far)
    whole, index = cc.Index(model).add(far), cc.ShardedIndex.create(tmp_path / "index", model)
    for part in np.split(far, [500, 1100]):
        index.add(part)
    queries = (Q + (1e5 if metric == "l2" else 3000)).astype(np.float32)
    scores, ids = whole.search(queries, 30)
    ties = scores[:, 1:] == scores[:, :-1]
    assert (ties & (np.diff(ids) < 0)).any()  # the order of ids is not all there is
    with Client(processes=False, n_workers=3, threads_per_worker=1, dashboard_address=None) as client:
        for found in (index.search(queries, 30), index.search(queries, 30, client=client)):
            same(found, (scores, ids))
        floors = scores[:, 20]
        want = whole.search_above(queries, floors)
        for found in (index.search_above(queries, floors), index.search_above(queries, floors, client=client)):
            same(found, want)


def test_workers_refuse_another_index_in_the_place_of_the_one_that_was_opened(models, tmp_path):
    pytest.importorskip("distributed")
    from distributed import Client

    def make(vectors):
        index = cc.ShardedIndex.create(tmp_path / "index", models[None], keys=True)
        for first in (0, 150):
            index.add(vectors[first : first + 150], KEYS[first : first + 150])
        return index

    opened = make(X[:300])
    want = opened.search(Q, 3)
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        for known in (False, True):  # whether workers have it open
            if known:
                same(opened.search(Q, 3, client=client), want)
            shutil.move(tmp_path / "index", tmp_path / "away")
            make(X[300:600])
            with pytest.raises(ValueError, match="another index than the one that was opened is at this path now"):
                opened.search(Q, 3, client=client)
            same(opened.search(Q, 3), want)
            shutil.rmtree(tmp_path / "index")
            shutil.move(tmp_path / "away", tmp_path / "index")
        same(opened.search(Q, 3, client=client), want)
