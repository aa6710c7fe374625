"""The command `eval`, and `search` as it measures it."""

import numpy as np
import pytest

import compcodes as cc
from compcodes import CompositionalCodes, cli, evaluate


def test_eval_measures_against_vectors_or_given_answers(work):
    index, queries, plot = work.index(), work.path("q.npy"), work.path("recall.png")
    found = work.json("eval", index, queries, "--vectors", work.path("x.npy"))
    assert [(entry["R"], entry["P"]) for entry in found["recall"]] == [
        (1, 1), (1, 10), (1, 100), (10, 10), (10, 100), (100, 100),
    ]  # fmt: skip
    truth = work.save("truth", evaluate.ground_truth(work.X, work.Q, k=100)[1])
    assert work.json("eval", index, queries, "--truth", truth)["recall"] == found["recall"]
    pytest.importorskip("matplotlib")
    code, out, _ = work("eval", index, queries, "--truth", truth, "--plot", plot)
    assert code == 0
    assert out.splitlines()[1].split() == ["recall", "first", "1", "first", "10", "first", "100"]
    with open(plot, "rb") as file:
        assert file.read(4) == b"\x89PNG"


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
def test_each_metric_is_searched_and_measured_by_itself(work, metric):
    index = work.index("--metric", metric)
    found = work.json("search", index, work.path("q.npy"), "--rerank", work.path("x.npy"), "--candidates", 200)
    _, true = evaluate.ground_truth(work.X, work.Q, k=100, metric=metric)
    assert np.array_equal(found["ids"], true[:, :10])
    found = work.json("eval", index, work.path("q.npy"), "--vectors", work.path("x.npy"), "-P", 100)
    given = work.json("eval", index, work.path("q.npy"), "--truth", work.save("t", true), "-P", 100)
    assert found["metric"] == metric
    assert found["recall"] == given["recall"]


def test_what_is_measured_may_be_re_ranked_and_goes_through_the_lists_asked_for(work):
    queries, vectors = work.path("q.npy"), work.path("x.npy")
    found = work.json("eval", work.index(), queries, "--vectors", vectors, "--rerank", vectors, "--candidates", 200)
    assert found["reranked"] == 200 and all(entry["recall"] == 1 for entry in found["recall"])
    work("fit", vectors, "-o", work.path("m"), "--codebooks", 3, "--codewords", 8, "--lists", 8, "--iterations", 1)
    work("build", work.path("m"), vectors, "-o", work.path("i"))
    index = cc.Index.load(work.path("i"))
    true = evaluate.ground_truth(work.X, work.Q, k=10)[1]
    for option, own in (("--probe", {"n_probe": 2}), ("--recall", {"recall": 0.5})):
        argv = "eval", work.path("i"), queries, "--vectors", vectors, "-R", 10, "-P", 10, option, *own.values()
        ids = index.search(work.Q, 10, **own)[1]
        assert work.json(*argv)["recall"][0]["recall"] == evaluate.recall(ids, true, 10, 10)
        assert {"--probe": "in at least 2 lists", "--recall": "that hold 0.5 of the 10"}[option] in work(*argv)[1]
    argv = "eval", work.path("i"), queries, "--vectors", vectors
    assert "in at least 8 lists" in work(*argv, "--probe", 800)[1]
    short = work.save("short", work.X[:, :5])
    assert f"{short} has 5 dimensions, the index has 6" in work(*argv[:3], "--vectors", short)[2]
    assert "want one of them" in work(*argv, "--probe", 2, "--recall", 0.5)[2]
    assert "needs --rerank" in work(*argv, "--candidates", 5)[2]
    assert "--candidates 5: want at least 100, the largest -P" in work(*argv, "--candidates", 5, "--rerank", vectors)[2]
    other = work.save("other", work.X[:9])
    assert f"{other} has 9 vectors, the index has 200" in work(*argv, "--rerank", other)[2]


def test_what_cannot_be_searched_is_refused_before_the_exact_search(work, monkeypatch):
    monkeypatch.setattr(evaluate, "ground_truth", lambda *_, **__: pytest.fail("a long work"))
    argv = "eval", work.index(), work.path("q.npy"), "--vectors", work.path("x.npy")
    assert "--probe" in work(*argv, "--probe", 2)[2]
    assert "dimensions" in work(*argv, "--rerank", work.save("narrow", work.X[:, :5]))[2]


