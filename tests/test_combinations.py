"""What holds where several kinds of indexes, files and arguments meet."""

import re

import numpy as np
import pytest

import compcodes as cc
import forge
from compcodes import _core

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 8)).astype(np.float32)
SMALL = {"n_codebooks": 3, "n_codewords": 16, "effort": "low", "max_iter": 2, "anneal": 0, "n_jobs": 2}


@pytest.fixture(scope="module")
def model():
    return cc.CompositionalCodes(n_lists=6, **SMALL).fit(X)


@pytest.fixture(scope="module")
def flat():
    return cc.CompositionalCodes(**SMALL).fit(X)


def with_reach(model, reach):
    """The same model, of which this was measured."""
    own = model._lists
    model = cc.CompositionalCodes.from_codebooks(model.codebooks_)
    model._lists = _core.Lists(own.centroids, own.eta, own.bonuses, own.shares, np.array(reach, np.float64))
    return model


def test_a_recall_of_1_goes_through_all_lists(model):
    """Also where fewer lists held all of the nearest vectors of the sample."""
    index = cc.Index(with_reach(model, [[1, 0.4], [2, 1.0]])).add(X)
    for options in ({}, {"exclude": [[i] for i in range(40)]}, {"filter": np.arange(0, 400, 3)}):
        want = index.search(-X[:40], 20, n_probe=6, **options)
        found = index.search(-X[:40], 20, recall=1, **options)
        np.testing.assert_array_equal(found[1], want[1])
        assert found[0].tobytes() == want[0].tobytes()
    assert (index.search(-X[:40], 20, recall=0.99)[1] != index.search(-X[:40], 20, recall=1)[1]).any()


# -- shards


def test_a_shard_with_lists_changes_nothing(model, tmp_path):
    """Not even where its codebooks are those of the index."""
    folder = cc.ShardedIndex.create(tmp_path / "index", cc.CompositionalCodes.from_codebooks(model.codebooks_))
    lists = cc.Index(model).add(X[:9])
    lists.save(tmp_path / "lists")
    refused = "shard has lists, the index no lists .*: want the same"
    for wrong, message in (
        (lambda: folder.add_shard(lists), refused),
        (lambda: folder.add_shard(tmp_path / "lists"), refused),
        (lambda: cc.ShardedIndex.build(folder.path, model, X, 2), "quantizer has lists, .* was begun with no lists"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
        assert len(cc.ShardedIndex.open(folder.path)) == 0
    assert len(folder.add(X[:9])) == 9


@pytest.mark.parametrize("kind", [{}, {"metric": "l2"}, {"metric": "cosine"}, {"residuals": True}])
def test_shards_of_earlier_versions_go_with_those_of_half_bytes(flat, kind, tmp_path):
    forge.in_bytes(cc.Index(flat, **kind).add(X[130:250]), tmp_path / "old")
    folder = cc.ShardedIndex.create(tmp_path / "index", flat, **kind)
    folder.add(X[:130]).add_shard(tmp_path / "old").add(X[250:300])
    whole = cc.Index(flat, **kind).add(X[:300])
    for options in ({}, {"rerank": X[:300]}, {"filter": range(100, 260)}):
        found, want = folder.search(X[:30], 9, **options), whole.search(X[:30], 9, **options)
        np.testing.assert_array_equal(found[1], want[1])
        assert found[0].tobytes() == want[0].tobytes()
    assert folder.remove([131, 5]) == 2
    assert len(folder.compact()) == 298


# -- files


def test_forged_lists_are_refused(model, tmp_path):
    path = tmp_path / "index"
    cc.Index(model).add(X[:70]).save(path)
    texts, tensors = forge.parts(path)
    forge.write(path, texts, tensors)
    assert len(cc.Index.load(path)) == 70
    for name, forged, message in [
        ("reach", np.zeros((3, 0)), r"reach has shape (3, 0): want (…, 2)"),
        ("reach", np.array([[1, 0.5, 0.7]]), "reach has shape (1, 3)"),
        ("reach", np.array([[1, 0.5], [2**40, 0.7]]), "want ascending numbers of lists"),
        ("bonuses", np.zeros((6, 1)), "bonuses has shape [6, 1]: want [6]"),
        ("shares", np.zeros((2, 3)), "shares has shape [2, 3]: want [6]"),
        ("lists", tensors["lists"].reshape(-1, 1), "lists have shape [7, 1]: want (…, 7)"),
        ("lists", tensors["lists"][0], "lists have shape [7]"),
        ("centroids", None, "holds vectors in lists, but lacks centroids"),
    ]:
        kept = {other: array for other, array in tensors.items() if other != name}
        if forged is not None:
            kept[name] = forged.astype(tensors[name].dtype)
        forge.write(path, texts, kept)
        for mmap in (False, True):
            with pytest.raises(ValueError, match=re.escape(message)):
                cc.Index.load(path, mmap=mmap)
    cc.Index(model).save(path)  # of no generations
    assert len(cc.Index.load(path).add(X[:5])) == 5


def test_keys_that_none_wrote_are_refused_by_name(flat, tmp_path):
    path = tmp_path / "index"
    cc.Index(flat, keys=True).add(X[:2], ["a", "b"]).save(path)
    texts, tensors = forge.parts(path)
    for text in ("\0", "\0{}", "\0x", "\0true", "\0null", "\0[1.5]", '\0{"uuid":1}', "\0" + "[" * 5000):
        ends = np.array([1, 1 + len(text)])
        forged = {"keys": np.frombuffer(b"a" + text.encode(), np.uint8), "key_ends": ends}
        forge.write(path, texts, tensors | forged)
        index = cc.Index.load(path)
        with pytest.raises(ValueError, match="the index has a key that cannot be read: "):
            index.search(X[:1], 2)
        assert "a" in index and len(index) == 2


# -- arguments


def test_messages_show_keys_as_they_are(flat):
    index = cc.Index(flat, keys=True).add(X[:2], [5, ("a", 1)])
    for wrong, message in [
        (lambda: index.add(X[:2], [7, 7]), "ids holds 7 twice"),
        (lambda: index.add(X[:1], [("a", 1)]), 'ids holds ["a",1], which the index has already'),
        (lambda: index.remove([8]), "the index has no key 8"),
        (lambda: index.search(X[:1], 2, rerank=X[:1], rerank_ids=[5]), 'rerank_ids lacks ["a",1], the id'),
        (lambda: index.search(X[:1], 2, rerank=X[:3], rerank_ids=[5, 5, ("a", 1)]), "rerank_ids holds 5 twice"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message) + "($|,| )"):
            wrong()
    deep = ("a",)
    for _ in range(3000):
        deep = (deep,)
    with pytest.raises(ValueError, match="more than 100 tuples one in another"):
        index.add(X[:1], [deep])
    assert deep not in index


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("name", ["filter", "exclude"])
def test_what_is_no_filter_is_refused_by_name(model, keys, name):
    index = cc.Index(model, keys=keys).add(X[:2], ["a", "b"] if keys else None)
    for wrong in (object(), 3, {1: 2}, [[1], 2], *([[1], None],) * (name == "filter")):
        with pytest.raises((TypeError, ValueError), match=rf"^{name}\b.*want"):
            index.search(X[:2], 1, **{name: wrong})
