"""Vectors that are named by keys: what is added, found, excluded, updated, removed and kept in files."""

import contextlib
import copy
import enum
import pickle
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc

KEYS = ["plain", "", "é", "\0odd", 7, -3, 2**80, b"raw", uuid.UUID(int=5), ("a", 1), ("a", (b"x", "y")), "7"]


@pytest.fixture
def index(quantizer, X):
    return cc.Index(quantizer, keys=True).add(X[: len(KEYS)], KEYS)


def same(index, other):
    assert index.ids.tolist() == other.ids.tolist()
    np.testing.assert_array_equal(index.codes, other.codes)


def test_results_name_keys_and_none_for_what_is_missing(index, quantizer, X, Q):
    plain = cc.Index(quantizer).add(X[: len(KEYS)])
    scores, ids = plain.search(Q, len(KEYS) + 2)
    key_scores, keys = index.search(Q, len(KEYS) + 2)
    np.testing.assert_array_equal(scores, key_scores)
    assert keys.tolist() == [[KEYS[i] if i >= 0 else None for i in row] for row in ids]
    assert keys.dtype == object
    assert index.ids.tolist() == KEYS
    assert [type(key) for key in index.ids] == [type(key) for key in KEYS]
    assert all(key in index for key in KEYS)
    assert not any(other in index for other in ("other", 8, b"7", ("a",), 1.5, None, True, "\ud800"))
    np.testing.assert_array_equal(index.reconstruct(["é", ("a", 1)]), plain.reconstruct([2, 9]))


def test_files_pickles_and_copies_keep_keys(index, quantizer, X, tmp_path):
    path = tmp_path / "keys.cc"
    index.save(path)
    for found in (
        cc.Index.load(path),
        cc.Index.load(path, mmap=True),
        pickle.loads(pickle.dumps(index)),
        copy.deepcopy(index),
    ):
        same(found, index)
        found.add(X[20:21], ["more"])
        assert found.search(X[20], 1)[1].shape == (1, 1)
        assert "more" in found and "more" not in index
    assert b'version\\":3' in path.read_bytes()[:4000]
    codebooks = np.ones((2, 17, X.shape[1]), dtype=np.float32)
    cc.Index(cc.CompositionalCodes.from_codebooks(codebooks)).save(path)
    assert b'version\\":2' in path.read_bytes()[:4000]  # nothing new in it: earlier releases read it


class Color(str, enum.Enum):  # whose str is "Color.RED", other than a StrEnum's
    RED = "red"
    BLUE = "blue"
    ODD = "\0odd"


def test_keys_of_subclasses_of_str_are_their_text(quantizer, X):
    given = [Color.RED, Color.BLUE, Color.ODD, ("a", Color.RED), np.str_("plain")]
    index = cc.Index(quantizer, keys=True).add(X[:5], given)
    texts = ["red", "blue", "\0odd", ("a", "red"), "plain"]
    assert index.ids.tolist() == texts
    assert [type(key) for key in index.ids] == [type(key) for key in texts]
    for key, text in zip(given, texts, strict=True):
        assert key in index and text in index
        for names in ([key], [text]):
            assert index.search(X[0], 1, filter=names)[1].tolist() == [[text]]
    assert index.remove([Color.BLUE, ("a", "red")]) == 2
    assert index.remove(["red"]) == 1


