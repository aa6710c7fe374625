"""A folder of shards is one index: the same results, whole versions, and what does not fit is refused."""

import json
import os
import pickle
import sys
import threading

import numpy as np
import pytest

import compcodes as cc

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 12)).astype(np.float32)
X[100:140] = X[:40]  # ties
Q = RNG.normal(size=(20, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def quantizer():
    return cc.CompositionalCodes(3, 32, effort="low", max_iter=1, anneal=0).fit(X)


@pytest.fixture
def folder(quantizer, tmp_path):
    """An index in shards of uneven sizes."""
    index = cc.ShardedIndex.create(tmp_path / "index", quantizer)
    for first, last in [(0, 120), (120, 121), (121, 2000), (2000, 3000)]:
        index.add(X[first:last])
    return index


def same(found, want):
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.isa
@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
def test_it_finds_what_one_index_finds(quantizer, tmp_path, metric):
    whole = cc.Index(quantizer, metric).add(X)
    index = cc.ShardedIndex.create(tmp_path / "index", quantizer, metric)
    for part in np.array_split(X, [5, 5, 1000, 2990]):
        index.add(part)
    assert len(index) == 3000 and len(index.shards) == 5
    for k in (1, 10, 3001):
        same(index.search(Q, k), whole.search(Q, k))
    mask = RNG.random(3000) < 0.1
    for filter in (mask, np.flatnonzero(mask), range(7, 2900, 3)):
        same(index.search(Q, 10, filter=filter), whole.search(Q, 10, filter=filter))
    same(index.search(Q, 5, rerank=X, n_candidates=50), whole.search(Q, 5, rerank=X, n_candidates=50))
    same(index.search(Q, 5, rerank=lambda ids: X[ids]), whole.search(Q, 5, rerank=X))
    order = RNG.permutation(3000)
    same(index.search(Q, 5, rerank=X[order], rerank_ids=order), whole.search(Q, 5, rerank=X))
    np.testing.assert_array_equal(index.reconstruct([2999, 0, 4]), whole.reconstruct([2999, 0, 4]))
    assert index.bytes_per_vector == whole.bytes_per_vector and index.metric == metric
    assert index.quantizer.decode(np.zeros((1, 3), np.uint8)).shape == (1, 12)


def test_a_pickle_is_the_folder(folder):
    again = pickle.loads(pickle.dumps(folder))
    same(again.search(Q, 5), folder.search(Q, 5))


def test_an_index_without_shards_finds_nothing(quantizer, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", quantizer)
    scores, ids = index.search(Q, 3)
    assert (scores == -np.inf).all() and (ids == -1).all() and len(index) == 0 and 0 not in index
    same(index.search(Q, 3, rerank=X[:0]), (scores, ids))
    index.add(X[:0])
    same(index.search(Q, 3, filter=np.zeros(0, bool)), (scores, ids))


def test_removed_vectors_are_gone_before_and_after_compacting(folder, quantizer):
    gone = np.r_[0, 120, 130:1990, 2000, 2999]
    whole = cc.Index(quantizer).add(X)
    whole.remove(gone)
    left = whole.ids
    assert len(left) == 3000 - len(gone)
    assert folder.remove(gone) == len(gone)
    mask = RNG.random(len(left)) < 0.5

    def check():
        assert len(folder) == len(left) and 120 not in folder and 1 in folder
        np.testing.assert_array_equal(folder.ids, left)
        same(folder.search(Q, 20), whole.search(Q, 20))
        same(folder.search(Q, 20, filter=mask), whole.search(Q, 20, filter=mask))
        same(folder.search(Q, 20, rerank=X[left]), whole.search(Q, 20, rerank=X[left]))
        with pytest.raises(ValueError, match="no id 130"):
            folder.remove([1, 130])
        with pytest.raises(ValueError, match="no id 2000"):
            folder.reconstruct([2000])

    check()
    assert [shard.n_removed for shard in folder.shards] == [1, 1, 1860, 2]
    folder.compact(share=0.5)
    assert [shard.vectors for shard in folder.shards] == [120, 19, 1000]
    check()
    version = folder.compact().version
    assert all(shard.n_removed == 0 for shard in folder.shards)
    check()
    assert folder.compact().version == version  # nothing to do
    folder.add(X[:3])  # ids of what was removed are not given again
    np.testing.assert_array_equal(folder.ids[-3:], [3000, 3001, 3002])
    folder.verify()


def test_shards_bring_ids_of_their_own_or_are_numbered_on(quantizer, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", quantizer)
    index.add_shard(cc.Index(quantizer).add(X[:10], ids=np.arange(10) * 7 + 5))
    index.add_shard(cc.Index(quantizer).add(X[10:20]))
    np.testing.assert_array_equal(index.ids, np.r_[np.arange(10) * 7 + 5, 69:79])
    path = tmp_path / "other.index"
    cc.Index(quantizer).add(X[20:30]).save(path)
    index.add_shard(path, first_id=1000)
    assert path.exists() and index.ids[-1] == 1009
    for bad, match in [(1005, "has already"), (2**63 - 5, "first_id"), (-1, "first_id")]:
        with pytest.raises(ValueError, match=match):
            index.add_shard(path, first_id=bad)
    index.add_shard(cc.Index(quantizer).add(X[:2], ids=[6, 7]))  # between those of the first shard
    with pytest.raises(ValueError, match="has the id 12, which the index has already: want others, or give first_id"):
        index.add_shard(cc.Index(quantizer).add(X[:2], ids=[8, 12]))
    assert len(index) == 32 == len(cc.ShardedIndex.open(index.path))


def test_the_largest_ids_leave_a_folder_that_opens(quantizer, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "largest", quantizer)
    index.add(X[:2], ids=[0, 2**63 - 2])
    index.add(X[2:3])  # which gets the last id that there is
    np.testing.assert_array_equal(cc.ShardedIndex.open(index.path).ids, [0, 2**63 - 2, 2**63 - 1])
    with pytest.raises(ValueError, match="no ids are left"):
        index.add(X[3:4])
    index.add(X[3:4], ids=[5])
    assert len(cc.ShardedIndex.open(index.path)) == 4
    # Ids of removed vectors count: shards are read with them.
    removed = cc.Index(quantizer).add(X[:3], ids=[0, 1, 2**63 - 1])
    removed.remove([2**63 - 1])
    index = cc.ShardedIndex.create(tmp_path / "removed", quantizer).add(X[:10])
    for given in ({}, {"first_id": 100}):
        with pytest.raises(ValueError, match="first_id .* removed"):
            index.add_shard(removed, **given)
    assert len(index) == 10 == len(cc.ShardedIndex.open(index.path))
    assert index.add(X[10:12]).ids[-1] == 11


def test_what_is_of_another_model_is_refused(folder, quantizer, tmp_path):
    other = cc.CompositionalCodes(3, 32, random_state=1, effort="low", max_iter=1, anneal=0).fit(X)
    cc.Index(other).add(X[:5]).save(tmp_path / "other")
    before = sorted(os.listdir(folder.path))
    with pytest.raises(ValueError, match="another model .*fingerprint"):
        folder.add_shard(tmp_path / "other")
    with pytest.raises(ValueError, match="cosine.*want the same"):
        folder.add_shard(cc.Index(quantizer, "cosine").add(X[:5]))
    with pytest.raises(FileExistsError):
        cc.ShardedIndex.create(folder.path, quantizer)
    assert sorted(os.listdir(folder.path)) == before and folder.version == 4
    for argument in ({"n_candidates": 5}, {"rerank_ids": [1]}, {"filter": np.ones(5, bool)}, {"rerank": X[:9]}):
        with pytest.raises(ValueError, match=r"n_candidates|rerank|filter"):
            folder.search(Q, 3, **argument)
    with pytest.raises(TypeError, match="client is 5"):
        folder.search(Q, 3, client=5)


def test_damage_is_seen(folder):
    path = folder.path / folder.shards[2].file
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        folder.verify()
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="bytes, the manifest says"):
        cc.ShardedIndex.open(folder.path)
    manifest = folder.path / "manifest.json"
    text = manifest.read_text()
    for bad, match in [
        ("{", "not a manifest"),
        ("[]", "not a manifest"),
        (json.dumps(json.loads(text) | {"format_version": 3}), "update compcodes"),
        (text.replace(folder.shards[0].file, "../x"), "outside its folder"),
        (text.replace('"vectors"', '"vector"'), "damaged"),
    ]:
        manifest.write_text(bad)
        with pytest.raises(ValueError, match=match):
            cc.ShardedIndex.open(folder.path)
    with pytest.raises(FileNotFoundError):
        cc.ShardedIndex.open(folder.path / "nowhere")


def test_readers_see_whole_versions(folder):
    """While one thread adds, removes and compacts, each opening is of one version, and stays so."""
    stop, errors, sizes = threading.Event(), [], set()

    def read():
        try:
            while not stop.is_set():
                index = cc.ShardedIndex.open(folder.path, n_jobs=1)
                ids = index.search(Q[:1], 10_000)[1]
                assert (ids >= 0).sum() == len(index)
                sizes.add(len(index))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    writer = cc.ShardedIndex.open(folder.path)
    for i in range(8):
        writer.add(X[:10])
        writer.remove(writer.ids[[0, -1]])
        if i % 3 == 2:
            writer.compact()
    stop.set()
    thread.join()
    assert not errors
    assert sizes <= {3000 + 8 * i + 10 * j for i in range(9) for j in (0, 1)} and len(sizes) > 1
    assert len(folder) == 3000 == len(folder._opened.shards)
    assert (folder.search(Q, 10)[1] >= 0).all()  # its files are mapped though their names are gone
    assert len(folder.refresh()) == 3064
    names = {path.name for path in folder.path.iterdir()} - {"manifest.json", ".lock"}
    assert names == writer._opened.manifest.files() | set(writer._opened.manifest.previous)


def test_a_writer_that_fails_leaves_all_as_it_was(folder, monkeypatch):
    from compcodes.sharded import manifest

    def fail(*_, **__):
        raise OSError(28, "disk full")

    monkeypatch.setattr(manifest.json, "dump", fail)
    with pytest.raises(OSError, match="disk full"):
        folder.add(X[:5])
    monkeypatch.undo()
    assert len(cc.ShardedIndex.open(folder.path)) == 3000
    folder.add(X[:5])  # under the name that the failed one left
    assert len(folder) == 3005
    assert not [path for path in folder.path.iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize("given", [[0, 1], [1, 0], [5, 3]])
def test_ids_that_are_given_are_kept(tmp_path, given):
    q = cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(2, 4, 3)))
    X = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    index = cc.ShardedIndex.create(tmp_path / "shards", q).add(X[:2], ids=[10, 11]).add(X[2:], ids=given)
    assert index.ids.tolist() == [10, 11, *given]
    with pytest.raises(ValueError, match="which the index has already"):
        index.add(X[:1], ids=[given[0]])


@pytest.mark.parametrize(
    ("first_id", "error"), [(500.0, TypeError), (True, TypeError), ("x", TypeError), (-1, ValueError)]
)
def test_a_first_id_is_an_integer(tmp_path, first_id, error):
    q = cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(2, 4, 3)))
    X = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    index = cc.ShardedIndex.create(tmp_path / "shards", q).add(X)
    with pytest.raises(error, match="first_id"):
        index.add_shard(cc.Index(q).add(X), first_id=first_id)
    index.add_shard(cc.Index(q).add(X), first_id=np.int64(500))
    assert cc.ShardedIndex.open(tmp_path / "shards").ids.tolist() == [0, 1, 2, 3, 500, 501, 502, 503]


