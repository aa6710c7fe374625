"""The command `fit`."""

import inspect
import re
import sys

import numpy as np
import pytest

import compcodes as cc
from compcodes import CompositionalCodes, Index
from compcodes.cli.parameters import choices


def test_fit_trains_on_a_sample(work):
    work.json("fit", work.path("x.npy"), "-o", work.path("m"), "--codebooks", 2, "--codewords", 8, "--max-train", 150)
    same = CompositionalCodes(2, 8, max_train=150).fit(work.X)
    assert np.array_equal(CompositionalCodes.load(work.path("m")).codebooks_, same.codebooks_)


def test_fit_passes_its_options_on(work):
    found = work.json(
        *("fit", work.path("x.npy"), "-o", work.path("m"), "--codebooks", 3, "--codewords", 8, "--jobs", 1),
        *("--selection", "m-selection", "--encoder", "greedy", "--init", "random"),
        *("--loss", "reconstruction", "--iterations", 2, "--seed", 5),
    )
    sizes = [found[key] for key in ("vectors", "dimension", "codebooks", "codewords", "bytes_per_vector")]
    assert sizes == [200, 6, 3, 8, 2]
    assert 1 <= found["iterations"] <= 2
    same = CompositionalCodes(
        3, 8, "m-selection", encoder="greedy", loss="reconstruction", init="random", max_iter=2, random_state=5
    ).fit(work.X)
    assert np.array_equal(CompositionalCodes.load(work.path("m")).codebooks_, same.codebooks_)


def test_the_gain_is_measured_from_the_vectors_own_size(work):
    vectors = work.save("u8", np.random.default_rng(0).integers(0, 255, (50, 4)).astype("u1"))
    argv = ("fit", vectors, "-o", work.path("m"), "--codewords", 20, "--bytes")
    assert work.json(*argv, 2)["bytes_before"] == 4
    assert "a vector of 4 bytes (uint8) becomes 2 bytes, 2 times less" in work(*argv, 2)[1]
    assert "a vector of 4 bytes (uint8) becomes 5 bytes, no less" in work(*argv, 5)[1]


def test_bytes_are_bytes_whatever_the_codewords(work):
    argv = ("fit", work.path("x.npy"), "-o", work.path("m"), "--effort", "low", "--codewords")
    for codewords, size, codebooks in ((17, 2, 2), (16, 2, 4), (3, 1, 2)):
        found = work.json(*argv, codewords, "--bytes", size)
        assert (found["codebooks"], found["bytes_per_vector"]) == (codebooks, size)
    found = work.json(*argv, 16, "--codebooks", 3)
    assert (found["codebooks"], found["bytes_per_vector"]) == (3, 2)
    for codebooks in (3, 8):  # 8 is the default
        assert "not allowed with argument" in work(*argv, 16, "--codebooks", codebooks, "--bytes", 2)[2]
    assert "--bytes is 129: with --codewords 16, want at most 128" in work(*argv, 16, "--bytes", 129)[2]


def test_options_are_those_of_the_model(work):
    text = " ".join(work("fit", "--help")[1].split())
    for name, parameter in inspect.signature(CompositionalCodes).parameters.items():
        names = choices(CompositionalCodes, name)
        told = [", ".join(names)] * bool(names) + [f"default: {parameter.default}"] * (parameter.default is not None)
        assert name == "n_jobs" or not told or f"({'; '.join(told)})" in text


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (CompositionalCodes, "selection"),
        (CompositionalCodes, "encoder"),
        (CompositionalCodes, "loss"),
        (CompositionalCodes, "init"),
        (Index, "metric"),
    ],
)
def test_docstrings_name_the_choices_of_the_signature(cls, name):
    documented = re.search(rf"^{name} : {{(.*?)}}", inspect.getdoc(cls), re.MULTILINE)[1]
    assert tuple(re.findall('"(.*?)"', documented)) == choices(cls, name) != ()


def test_a_parameter_without_names_has_no_choices():
    assert choices(CompositionalCodes, "anneal") == ()


