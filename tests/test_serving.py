"""The example search server: what it answers, and that it takes a new file."""

import http.client
import importlib.util
import json
import threading
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc

SOURCE = Path(__file__).parents[1] / "examples" / "serving" / "server.py"


@pytest.fixture
def server():
    spec = importlib.util.spec_from_file_location("search_server", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ask(server, quantizer, X, tmp_path):
    path = tmp_path / "index.cc"
    cc.Index(quantizer).add(X).save(path)
    listening = server.listen(0)
    threading.Thread(target=server.serve_file, args=(listening, str(path)), daemon=True).start()
    connection = http.client.HTTPConnection(*listening.getsockname(), timeout=60)

    def ask(body, where="/search?k=3"):
        connection.request("POST", where, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    ask.path = path
    yield ask
    connection.close()


def pairs(index, Q):
    scores, ids = index.search(Q, 3)
    return [[list(pair) for pair in zip(*row, strict=True)] for row in zip(ids.tolist(), scores.tolist(), strict=True)]


def test_it_answers_as_the_index_does_and_takes_a_new_file(ask, quantizer, X, Q):
    assert ask(Q[:2].tobytes()) == (200, {"found": pairs(cc.Index(quantizer).add(X), Q[:2])})
    other = cc.Index(quantizer).add(X[:50])
    other.save(ask.path)
    assert ask(Q[:2].tobytes()) == (200, {"found": pairs(other, Q[:2])})
    cc.Index(quantizer).add(X[:1]).save(ask.path)
    status, found = ask(Q[:1].tobytes())
    assert (status, len(found["found"][0])) == (200, 1)  # fewer than k are there


@pytest.mark.parametrize(
    ("body", "where", "status"),
    [
        (b"123", "/search?k=3", 400),
        (np.zeros(7, "f4").tobytes(), "/search", 400),
        (np.full(12, np.nan, "f4").tobytes(), "/search", 400),
        (np.zeros(12, "f4").tobytes(), "/search?k=0", 400),
        (np.zeros(12, "f4").tobytes(), "/search?k=1000000", 400),
        (np.zeros(12, "f4").tobytes(), "/search?k=x", 400),
        (b"", "/search", 413),
        (np.zeros(12, "f4").tobytes(), "/elsewhere", 404),
    ],
)
def test_a_bad_request_is_an_answer(ask, Q, body, where, status):
    got, answer = ask(body, where)
    assert got == status and answer["error"]
