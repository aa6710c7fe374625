"""The command ``compcodes compare``."""

import base64
import os
import re
import shlex
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

import compcodes as cc
from compcodes import cli, comparison, evaluate
from compcodes.cli import compare as compare_command
from compcodes.comparison import METHODS, train

QUICK = ("--iterations", 1)


def short(monkeypatch):
    """Let every method have few codewords: there are 200 vectors."""
    make = comparison.Method.make
    monkeypatch.setattr(
        comparison.Method, "make", lambda self, n, **others: make(self, n, **{"n_codewords": 8, **others})
    )


@pytest.fixture
def compare(work, monkeypatch):
    short(monkeypatch)
    return lambda *argv: work.json("compare", work.path("x.npy"), *argv, *QUICK)


def test_every_method_is_measured_and_ranked(compare, work):
    found = compare("--bytes", "2,3", "--queries", work.path("q.npy"))
    assert {(r["method"], r["bytes"]) for r in found["results"]} == {(m, b) for m in METHODS for b in (2, 3)}
    assert found["failed"] == []
    for size in (2, 3):
        ranked = [r["recall"]["10@100"] for r in found["results"] if r["bytes"] == size]
        assert ranked == sorted(ranked, reverse=True)
    assert (found["vectors"], found["queries"], found["held_out"]) == (200, 9, False)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_other_metrics_are_compared_by_their_own_answers(compare, work, metric):
    found = compare("--queries", work.path("q.npy"), "--methods", "PQ,compcodes", "--bytes", 3, "--metric", metric)
    assert found["metric"] == metric
    true = evaluate.ground_truth(work.X, work.Q, 100, metric=metric)[1]
    by_name = {result["method"]: result for result in found["results"]}
    assert f"--metric {metric}" in by_name["compcodes"]["command"]
    assert "--queries" not in by_name["compcodes"]["command"]  # 9 are too few for it to use any
    assert f"metric={metric!r}" in by_name["compcodes"]["code"] and f"cc.Index(q, {metric!r})" in by_name["PQ"]["code"]
    X = work.X / np.linalg.norm(work.X, axis=1, keepdims=True) if metric == "cosine" else work.X
    q = cc.ProductQuantizer(3, n_codewords=8, max_iter=1).fit(X)
    ids = cc.Index(q, metric).add(X).search(work.Q, 200)[1]
    assert by_name["PQ"]["recall"]["10@10"] == pytest.approx(evaluate.recall(ids, true, 10, 10), abs=0.02)


@pytest.mark.parametrize(("scale", "dtype"), [(1e25, "f4"), (1e-25, "f4"), (300, "f2"), (1, "f8"), (1e-200, "f8")])
def test_the_code_for_cosines_scales_any_vectors(compare, work, scale, dtype, monkeypatch):
    X = work.X.astype(dtype)
    X[: None if scale > 1e-100 else 9] *= scale
    X[3] = 0
    work.save("x", X)
    warnings.simplefilter("error", cc.MetricWarning)  # a row that is zero has no other length
    found = compare("--queries", work.path("q.npy"), "--methods", "PQ", "--bytes", 3, "--metric", "cosine")
    monkeypatch.chdir(work.folder)
    assert "queries" not in found["results"][0]["code"]  # too few for a method to use them
    code = found["results"][0]["code"].replace("n_codebooks=3", "n_codebooks=3, n_codewords=8")
    assert found["bytes_before"] == X[0].nbytes
    exec(code, {})
    ids = cc.Index.load("index.cc").search(work.Q, 10)[1]
    true = evaluate.ground_truth(X, work.Q, 10, metric="cosine")[1]
    assert found["results"][0]["recall"]["10@10"] == pytest.approx(evaluate.recall(ids, true, 10, 10), abs=0.03)


def test_figures_are_those_of_the_library(compare, work):
    found = compare("--bytes", "3", "--queries", work.path("q.npy"), "--methods", "PQ,lsh")
    by_name = {r["method"]: r for r in found["results"]}
    assert list(by_name) == ["PQ", "LSH"]
    q = cc.ProductQuantizer(3, n_codewords=8, max_iter=1).fit(work.X)
    ids = cc.Index(q).add(work.X).search(work.Q, 200)[1]
    true = evaluate.ground_truth(work.X, work.Q, 100)[1]
    assert by_name["PQ"]["recall"]["10@10"] == evaluate.recall(ids, true, 10, 10)
    decoded = q.decode(q.encode(work.X))
    assert by_name["PQ"]["vector_error"] == pytest.approx(evaluate.vector_error(work.X, decoded))
    want = evaluate.inner_product_error(work.X, decoded, work.Q, true)
    assert by_name["PQ"]["inner_product_error"] == pytest.approx(want)
    assert by_name["LSH"]["vector_error"] is None
    hashes = cc.RandomHyperplaneHash(24).fit(work.X)
    ids = hashes.search(work.Q, hashes.encode(work.X), 200)[1]
    assert by_name["LSH"]["recall"]["10@10"] == evaluate.recall(ids, true, 10, 10)


