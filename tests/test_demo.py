"""The command ``compcodes demo``."""

import sys

import pytest

from compcodes.cli import demo

_TRAINED = pytest.StashKey()


@pytest.fixture(autouse=True)
def trained_once(monkeypatch, request):
    """The same vectors and settings give the same index: train it once for all tests."""
    cache, compress = request.config.stash.setdefault(_TRAINED, {}), demo._compress

    def cached(X, ids, n_bytes, args, loss):
        key = X.tobytes(), ids.tobytes(), n_bytes, args.seed, args.jobs, repr(loss)
        if key not in cache:
            cache[key] = compress(X, ids, n_bytes, args, loss)
        return cache[key]

    monkeypatch.setattr(demo, "_compress", cached)


def test_demo_finds_neighbours_and_draws(work):
    pytest.importorskip("matplotlib")
    found = work.json("demo", "--bytes", 2, "--words", "king", "monday", "--output", work.path("out/demo"))
    assert [entry["word"] for entry in found["words"]] == ["king", "monday"]
    assert {"tuesday", "friday"} <= {name for name, _ in found["words"][1]["exact"]}
    assert (found["database"], found["queries"], found["bytes_per_vector"]) == (19_000, 1000, 2)
    with open(found["plot"], "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_demo_keeps_the_same_words_out(work):
    argv = ("demo", "--bytes", 2, "--output", work.path("out"))
    one, other = work.json(*argv, "--words", "tuesday", "dog"), work.json(*argv)
    assert one["recall"] == other["recall"]
    for word in one["words"]:
        for key in ("codes", "reranked", "exact"):
            names = [name for name, _ in word[key]]
            assert len(names) == 6
            assert word["word"] not in names
    assert "recall.png" in work("demo", "--help")[1]


def test_demo_without_matplotlib_says_so(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, _ = work("demo", "--bytes", 2, "--output", work.path("out"))
    assert code == 0
    assert out.splitlines()[-1] == "no plot: drawing needs matplotlib; run: pip install 'compcodes[plot]'"
