"""The command `compare`, where it is interrupted or has no terminal."""

import json
import re

from compcodes import cli


def test_compare_logs_where_there_is_no_terminal(work, monkeypatch):
    monkeypatch.setattr("compcodes.progress._LINE_EVERY", 0)
    argv = ("compare", work.path("x.npy"), "--methods", "PQ", "--bytes", 2, "--iterations", 3)
    assert re.search(r"^PQ 2 fit \d+%, all \d+%  0 s", work(*argv)[2], re.MULTILINE)
    assert work(*argv, "--quiet")[2] == ""


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