def test_without_queries_some_vectors_are_kept_out(compare):
    found = compare("--bytes", "2", "--methods", "PQ")
    assert (found["vectors"], found["queries"], found["held_out"], found["sampled"]) == (180, 20, True, False)


def test_a_sample_of_many_vectors(work, monkeypatch):
    short(monkeypatch)
    many = work.save("many", np.random.default_rng(0).normal(size=(500, 6)).astype("f4"))
    found = work.json("compare", many, "--sample", 300, "--methods", "PQ", "--bytes", 2, *QUICK)
    assert (found["vectors"], found["queries"], found["sampled"]) == (300, 50, True)


def test_half_of_many_queries_chooses_the_loss(work, monkeypatch):
    short(monkeypatch)
    seen = []
    fit = cc.CompositionalCodes.fit

    def watched(self, X, *, queries=None, **others):
        seen.append(None if queries is None else np.array(queries))
        return fit(self, X, queries=queries, **others)

    monkeypatch.setattr(cc.CompositionalCodes, "fit", watched)
    Q = np.random.default_rng(3).normal(size=(120, 6)).astype("f4")
    found = work.json(
        "compare", work.path("x.npy"), "--queries", work.save("many", Q), "--methods", "compcodes", "--bytes", 2, *QUICK
    )
    assert found["queries"] == len(seen[0]) == 60


def test_the_recommendation_is_the_smallest_size_that_is_enough(compare, work):
    queries = ("--queries", work.path("q.npy"), "--bytes", "1,4")
    found = compare(*queries, "--target", 0)
    assert found["recommended"]["bytes"] == 1
    assert found["recommended"]["method"] == found["results"][0]["method"]
    found = compare(*queries, "--methods", "LSH", "--target", 1)
    assert "none reaches recall 10@100 of 1" in found["recommended"]["reason"]
    assert found["recommended"]["bytes"] == 4


@pytest.mark.parametrize("method", ["CC", "PQ", "LSH"])
def test_the_recommended_commands_run(work, monkeypatch, method):
    monkeypatch.chdir(work.folder)
    os.rename("x.npy", "my vectors.npy")
    short(monkeypatch)
    argv = ("--methods", method, "--bytes", "2", "--seed", "3", *QUICK)
    best = work.json("compare", "my vectors.npy", *argv)["recommended"]
    monkeypatch.undo()
    monkeypatch.chdir(work.folder)
    names = {}
    exec(best["code"], names)
    assert isinstance(names["q"], getattr(cc, METHODS[method].cls))
    if method == "LSH":
        assert names["codes"].shape == (200, 2)
        return
    assert len(cc.Index.load("index.cc")) == 200
    if best["command"] is None:
        assert method == "PQ"
        return
    by_python = cc.Index.load("index.cc").codes
    for line in best["command"].splitlines():
        assert cli.main(shlex.split(line)[1:]) == 0
    assert np.array_equal(cc.Index.load("index.cc").codes, by_python)


def test_compcodes_is_trained_with_little_effort_unless_more_is_asked_for(work, monkeypatch):
    seen = []

    def stop(method, n_bytes, *others, **parameters):
        seen.append((method.name, parameters.get("effort")))
        raise ValueError("enough")

    monkeypatch.setattr(compare_command, "train", stop)
    for options in ((), ("--effort", "default"), ("--effort", "high")):
        code, _, _ = work("compare", work.path("x.npy"), "--methods", "compcodes,CC", *options)
        assert code == 1
    names = [("compcodes", "low"), ("CC", None), ("compcodes", None), ("CC", None), ("compcodes", "high"), ("CC", None)]
    assert seen == names


def test_a_method_that_cannot_have_the_size_is_left_out(compare, work):
    found = compare("--bytes", "8", "--queries", work.path("q.npy"), "--methods", "CC,PQ")
    assert [r["method"] for r in found["results"]] == ["CC"]
    assert [entry["method"] for entry in found["failed"]] == ["PQ"]
    code, out, _ = work("compare", work.path("x.npy"), "--bytes", 8, "--methods", "CC,PQ", *QUICK)
    assert code == 0
    assert "not compared: PQ in 8 bytes: n_codebooks is 8" in out


