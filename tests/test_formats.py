"""Files of every version of the format load, and mean what they meant."""

import json
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc
from compcodes import _core
from forge import parts
from write_files import as_text, searches

pytestmark = pytest.mark.filterwarnings("ignore::compcodes.MetricWarning")

FOLDERS = sorted((Path(__file__).parent / "data").glob("v*"))
EXPECTED = {folder: json.loads((folder / "expected.json").read_text()) for folder in FOLDERS}
MODELS = [folder / name for folder, all in EXPECTED.items() for name in all["files"] if name.startswith("model")]
INDEXES = [folder / name for folder, all in EXPECTED.items() for name in all["files"] if name.startswith("index")]


def expected(path):
    """What the file held when it was written, the vectors, and the queries."""
    all = EXPECTED[path.parent]
    return all["files"][path.name], np.array(all["X"], np.float32), np.array(all["Q"], np.float32)


def name(path):
    return f"{path.parent.name}/{path.name}"


def test_there_are_files_of_each_kind():
    assert [folder.name for folder in FOLDERS] == ["v1", "v2", "v3"]
    counts = {"v1": (14, 19), "v2": (16, 19), "v3": (4, 51)}
    for folder in FOLDERS:
        assert {path.name for path in folder.glob("*.cc")} == set(EXPECTED[folder]["files"])
        found = [sum(path.parent == folder for path in kind) for kind in (MODELS, INDEXES)]
        assert tuple(found) == counts[folder.name]
        for path in folder.glob("*.cc"):
            assert json.loads(parts(path)[0]["compcodes"])["version"] == int(folder.name[1:])


@pytest.mark.parametrize("path", MODELS, ids=name)
def test_a_model_encodes_as_it_did(path):
    want, X, _ = expected(path)
    quantizer = cc.Quantizer.load(path)
    assert type(quantizer).__name__ == want["class"]
    parameters = {name: repr(value) for name, value in quantizer.get_params().items()}
    if path.parent.name == "v1" and quantizer.get_params().get("loss", "") is None:
        parameters["loss"] = "'inner-product'"  # what the default is for inner products, and once was called
    wanted = dict(want["parameters"])
    for name in ("anneal", "max_iter"):
        if parameters.get(name) == "None":  # a file without it: the default is that of the effort now
            wanted.pop(name, None)
    assert parameters | wanted == parameters
    assert getattr(quantizer, "loss_", None) == want["loss"]
    assert len(quantizer.history_) == want["iterations"]
    if want["codebooks"] is not None:
        assert quantizer.codebooks_.tobytes().hex() == want["codebooks"]
    lists, target = None, X
    if "lists" in want:
        lists = quantizer.assign(X)
        assert lists.tolist() == want["lists"]
        target = _core.Target(X, quantizer.centroids_, lists)
    codes, then = quantizer.encode(X), np.frombuffer(bytes.fromhex(want["codes"]), np.uint8).reshape(len(X), -1)
    if "local-search" in want["parameters"].get("encoder", "").lower().replace("localsearch", "local-search"):
        # Its random changes are others than in the release that wrote the file: the codes are as good.
        eta = quantizer.loss_.get("eta") or 1.0
        now, before = (_core.errors(quantizer.codebooks_, target, each, eta).mean() for each in (codes, then))
        assert now <= before * 1.01
    else:
        np.testing.assert_array_equal(codes, then)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("path", INDEXES, ids=name)
def test_an_index_finds_what_it_did(path, mmap):
    want, X, Q = expected(path)
    index = cc.Index.load(path, mmap=mmap)
    assert (index.metric, len(index)) == (want["metric"], len(want["ids"]))
    assert index.codes.tobytes().hex() == want["codes"]
    assert [*map(as_text, index.ids)] == want["ids"]
    assert "lists" not in want or index.lists.tolist() == want["lists"]
    scores, found = index.search(Q, 5)
    if path.parent.name == "v1" and (index.metric == "cosine" or "levels" in path.name):
        # They were near what they are now: those of the decoded vectors.
        decoded = index.quantizer.decode(index.codes)
        exact, rows = cc.evaluate.ground_truth(decoded, Q, 5, metric=index.metric)
        np.testing.assert_allclose(scores, exact, rtol=1e-6)
        np.testing.assert_array_equal(found, np.append(index.ids, -1)[rows])
    else:
        for name, options in searches(index, X).items():
            if "found" + name in want:
                scores, found = index.search(Q, 5, **options)
                np.testing.assert_allclose(scores, np.array(want["scores" + name], np.float32), rtol=1e-6)
                assert [[*map(as_text, row)] for row in found] == want["found" + name]
    index.add(X[:3], ["new", "newer", "newest"] if index.has_keys else None)
    assert len(index) == len(want["ids"]) + 3


def test_codes_of_a_byte_each_become_half_a_byte(tmp_path):
    path = FOLDERS[0] / "index-cosine.cc"  # two codes of 4 codewords, and a byte of the norm
    _, X, Q = expected(path)
    loaded, mapped = (cc.Index.load(path, mmap=mmap) for mmap in (False, True))
    assert (loaded.bytes_per_vector, mapped.bytes_per_vector) == (2, 3)
    mapped.save(tmp_path / "copy.cc")
    for index in (mapped, cc.Index.load(tmp_path / "copy.cc")):
        for got, want in zip(index.search(Q, 9), loaded.search(Q, 9), strict=True):
            np.testing.assert_array_equal(got, want)
    for index in (loaded, mapped):
        index.add(X[:3])
    assert mapped.bytes_per_vector == 2
    loaded.save(tmp_path / "loaded.cc")
    mapped.save(tmp_path / "mapped.cc")
    assert (tmp_path / "loaded.cc").read_bytes() == (tmp_path / "mapped.cc").read_bytes()