def test_the_table_of_lists_is_of_searches_for_ten(work):
    vectors = work.path("x.npy")
    work("fit", vectors, "-o", work.path("m"), "--codebooks", 3, "--codewords", 8, "--lists", 8, "--iterations", 1)
    work("build", work.path("m"), vectors, "-o", work.path("i"))
    found = work.json("eval", work.path("i"), work.path("q.npy"), "--vectors", vectors, "--rerank", vectors)
    index, true = cc.Index.load(work.path("i")), evaluate.ground_truth(work.X, work.Q, k=10)[1]
    for entry in found["probes"]:
        ids = index.search(work.Q, 10, rerank=work.X, n_probe=entry["lists"])[1]
        assert entry["recall"] == evaluate.recall(ids, true, 10, 10)


def test_a_single_query(work):
    index, one = work.index(), work.save("one", work.Q[0])
    all_of_them = work.json("search", index, work.path("q.npy"))
    assert work.json("search", index, one)["ids"] == all_of_them["ids"][:1]
    found = work.json("eval", index, one, "--vectors", work.path("x.npy"))
    truth = work.save("truth", evaluate.ground_truth(work.X, work.Q[:1], k=100)[1][0])
    assert found["queries"] == 1
    assert work.json("eval", index, one, "--truth", truth)["recall"] == found["recall"]


def test_more_found_or_sought_than_there_are(work):
    index = work.index()
    found = work.json("eval", index, work.path("q.npy"), "--vectors", work.path("x.npy"), "-R", 1, 999, "-P", 2**31 - 1)
    assert found["recall"] == [{"R": 1, "P": 2**31 - 1, "recall": 1.0}]
    assert work("search", index, work.path("q.npy"), "-k", 2**31 - 1)[0] == 0


def test_results_that_cannot_be_held(work, monkeypatch):
    monkeypatch.setattr(cli.common, "_MOST_RESULTS", 1000)
    index, queries, vectors = work.index(), work.path("q.npy"), work.path("x.npy")
    assert work("search", index, queries, "-k", 112)[2].startswith("compcodes: error: -k 112: 112 answers to each of 9")
    assert " -P 200: 200 answers " in work("eval", index, queries, "--vectors", vectors, "-P", 200)[2]
    assert " -R 150: 150 answers " in work("eval", index, queries, "--vectors", vectors, "-R", 150)[2]


def test_an_empty_index_cannot_be_measured(work):
    cc.Index(CompositionalCodes.load(work.model())).save(work.path("empty"))
    nothing = work.save("nothing", np.zeros((0, 6), "f4"))
    for given in (("--vectors", nothing), ("--truth", work.save("truth", np.zeros((9, 1), int)))):
        assert work("eval", work.path("empty"), work.path("q.npy"), *given) == (
            1, "", f"compcodes: error: {work.path('empty')}: no vectors to find\n",
        )  # fmt: skip


def test_eval_without_queries_is_an_error(work):
    nothing = work.save("nothing", np.zeros((0, 6), "f4"))
    code, _, err = work("eval", work.index(), nothing, "--vectors", work.path("x.npy"))
    assert (code, err) == (1, f"compcodes: error: {nothing}: no queries to measure with\n")


@pytest.mark.parametrize("keys", ["texts", "integers"])
def test_answers_may_be_keys_as_search_writes_them(work, keys):
    n = len(work.X)
    names = work.save("names", np.array([f"k{i}" for i in range(n)]) if keys == "texts" else 7 * np.arange(n))
    work.index()
    index, queries, found = work.path("keyed"), work.path("q.npy"), work.path("found.npy")
    model = cc.CompositionalCodes.load(work.path("model"))
    cc.Index(model, keys=True).add(work.X, np.load(names).tolist()).save(index)
    assert work("search", index, queries, "-k", 20, "-o", found)[0] == 0
    told = work.json("eval", index, queries, "--truth", found, "-R", 1, 20, "-P", 20)
    assert [entry["recall"] for entry in told["recall"]] == [1.0, 1.0]
    by_vectors = work.json("eval", index, queries, "--vectors", work.path("x.npy"))["recall"]
    true = np.load(names)[evaluate.ground_truth(work.X, work.Q, k=100)[1]]
    assert work.json("eval", index, queries, "--truth", work.save("true", true))["recall"] == by_vectors
    other = work.save("other", np.full((len(work.Q), 1), "nobody"))
    assert (
        "other.npy: holds 'nobody', which is no key of the index" in work("eval", index, queries, "--truth", other)[2]
    )
    assert work.json("info", names)["ids"] == n
