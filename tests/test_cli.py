"""The command, run in this process; one test runs it as a process of its own."""

import json
import subprocess
import sys

import numpy as np
import pytest

from compcodes import CompositionalCodes, cli, data, evaluate


class Work:
    """A folder with vectors, queries and what the command makes of them."""

    def __init__(self, folder, capsys):
        self.folder, self._capsys = folder, capsys
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(200, 6)).astype("f4")
        self.Q = rng.normal(size=(9, 6)).astype("f4")
        self.save("x", self.X)
        self.save("q", self.Q)

    def path(self, name):
        return str(self.folder / name)

    def save(self, name, array):
        np.save(self.path(f"{name}.npy"), array)
        return self.path(f"{name}.npy")

    def __call__(self, *argv):
        """Run the command: its exit code, standard output and standard error."""
        code = cli.main([str(word) for word in argv])
        return code, *self._capsys.readouterr()

    def json(self, *argv):
        """Run the command with --json: what it found."""
        code, out, err = self(*argv, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def model(self):
        self(
            "fit",
            self.path("x.npy"),
            "-o",
            self.path("model"),
            "--bytes",
            3,
            "--codewords",
            8,
            "--iterations",
            3,
        )
        return self.path("model")

    def index(self, *options):
        self("build", self.model(), self.path("x.npy"), "-o", self.path("index"), *options)
        return self.path("index")


@pytest.fixture
def work(tmp_path, capsys):
    return Work(tmp_path, capsys)


def test_fit_passes_its_options_on(work):
    found = work.json(
        *("fit", work.path("x.npy"), "-o", work.path("m"), "--bytes", 3, "--codewords", 8, "--jobs", 1),
        *("--selection", "m-selection", "--encoder", "greedy", "--init", "random"),
        *("--loss", "reconstruction", "--iterations", 2, "--seed", 5),
    )
    sizes = [found[key] for key in ("vectors", "dimension", "codebooks", "codewords", "bytes_per_vector")]
    assert sizes == [200, 6, 3, 8, 3]
    assert 1 <= found["iterations"] <= 2
    same = CompositionalCodes(
        n_codebooks=3,
        n_codewords=8,
        selection="m-selection",
        encoder="greedy",
        loss="reconstruction",
        init="random",
        max_iter=2,
        random_state=5,
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
    assert (found["kind"], found["vectors"], found["bytes_per_vector"]) == ("index", 200, 3)
    code, out, _ = work("info", index)
    assert code == 0
    assert "index" in out


def test_eval_without_queries_is_an_error(work):
    nothing = work.save("nothing", np.zeros((0, 6), "f4"))
    code, _, err = work("eval", work.index(), nothing, "--vectors", work.path("x.npy"))
    assert (code, err) == (1, f"compcodes: error: {nothing}: no queries to measure with\n")


def test_demo_finds_neighbours_and_draws(work):
    pytest.importorskip("matplotlib")
    found = work.json("demo", "--bytes", 2, "--words", "king", "monday", "--output", work.path("out/demo"))
    assert [entry["word"] for entry in found["words"]] == ["king", "monday"]
    assert {"tuesday", "friday"} <= {name for name, _ in found["words"][1]["exact"]}
    assert (found["database"], found["queries"], found["bytes_per_vector"]) == (19_000, 1000, 2)
    with open(found["plot"], "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_demo_without_matplotlib_says_so(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, _ = work("demo", "--bytes", 1, "--output", work.path("out"))
    assert code == 0
    assert out.splitlines()[-1] == "no plot: drawing needs matplotlib; run: pip install 'compcodes[plot]'"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([], 2, "the following arguments are required: COMMAND (try: compcodes --help)"),
        (
            ["fit", "x.npy"],
            2,
            "the following arguments are required: -o/--output (try: compcodes fit --help)",
        ),
        (["fit", "x.npy", "-o", "m", "--bytes", "x"], 2, "argument --bytes: invalid int value: 'x' (try: "),
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
            "c.txt: the file is written as .npy, give a name that",
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
    assert "[" in work(*argv)[2]
    assert work(*argv, "--quiet")[2] == ""


def test_as_a_process(work):
    work.index()
    command = [
        sys.executable,
        "-m",
        "compcodes",
        "search",
        work.path("index"),
        work.path("q.npy"),
        "-k",
        "200",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("0\t1\t")
        process.stdout.close()  # as `head -1` does
        assert process.stderr.read() == ""
    done = subprocess.run([sys.executable, "-m", "compcodes", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("compcodes ")