@pytest.mark.parametrize(
    ("option", "name", "low", "high"),
    [
        ("--codebooks", "n_codebooks", 1, 256),
        ("--codewords", "n_codewords", 2, 256),
        ("--iterations", "max_iter", 0, None),
        ("--seed", "random_state", 0, 2**64 - 1),
    ],
)
def test_options_have_the_ranges_of_their_parameters(work, option, name, low, high):
    quick = {"n_codebooks": 1, "n_codewords": 2, "max_iter": 0, "encoder": "greedy", "loss": "reconstruction"}
    for value, good in ((low, True), (low - 1, False), (high, True), (high and high + 1, False)):
        if value is None:
            continue
        few = ("--codebooks", 1, "--codewords", 2, "--iterations", 0, "--anneal", 0, "--loss", "reconstruction")
        code = work("fit", work.path("x.npy"), "-o", work.path("m"), *few, option, value)[0]
        assert code == (0 if good else 2)
        model = CompositionalCodes(**{**quick, name: value})
        if good:
            model.fit(work.X)
        else:
            with pytest.raises(ValueError, match=f"{name} is"):
                model.fit(work.X)


def test_the_progress_bar_is_for_terminals_that_want_it(work, monkeypatch):
    argv = ("fit", work.path("x.npy"), "-o", work.path("m"), "--codebooks", 2, "--codewords", 4)
    fit = CompositionalCodes.fit

    def slow(self, *args, progress, **kwargs):
        if progress:
            progress("fit", 1, 2)
        return fit(self, *args, progress=progress, **kwargs)

    monkeypatch.setattr(CompositionalCodes, "fit", slow)
    assert work(*argv)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    pytest.importorskip("tqdm")
    assert re.search(r"\rfit: +\d+%\|", work(*argv)[2])
    assert work(*argv, "--quiet")[2] == ""


def test_rounds_beams_and_residuals(work):
    few = ("--codebooks", 2, "--codewords", 8, "--iterations", 1, "--anneal", 1)
    for given, encoder in ((("--rounds", 3), cc.LocalSearch(3)), (("--encoder", "beam", "--beam", 2), cc.Beam(2))):
        work.json("fit", work.path("x.npy"), "-o", work.path("m"), *few, *given)
        assert CompositionalCodes.load(work.path("m")).encoder == encoder
    index = work.json("build", work.path("m"), work.path("x.npy"), "-o", work.path("i"), "--residuals")["index"]
    assert Index.load(index).search(work.Q, 3, rerank=work.X, certify=True)[2].shape == (9,)
    l2 = ("--metric", "l2", "--compact-norms")
    assert work.json("build", work.path("m"), work.path("x.npy"), "-o", work.path("i"), *l2)["bytes_per_vector"] == 2


def test_fit_says_why_it_ended(work):
    few = ("--codebooks", 2, "--codewords", 8)

    def ended(path, *argv):
        code, out, _ = work("fit", path, "-o", work.path("m"), *few, *argv)
        assert code == 0
        return re.search(r"iterations: \d+ \((.*)\), mean", out)[1]

    x = work.path("x.npy")
    assert ended(x, "--anneal", 0, "--iterations", 1, "--tol", 0) in (
        "as many as were asked for",
        "none lowered the loss",
    )
    assert re.fullmatch(r"after those with noise the last gained \d+\.\d%", ended(x, "--anneal", 2, "--tol", 0.99))
    assert ended(work.save("few", work.X[:5]), "--anneal", 0).endswith(("the start is exact", "none lowered the loss"))


def test_a_vector_of_enormous_length_is_named(work):
    X = work.X.copy()
    X[7] *= 1e4
    code, _, err = work(
        "fit", work.save("long", X), "-o", work.path("model"), "--codebooks", 2, "--codewords", 8, "--effort", "low"
    )
    assert code == 0 and "compcodes: warning: row 7 of X is " in err and "LengthWarning" not in err