FEW = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)


@pytest.fixture
def small():
    return cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(2, 4, 3)))


@pytest.mark.filterwarnings("ignore::compcodes.index.MetricWarning")
@pytest.mark.parametrize(
    ("call", "kind", "argument", "problem"),
    [
        (lambda i, q, p: cc.ShardedIndex.open(5), TypeError, "path", "is 5: want the path of a folder"),
        (lambda i, q, p: cc.ShardedIndex.open(""), ValueError, "path", "is '': want the path of a folder"),
        (lambda i, q, p: cc.ShardedIndex.open("a\0b"), ValueError, "path", "is 'a\\x00b': want"),
        (lambda i, q, p: cc.ShardedIndex.create(None, q), TypeError, "path", "is None: want the path of a folder"),
        (lambda i, q, p: cc.ShardedIndex.build(None, q, FEW), TypeError, "path", "is None: want the path of a folder"),
        (lambda i, q, p: cc.ShardedIndex.build(p, 5, FEW), TypeError, "quantizer", "is 5: want a fitted"),
        (lambda i, q, p: cc.ShardedIndex.build(p, q, FEW[0]), ValueError, "X", "has shape (3,): want (n, d)"),
        (lambda i, q, p: cc.ShardedIndex.build(p, q, "x"), TypeError, "X", "has dtype <U1: want real numbers"),
        (lambda i, q, p: cc.ShardedIndex.build(p, q, FEW[:, :2]), ValueError, "X", "has 2 dimensions, the model has 3"),
        (lambda i, q, p: cc.ShardedIndex.build(p, q, FEW, 0), ValueError, "n_shards", "is 0: want at least 1"),
        (lambda i, q, p: cc.ShardedIndex.build(p, q, FEW, client=5), TypeError, "client", "is 5: want a dask"),
        (lambda i, q, p: cc.ShardedIndex.build(p, q, FEW, ids=[1, 1, 2, 3, 4, 5]), ValueError, "ids", "hold 1 twice"),
        (lambda i, q, p: cc.ShardedIndex.build(i.path, q, FEW, 2), ValueError, "path", "is '"),
        (
            lambda i, q, p: cc.ShardedIndex.build(i.path, q, FEW, metric="l2"),
            ValueError,
            "metric",
            "is 'l2', the index in '",
        ),
        (lambda i, q, p: cc.ShardedIndex.build(i.path, q, FEW, scale=True), ValueError, "scale", "is True, the index"),
        (
            lambda i, q, p: cc.ShardedIndex.build(i.path, q, FEW, ids=list("abcdef"), keys=True),
            ValueError,
            "keys",
            "is True, the index",
        ),
        (
            lambda i, q, p: cc.ShardedIndex.build(i.path, q.from_codebooks(2 * q.codebooks_), FEW),
            ValueError,
            "quantizer",
            "is another model than the index in '",
        ),
        (lambda i, q, p: i.remove([2, 99]), ValueError, "ids", "hold 99, and the index has no id 99"),
        (lambda i, q, p: i.reconstruct([-1]), ValueError, "ids", "hold -1, and the index has no id -1"),
        (lambda i, q, p: i.remove([2**63]), ValueError, "ids", f"hold {2**63}, which is beyond int64: want at most"),
        (lambda i, q, p: i.remove([1, 2**70]), ValueError, "ids", f"hold {2**70}, which is beyond int64: want at most"),
        (lambda i, q, p: i.remove([-1, 2**63]), ValueError, "ids", f"hold {2**63}, which is beyond int64: want at mo"),
        (lambda i, q, p: i.remove(2**64), ValueError, "ids", f"hold {2**64}, which is beyond int64: want at most"),
        (lambda i, q, p: i.remove([1.5]), TypeError, "ids", "have dtype float64: want int64"),
        (lambda i, q, p: i.add(FEW[:1], [3]), ValueError, "ids", "hold 3, which the index has already: want others"),
        (lambda i, q, p: i.add(FEW[:1], source=5), TypeError, "source", "is 5: want a string"),
        (lambda i, q, p: i.add(FEW[:1], [2**63 - 1]).add(FEW[:1]), ValueError, "ids", "is None, and no ids are left"),
        (
            lambda i, q, p: i.add(FEW[:1], [2**63 - 1]).add_shard(cc.Index(q).add(FEW)),
            ValueError,
            "first_id",
            "is None, and no ids are left",
        ),
        (
            lambda i, q, p: i.add_shard(cc.Index(q).add(FEW[:2], [7, 4])),
            ValueError,
            "shard",
            "has the id 4, which the index has already: want others, or give first_id",
        ),
        (
            lambda i, q, p: i.add_shard(cc.Index(q).add(FEW[:2]), first_id=5),
            ValueError,
            "first_id",
            "is 5, which gives a vector of the shard the id 5, which the index has already: want another",
        ),
        (lambda i, q, p: i.add_shard(cc.Index(q, "l2").add(FEW)), ValueError, "shard", "has metric='l2', the index me"),
        (lambda i, q, p: i.add_shard(5), TypeError, "shard", "is 5: want an Index, or the path of one"),
        (lambda i, q, p: i.compact("x"), TypeError, "share", "is 'x': want a number from 0 to 1"),
        (lambda i, q, p: i.compact(True), TypeError, "share", "is True: want a number from 0 to 1"),
        (lambda i, q, p: i.compact(-0.5), ValueError, "share", "is -0.5: want 0 to 1"),
        (lambda i, q, p: i.compact(np.nan), ValueError, "share", "is nan: want 0 to 1"),
        (lambda i, q, p: i.search(FEW, rerank=FEW, certify=True), ValueError, "certify", "goes with an index of metri"),
    ],
)
def test_an_error_tells_argument_and_problem(small, tmp_path, call, kind, argument, problem):
    index = cc.ShardedIndex.build(tmp_path / "index", small, FEW, metric="ip")
    new = tmp_path / "new"
    with pytest.raises(kind) as caught:
        call(index, small, new)
    error = caught.value
    assert isinstance(error, cc.errors.ArgumentError)
    assert (error.argument, error.problem[: len(problem)]) == (argument, problem)
    opened = cc.ShardedIndex.open(index.path)
    assert len(opened) == len(index) and opened.version == index.version
    assert not new.exists() or len(cc.ShardedIndex.open(new)) == 0


