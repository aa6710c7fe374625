"""The command `search`."""

import numpy as np

from compcodes import data, evaluate


def test_from_vectors_to_answers(work):
    assert work.index()
    found = work.json("search", work.path("index"), work.path("q.npy"), "-k", 4)
    assert np.shape(found["ids"]) == np.shape(found["scores"]) == (9, 4)
    files = ("-o", work.path("ids.npy"), "--scores", work.path("scores.npy"))
    code, out, _ = work("search", work.path("index"), work.path("q.npy"), "-k", 4, *files)
    assert code == 0
    assert "searched 200 vectors for 9 queries" in out
    assert np.array_equal(data.load(work.path("ids.npy")), found["ids"])
    assert np.array_equal(data.load(work.path("scores.npy")), np.array(found["scores"], "f4"))
    code, out, _ = work("search", work.path("index"), work.path("q.npy"), "-k", 4)
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[:3] for line in lines[:5]] == [
        [str(q), str(rank), str(found["ids"][q][rank - 1])] for q, rank in ((0, 1), (0, 2), (0, 3), (0, 4), (1, 1))
    ]


def test_more_answers_than_vectors_leaves_no_padding(work):
    found = work.json("search", work.index(), work.path("q.npy"), "-k", 500)
    assert np.shape(found["ids"]) == np.shape(found["scores"]) == (9, 200)


def test_reranking_everything_is_exact(work):
    found = work.json("search", work.index(), work.path("q.npy"), "--rerank", work.path("x.npy"), "--candidates", 200)
    assert np.array_equal(found["ids"], evaluate.ground_truth(work.X, work.Q, k=10)[1])


def test_a_filter_limits_the_answers(work):
    index, allowed = work.index(), work.save("allowed", np.array([3, 1, 4, 150]))
    found = work.json("search", index, work.path("q.npy"), "--filter", allowed)
    assert np.shape(found["ids"]) == np.shape(found["scores"]) == (9, 4)
    assert {id_ for row in found["ids"] for id_ in row} == {1, 3, 4, 150}
    assert work("search", index, work.path("q.npy"), "--filter", allowed, "-o", work.path("ids.npy"))[0] == 0
    assert np.array_equal(data.load(work.path("ids.npy")), found["ids"])
    assert work("search", index, work.path("q.npy"), "--filter", work.save("no", np.array([], int))) == (0, "", "")


def test_exclusion_for_each_query(work):
    index = work.index()
    found = np.array(work.json("search", index, work.path("q.npy"), "-k", 6)["ids"])
    work.save("seen", np.where(np.arange(6) < 3, found, -1))
    rest = work.json("search", index, work.path("q.npy"), "-k", 3, "--exclude", work.path("seen.npy"))["ids"]
    assert rest == found[:, 3:].tolist()


def test_a_wrong_dimension_names_both_sides(work):
    wide = work.save("wide", np.zeros((2, 7), "f4"))
    code, _, err = work("search", work.index(), wide)
    assert code == 1
    assert "7" in err
    assert "6" in err
