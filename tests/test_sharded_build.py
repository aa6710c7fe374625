"""Building a sharded index: of vectors in memory and in files, after an interruption, by the command."""

import json
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 12)).astype(np.float32)
Q = RNG.normal(size=(20, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def quantizer():
    return cc.CompositionalCodes(3, 32, effort="low", max_iter=1, anneal=0).fit(X)


def test_a_build_goes_on_where_it_was_interrupted(quantizer, tmp_path):
    whole, path, seen = cc.Index(quantizer).add(X), tmp_path / "index", []

    def interrupt(stage, done, total):
        seen.append((stage, done, total))
        if done == 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cc.ShardedIndex.build(path, quantizer, X, 6, progress=interrupt)
    kept = cc.ShardedIndex.open(path)
    assert len(kept) in (1000, 1500) and seen[-1] == ("build", 1500, 3000)
    files = {path.name for path in path.iterdir() if path.name.startswith("shard-")}
    other = cc.CompositionalCodes(3, 32, random_state=1, effort="low", max_iter=1, anneal=0).fit(X)
    with pytest.raises(ValueError, match="another model"):
        cc.ShardedIndex.build(path, other, X, 6)
    with pytest.raises(ValueError, match="other vectors or of another number of shards"):
        cc.ShardedIndex.build(path, quantizer, X, 5)
    with pytest.raises(ValueError, match="other vectors"):
        cc.ShardedIndex.build(path, quantizer, X[::-1], 6)
    wrong = X.copy()
    wrong[2600, 3] = np.nan
    with pytest.raises(ValueError, match="X row 2600 holds NaN"):
        cc.ShardedIndex.build(tmp_path / "wrong", quantizer, wrong, 6)
    assert len(cc.ShardedIndex.open(tmp_path / "wrong")) == 2500
    index = cc.ShardedIndex.build(path, quantizer, X, 6)
    assert len(index.shards) == 6 and files <= {shard.file for shard in index.shards}
    for a, b in zip(index.search(Q, 50), whole.search(Q, 50), strict=True):
        np.testing.assert_array_equal(a, b)
    assert cc.ShardedIndex.build(path, quantizer, X, 6).version == index.version
    assert not [path for path in path.iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize("keyed", [True, False])
def test_a_build_names_vectors_as_it_is_told(quantizer, tmp_path, keyed):
    rows, path = X[:900], tmp_path / "index"
    order = np.random.default_rng(0).permutation(900)
    ids = [("row", int(i)) for i in order] if keyed else order * 3 + 1

    def interrupt(stage, done, total):
        if done == 600:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cc.ShardedIndex.build(path, quantizer, rows, 3, ids=ids, keys=keyed, progress=interrupt)
    with pytest.raises(ValueError, match="other vectors"):
        cc.ShardedIndex.build(path, quantizer, rows, 3, ids=ids[::-1], keys=keyed)
    index = cc.ShardedIndex.build(path, quantizer, rows, 3, ids=ids, keys=keyed)
    whole = cc.Index(quantizer, keys=keyed).add(rows, ids)
    assert index.has_keys == keyed and index.ids.tolist() == list(ids) == whole.ids.tolist()
    found, want = index.search(Q, 30), whole.search(Q, 30)
    np.testing.assert_array_equal(found[0], want[0])
    assert found[1].tolist() == want[1].tolist()
    assert index.remove(ids[5:7]) == 2 and len(index.add(rows[:1], [ids[5]])) == 899
    for wrong, match in [
        ({"ids": [*ids[:-1], ids[0]], "keys": keyed}, "ids hold .* twice: want another for each vector"),
        ({"ids": ids[:-1], "keys": keyed}, "ids ha.*899.*one for each vector"),
        ({"keys": True}, "ids is None: give a key for each vector"),
    ]:
        with pytest.raises(ValueError, match=match):
            cc.ShardedIndex.build(tmp_path / "other", quantizer, rows, 3, **wrong)
    assert not (tmp_path / "other").exists() or len(cc.ShardedIndex.open(tmp_path / "other")) == 0


def test_the_command_line_builds_and_searches_folders(tmp_path, monkeypatch, capsys):
    from compcodes.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors").mkdir()
    np.save("vectors/a.npy", X[:1000])
    np.save("vectors/b.npy", X[1000:])
    np.save("queries.npy", Q)

    def run(*arguments):
        code = main([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    few = ["--codebooks", "2", "--codewords", "16", "--effort", "low", "--loss", "reconstruction"]
    code, fitted = run("fit", "vectors", "-o", "model", *few, "--max-train", "2000")
    assert code == 0 and (fitted["vectors"], fitted["trained_on"], fitted["dimension"]) == (3000, 2000, 12)
    code, built = run("build", "model", "vectors/*.npy", "-o", "folder", "--shards", "3")
    assert code == 0 and (built["vectors"], built["shards"]) == (3000, 3)
    assert run("build", "model", "vectors", "-o", "index")[0] == 0
    assert run("search", "folder", "queries.npy")[1]["ids"] == run("search", "index", "queries.npy")[1]["ids"]
    np.save("known.npy", np.arange(0, 3000, 2))
    found = [run("search", at, "queries.npy", "--exclude", "known.npy")[1]["ids"] for at in ("folder", "index")]
    assert found[0] == found[1] and (np.array(found[0]) % 2 == 1).all()
    found = [run("search", at, "queries.npy", "--rerank", "vectors")[1]["scores"] for at in ("folder", "index")]
    assert found[0] == found[1]
    names = [f"doc {i}" for i in range(3000)]
    Path("names.txt").write_text("\n".join(names))
    np.save("numbers.npy", np.arange(3000) * 2 + 9)
    for given, name in [("names.txt", names.__getitem__), ("numbers.npy", lambda i: 2 * i + 9)]:
        code, built = run("build", "model", "vectors", "-o", f"folder-{given}", "--shards", "3", "--ids", given)
        assert code == 0 and (built["vectors"], built["shards"]) == (3000, 3)
        found = run("search", f"folder-{given}", "queries.npy")[1]["ids"]
        assert found == [[name(i) for i in row] for row in run("search", "index", "queries.npy")[1]["ids"]]
    described = run("info", "folder")[1]
    assert (described["kind"], described["vectors"], described["shards"]) == ("sharded index", 3000, 3)
    for wrong, match in [
        (("build", "model", "vectors", "-o", "vectors", "--shards", "2"), "input|something else"),
        (("build", "model", "vectors", "-o", "x", "--scheduler", "tcp://x"), "--shards N"),
        (("build", "model", "--codes", "c.npy", "-o", "x", "--shards", "2"), "leave out --codes"),
        (("search", "index", "queries.npy", "--scheduler", "tcp://x"), "--shards N"),
    ]:
        code, said = run(*wrong)
        assert code == 2
        import re

        assert re.search(match, said["error"])


def test_no_more_shards_than_vectors(quantizer, tmp_path):
    index = cc.ShardedIndex.build(tmp_path / "three", quantizer, X[:3], 10)
    assert [shard.vectors for shard in index.shards] == [1, 1, 1] and index.ids.tolist() == [0, 1, 2]
    assert len(cc.ShardedIndex.build(tmp_path / "none", quantizer, X[:0], 10)) == 0