class Page(HTMLParser):
    """What a page asks for, and whether its tags match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_page_that_needs_no_other(work, monkeypatch):
    pytest.importorskip("matplotlib")
    short(monkeypatch)
    x = work.save("a<b>&c", work.X)
    path = work.path("report.html")
    found = work.json("compare", x, "--bytes", "2,3", "--methods", "CC,PQ", "--output", path, *QUICK)
    assert found["output"] == path
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    assert page.open == [] and "script" not in page.tags
    pictures = [base64.b64decode(link.removeprefix("data:image/svg+xml;base64,")) for link in page.links]
    assert [ElementTree.fromstring(picture).tag for picture in pictures] == ["{http://www.w3.org/2000/svg}svg"] * 2
    assert "url(" not in text and "@import" not in text
    assert "a&lt;b&gt;&amp;c.npy in a few bytes" in text
    assert "prefers-color-scheme:dark" in text
    for result in found["results"]:
        assert f">{result['recall']['10@10']:.3f}</td>" in text
    assert re.search(r"<strong>\w+ in \d bytes</strong>", text)


def test_without_matplotlib_the_report_has_its_tables(work, monkeypatch):
    short(monkeypatch)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = work.path("report.html")
    work.json("compare", work.path("x.npy"), "--methods", "PQ", "--bytes", 2, "--output", path, *QUICK)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "<img" not in text and text.count("pip install &#x27;compcodes[plot]&#x27;") == 2
    assert "<td>PQ</td>" in text


def test_people_see_a_ranked_table(work, monkeypatch):
    short(monkeypatch)
    code, out, err = work("compare", work.path("x.npy"), "--bytes", "2", "--methods", "PQ", *QUICK)
    assert (code, err) == (0, "")
    assert (
        out.splitlines()[0] == "180 vectors of 24 bytes, 20 of them kept out as queries; exact answers by inner product"
    )
    assert out.splitlines()[2].split()[:4] == ["method", "bytes", "1@1", "10@10"]
    assert "recommended: PQ in 2 bytes" in out


def test_an_interrupted_run_leaves_a_report_of_what_it_has_found(work, monkeypatch):
    short(monkeypatch)
    measure = compare_command._measure

    def interrupted(made, *others):
        if made.method.name == "LSH":
            raise KeyboardInterrupt
        return measure(made, *others)

    monkeypatch.setattr(compare_command, "_measure", interrupted)
    path = work.path("report.html")
    code, out, _ = work("compare", work.path("x.npy"), "--methods", "PQ,LSH", "--bytes", "2", "--output", path, *QUICK)
    assert code == 130 and "interrupted: only these were compared." in out
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "Unfinished: 1 of 2 are measured" in text and "<td>PQ</td>" in text
    assert sorted(os.listdir(work.folder)) == ["q.npy", "report.html", "x.npy"]


def test_progress_names_method_and_size(work, monkeypatch):
    short(monkeypatch)
    calls = []
    train(METHODS["PQ"], 2, work.X, work.X, progress=lambda *call: calls.append(call))
    assert calls
    args = cli._parser().parse_args(["compare", work.path("x.npy"), "--bytes", "2", "--methods", "PQ"])
    stages = set()
    args.progress = lambda stage, done, total: stages.add(stage)
    args.run(args)
    assert {"exact search", "PQ 2 encode"} <= stages


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["x.npy", "--bytes", "8,x"], 2, "argument --bytes: 'x' is not an integer"),
        (["x.npy", "--bytes", "65"], 2, "argument --bytes: 65 is not from 1 to 64"),
        (["x.npy", "--bytes", ""], 2, "argument --bytes: '' is not an integer"),
        (["x.npy", "--methods", "PQ,XY"], 2, "argument --methods: 'xy' is none of compcodes, compcodes-x4, CC, "),
        (["x.npy", "--target", "2"], 2, "argument --target: 2 is not from 0 to 1"),
        (["x.npy", "--target", "much"], 2, "argument --target: 'much' is not a number"),
        (["x.npy", "--output", "r.pdf"], 1, "r.pdf: the file is written as .html"),
        (["none.npy"], 1, "none.npy: No such file or directory"),
        (["few.npy"], 1, "few.npy has 3 vectors: comparing needs at least 20"),
        (["x.npy", "--queries", "wide.npy"], 1, "wide.npy has 7 dimensions, x.npy has 6"),
        (["x.npy", "--queries", "empty.npy"], 1, "empty.npy: no queries to measure with"),
        (["nan.npy", "--queries", "q.npy"], 1, "nan.npy row 4 "),
        (["x.npy", "--methods", "PQ", "--bytes", "7"], 1, "no method could be trained: PQ: n_codebooks is 7"),
    ],
)
def test_errors_are_one_line(work, monkeypatch, argv, code, message):
    monkeypatch.chdir(work.folder)
    work.save("few", np.zeros((3, 6)))
    work.save("wide", np.zeros((3, 7)))
    work.save("empty", np.zeros((0, 6)))
    bad = work.X.copy()
    bad[4, 2] = np.nan
    work.save("nan", bad)
    found, out, err = work("compare", *argv)
    assert (found, out) == (code, "")
    assert err.startswith(f"compcodes: error: {message}")
    assert err.count("\n") == 1
