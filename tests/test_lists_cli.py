"""The command with lists, and builds that go on after a kill."""

import numpy as np
import pytest

import compcodes as cc
from compcodes.cli import resume

FIT = ("--codebooks", 3, "--codewords", 8, "--effort", "low")


@pytest.fixture
def divided(work):
    found = work.json("fit", work.path("x.npy"), "-o", work.path("model"), *FIT, "--lists", 8)
    assert found["lists"] == 8
    assert work.json("build", work.path("model"), work.path("x.npy"), "-o", work.path("index"))["lists"] == 8
    return work


def test_from_vectors_to_answers(divided):
    work = divided
    index = cc.Index.load(work.path("index"))
    for options, same in [(("--probe", 2), {"n_probe": 2}), (("--recall", 1), {"recall": 1}), ((), {})]:
        found = work.json("search", work.path("index"), work.path("q.npy"), "-k", 4, *options)
        np.testing.assert_array_equal(found["ids"], index.search(work.Q, 4, **same)[1])
    code, out, _ = work("info", work.path("index"))
    assert code == 0 and "vectors in a list:" in out and "█" in out and "drift" in out
    found = work.json("info", work.path("index"))
    assert sum(n for _, _, n in found["list_sizes"]) == found["lists"] == 8
    assert work.json("info", work.path("model"))["lists"] == 8
    work.json("build", work.path("model"), work.path("x.npy"), "--shards", 2, "-o", work.path("shards"))
    assert {name: work.json("info", work.path("shards"))[name] for name in ("lists", "list_sizes")} == {
        name: found[name] for name in ("lists", "list_sizes")
    }


def test_eval_tells_what_probes_find(divided):
    work = divided
    argv = ("eval", work.path("index"), work.path("q.npy"), "--vectors", work.path("x.npy"))
    found = work.json(*argv, "--plot", work.path("plot.svg"))
    assert [entry["lists"] for entry in found["probes"]] == [1, 4, 8]
    recalls = [entry["recall"] for entry in found["probes"]]
    assert recalls == sorted(recalls) and recalls[-1] > 0.5
    assert (work.folder / "plot.svg").stat().st_size > 1000
    code, out, _ = work(*argv)
    assert code == 0 and "lists, at least" in out and "true best 10, first 10" in out
    work.json("build", work.path("model"), work.path("x.npy"), "-o", work.path("shards"), "--shards", 2)
    again = work.json("eval", work.path("shards"), *argv[2:])
    assert again["recall"] == found["recall"] and [entry["recall"] for entry in again["probes"]] == recalls
    code, _, err = work("search", work.path("index"), work.path("q.npy"), "--probe", 2, "--recall", 0.9)
    assert code != 0 and "--probe and --recall are both given" in err


def test_codes_go_with_their_lists(divided):
    work = divided
    argv = ("encode", work.path("model"), work.path("x.npy"), "-o", work.path("codes.npy"))
    code, _, err = work(*argv)
    assert code == 2 and "--lists" in err
    work.json(*argv, "--lists", work.path("lists.npy"))
    codes = ("--codes", work.path("codes.npy"))
    assert work("build", work.path("model"), *codes, "-o", work.path("other"))[0] != 0
    work.json("build", work.path("model"), *codes, "--lists", work.path("lists.npy"), "-o", work.path("other"))
    assert (work.folder / "other").read_bytes() == (work.folder / "index").read_bytes()


@pytest.mark.parametrize("lists", [(), ("--lists", 6)])
@pytest.mark.parametrize("option", [(), ("--scale",)])
def test_a_build_goes_on_where_it_was(work, monkeypatch, lists, option):
    monkeypatch.setattr(resume, "PIECE", 64)
    work.json("fit", work.path("x.npy"), "-o", work.path("model"), *FIT, *lists)
    ids = work.save("ids", np.arange(200)[::-1] + 7)
    argv = ("build", work.path("model"), work.path("x.npy"), "-o", work.path("index"), "--ids", ids, *option)
    assert "resumed" not in work.json(*argv)
    assert not (work.folder / "index.checkpoint").exists()
    whole = cc.Index.load(work.path("index"))
    direct = cc.Index(cc.CompositionalCodes.load(work.path("model")), scale=bool(option))
    direct.add(work.X, np.arange(200)[::-1] + 7)
    for one, other in zip(whole.search(work.Q, 9), direct.search(work.Q, 9), strict=True):
        assert one.tobytes() == other.tobytes()

    encode, calls = cc.Index._encoded, []

    def dies(self, X, progress):
        calls.append(len(X))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, X, progress)

    (work.folder / "index").unlink()
    monkeypatch.setattr(cc.Index, "_encoded", dies)
    assert work(*argv)[0] != 0
    assert not (work.folder / "index").exists()
    checkpoint = work.folder / "index.checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes() + b"torn")  # a piece that was being written
    monkeypatch.setattr(cc.Index, "_encoded", encode)
    assert work.json(*argv)["resumed"] == 128
    again = cc.Index.load(work.path("index"))
    np.testing.assert_array_equal(again.codes, whole.codes)
    np.testing.assert_array_equal(again.ids, whole.ids)
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_vectors_is_not_used(work, monkeypatch):
    monkeypatch.setattr(resume, "PIECE", 64)
    model = work.model()
    (work.folder / "index.checkpoint").write_bytes(b'{"model": "another"}\n' + bytes(3000))
    assert "resumed" not in work.json("build", model, work.path("x.npy"), "-o", work.path("index"))
    direct = cc.Index(cc.CompositionalCodes.load(model)).add(work.X)
    np.testing.assert_array_equal(cc.Index.load(work.path("index")).codes, direct.codes)


def test_eval_of_keys_in_lists(divided):
    work = divided
    names = work.path("names.npy")
    np.save(names, np.array([f"name {i}" for i in range(len(work.X))]))
    work.json("build", work.path("model"), work.path("x.npy"), "-o", work.path("keyed"), "--ids", names)
    argv = (work.path("q.npy"), "--vectors", work.path("x.npy"))
    plain, keyed = (work.json("eval", work.path(name), *argv) for name in ("index", "keyed"))
    assert keyed["recall"] == plain["recall"]
    assert [entry["recall"] for entry in keyed["probes"]] == [entry["recall"] for entry in plain["probes"]]