def test_keys_that_are_there_or_not_are_named_as_they_were_given(small, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", small, keys=True).add(FEW[:2], [("a", 1), 7])
    for call, problem in [
        (lambda: index.add(FEW[:2], ["b", ("a", 1)]), "hold ('a', 1), which the index has already: want others"),
        (lambda: index.remove([7, "7"]), "hold '7', and the index has no key '7'"),
    ]:
        with pytest.raises(cc.errors.ArgumentValueError) as caught:
            call()
        assert (caught.value.argument, caught.value.problem) == ("ids", problem)
    shard = index.empty().add(FEW[:1], [7])
    with pytest.raises(
        cc.errors.ArgumentValueError, match="shard has the key 7, which the index has already: want oth"
    ):
        index.add_shard(shard)


def test_a_file_is_no_folder(small, tmp_path):
    (tmp_path / "file").write_text("")
    for call in (
        lambda: cc.ShardedIndex.create(tmp_path / "file", small),
        lambda: cc.ShardedIndex.build(tmp_path / "file", small, FEW),
    ):
        with pytest.raises(NotADirectoryError, match="is a file: want a folder"):
            call()
    with pytest.raises(ValueError, match="is a file, not a folder of shards"):
        cc.ShardedIndex.open(tmp_path / "file")


def test_a_folder_stays_where_it_was_when_the_working_directory_changes(quantizer, X, tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    index = cc.ShardedIndex.create("index", quantizer).add(X[:20])
    monkeypatch.chdir(tmp_path / "b")
    other = cc.ShardedIndex.create("index", quantizer)
    assert len(index.add(X[:7])) == 27 and len(other.refresh()) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege")
def test_a_folder_beyond_a_link_is_where_the_system_says(quantizer, tmp_path, monkeypatch):
    (tmp_path / "far" / "data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "data")
    monkeypatch.chdir(tmp_path)
    cc.ShardedIndex.create("link/../index", quantizer)
    assert (tmp_path / "far" / "index" / "manifest.json").exists()
