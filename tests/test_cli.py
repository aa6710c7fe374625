"""The command, run in this process."""

import inspect
import json
import os
import re
import sys

import numpy as np
import pytest

import compcodes as cc
from compcodes import CompositionalCodes, Index, cli, data, evaluate
from compcodes.cli.parameters import choices


def test_fit_trains_on_a_sample(work):
    work.json("fit", work.path("x.npy"), "-o", work.path("m"), "--bytes", 2, "--codewords", 8, "--max-train", 150)
    same = CompositionalCodes(2, 8, max_train=150).fit(work.X)
    assert np.array_equal(CompositionalCodes.load(work.path("m")).codebooks_, same.codebooks_)


def test_fit_passes_its_options_on(work):
    found = work.json(
        *("fit", work.path("x.npy"), "-o", work.path("m"), "--bytes", 3, "--codewords", 8, "--jobs", 1),
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


def test_codes_that_are_encoded_first_make_the_same_index(work):
    model = work.model()
    assert work.json("encode", model, work.path("x.npy"), "-o", work.path("codes.npy"))["bytes"] == 600
    work("build", model, "--codes", work.path("codes.npy"), "-o", work.path("a"))
    work("build", model, work.path("x.npy"), "-o", work.path("b"))
    a, b = (work.json("search", work.path(name), work.path("q.npy"))["ids"] for name in "ab")
    assert a == b


def test_ids_of_the_user(work):
    work.save("ids", np.arange(200) + 1000)
    index = work.index("--ids", work.path("ids.npy"))
    assert np.min(work.json("search", index, work.path("q.npy"))["ids"]) >= 1000
    assert work.json("eval", index, work.path("q.npy"), "--vectors", work.path("x.npy"))["recall"][-1]["recall"] > 0.5


def test_more_answers_than_vectors_leaves_no_padding(work):
    found = work.json("search", work.index(), work.path("q.npy"), "-k", 500)
    assert np.shape(found["ids"]) == np.shape(found["scores"]) == (9, 200)


def test_reranking_everything_is_exact(work):
    found = work.json("search", work.index(), work.path("q.npy"), "--rerank", work.path("x.npy"), "--candidates", 200)
    assert np.array_equal(found["ids"], evaluate.ground_truth(work.X, work.Q, k=10)[1])


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


def test_info_knows_what_a_file_is(work):
    index = work.index()
    assert work.json("info", work.path("model"))["kind"] == "model"
    assert work.json("info", work.path("x.npy")) == {
        "file": work.path("x.npy"), "kind": "vectors", "vectors": 200, "dimension": 6, "type": "float32",
        "bytes": 4800,
    }  # fmt: skip
    found = work.json("info", index)
    assert (found["kind"], found["vectors"], found["bytes_per_vector"]) == ("index", 200, 2)
    code, out, _ = work("info", index)
    assert code == 0
    assert "index" in out


def test_info_tells_ids_from_vectors(work):
    found = work.json("info", work.save("ids", np.array([7, 3, 5])))
    assert (found["kind"], found["ids"], found["smallest"], found["largest"]) == ("ids", 3, 3, 7)
    found = work.json("info", work.save("one", np.zeros(6, "f4")))
    assert (found["kind"], found["vectors"], found["dimension"]) == ("vectors", 1, 6)


def test_info_says_what_of_a_file_is_codebooks(work):
    found = work.json("info", work.index("--scale"))
    assert (found["metric"], found["scale"], found["bytes_per_vector"]) == ("ip", True, 3)
    assert found["codebooks_bytes"] == 3 * 8 * 6 * 4 == work.json("info", work.path("model"))["codebooks_bytes"]
    out = work("info", work.path("index"))[1]
    assert "codebook bytes    576 bytes" in out
    assert "scale             yes" in out


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


def test_a_filter_limits_the_answers(work):
    index, allowed = work.index(), work.save("allowed", np.array([3, 1, 4, 150]))
    found = work.json("search", index, work.path("q.npy"), "--filter", allowed)
    assert np.shape(found["ids"]) == np.shape(found["scores"]) == (9, 4)
    assert {id_ for row in found["ids"] for id_ in row} == {1, 3, 4, 150}
    assert work("search", index, work.path("q.npy"), "--filter", allowed, "-o", work.path("ids.npy"))[0] == 0
    assert np.array_equal(data.load(work.path("ids.npy")), found["ids"])
    assert work("search", index, work.path("q.npy"), "--filter", work.save("no", np.array([], int))) == (0, "", "")


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


def test_errors_name_files_and_options(work):
    index, x, q = work.index(), work.path("x.npy"), work.path("q.npy")
    bad = work.save("bad", np.full((2, 6), np.nan))
    assert work("fit", bad, "-o", work.path("m"))[2].startswith(f"compcodes: error: {bad} row 0 ")
    assert work("build", work.path("model"), bad, "-o", work.path("i"))[2].startswith(f"compcodes: error: {bad} row 0 ")
    assert work("search", index, bad)[2].startswith(f"compcodes: error: {bad} row 0 ")
    assert work("search", index, q, "--rerank", x, "--candidates", 5)[::2] == (
        2, "compcodes: error: --candidates is 5: want at least k, 10\n",
    )  # fmt: skip
    code, _, err = work("build", work.path("model"), x, "-o", work.path("i"), "--metric", "none")
    assert (code, err.startswith("compcodes: error: --metric is ")) == (2, True)
    code, _, err = work("build", work.path("model"), x, "-o", work.path("i"), "--metric", "l2", "--scale")
    assert (code, err.startswith("compcodes: error: --scale goes with ")) == (2, True)


def test_files_that_are_used_are_not_overwritten(work, monkeypatch):
    work.index()
    monkeypatch.chdir(work.folder)
    work.save("ids", np.arange(200))
    os.symlink("x.npy", "link.npy")
    (work.folder / "x.h5").write_bytes(b"")
    before = {path.name: path.read_bytes() for path in work.folder.iterdir()}
    for argv in [
        "fit x.npy -o x.npy",
        "fit x.npy -o link.npy",
        "fit x.npy --queries q.npy -o ./q.npy",
        f"fit x.npy -o {work.folder}/x.npy",
        "fit x.h5:train -o x.h5",
        "encode model x.npy -o x.npy",
        "build model x.npy -o model",
        "build model x.npy -o x.npy",
        "build model x.npy --ids ids.npy -o ids.npy",
        "build model --codes x.npy -o x.npy",
        "search index q.npy -o q.npy",
        "search index q.npy --filter ids.npy -o ids.npy",
        "search index q.npy --rerank x.npy --scores x.npy",
        "search index q.npy -o new.npy --scores ./new.npy",
        "eval index q.npy --truth ids.npy --plot ids.npy",
    ]:
        code, out, err = work(*argv.split())
        assert (code, out, err.count("\n")) == (2, "", 1), argv
        assert "would be overwritten" in err
    assert {path.name: path.read_bytes() for path in work.folder.iterdir()} == before


def test_the_gain_is_measured_from_the_vectors_own_size(work):
    vectors = work.save("u8", np.random.default_rng(0).integers(0, 255, (50, 4)).astype("u1"))
    argv = ("fit", vectors, "-o", work.path("m"), "--codewords", 20, "--bytes")
    assert work.json(*argv, 2)["bytes_before"] == 4
    assert "a vector of 4 bytes (uint8) becomes 2 bytes, 2 times less" in work(*argv, 2)[1]
    assert "a vector of 4 bytes (uint8) becomes 5 bytes, no less" in work(*argv, 5)[1]
    halves = ("fit", vectors, "-o", work.path("m"), "--codewords", 16, "--bytes", 2)
    assert "a vector of 4 bytes (uint8) becomes 1 byte, 4 times less" in work(*halves)[1]


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
        ("--bytes", "n_codebooks", 1, 256),
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
        few = ("--bytes", 1, "--codewords", 2, "--iterations", 0, "--anneal", 0, "--loss", "reconstruction")
        code = work("fit", work.path("x.npy"), "-o", work.path("m"), *few, option, value)[0]
        assert code == (0 if good else 2)
        model = CompositionalCodes(**{**quick, name: value})
        if good:
            model.fit(work.X)
        else:
            with pytest.raises(ValueError, match=f"{name} is"):
                model.fit(work.X)


def test_without_a_command_there_is_help(work):
    code, out, err = work()
    assert (code, out) == (2, "")
    assert err.startswith("usage: compcodes")
    assert "  search " in err


def test_eval_without_queries_is_an_error(work):
    nothing = work.save("nothing", np.zeros((0, 6), "f4"))
    code, _, err = work("eval", work.index(), nothing, "--vectors", work.path("x.npy"))
    assert (code, err) == (1, f"compcodes: error: {nothing}: no queries to measure with\n")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (
            ["fit", "x.npy"],
            2,
            "the following arguments are required: -o/--output (try: compcodes fit --help)",
        ),
        (["fit", "x.npy", "-o", "m", "--bytes", "x"], 2, "argument --bytes: 'x' is not an integer (try: "),
        (["fit", "x.npy", "-o", "m", "--bytes", "300"], 2, "argument --bytes: 300 is not from 1 to 256 (try: "),
        (["fit", "x.npy", "-o", "m", "--seed", "-1"], 2, "argument --seed: -1 is not from 0 to "),
        (["fit", "x.npy", "-o", "m", "--encoder", "none"], 2, "--encoder is 'none': want one of "),
        (["fit", "x.npy", "-o", "m", "--loss", "none"], 2, "--loss is 'none': want one of "),
        (["fit", "x.npy", "-o", "m", "--tol", "nan"], 2, "--tol is nan: want "),
        (
            ["fit", "x.npy", "-o", "m", "--bytes", "3", "--codewords", "2", "--selection", "m-combination"],
            2,
            "--codewords is 2: m-combination chooses 3",
        ),
        (["info", "x.npy", "-j", "0"], 2, "argument -j/--jobs: 0 is not a number of threads"),
        (["info", "x.npy", "-j", "9" * 30], 2, "argument -j/--jobs: 999999"),
        (["search", "i", "q.npy", "-k", "0"], 2, "argument -k: 0 is not from 1 to "),
        (["search", "i", "q.npy", "-k", "1" + "0" * 30], 2, "argument -k: 1000000"),
        (["eval", "i", "q.npy", "--truth", "t.npy", "-R", "0"], 2, "argument -R: 0 is not from 1 to "),
        (["eval", "i", "q.npy", "--truth", "t.npy", "-P", "1" + "0" * 30], 2, "argument -P: 1000000"),
        (["build", "m", "--codes", "c.npy", "-o", "i", "--scale"], 2, "--scale compares codes with vectors"),
        (["build", "m", "--codes", "c.npy", "-o", "i", "--residuals"], 2, "--residuals compares codes with vectors"),
        (["build", "m", "--codes", "c.npy", "-o", "i", "--column", "v"], 2, "--column and --id-column are of the file"),
        (["build", "m", "x.npy", "-o", "i", "--id-column", "id"], 1, "--id-column id names a column of a .parquet or"),
        (
            ["fit", "x.npy", "-o", "m", "--column", "v"],
            1,
            "--column v names a column of a .parquet or .h5 file, not of",
        ),
        (["fit", "x.h5:a", "-o", "m", "--column", "v"], 1, "x.h5:a names a column already: leave out --column v"),
        (["fit", "x.npy", "-o", "m", "--rounds", "0"], 2, "argument --rounds: 0 is not from 1 to 65535"),
        (["fit", "x.npy", "-o", "m", "--beam", "3"], 2, "--beam goes with --encoder beam, not local-search"),
        (["fit", "x.npy", "-o", "m", "--rounds", "3", "--encoder", "beam"], 2, "--rounds goes with --encoder local-"),
        (["--print-completion", "fish"], 2, "--print-completion fish: want one of bash, zsh, tcsh"),
        (["info", "none.parquet"], 1, "none.parquet: No such file or directory"),
        (["info", "none.fvecs"], 1, "none.fvecs: No such file or directory"),
        (["info", "none.h5"], 1, "none.h5: No such file or directory"),
        (["build", "model", "-o", "i"], 2, "one of the arguments vectors --codes is required (try: "),
        (
            ["search", "index", "q.npy", "--candidates", "9"],
            2,
            "--candidates says how many to re-rank: it needs",
        ),
        (["fit", "none.npy", "-o", "m"], 1, "none.npy: No such file or directory"),
        (["fit", "x.npy", "-o", "none/m"], 1, "none: no such folder"),
        (["fit", "x.npy", "-o", "."], 1, ".: is a folder, a file name is needed"),
        (
            ["encode", "none", "x.npy", "-o", "c.txt"],
            1,
            "c.txt: the file is written as .npy: give a name with",
        ),
        (
            ["eval", "i", "q.npy", "--truth", "t.npy", "--plot", "p.gif"],
            1,
            "p.gif: the file is written as .png or",
        ),
        (["fit", "x.txt", "-o", "m"], 1, "x.txt: unknown kind of vector file '.txt', expected one of .npy, "),
        (["encode", "none", "x.npy", "-o", "c.npy"], 1, "none: No such file or directory"),
        (["search", "none", "q.npy"], 1, "none: No such file or directory"),
        (["info", "none"], 1, "none: No such file or directory"),
        (["demo", "--words", "qwzx"], 1, "not among the 20,000 words: qwzx"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_errors_are_one_line(work, monkeypatch, argv, code, message, as_json):
    monkeypatch.chdir(work.folder)
    found, out, err = work(*argv, *(["--json"] if as_json else []))
    assert found == code
    assert err.startswith(f"compcodes: error: {message}")
    assert err.count("\n") == 1
    assert json.loads(out)["error"].startswith(message) if as_json else out == ""


@pytest.mark.parametrize(
    "content", [b"", b"nothing that could be a model", b"\xff" * 100], ids=["empty", "text", "bytes"]
)
def test_files_that_are_something_else(work, content):
    model = work.model()
    (work.folder / "odd").write_bytes(content)
    for argv in (("encode", work.path("odd"), work.path("x.npy"), "-o", work.path("c.npy")),
                 ("search", work.path("odd"), work.path("q.npy")),
                 ("search", model, work.path("q.npy")),
                 ("info", work.path("odd"))):  # fmt: skip
        code, out, err = work(*argv)
        assert (code, out, err.count("\n")) == (1, "", 1), argv
        assert err.startswith("compcodes: error: ")


def test_a_wrong_dimension_names_both_sides(work):
    wide = work.save("wide", np.zeros((2, 7), "f4"))
    code, _, err = work("search", work.index(), wide)
    assert code == 1
    assert "7" in err
    assert "6" in err


def test_an_interruption_is_exit_code_130(work, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(CompositionalCodes, "fit", interrupted)
    assert work("fit", work.path("x.npy"), "-o", work.path("m")) == (
        130,
        "",
        "compcodes: error: interrupted\n",
    )


def test_the_progress_bar_is_for_terminals_that_want_it(work, monkeypatch):
    argv = ("fit", work.path("x.npy"), "-o", work.path("m"), "--bytes", 2, "--codewords", 4)
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


def test_an_empty_index_cannot_be_measured(work):
    cc.Index(CompositionalCodes.load(work.model())).save(work.path("empty"))
    nothing = work.save("nothing", np.zeros((0, 6), "f4"))
    for given in (("--vectors", nothing), ("--truth", work.save("truth", np.zeros((9, 1), int)))):
        assert work("eval", work.path("empty"), work.path("q.npy"), *given) == (
            1, "", f"compcodes: error: {work.path('empty')}: no vectors to find\n",
        )  # fmt: skip


def test_pipes_are_refused_not_waited_for(work):
    work.index()
    for name in ("pipe", "pipe.npy", "pipe.fvecs", "pipe.parquet", "pipe.h5"):
        os.mkfifo(work.path(name))
    model, index, x, q, out = (work.path(name) for name in ("model", "index", "x.npy", "q.npy", "out.npy"))
    for argv in [
        ("info", work.path("pipe")),
        ("encode", work.path("pipe"), x, "-o", out),
        ("search", work.path("pipe"), q),
        ("fit", work.path("pipe.npy"), "-o", out),
        ("fit", work.path("pipe.fvecs"), "-o", out),
        ("fit", work.path("pipe.parquet"), "-o", out),
        ("fit", work.path("pipe.h5"), "-o", out),
        ("build", model, x, "--ids", work.path("pipe.npy"), "-o", out),
        ("search", index, q, "--rerank", work.path("pipe.npy")),
    ]:
        pipe = next(word for word in argv if word.startswith(work.path("pipe")))
        message = f"compcodes: error: {pipe}: is a pipe or a device, want a regular file\n"
        assert work(*argv) == (1, "", message)
    with pytest.raises(OSError, match="is a pipe or a device"):
        data.load(work.path("pipe.npy"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_named_by_the_file(work):
    """/dev/full takes nothing, and can be linked to."""
    report, plot = work.path("report.html"), work.path("p.png")
    for path in (f"{report}.part", plot):  # what is written first, and then takes the report's place
        os.symlink("/dev/full", path)
    code, out, err = work("compare", work.path("x.npy"), "--methods", "LSH", "--output", report, "--quiet")
    assert (code, out, err) == (1, "", f"compcodes: error: {report}: No space left on device\n")
    pytest.importorskip("matplotlib")
    code, out, err = work("eval", work.index(), work.path("q.npy"), "--vectors", work.path("x.npy"), "--plot", plot)
    assert (code, out, err) == (1, "", f"compcodes: error: {plot}: No space left on device\n")


def test_what_nobody_expected_is_one_line_too(work, monkeypatch):
    monkeypatch.setattr(CompositionalCodes, "fit", lambda *args, **others: {}["lost"])
    code, out, err = work("fit", work.path("x.npy"), "-o", work.path("m"))
    assert (code, out, err) == (1, "", "compcodes: error: unexpected KeyError: 'lost'\n")


def test_compare_logs_where_there_is_no_terminal(work, monkeypatch):
    monkeypatch.setattr("compcodes.progress._LINE_EVERY", 0)
    argv = ("compare", work.path("x.npy"), "--methods", "PQ", "--bytes", 2, "--iterations", 3)
    assert re.search(r"^PQ 2 fit \d+%, all \d+%  0 s", work(*argv)[2], re.MULTILINE)
    assert work(*argv, "--quiet")[2] == ""


def test_rounds_beams_and_residuals(work):
    few = ("--bytes", 2, "--codewords", 8, "--iterations", 1, "--anneal", 1)
    for given, encoder in ((("--rounds", 3), cc.LocalSearch(3)), (("--encoder", "beam", "--beam", 2), cc.Beam(2))):
        work.json("fit", work.path("x.npy"), "-o", work.path("m"), *few, *given)
        assert CompositionalCodes.load(work.path("m")).encoder == encoder
    index = work.json("build", work.path("m"), work.path("x.npy"), "-o", work.path("i"), "--residuals")["index"]
    assert Index.load(index).search(work.Q, 3, rerank=work.X, certify=True)[2].shape == (9,)
    l2 = ("--metric", "l2", "--compact-norms")
    assert work.json("build", work.path("m"), work.path("x.npy"), "-o", work.path("i"), *l2)["bytes_per_vector"] == 2


def test_fit_says_why_it_ended(work):
    few = ("--bytes", 2, "--codewords", 8)

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


def test_columns_and_keys(work):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = [f"doc {i}" for i in range(200)]
    columns = {"title": names, "body": pa.array([[0.0, 1.0]] * 200)}
    columns["embedding"] = pa.array(work.X.tolist(), pa.list_(pa.float32()))
    table = pa.table({**columns, "number": np.arange(200) * 2})
    docs = work.path("docs.parquet")
    parquet.write_table(table, docs)
    model, index = work.model(), work.path("keyed")
    code, _, err = work("build", model, docs, "-o", index)
    assert code == 1 and f"{docs}: expected one column of lists, found ['body', 'embedding']: choose one as" in err
    for given in (
        (docs, "--column", "embedding", "--id-column", "title"),
        (f"{docs}:embedding", "--id-column", "title"),
        (f"{docs}:embedding", "--ids", f"{docs}:title"),
    ):
        assert work.json("build", model, *given, "-o", index)["vectors"] == 200
        assert Index.load(index).ids.tolist() == names
    want = Index.load(work.index()).search(work.Q, 4)[1]
    found = work.json("search", index, work.path("q.npy"), "-k", 4)
    assert found["ids"] == [[names[i] for i in row] for row in want]
    out = work("search", index, work.path("q.npy"), "-k", 4, "-o", work.path("ids.npy"))[1]
    assert "searched 200 vectors" in out
    assert np.load(work.path("ids.npy")).tolist() == found["ids"]
    (work.folder / "some.txt").write_text("\n".join(found["ids"][0]))
    without = work.json("search", index, work.path("q.npy"), "--exclude", work.path("some.txt"))["ids"]
    assert not any(set(row) & set(found["ids"][0]) for row in without)
    only = work.json("search", index, work.path("q.npy"), "-k", 7, "--filter", work.path("some.txt"))
    assert all(set(row) == set(found["ids"][0]) for row in only["ids"])
    assert work.json("info", index)["keys"]
    recall = work.json("eval", index, work.path("q.npy"), "--vectors", f"{docs}:embedding")["recall"]
    assert (
        recall == work.json("eval", work.path("index"), work.path("q.npy"), "--vectors", work.path("x.npy"))["recall"]
    )
    assert work.json("build", model, f"{docs}:embedding", "--ids", f"{docs}:number", "-o", index)["vectors"] == 200
    assert Index.load(index).ids.tolist() == list(range(0, 400, 2))
    code, _, err = work("build", model, f"{docs}:embedding", "--ids", docs, "-o", index)
    assert code == 1 and f"choose the column of ids as {docs}:NAME; it holds title, number" in err
    code, _, err = work("build", model, f"{docs}:nothing", "-o", index)
    assert code == 1 and f"{docs}: no column 'nothing'; it holds title, body, embedding, number" in err


def test_exclusion_for_each_query(work):
    index = work.index()
    found = np.array(work.json("search", index, work.path("q.npy"), "-k", 6)["ids"])
    work.save("seen", np.where(np.arange(6) < 3, found, -1))
    rest = work.json("search", index, work.path("q.npy"), "-k", 3, "--exclude", work.path("seen.npy"))["ids"]
    assert rest == found[:, 3:].tolist()


def test_datasets_of_strings(work):
    h5py = pytest.importorskip("h5py")
    with h5py.File(work.path("docs.h5"), "w") as file:
        file["v"], file["id"] = work.X, [f"é{i}" for i in range(200)]
    given = (work.path("docs.h5"), "--column", "v", "--id-column", "id")
    assert work.json("build", work.model(), *given, "-o", work.path("keyed"))["vectors"] == 200
    assert Index.load(work.path("keyed")).ids[3] == "é3"


def test_shells_complete_the_command(work):
    pytest.importorskip("shtab")
    for shell in ("bash", "zsh", "tcsh"):
        code, out, err = work("--print-completion", shell)
        assert (code, err) == (0, "")
        assert "compare" in out and (shell == "tcsh" or "--id-column" in out)


def test_an_interrupted_comparison_keeps_its_report(work, monkeypatch):
    measured = []
    train = cli.compare.train

    def second_is_interrupted(method, *args, **others):
        if measured:
            raise KeyboardInterrupt
        measured.append(method.name)
        return train(method, *args, **others)

    monkeypatch.setattr(cli.compare, "train", second_is_interrupted)
    monkeypatch.setattr("compcodes.progress._LINE_EVERY", 0)
    argv = ("compare", work.path("x.npy"), "--methods", "LSH,PQ", "--bytes", 2, "--output", work.path("r.html"))
    code, out, err = work(*argv)
    assert code == 130 and "interrupted: only these were compared." in out and "LSH" in out
    assert "LSH in 2 bytes: 1@1 " in err
    assert "LSH" in (work.folder / "r.html").read_text()
    measured.clear()
    code, out, err = work(*argv, "--json", "--quiet")
    found = json.loads(out)
    assert (code, err, found["interrupted"], len(found["results"])) == (130, "", True, 1)
    code, out, err = work(*argv)
    assert (code, out) == (130, "") and err.endswith("compcodes: error: interrupted\n")
