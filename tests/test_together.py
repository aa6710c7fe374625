"""One search over several indexes of different models."""

import numpy as np
import pytest

import compcodes as cc


@pytest.fixture(scope="module")
def parts(X):
    return [X[:600], X[600:700], X[700:]]


@pytest.fixture(scope="module")
def shards(quantizer, parts):
    kinds = [quantizer, cc.ProductQuantizer(3, 16).fit(parts[0]), cc.ResidualQuantizer(2, 16).fit(parts[2])]
    return [cc.Index(kind, "ip").add(part) for kind, part in zip(kinds, parts, strict=True)]


def test_results_are_those_of_all_vectors_together(shards, parts, X, Q):
    scores, rows = cc.evaluate.ground_truth(X, Q, 12)
    found = cc.search_together(shards, Q, 12, rerank=parts, n_candidates=len(X))
    starts = np.array([0, 600, 700])
    np.testing.assert_array_equal(starts[found.indexes] + found.ids, rows)
    np.testing.assert_array_equal(found.scores, scores)
    fetched = [lambda ids, part=part: part[ids] for part in parts]
    for a, b in zip(cc.search_together(shards, Q, 12, rerank=fetched, n_candidates=len(X)), found, strict=True):
        np.testing.assert_array_equal(a, b)
    few = cc.search_together(shards, Q[0], 3, rerank=parts)
    assert [array.shape for array in few] == [(1, 3)] * 3


def test_keys_limits_and_padding(shards, quantizer, parts, X, Q):
    keyed = cc.Index(quantizer, keys=True).add(X[:4], list("abcd"))
    empty = cc.Index(quantizer)
    mixed = cc.search_together(
        [empty, keyed, shards[1]], Q, 9, rerank=[X[:0], X[:4], parts[1]], filter=[None, None, [3]]
    )
    assert set(map(type, mixed.ids[0])) == {str, int, type(None)}
    for ids, places, scores in zip(mixed.ids, mixed.indexes, mixed.scores, strict=True):
        assert set(zip(ids, places, strict=True)) == {*((key, 1) for key in "abcd"), (3, 2), (None, -1)}
        assert (np.diff(scores[:5]) <= 0).all() and np.isneginf(scores[5:]).all()
        assert ids[5:].tolist() == [None] * 4
    twice = cc.search_together([shards[1], shards[1]], Q, 4, rerank=[parts[1]] * 2)
    assert twice.indexes[:, :2].tolist() == [[0, 1]] * len(Q)


def test_what_does_not_fit_is_named(shards, parts, quantizer, X, Q):
    with pytest.raises(ValueError, match="indexes is empty"):
        cc.search_together([], Q, rerank=[])
    with pytest.raises(ValueError, match="rerank want one for each of 3 indexes"):
        cc.search_together(shards, Q, rerank=parts[:2])
    with pytest.raises(ValueError, match=r"rerank\[1\] is None"):
        cc.search_together(shards, Q, rerank=[parts[0], None, parts[2]])
    with pytest.raises(TypeError, match="certify is no option"):
        cc.search_together(shards, Q, rerank=parts, certify=[True] * 3)
    other = cc.Index(quantizer, "cosine").add(parts[1])
    with pytest.raises(ValueError, match=r"indexes\[1\] is of metric 'cosine' and 12 dimensions, indexes\[0\] of 'ip'"):
        cc.search_together([shards[0], other], Q, rerank=parts[:2])
