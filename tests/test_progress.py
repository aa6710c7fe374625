import io

import pytest

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
    with pytest.raises(TypeError, match=r"progress must be a callable.* got 3"):
        progress.as_callback(3)


def test_on_a_terminal_one_line_is_drawn_again_and_taken_away(clock):
    out = Terminal()
    bar = progress.Bar(out)
    bar("encode", 1, 4)
    clock[0] += 0.01
    bar("encode", 2, 4)  # too soon to be drawn
    clock[0] += 2
    bar("encode", 2, 4)
    drawn = out.getvalue().split("\r")[1:]
    assert [line.rstrip() for line in drawn] == [
        "encode       [########......................]  25%  0 s",
        "encode       [###############...............]  50%  2 s, about 2 s left",
    ]
    bar("encode", 4, 4)
    assert out.getvalue().endswith("\r" + " " * len(drawn[-1]) + "\r")
    assert "\n" not in out.getvalue()


def test_in_a_log_there_is_a_plain_line_now_and_then(clock):
    out = io.StringIO()
    bar = progress.Bar(out)
    for done in range(1, 14):
        clock[0] += 1
        bar("fit", done, 13)
    assert out.getvalue() == "fit  46%  5 s, about 6 s left\nfit  85%  10 s, about 2 s left\n"


def test_a_total_of_nothing_is_no_error(clock):
    out = Terminal()
    progress.Bar(out)("encode", 0, 0)
    progress.Bar(out)("encode", 0, -1)


def test_clearing_leaves_a_clean_terminal(clock):
    out = Terminal()
    bar = progress.Bar(out)
    bar.clear()
    assert out.getvalue() == ""
    bar("encode", 1, 4)
    bar.clear()
    assert out.getvalue().endswith(" \r")
