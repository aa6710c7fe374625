"""The command as a process of its own: what becomes of its streams."""

import json
import os
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


def run(*argv, **options):
    return subprocess.run([*COMMAND, *argv], capture_output=True, text=True, **options)


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


@pytest.mark.parametrize("command", [[], ["demo"], ["fit"], ["build"], ["search"], ["eval"], ["compare"], ["paper"]])
def test_help_in_an_encoding_without_its_signs(command):
    done = run(*command, "--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: compcodes")


def test_scores_beyond_float32_are_null_in_json(work):
    queries = work.save("huge", np.full((1, 6), 3e38, "f4"))
    found = work.json("search", work.index(), queries, "-k", 200)
    assert None in found["scores"][0]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
