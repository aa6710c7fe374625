"""What the command says of wrong use, and of what goes wrong."""

import json
import os

import numpy as np
import pytest

from compcodes import CompositionalCodes, data


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


def test_without_a_command_there_is_help(work):
    code, out, err = work()
    assert (code, out) == (2, "")
    assert err.startswith("usage: compcodes")
    assert "  search " in err


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
            ["fit", "x.npy", "-o", "m", "--codebooks", "3", "--codewords", "2", "--selection", "m-combination"],
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
        (["fit", "folder:v", "-o", "m"], 1, "folder: no vector files, want some of .npy, "),
        (["fit", "folder:v", "-o", "m", "--column", "w"], 1, "folder:v names a column already: leave out w"),
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
    (work.folder / "folder").mkdir()
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


def test_an_interruption_is_exit_code_130(work, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(CompositionalCodes, "fit", interrupted)
    assert work("fit", work.path("x.npy"), "-o", work.path("m")) == (
        130,
        "",
        "compcodes: error: interrupted\n",
    )


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
def test_a_full_disk_is_named_by_the_file(work, monkeypatch):
    """/dev/full takes nothing, and can be linked to."""
    report, plot = work.path("report.html"), work.path("p.png")

    def full(folder):  # what is written first, and then takes the report's place
        path = folder / ".compcodes-0.part"
        path.symlink_to("/dev/full")
        return path

    os.symlink("/dev/full", plot)
    monkeypatch.setattr(data.files, "new_file", full)
    code, out, err = work("compare", work.path("x.npy"), "--methods", "LSH", "--output", report, "--quiet")
    assert (code, out, err) == (1, "", f"compcodes: error: {report}: No space left on device\n")
    assert not os.path.lexists(work.path(".compcodes-0.part")) and not os.path.exists(report)
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    code, out, err = work("eval", work.index(), work.path("q.npy"), "--vectors", work.path("x.npy"), "--plot", plot)
    assert (code, out, err) == (1, "", f"compcodes: error: {plot}: No space left on device\n")


def test_what_nobody_expected_is_one_line_too(work, monkeypatch):
    monkeypatch.setattr(CompositionalCodes, "fit", lambda *args, **others: {}["lost"])
    code, out, err = work("fit", work.path("x.npy"), "-o", work.path("m"))
    assert (code, out, err) == (1, "", "compcodes: error: unexpected KeyError: 'lost'\n")


def test_shells_complete_the_command(work):
    pytest.importorskip("shtab")
    for shell in ("bash", "zsh", "tcsh"):
        code, out, err = work("--print-completion", shell)
        assert (code, err) == (0, "")
        assert "compare" in out and (shell == "tcsh" or "--id-column" in out)
