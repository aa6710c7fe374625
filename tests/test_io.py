import os
import pickle
import stat

import numpy as np
import pytest

import compcodes as cc


@pytest.fixture(scope="module")
def index(quantizer, X):
    return cc.Index(quantizer).add(X, ids=np.arange(len(X)) * 2)


def test_a_model_comes_back(quantizer, X, tmp_path):
    quantizer.save(tmp_path / "model.cc")
    loaded = cc.CompositionalCodes.load(tmp_path / "model.cc")
    np.testing.assert_array_equal(loaded.codebooks_, quantizer.codebooks_)
    assert loaded.get_params() == quantizer.get_params()
    assert loaded.history_ == quantizer.history_
    np.testing.assert_array_equal(loaded.encode(X), quantizer.encode(X))


def test_what_json_cannot_hold_is_left_out(X, tmp_path):
    rng = np.random.default_rng(0)
    q = cc.CompositionalCodes(np.int64(2), 4, init=X[:8].reshape(2, 4, 12), random_state=rng, tol=np.float32(0.5)).fit(
        X
    )
    q.save(tmp_path / "model.cc")
    loaded = cc.CompositionalCodes.load(tmp_path / "model.cc")
    np.testing.assert_array_equal(loaded.codebooks_, q.codebooks_)
    assert loaded.init == "residual"


def test_an_index_comes_back(index, Q, X, tmp_path):
    index.save(tmp_path / "index.cc")
    loaded = cc.Index.load(tmp_path / "index.cc")
    for a, b in zip(loaded.search(Q, 20), index.search(Q, 20), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(loaded.codes, index.codes)
    np.testing.assert_array_equal(loaded.ids, index.ids)
    loaded.add(X[:5])
    assert len(loaded) == len(X) + 5
    np.testing.assert_array_equal(
        cc.CompositionalCodes.load(tmp_path / "index.cc").codebooks_, index.quantizer.codebooks_
    )
    cc.Index(index.quantizer).save(tmp_path / "empty.cc")
    assert len(cc.Index.load(tmp_path / "empty.cc")) == 0


@pytest.mark.parametrize(
    "settings", [{}, {"metric": "l2"}, {"metric": "cosine"}, {"scale": True}, {"residuals": True}], ids=str
)
def test_a_mapped_index_searches_and_changes_alike(quantizer, X, Q, tmp_path, settings):
    index = cc.Index(quantizer, **settings).add(X)
    index.save(tmp_path / "index.cc")
    mapped = cc.Index.load(tmp_path / "index.cc", mmap=True)
    for a, b in zip(mapped.search(Q, 20), index.search(Q, 20), strict=True):
        np.testing.assert_array_equal(a, b)
    for changed in (mapped, index):
        changed.add(X[:7])
        changed.remove([1, 2])
    for a, b in zip(mapped.search(Q, 20), index.search(Q, 20), strict=True):
        np.testing.assert_array_equal(a, b)
    mapped.save(tmp_path / "index.cc")
    assert len(cc.Index.load(tmp_path / "index.cc")) == len(X) + 5


def test_saving_replaces_whole_files_and_leaves_no_others(index, quantizer, tmp_path):
    path = tmp_path / "index.cc"
    index.save(path)
    index.save(path)
    assert os.listdir(tmp_path) == ["index.cc"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    with pytest.raises(OSError, match="No such file"):
        quantizer.save(tmp_path / "nowhere" / "model.cc")
    with pytest.raises(OSError, match="No such file"):
        cc.Index.load(tmp_path / "nowhere.cc")
    with pytest.raises((OSError, ValueError)):
        index.save(tmp_path)
    with pytest.raises((OSError, ValueError)):
        cc.Index.load(tmp_path)


def test_a_model_is_not_an_index(quantizer, tmp_path):
    quantizer.save(tmp_path / "model.cc")
    with pytest.raises(ValueError, match="not an index"):
        cc.Index.load(tmp_path / "model.cc")


def test_hostile_files_are_errors(index, tmp_path):
    path = tmp_path / "index.cc"
    index.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    files = [b"", b"x", b"\0" * 8, b"\xff" * 64, b'{"a": 1}', good[:-1], good + b"\0", good[:100]]
    files += [good[: rng.integers(len(good))] for _ in range(20)]
    for _ in range(50):
        changed = bytearray(good)
        changed[rng.integers(len(good) // 2, len(good))] ^= 1 << rng.integers(8)
        files.append(bytes(changed))
    files.append(good.replace(rb"{\"version\":3}", rb"{\"version\":4}"))
    assert files[-1] != good
    for content in files:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"index\.cc"):
            cc.Index.load(path)


def test_an_index_can_be_pickled(index, Q):
    thawed = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(thawed.search(Q, 5)[1], index.search(Q, 5)[1])


@pytest.mark.parametrize("ids", [None, 1000])
def test_no_bit_of_a_header_changes_unnoticed(quantizer, X, Q, tmp_path, ids):
    path = tmp_path / "index.cc"
    index = cc.Index(quantizer).add(X[:100], ids=None if ids is None else ids + np.arange(100))
    index.save(path)
    good = path.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    want = index.search(Q, 100)[1]
    rng = np.random.default_rng(0)
    for at in rng.choice(header, 400, replace=False):
        changed = bytearray(good)
        changed[at] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        try:
            loaded = cc.Index.load(path)
        except ValueError:
            continue
        np.testing.assert_array_equal(loaded.search(Q, 100)[1], want)
        assert loaded.quantizer.get_params() == index.quantizer.get_params()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipes_links_and_modes_are_respected(index, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((OSError, ValueError), match="not a file"):
        cc.Index.load(tmp_path / "pipe")
    with pytest.raises((OSError, ValueError), match="not a file"):
        index.save(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    index.save(tmp_path / "private.cc")
    os.chmod(tmp_path / "private.cc", 0o600)
    os.symlink(tmp_path / "private.cc", tmp_path / "link.cc")
    index.save(tmp_path / "link.cc")
    assert (tmp_path / "link.cc").is_symlink()
    assert stat.S_IMODE((tmp_path / "private.cc").stat().st_mode) == 0o600
    assert len(cc.Index.load(os.fsencode(tmp_path / "link.cc"))) == len(index)
    index.save(tmp_path / ("x" * 255))
