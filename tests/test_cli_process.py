"""The command as a process of its own: what becomes of its streams."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

COMMAND = [sys.executable, "-m", "compcodes"]


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


def run(*argv, command=COMMAND, **options):
    return subprocess.run([*command, *argv], capture_output=True, text=True, **options)


def piped_to_nothing(*argv):
    """Run the command with an output that nobody reads any more: its exit code and standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, *argv], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    return done.returncode, done.stderr


def test_a_closed_output_is_an_error_of_one_line(work):
    shell = f"exec {sys.executable} -m compcodes info {work.path('x.npy')} >&-"
    done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "compcodes: error: standard output is closed\n")


def test_a_closed_error_output_changes_nothing(work):
    shell = f"exec {sys.executable} -m compcodes info {work.path('x.npy')} 2>&-"
    done = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("file  ")
    shell = f"exec {sys.executable} -m compcodes info nothing.npy 2>&-"
    done = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("argv", [["info", "nothing.npy", "--json"], ["search", "--json"], ["--help"]])
def test_a_reader_that_has_gone_is_no_traceback(argv):
    code, err = piped_to_nothing(*argv)
    assert argv == ["--help"] or code == 1
    assert err.count("\n") == (0 if argv == ["--help"] else 1)
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [[], ["demo"], ["fit"], ["build"], ["search"], ["eval"], ["compare"]])
def test_help_in_an_encoding_without_its_signs(command):
    done = run(*command, "--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: compcodes")


def test_scores_of_nothing_are_null_in_json(work):
    excluded = np.full((len(work.Q), len(work.X) - 1), -1)
    excluded[0] = np.arange(len(work.X) - 1)
    argv = ("search", work.index(), work.path("q.npy"), "-k", 3, "--exclude", work.save("excluded", excluded))
    found = work.json(*argv)
    assert found["scores"][0][1:] == [None, None] and None not in found["scores"][1]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_scores_beyond_float32_are_refused(work):
    queries = work.save("huge", np.full((1, 6), 3e38, "f4"))
    code, out, _ = work("search", work.index(), queries, "-k", 200, "--json")
    assert code == 1
    assert "huge.npy row 0 is too large: its inner products are beyond float32" in json.loads(out)["error"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("argv", [["info", "x.npy", "--json"], ["info", "x.npy"], ["info", "none.npy", "--json"]])
def test_a_full_output_is_one_line(work, argv):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *argv], stdout=full, stderr=subprocess.PIPE, text=True, cwd=work.folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "compcodes: error: standard output: No space left on device"
    assert done.stderr.count("\n") == 1 + ("none.npy" in argv)


def test_an_interruption_of_the_imports_is_one_line(tmp_path):
    """A numpy that interrupts its import stands in for Ctrl-C in the first half second."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    script = tmp_path / "compcodes"
    script.write_text("import sys\nfrom compcodes.cli import main\nsys.exit(main())\n")
    for command in (COMMAND, [sys.executable, str(script)]):
        done = run(*command[1:], "info", "x.npy", env={**os.environ, "PYTHONPATH": str(tmp_path)}, command=command[:1])
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "compcodes: error: interrupted\n")


def test_a_disk_that_fills_is_named_by_the_file(work):
    """A limit on the size of files stands in for the disk."""
    model, codes = work.model(), work.path("codes.npy")
    many = work.save("many", np.zeros((4000, 6), "f4"))
    done = run("encode", model, many, "-o", codes, preexec_fn=few_bytes_a_file)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"compcodes: error: {codes}: File too large\n")
    assert not [name for name in os.listdir(work.folder) if name.startswith("codes")]


def few_bytes_a_file():
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
