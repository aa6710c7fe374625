"""Folders of shards that something else damaged or changed: it is seen, and nothing is lost or left behind."""

import json

import numpy as np
import pytest

import compcodes as cc
from compcodes import data

FEW = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)


@pytest.fixture
def small():
    return cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(2, 4, 3)))


def state(path):
    """All that is in a folder, but for what nobody wrote to the end."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != ".lock"}


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("first_id", "0"),
        ("first_id", 1.5),
        ("file", None),
        ("removed", 5),
        ("vectors", 100.0),
        ("crc32", "x"),
        ("bytes", -1),
    ],
)
def test_a_damaged_manifest_is_refused_when_it_is_opened(tmp_path, entry, value):
    q = cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(2, 4, 3)))
    X = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    cc.ShardedIndex.create(tmp_path / "shards", q).add(X).add(X)
    path = tmp_path / "shards" / "manifest.json"
    whole = path.read_text()
    content = json.loads(whole)
    content["shards"][1][entry] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="manifest.json: damaged"):
        cc.ShardedIndex.open(tmp_path / "shards")
    content = json.loads(whole)
    content["shards"][1] = content["shards"][0]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="names the file .* twice"):
        cc.ShardedIndex.open(tmp_path / "shards")


def test_a_flipped_bit_is_found_in_any_file(small, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW).add(FEW)
    index.remove([1, 7, 8])
    names = sorted(index._opened.manifest.files())
    assert [name[: name.index("-")] for name in names] == ["model", "removed", "removed", "shard", "shard"]
    index.verify()
    for name in names:
        path = index.path / name
        whole = path.read_bytes()
        for at in {*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1}:
            wrong = bytearray(whole)
            wrong[at] ^= 1 << at % 8
            path.write_bytes(wrong)
            with pytest.raises(ValueError, match=name):
                index.verify()
        path.unlink()
        with pytest.raises(FileNotFoundError):
            index.verify()
        path.write_bytes(whole)
    index.verify()
    other = cc.CompositionalCodes.from_codebooks(small.codebooks_ * 2)
    cc.Index(other, small.metric).save(index.path / names[0])
    with pytest.raises(ValueError, match="not the model that the manifest says"):
        index.verify()


def test_folders_of_earlier_releases_have_no_checksums_of_what_is_removed(small, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW)
    path = index.path / "manifest.json"
    assert "removed_crc32" not in path.read_text()
    index.remove([2])
    assert "removed_crc32" in path.read_text()
    content = json.loads(path.read_text())
    del content["shards"][0]["removed_crc32"]
    path.write_text(json.dumps(content))
    index = cc.ShardedIndex.open(index.path).verify()
    assert index.ids.tolist() == [0, 1, 3, 4, 5]
    index.add(FEW)
    assert "removed_crc32" not in path.read_text()
    (removed,) = index.path.glob("removed-*")
    removed.write_bytes(removed.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"removed.*\.npy file"):
        index.verify()


@pytest.mark.parametrize("damage", ["shorter", "other model", "other settings", "with keys", "gone", "removed"])
def test_a_version_that_cannot_be_opened_is_never_made(small, tmp_path, damage):
    """Where another tool damaged a file, a change is refused, and leaves the folder as it is."""
    index = cc.ShardedIndex.create(tmp_path / "index", small, "ip").add(FEW).add(FEW)
    index.remove([0])
    path = index.path / index.shards[1].file
    other = cc.CompositionalCodes.from_codebooks(small.codebooks_ * 2)
    made = {
        "other model": lambda: cc.Index(other, "ip").add(FEW),
        "other settings": lambda: cc.Index(small, "l2").add(FEW),
        "with keys": lambda: cc.Index(small, "ip", keys=True).add(FEW, list("abcdef")),
    }
    if damage in made:
        made[damage]().save(path)
        manifest = index.path / "manifest.json"  # to which the size of the file is right
        content = json.loads(manifest.read_text())
        content["shards"][1]["bytes"] = path.stat().st_size
        manifest.write_text(json.dumps(content))
    elif damage == "gone":
        path.unlink()
    elif damage == "removed":
        (index.path / index.shards[0].removed).write_bytes(b"")
    else:
        path.write_bytes(path.read_bytes()[:-1])
    before = state(index.path)
    changes = [
        lambda: index.add(FEW),
        lambda: index.add_shard(cc.Index(small, "ip").add(FEW)),
        lambda: index.remove([3]),
        lambda: index.compact(),
    ]
    for change in changes:
        with pytest.raises((ValueError, OSError), match=r"shard|removed"):
            change()
        assert state(index.path) == before and index.version == 3 and len(index) == 11


def test_a_file_whose_codes_are_damaged_is_not_taken(small, tmp_path):
    path = tmp_path / "other"
    cc.Index(small, "ip").add(np.tile(FEW, (50, 1))).save(path)
    whole, index = path.read_bytes(), cc.ShardedIndex.create(tmp_path / "index", small, "ip")
    before = state(index.path)
    for at in range(0, len(whole), 61):
        wrong = bytearray(whole)
        wrong[at] ^= 1 << at % 8
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="other"):
            index.add_shard(path)
        assert state(index.path) == before
    path.write_bytes(whole)
    assert len(index.add_shard(path).verify()) == 300


def test_a_build_refuses_what_a_worker_wrote_with_another_model(small, tmp_path, monkeypatch):
    from compcodes.sharded import build

    other = cc.CompositionalCodes.from_codebooks(small.codebooks_ * 2)

    def write(folder, *_):
        path = build.new_file(folder)
        cc.Index(other, small.metric).add(FEW[:3]).save(path)
        return path

    monkeypatch.setattr(build, "_write", write)
    with pytest.raises(ValueError, match="another model"):
        cc.ShardedIndex.build(tmp_path / "index", small, FEW, 2)
    monkeypatch.undo()
    assert {file.name[:5] for file in (tmp_path / "index").iterdir()} == {".lock", "manif", "model"}
    assert len(cc.ShardedIndex.build(tmp_path / "index", small, FEW, 2)) == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"first_id": 0},
        {"lowest_id": 5, "highest_id": 10},
        {"highest_id": 2**40},
        {"removed": None},
        {"next_id": 3},
        {"shape": [2, 5, 3]},
        {"n_lists": 3, "format_version": 2},
    ],
)
def test_a_manifest_is_compared_with_the_files(small, tmp_path, changes):
    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW).add(FEW)
    index.remove([7])
    index.verify()
    path = index.path / "manifest.json"
    content = json.loads(path.read_text())
    for name, value in changes.items():
        (content["shards"][1] if name in content["shards"][1] else content)[name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"damaged|says something else|share the id"):
        cc.ShardedIndex.open(index.path).verify()


@pytest.mark.parametrize(("name", "value"), [("shards", {}), ("version", 2**63 - 1), ("version", "@")])
def test_a_manifest_of_no_sense_is_refused(small, tmp_path, name, value):
    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW)
    path = index.path / "manifest.json"
    content = json.dumps(json.loads(path.read_text()) | {name: value})
    path.write_text(content.replace('"@"', "9" * 5000))
    with pytest.raises(ValueError, match="manifest.json: "):
        cc.ShardedIndex.open(index.path)


def test_shards_that_share_ids_are_found(small, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", small)
    index.add(FEW, ids=[0, 2, 4, 6, 8, 10]).add(FEW, ids=[1, 3, 5, 7, 9, 11]).verify()
    path = index.path / "manifest.json"
    content = json.loads(path.read_text())
    content["shards"][1] |= {"first_id": 1, "lowest_id": 2, "highest_id": 12}
    path.write_text(json.dumps(content | {"next_id": 13}))
    with pytest.raises(ValueError, match="share the id 2"):
        cc.ShardedIndex.open(index.path).verify()


def test_a_change_that_fails_leaves_no_file_behind(small, tmp_path, monkeypatch):
    from compcodes.sharded import manifest

    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW).add(FEW)
    index.remove([0, 7])
    path = index.path / index.shards[1].file
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    before = state(index.path)
    with pytest.raises(ValueError, match="shard"):
        index.compact()  # after the first shard was written anew
    assert state(index.path) == before
    path.write_bytes(whole)
    before = state(index.path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(manifest.json, "dump", full)
    for change in (lambda: index.add(FEW), lambda: index.remove([1]), lambda: index.compact()):
        with pytest.raises(OSError, match="No space left"):
            change()
        assert state(index.path) == before


def test_an_interrupt_after_the_manifest_was_replaced_loses_nothing(small, tmp_path, monkeypatch):
    from compcodes.sharded import manifest

    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "sync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        index.add(FEW)
    monkeypatch.undo()
    assert len(cc.ShardedIndex.open(index.path).verify()) == 12


def test_a_version_that_is_gone_asks_for_a_refresh(small, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW)
    index.remove([1])
    other = cc.ShardedIndex.open(index.path)
    for id in (2, 3):
        index.remove([id])
    with pytest.raises(FileNotFoundError, match=r"version 2, .*refresh"):
        other.verify()
    assert len(other.refresh().verify()) == 3


def interrupted(folder, small, X, n_shards):
    """Begin a build."""

    def interrupt(stage, done, total):
        if done >= total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cc.ShardedIndex.build(folder, small, X, n_shards, progress=interrupt)


def test_a_build_does_not_go_on_with_other_vectors(small, tmp_path):
    X = np.random.default_rng(2).normal(size=(100, 3)).astype(np.float32)
    other = X.copy()
    other[37, 1] += 1
    interrupted(tmp_path / "array", small, X, 4)
    with pytest.raises(ValueError, match="path is .* other vectors"):
        cc.ShardedIndex.build(tmp_path / "array", small, other, 4)
    assert len(cc.ShardedIndex.build(tmp_path / "array", small, X, 4)) == 100
    (tmp_path / "X").mkdir()
    for part in range(2):
        np.save(tmp_path / "X" / f"{part}.npy", X[part * 50 : part * 50 + 50])
    interrupted(tmp_path / "files", small, data.open_many(tmp_path / "X"), 4)
    np.save(tmp_path / "X" / "1.npy", other[:50])
    with pytest.raises(ValueError, match="path is .* other vectors"):
        cc.ShardedIndex.build(tmp_path / "files", small, data.open_many(tmp_path / "X"), 4)


def test_a_shard_that_comes_during_a_build_stops_it(small, tmp_path):
    X = np.random.default_rng(2).normal(size=(100, 3)).astype(np.float32)
    came = []

    def come(stage, done, total):
        if done >= 25 and not came:
            came.append(cc.ShardedIndex.open(tmp_path / "index").add(FEW, ids=range(1000, 1006)))

    with pytest.raises(ValueError, match="path is .* shards of other vectors"):
        cc.ShardedIndex.build(tmp_path / "index", small, X, 4, progress=come)
    index = cc.ShardedIndex.open(tmp_path / "index").verify()
    assert set(state(index.path)) - {"manifest.json"} == index._opened.manifest.files()


def test_a_build_that_is_refused_makes_no_folder(small, tmp_path):
    for ids in (list("abcdef"), [1, 1, 2, 3, 4, 5], [-1, 0, 1, 2, 3, 4], [1, 2]):
        with pytest.raises((TypeError, ValueError), match="ids"):
            cc.ShardedIndex.build(tmp_path / "index", small, FEW, ids=ids)
    with pytest.raises(ValueError, match="ids"):
        cc.ShardedIndex.build(tmp_path / "index", small, FEW, keys=True)
    assert not (tmp_path / "index").exists()
    assert len(cc.ShardedIndex.build(tmp_path / "index", small, FEW, ids=list("abcdef"), keys=True)) == 6


def test_an_error_names_the_row_of_all_vectors(small, tmp_path):
    index = cc.ShardedIndex.create(tmp_path / "index", small).add(FEW).add(FEW)
    index.remove([2])
    vectors = np.delete(np.concatenate([FEW, FEW]), 2, axis=0)
    vectors[8] = np.nan
    with pytest.raises(ValueError, match="rerank row 8 holds NaN"):
        index.search(FEW, 1, rerank=vectors, n_candidates=11)
    assert [1] not in index and [[1], [2, 3]] not in index and 1 in index