def test_changes_by_key(index, quantizer, X):
    assert index.remove(["plain", ("a", 1)]) == 2
    assert index.remove("é") == 1
    index.update(X[100:102], [7, "7"])
    kept = [key for key in KEYS if key not in ("plain", "é") and key != ("a", 1)]
    rows = {key: X[i] for i, key in enumerate(KEYS)} | {7: X[100], "7": X[101]}
    same(index, cc.Index(quantizer, keys=True).add(np.stack([rows[key] for key in kept]), kept))
    index.add(X[:1], ["plain"])  # a key may come back
    other = cc.Index(quantizer, keys=True).add(X[:2], ["x", "y"])
    assert index.merge(other).ids.tolist() == [*kept, "plain", "x", "y"]
    before = index.ids.tolist()
    for wrong, message in [
        (lambda: index.add(X[:2], ["z", "x"]), 'holds "x", which the index has already'),
        (lambda: index.add(X[:2], ["z", "z"]), 'holds "z" twice'),
        (lambda: index.add(X[:2], ["z"]), "ids has 1 entries: want 2"),
        (lambda: index.add(X[:2]), "ids is None: give a key"),
        (lambda: index.remove(["z"]), 'no key "z"'),
        (lambda: index.update(X[:1], ["z"]), 'no key "z"'),
        (lambda: index.merge(other), 'holds "x", which'),
        (lambda: index.merge(cc.Index(quantizer).add(X[:1])), "one of the indexes has keys"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
        assert index.ids.tolist() == before
    for wrong in (None, 1.5, True, ["list"], object()):
        with pytest.raises(TypeError, match="ids hold .* want keys"):
            index.add(X[:2], ["z", wrong])
    index.reset()
    assert len(index) == 0 and "plain" not in index
    assert index.add(X[:1], ["plain"]).ids.tolist() == ["plain"]


def test_filters_by_key(index, X, Q):
    everything = [set(row) for row in index.search(Q, len(KEYS))[1]]
    assert all(row == set(KEYS) for row in everything)
    some = ["plain", 7, ("a", 1)]
    for chosen in (some, np.array([*some, None], dtype=object)[:3], set(some), index.ids == 7):
        want = {7} if isinstance(chosen, np.ndarray) and chosen.dtype == bool else set(some)
        _, found = index.search(Q, len(KEYS), filter=chosen)
        assert all({key for key in row if key is not None} == want for row in found)
        _, found = index.search(Q, len(KEYS), exclude=chosen)
        assert all({key for key in row if key is not None} == set(KEYS) - want for row in found)
    each = [[KEYS[i % len(KEYS)], "unknown"] for i in range(len(Q))]
    _, found = index.search(Q, 1, filter=each)
    assert found[:, 0].tolist() == [row[0] for row in each]
    _, found = index.search(Q, len(KEYS), exclude=each)
    assert all(row[-1] is None and own[0] not in row.tolist() for row, own in zip(found, each, strict=True))
    # Tuples are keys, also where all are: no lists for each query.
    pairs = [key for key in KEYS if isinstance(key, tuple)]
    assert set(index.search(Q[:1], len(pairs), filter=pairs)[1].ravel()) == set(pairs)
    assert set(index.search(Q[:1], len(KEYS), exclude=pairs)[1].ravel()) - {None} == set(KEYS) - set(pairs)
    assert index.search(Q[:1], 1, filter=pairs[:1])[1].tolist() == [pairs[:1]]
    with pytest.raises(TypeError, match="filter is 'plain': want a list of keys"):
        index.search(Q, 1, filter="plain")


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("sharded", [True, False])
def test_names_that_the_index_lacks(quantizer, X, Q, tmp_path, keyed, sharded):
    rows = X[: len(KEYS)]
    names = KEYS if keyed else list(range(len(KEYS)))
    unknown, known = (["other", b"7", 8], 7) if keyed else ([1000, 2000, -5], 7)
    if sharded:
        index = cc.ShardedIndex.build(tmp_path / "index", quantizer, rows, 2, ids=names, keys=keyed)
    else:
        index = cc.Index(quantizer, keys=keyed).add(rows, names)
    none, all_of_them = (None if keyed else -1), index.search(Q, 3)[1].tolist()
    # In exclude they are harmless beside others, and ids alone too; of keys alone a warning says it.
    with pytest.warns(cc.FilterWarning, match="nothing is excluded") if keyed else contextlib.nullcontext():
        assert index.search(Q, 3, exclude=unknown)[1].tolist() == all_of_them
    with pytest.warns(cc.FilterWarning, match="exclude holds 6 keys") if keyed else contextlib.nullcontext():
        index.search_above(Q[:2], 0.0, exclude=[unknown] * 2)
    assert not (index.search(Q, len(KEYS), exclude=[*unknown, known])[1] == known).any()
    # In filter they are of no account, and where nothing else is there to be found, a warning says it.
    found = index.search(Q, 3, filter=[*unknown, known])[1]
    assert all(row == [known, none, none] for row in found.tolist())
    each = [unknown] * len(Q)
    assert all(row == [none] * 3 for row in index.search(Q, 3, filter=each)[1].tolist())
    kind = "keys" if keyed else "ids"
    with pytest.warns(cc.FilterWarning, match=f"filter holds 3 {kind}, and the index has none of them") as caught:
        found = index.search(Q, 3, filter=unknown)[1]
    assert caught[0].filename == __file__ and all(row == [none] * 3 for row in found.tolist())
    with pytest.warns(cc.FilterWarning, match="different keys" if keyed else "the first is 1000") as caught:
        assert len(index.search_above(Q, -1e9, filter=unknown).ids) == 0
    assert caught[0].filename == __file__
    index.search(Q, 3, filter=[])  # asks for nothing


def test_reranking_by_key(index, X, Q):
    rows = X[: len(KEYS)]
    want = index.search(Q, 3, rerank=rows)
    order = np.random.default_rng(0).permutation(len(KEYS))
    named = index.search(Q, 3, rerank=rows[order], rerank_ids=[KEYS[i] for i in order])
    with_others = index.search(Q, 3, rerank=X[:50], rerank_ids=[*KEYS, *range(100, 138)])
    asked = []

    def fetch(keys):
        asked.extend(keys)
        return np.stack([rows[KEYS.index(key)] for key in keys])

    fetched = index.search(Q, 3, rerank=fetch)
    for found in (named, with_others, fetched):
        np.testing.assert_array_equal(found[0], want[0])
        assert found[1].tolist() == want[1].tolist()
    assert set(asked) == set(KEYS)
    with pytest.raises(ValueError, match="rerank_ids lacks"):
        index.search(Q, 3, rerank=rows[1:], rerank_ids=KEYS[1:])
    with pytest.raises(ValueError, match="rerank_ids holds .* twice"):
        index.search(Q, 3, rerank=X[: len(KEYS) + 1], rerank_ids=[*KEYS, KEYS[0]])


def test_keys_are_asked_for(quantizer, X):
    index = cc.Index(quantizer)
    with pytest.raises(TypeError, match=r"ids have dtype <U1: want int64, or an index of keys, Index\(…, keys=True\)"):
        index.add(X[:2], ["a", "b"])
    with pytest.raises(TypeError, match="ids have dtype bool"):
        index.add(X[:2], [True, False])
    with pytest.raises(TypeError, match="keys is"):
        cc.Index(quantizer, keys=["a"])
    assert "a" not in index and True not in index.add(X[:2])


def test_many_keys_added_and_removed_in_pieces(quantizer, X):
    rng = np.random.default_rng(1)
    codes = quantizer.encode(X)
    index, want = cc.Index(quantizer, keys=True), {}
    for step in range(30):
        rows = rng.choice(len(X), 60, replace=False)
        keys = [f"{row}" for row in rows if f"{row}" not in want]
        index.add_codes(codes[[int(key) for key in keys]], keys)
        want |= {key: codes[int(key)] for key in keys}
        if step % 3 == 2:
            gone = list(rng.choice(list(want), len(want) // 2, replace=False))
            index.remove(gone)
            want = {key: code for key, code in want.items() if key not in gone}
        assert index.ids.tolist() == list(want)
    np.testing.assert_array_equal(index.codes, list(want.values()))


def test_damaged_keys_are_refused(index, tmp_path):
    path = tmp_path / "keys.cc"
    index.save(path)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"plain")] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum of keys"):
        cc.Index.load(path)


@pytest.mark.parametrize("kind", [{}, {"metric": "cosine"}, {"metric": "l2"}])
def test_searches_see_all_of_an_update_or_nothing(quantizer, X, Q, kind):
    keys = [f"n{i}" for i in range(len(X))]
    index = cc.Index(quantizer, n_jobs=2, keys=True, **kind).add(X, keys)
    other = np.ascontiguousarray(X[::-1])
    both = []
    for rows in (other, X):
        index.update(rows, keys)
        both.append([array.tolist() for array in index.search(Q, 5)])
    assert both[0] != both[1]
    done, wrong = threading.Event(), []

    def look():
        while not done.is_set():
            found = [array.tolist() for array in index.search(Q, 5)]
            if found not in both:
                wrong.append(found)
            if not all(key in index for key in keys[:3]):
                wrong.append("a key is gone")

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        index.update(other, keys).update(X, keys)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_keys_go_with_their_vectors_while_others_are_added_and_removed(quantizer, X, Q):
    codes = quantizer.encode(X)
    index = cc.Index(quantizer, keys=True, n_jobs=1).add_codes(codes, [("a", i) for i in range(len(X))])
    order, done, wrong = quantizer.decode(codes), threading.Event(), []

    def look():
        while not done.is_set():
            scores, keys = index.search(Q, 9)
            for query, found, row in zip(Q, keys, scores, strict=True):
                rows = np.array([key[1] for key in found])
                if not np.allclose(order[rows] @ query, row, rtol=1e-3, atol=1e-3):
                    wrong.append(found)

    thread = threading.Thread(target=look)
    thread.start()
    rng = np.random.default_rng(0)
    for step in range(8):
        rows = rng.choice(len(X), 100, replace=False)
        name = "ab"[step % 2], "ba"[step % 2]
        index.remove([(name[0], int(i)) for i in rows if (name[0], int(i)) in index])
        index.add_codes(codes[rows], [(f"{step}", int(i)) for i in rows])
    done.set()
    thread.join()
    assert wrong == []


def test_a_file_of_version_3_is_read():
    index = cc.Index.load(Path(__file__).parent / "data" / "index-v3" / "keys.cc")
    kept = ["plain", "é", "\0odd", 7, 2**70, b"raw", uuid.UUID(int=5), ("a", (1, b"x")), ""]
    assert index.ids.tolist() == kept
    assert index.codes.tolist() == [[1, 2], [0, 3], [1, 0], [2, 3], [3, 3], [1, 0], [3, 2], [3, 0], [0, 2]]
    assert index.add_codes([[0, 0]], ["gone"]).ids[-1] == "gone"
