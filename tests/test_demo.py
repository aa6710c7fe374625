"""The command ``compcodes demo``."""

import sys

import pytest

from compcodes import CompositionalCodes, cli


def test_demo_finds_neighbours_and_draws(work):
    pytest.importorskip("matplotlib")
    found = work.json("demo", "--bytes", 2, "--words", "king", "monday", "--output", work.path("out/demo"))
    assert [entry["word"] for entry in found["words"]] == ["king", "monday"]
    assert {"tuesday", "friday"} <= {name for name, _ in found["words"][1]["exact"]}
    assert (found["database"], found["queries"], found["bytes_per_vector"]) == (19_000, 1000, 2)
    with open(found["plot"], "rb") as file:
        assert file.read(4) == b"\x89PNG"


@pytest.fixture
def short(monkeypatch):
    """Training that takes a moment."""
    few = {"encoder": "greedy", "loss": "reconstruction", "anneal": 0, "max_iter": 1, "max_train": 2000}
    monkeypatch.setattr(cli.demo, "CompositionalCodes", lambda **given: CompositionalCodes(**{**given, **few}))


def test_demo_keeps_the_same_words_out(work, short):
    argv = ("demo", "--bytes", 1, "--output", work.path("out"))
    one, other = work.json(*argv, "--words", "tuesday", "dog"), work.json(*argv)
    assert one["recall"] == other["recall"]
    for word in one["words"]:
        for key in ("codes", "reranked", "exact"):
            names = [name for name, _ in word[key]]
            assert len(names) == 6
            assert word["word"] not in names
    assert "recall.png" in work("demo", "--help")[1]


def test_demo_without_matplotlib_says_so(work, short, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, _ = work("demo", "--bytes", 1, "--output", work.path("out"))
    assert code == 0
    assert out.splitlines()[-1] == "no plot: drawing needs matplotlib; run: pip install 'compcodes[plot]'"
