import io
import re
import sys

import numpy as np
import pytest

import compcodes as cc
from compcodes import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_what_is_passed_as_progress():
    def callback(stage, done, total):
        pass

    assert progress.as_callback(None) is None
    assert progress.as_callback(False) is None
    assert progress.as_callback(callback) is callback
    assert isinstance(progress.as_callback(True), progress.Bar)
    with pytest.raises(TypeError, match=r"progress is 3: want a callable"):
        progress.as_callback(3)


def test_on_a_terminal_a_bar_is_drawn_again_and_taken_away():
    pytest.importorskip("tqdm")
    out = Terminal()
    bar = progress.Bar(out)
    bar("encode", 0, 4)
    bar._bar.mininterval = 0
    bar("encode", 1, 4)
    bar("encode", 2, 8)
    assert re.findall(r"(\w+: +\d+%)\|.*?\| (\d/\d)", out.getvalue().replace(".00", "")) == [
        ("encode:   0%", "0/4"), ("encode:  25%", "1/4"), ("encode:  25%", "2/8"),
    ]  # fmt: skip
    bar("encode", 8, 8)
    assert out.getvalue().endswith("\r") and "\n" not in out.getvalue()
    bar("search", 0, 2)
    assert "search:   0%" in out.getvalue()
    bar.close()
    assert out.getvalue().endswith("\r")
    assert out.getvalue().split("\r")[-2].strip() == ""


def test_without_tqdm_a_terminal_gets_plain_lines(clock, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    out = Terminal()
    bar = progress.Bar(out)
    bar("fit", 0, 10)
    clock[0] += 5
    bar("fit", 5, 10)
    assert out.getvalue() == "fit 50%  5 s, about 5 s left\n"


def test_in_a_log_there_is_a_plain_line_now_and_then(clock):
    out = io.StringIO()
    bar = progress.Bar(out)
    for done in range(1, 14):
        clock[0] += 1
        bar("fit", done, 13)
    assert out.getvalue() == "fit 46%  5 s, about 6 s left\nfit 85%  10 s, about 2 s left\n"


def test_time_left_is_that_of_the_whole_job(clock):
    out = io.StringIO()
    bar = progress.Bar(out)
    bar.expect({"choose loss": 1, "fit": 3})
    clock[0] += 4
    bar("choose loss", 4, 10)
    clock[0] += 6
    bar("choose loss", 10, 10)
    bar.say("chosen")
    clock[0] += 10
    bar("fit", 1, 3)
    clock[0] += 5
    bar("search", 0, 1)  # nobody said that this would come
    clock[0] += 5
    bar("search", 1, 2)
    assert out.getvalue().splitlines() == [
        "choose loss 100%, all 25%  10 s, about 30 s left",
        "chosen",
        "fit 33%, all 50%  20 s, about 20 s left",
        "search 50%  5 s, about 5 s left",
    ]


def test_a_bar_of_the_whole_job():
    pytest.importorskip("tqdm")
    out = Terminal()
    bar = progress.Bar(out)
    bar.expect({"choose loss": 1, "fit": 3})
    bar("choose loss", 0, 4)
    bar._bar.mininterval = 0
    bar("choose loss", 4, 4)
    bar("fit", 1, 3)
    bar.say("a line of its own")
    assert re.findall(r"[a-z ]+: +\d+%", out.getvalue())[0] == "choose loss:   0%"
    assert "fit:  50%" in out.getvalue()
    assert "\ra line of its own\n" in out.getvalue()
    bar.close()


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_total_of_nothing_is_no_error(stream):
    bar = progress.Bar(stream())
    bar("encode", 0, 0)
    bar("encode", 0, -1)
    bar.close()


@pytest.mark.parametrize(
    "params",
    [
        {"n_codebooks": 4, "n_codewords": 16},
        {"n_codebooks": 4, "n_codewords": 16, "n_lists": 20},
        {"n_codebooks": 8, "n_codewords": 16, "n_groups": 3},
        {"n_codebooks": 4, "n_codewords": 16, "n_groups": 2},  # a trunk and one group
        {"n_codebooks": 4, "n_codewords": 64, "tol": 0.5},  # ends early
    ],
)
def test_training_tells_of_one_total_and_reaches_it(params):
    X = np.random.default_rng(0).normal(size=(4000, 8)).astype(np.float32)
    told = []
    q = cc.CompositionalCodes(**params, effort="low")
    q.fit(X, progress=lambda stage, done, total: told.append((stage, done, total)))
    for stage in {stage for stage, *_ in told}:
        dones, totals = zip(*((done, total) for name, done, total in told if name == stage), strict=True)
        assert len(set(totals)) == 1, stage
        assert list(dones) == sorted(dones), stage
    assert told[-1][0] == "fit"
    assert told[-1][1] == told[-1][2]
