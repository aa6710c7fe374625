"""What each query must not find, in every kind that it is given as: the results are those of the plainest kind."""

import pickle

import numpy as np
import pytest
import scipy.sparse

import compcodes as cc
from compcodes import _core

pytestmark = pytest.mark.isa
K = 15


@pytest.fixture(scope="module")
def vectors_of(quantizer, X):
    """Indexes with ids and with keys: sets are bits where an index is small, and lists where it is large."""
    made = {}
    for n in (150, 20_000):
        codes = np.random.default_rng(n).integers(16, size=(n, quantizer.codebooks_.shape[0])).astype(np.uint8)
        names = [f"item-{i}" if i % 3 else f"é{i}" * (i % 5) + str(i) for i in range(n)]
        index = cc.Index(quantizer).add_codes(codes)
        made[n] = index, cc.Index(quantizer, keys=True).add_codes(codes, names), names
    return made


def histories(n, seed=0):
    rng = np.random.default_rng(seed)
    return lambda nq: [rng.choice(n, size, replace=False) for size in rng.choice([0, 1, 9, 60], nq)]


def expected(index, Q, own):
    """One query at a time, with a mask."""
    found = []
    for q, ids in zip(Q, own, strict=True):
        mask = np.ones(len(index), dtype=bool)
        mask[ids] = False
        found.append([one[0] for one in index.search(q, K, filter=mask)])
    return [np.array(one) for one in zip(*found, strict=True)]


@pytest.mark.parametrize("n", [150, 20_000])
def test_all_kinds_of_ids_exclude_the_same(vectors_of, Q, n):
    index, _, _ = vectors_of[n]
    own = histories(n)(len(Q))
    want = expected(index, Q, own)
    lists = [ids.tolist() for ids in own]
    ends = np.cumsum([0, *map(len, own)])
    mask = np.stack([np.isin(np.arange(n), ids) for ids in own])
    wide = np.zeros((len(Q), 2 * n), dtype=bool)
    wide[:, ::2] = mask
    forms = {
        "arrays": own,
        "int32": [ids.astype(np.int32) for ids in own],
        "uint64": [ids.astype(np.uint64) for ids in own],
        "two types": [ids.astype(np.int32 if i % 2 else np.uint8 if n == 150 else int) for i, ids in enumerate(own)],
        "lists": lists,
        "tuples": [tuple(ids) for ids in lists],
        "sets": [(set, frozenset)[i % 2](ids) for i, ids in enumerate(lists)],
        "lists and arrays": [ids if i % 2 else ids.tolist() for i, ids in enumerate(own)],
        "numbers of numpy": [list(ids) for ids in own],
        "others beside": [[*ids, -1, n, 2**62, *ids[:2]] for ids in lists],
        "CSR": scipy.sparse.csr_matrix((np.ones(ends[-1]), np.concatenate(own), ends), shape=(len(Q), n)),
        "matrix": mask,
        "in columns": np.asfortranarray(mask),
        "strided": wide[:, ::2],
    }
    for name, form in forms.items():
        for found, right in zip(index.search(Q, K, exclude=form), want, strict=True):
            np.testing.assert_array_equal(found, right, err_msg=name)


@pytest.mark.parametrize("argument", ["filter", "exclude"])
@pytest.mark.parametrize("n", [150, 20_000])
def test_every_byte_of_a_mask_but_zero_is_true(vectors_of, Q, n, argument):
    rng = np.random.default_rng(n)
    bytes_ = rng.integers(256, size=(len(Q), n)).astype(np.uint8) * (rng.random((len(Q), n)) < 0.5)
    bytes_[:, ::3] &= 128
    for index in vectors_of[n][:2]:
        for form in (bytes_, np.asfortranarray(bytes_), bytes_[0], np.repeat(bytes_[0], 2)[::2]):
            found = index.search(Q, K, **{argument: form.view(bool)})
            want = index.search(Q, K, **{argument: form != 0})
            np.testing.assert_array_equal(found[0], want[0])
            np.testing.assert_array_equal(found[1], want[1])


@pytest.mark.parametrize("n", [150, 20_000])
def test_keys_exclude_what_their_ids_do(vectors_of, Q, n):
    index, keyed, names = vectors_of[n]
    own = histories(n, 1)(len(Q))
    scores, ids = index.search(Q, K, exclude=own)
    rows = [[names[i] for i in ids] for ids in own]
    forms = [
        rows,
        [set(row) for row in rows],
        [np.array(row, dtype=object) for row in rows],
        [np.array(row, dtype=str) for row in rows],
        [[np.str_(key) for key in row] for row in rows],
        [[*row, "unknown", "item-", "\0", *row[:3]] for row in rows],
        [[*row, 7, b"7"] for row in rows],
    ]
    for form in forms:
        found_scores, found = keyed.search(Q, K, exclude=form)
        np.testing.assert_array_equal(found_scores, scores)
        assert found.tolist() == [[names[i] for i in row] for row in ids]
    for form in (rows[0], set(rows[0]), np.array(rows[1], dtype=object)):
        want = index.search(Q, K, exclude=[names.index(key) for key in form])[0]
        np.testing.assert_array_equal(keyed.search(Q, K, exclude=form)[0] if len(form) else want, want)


def test_keys_that_a_search_returned_are_excluded_with_none_for_no_vector(vectors_of, Q):
    index, keyed, names = vectors_of[150]
    _, ids = index.search(Q, K, filter=range(10))
    _, keys = keyed.search(Q, K, filter=names[:10])
    assert (ids[:, 10:] == -1).all() and (keys[:, 10:] == None).all()  # noqa: E711
    for given, same in ((ids, keys), (ids, list(keys)), (ids[:, 7:], keys[:, 7:]), (ids[:, 10:], keys[:, 10:])):
        for argument in ("filter", "exclude"):
            _, want = index.search(Q, K, **{argument: given})
            _, found = keyed.search(Q, K, **{argument: same})
            assert found.tolist() == [[None if i < 0 else names[i] for i in row] for row in want]
    assert keyed.search(Q, K, exclude=keys[0])[1].tolist() == keyed.search(Q, K, exclude=names[:10])[1].tolist()
    assert keyed.search(Q[:0], K, exclude=keys[:0])[1].shape == (0, K)
    texts = keys[:, :10].astype(str)
    assert keyed.search(Q, K, exclude=texts)[1].tolist() == keyed.search(Q, K, exclude=keys)[1].tolist()
    with pytest.raises(ValueError, match="exclude has 2 rows for"):
        keyed.search(Q, K, exclude=keys[:2])


def test_masks_in_lists_are_masks_with_keys_too(vectors_of, Q):
    index, keyed, names = vectors_of[150]
    masks = np.random.default_rng(0).random((len(Q), 150)) < 0.3
    for form in (masks.tolist(), list(masks), [list(row) for row in masks], tuple(masks)):
        for argument in ("filter", "exclude"):
            _, want = index.search(Q, K, **{argument: masks})
            _, found = keyed.search(Q, K, **{argument: form})
            assert found.tolist() == [[names[i] for i in row] for row in want]
            np.testing.assert_array_equal(index.search(Q, K, **{argument: form})[1], want)
    with pytest.raises(ValueError, match="filter has 2 rows for"):
        keyed.search(Q, K, filter=masks[:2].tolist())


@pytest.mark.parametrize("argument", ["filter", "exclude"])
def test_masked_arrays_are_refused(vectors_of, Q, argument):
    index, keyed, names = vectors_of[150]
    marks = np.ones((len(Q), 150), dtype=bool)
    for value in (np.ma.array([1, 2, 3], mask=[0, 1, 0]), np.ma.array(marks, mask=marks)):
        with pytest.raises(TypeError, match=f"{argument} is a masked array"):
            index.search(Q, K, **{argument: value})
    rows = [np.ma.array([1, 2, 3], mask=[0, 1, 0])] * len(Q)
    with pytest.raises(TypeError, match=rf"{argument}\[0\] is a masked array"):
        index.search(Q, K, **{argument: rows})
    with pytest.raises(TypeError, match=f"{argument} is a masked array"):
        keyed.search(Q, K, **{argument: np.ma.array(np.array(names[:3], dtype=object), mask=[0, 1, 0])})
    whole = np.ma.array([1, 2, 3])  # with nothing masked
    np.testing.assert_array_equal(
        index.search(Q, K, **{argument: whole})[1], index.search(Q, K, **{argument: [1, 2, 3]})[1]
    )


def test_what_is_no_id_or_key_is_named(vectors_of, Q):
    index, keyed, _ = vectors_of[150]
    for wrong in ([1.5], ["a"], [[1]], [None], [True], np.array([True, False] * 75)[:1], np.ones(2)):
        with pytest.raises((TypeError, ValueError), match="exclude"):
            index.search(Q, K, exclude=[[1], wrong, *[[3]] * (len(Q) - 2)])
    for wrong, kind in ((1.5, TypeError), (None, TypeError), ("\ud800", ValueError), (True, TypeError)):
        with pytest.raises(kind, match="exclude hold"):
            keyed.search(Q, K, exclude=[["a", wrong], *[["b"]] * (len(Q) - 1)])
    with pytest.raises(ValueError, match="exclude has 151 columns"):
        index.search(Q, K, exclude=np.zeros((len(Q), 151), dtype=bool))


@pytest.mark.parametrize("n", [1, 7, 8, 63, 64, 65, 130])
def test_boolean_matrices_of_any_width(quantizer, Q, n):
    rng = np.random.default_rng(n)
    index = cc.Index(quantizer).add_codes(rng.integers(16, size=(n, quantizer.codebooks_.shape[0])).astype(np.uint8))
    for share in (0, 0.02, 0.5, 1):
        mask = rng.random((len(Q), n)) < share
        np.testing.assert_array_equal(index.search(Q, n, exclude=mask), index.search(Q, n, filter=~mask))
        for row, ids in zip(mask, index.search(Q, n, filter=mask)[1], strict=True):
            assert sorted(ids[ids >= 0]) == np.flatnonzero(row).tolist()


def test_keys_of_all_lengths_are_told_apart(quantizer):
    keys = [unit * n for unit in ("a", "b", "é", "日") for n in range(1, 45)] + [f"{i:032}" for i in range(2000)]
    keys += [f"\0{i}" for i in range(20)] + ["", 0, 1, ("a",)]
    codes = np.zeros((len(keys), quantizer.codebooks_.shape[0]), dtype=np.uint8)
    index = cc.Index(quantizer, keys=True).add_codes(codes, keys)
    assert index.ids.tolist() == keys and all(key in index for key in keys)
    assert "c" not in index and 2 not in index and "a" * 45 not in index
    one = np.zeros((1, quantizer.codebooks_.shape[2]), dtype=np.float32)
    kept = keys[::7]
    found = index.search(one, len(keys), exclude=[[key for key in keys if key not in kept]])[1][0]
    assert found[: len(kept)].tolist() == kept and found[len(kept) :].tolist() == [None] * (len(keys) - len(kept))
    with pytest.raises(ValueError, match="has already"):
        index.add_codes(codes[:1], [keys[-5]])
    assert index.remove(keys[::2]) == len(keys[::2]) and index.ids.tolist() == keys[1::2]
    found = index.search(one, len(keys), exclude=[keys[1::4]])[1][0]  # whose positions are no longer their ids
    assert [key for key in found if key is not None] == keys[3::4]


def test_keys_on_their_way_are_a_sequence():
    starts, keys = _core.keys_of_each([["a", "é"], [], ["bc"]])
    assert starts.tolist() == [0, 2, 2, 3] and list(keys) == ["a", "é", "bc"] and len(keys) == 3
    assert list(pickle.loads(pickle.dumps(keys))) == list(keys)
    with pytest.raises(IndexError):
        keys[3]
    for other in ([["a", "\0b"]], [["\ud800"]], [[np.str_("a")]], [("a",)], ["a"]):
        assert _core.keys_of_each(other) is None
    assert _core.ids_of_each([[1, 2], (3,), {4}, frozenset()])[1].tolist() == [1, 2, 3, 4]
    for other in ([[True]], [[2**63]], [[1.0]], [np.arange(2)], [[np.int64(1)]]):
        assert _core.ids_of_each(other) is None


@pytest.mark.parametrize("limit", ["filter", "exclude"])
@pytest.mark.parametrize("kind", ["ids", "keys", "shards"])
def test_long_ranges_of_each_query_are_those_of_the_ids_there_are(quantizer, X, Q, tmp_path, kind, limit):
    n = 300
    if kind == "shards":
        index = cc.ShardedIndex.create(tmp_path / "index", quantizer).add(X[:n])
    else:
        index = cc.Index(quantizer, keys=kind == "keys").add(X[:n], range(n) if kind == "keys" else None)
    ranges = [range(3), range(5, 10**10, 2), range(10**30, -(10**9), -7), range(2**63, 2**70), range(7, 2**70, 2**64)]
    short = [[id for id in range(n) if id in ids] for ids in ranges]
    for own, want in ((ranges, short), (ranges[2:3] * 5, short[2:3] * 5)):
        got, expected = (index.search(Q[:5], 9, **{limit: form}) for form in (own, want))
        np.testing.assert_array_equal(got[1], expected[1])
        assert (
            index.search_above(Q[:5], -1e3, **{limit: own}).ids == index.search_above(Q[:5], -1e3, **{limit: want}).ids
        ).all()
    one, same = (index.search(Q[:5], 9, **{limit: form})[1] for form in (ranges[1], short[1]))
    np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize("keyed", [False, True])
def test_ranges_of_ids_that_are_too_long_are_refused_unread(quantizer, X, keyed):
    index = cc.Index(quantizer, keys=keyed).add(X[:20], range(20))
    for change in (index.remove, index.reconstruct):
        with pytest.raises(ValueError, match="^ids are a range of 100000000000, and the index holds 20 vectors"):
            change(range(10**11))
    for change in (index.add, index.update):
        with pytest.raises(ValueError, match="^ids ha(s|ve) .*100000000000"):
            change(X[:4], range(10**11))
    assert index.remove(range(3, 20, 4)) == 5


@pytest.mark.parametrize("kind", ["list", "pandas", "pyarrow", "polars"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_query_may_have_nothing_to_exclude(vectors_of, Q, kind, keyed):
    index, with_keys, names = vectors_of[150]
    index, (one, two) = (with_keys, names[5:7]) if keyed else (index, (5, 6))
    given = [None, [one, two], None]
    if kind != "list":
        package = pytest.importorskip(kind)
        given = (package.array if kind == "pyarrow" else package.Series)(given)
    want = index.search(Q[:3], K, exclude=[[], [one, two], []])
    for got, expect in zip(index.search(Q[:3], K, exclude=given), want, strict=True):
        np.testing.assert_array_equal(got, expect)
    nothing = [None] * 3 if kind == "list" else package.nulls(3) if kind == "pyarrow" else package.Series([None] * 3)
    for got, expect in zip(index.search(Q[:3], K, exclude=nothing), index.search(Q[:3], K), strict=True):
        np.testing.assert_array_equal(got, expect)
    with pytest.raises(
        TypeError, match=r"^filter\[0\] is (None|nan): want a list for each query, an empty one for none"
    ):
        index.search(Q[:3], K, filter=given)


def test_masks_of_integers_are_refused(vectors_of, Q):
    index, with_keys, _ = vectors_of[150]
    mask = np.arange(3 * 150).reshape(3, 150) % 2
    for limit in ("filter", "exclude"):
        rows = [mask[0].astype(np.int32), mask[1], mask[2].astype(object)]
        for wrong in (mask, mask.tolist(), list(mask.astype(np.int8)), mask[0], mask[0].astype(np.uint8), rows):
            with pytest.raises(
                TypeError, match=f"^{limit} holds 0 and 1 for each vector in u?int.*: a mask is of type"
            ):
                index.search(Q[:3], K, **{limit: wrong})
        for wrong in (mask, mask[0], mask[0].tolist()):
            with pytest.raises(TypeError, match=f"^{limit} holds 0 and 1 for each vector in int64"):
                with_keys.search(Q[:3], K, **{limit: wrong})
    assert index.search(Q[:3], 2, filter=np.array([[0, 1], [1, 0], [1, 1]]))[1].max() == 1  # ids


def test_keys_in_no_order_name_no_rows(quantizer, X):
    keys = ["a", "b", "c", "d"]
    index = cc.Index(quantizer, keys=True).add(X[:4], keys)
    for call in (
        lambda: index.add(X[4:6], {"e", "f"}),
        lambda: index.update(X[:2], frozenset("ab")),
        lambda: index.search(X[:1], 1, rerank=X[:4], rerank_ids=set(keys)),
    ):
        with pytest.raises(TypeError, match="ids are a set, which has no order"):
            call()
    with pytest.raises(TypeError, match=r"ids have dtype datetime64\[ns\]: want keys that a file can keep"):
        index.add(X[4:6], np.array(["2020-01-01", "2021-01-01"], "M8[ns]"))
    assert index.remove({"a", "c"}) == 2


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("keyed", [False, True])
def test_columns_of_each_query_may_differ_in_length(vectors_of, Q, kind, keyed):
    package = pytest.importorskip(kind)
    column = package.array if kind == "pyarrow" else package.Series
    index, with_keys, names = vectors_of[150]
    index, rows = (with_keys, [names[3:5], names[7:8]]) if keyed else (index, [[3, 4], [7]])
    for limit in ("filter", "exclude"):
        want = index.search(Q[:2], K, **{limit: rows})
        for got, expect in zip(index.search(Q[:2], K, **{limit: [*map(column, rows)]}), want, strict=True):
            np.testing.assert_array_equal(got, expect)


def test_ids_beyond_int64_are_those_of_no_vector(vectors_of, Q):
    index, _, _ = vectors_of[150]
    want = index.search(Q[:2], K, exclude=[1])[1]
    for ids in ([2**63 + 1, 1], [2**70, 1], {2**63, 1}, [[2**70, 1], [1]], np.array([2**63 + 1, 1], np.uint64)):
        np.testing.assert_array_equal(index.search(Q[:2], K, exclude=ids)[1], want)
    with pytest.raises(TypeError, match="^exclude has missing values: fill or drop them"):
        index.search(Q[:2], K, exclude=np.array([1, np.nan]))
    with pytest.raises(TypeError, match=r"^exclude\[1\] has missing values"):
        index.search(Q[:2], K, exclude=[[1], [1, None]])


def test_ids_of_other_kinds_are_named(quantizer, X):
    index = cc.Index(quantizer).add(X[:20])
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="^ids have dtype"):
        index.reconstruct([pandas.Timestamp("2020")])
    with pytest.raises(ValueError, match=f"^ids hold {2**63}, which is beyond int64"):
        index.remove(range(2**63 - 1, 2**63 + 1))
    assert index.remove({1, 2}) == 2


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_are_their_values_with_keys_too(vectors_of, quantizer, X, Q, kind):
    package = pytest.importorskip(kind)
    index, with_keys, names = vectors_of[150]
    mask = np.random.default_rng(1).random((3, 150)) < 0.2
    frame = package.DataFrame({f"c{i}": mask[:, i] for i in range(150)})
    for one, ids in ((index, np.arange(150)), (with_keys, np.array(names, dtype=object))):
        for limit in ("filter", "exclude"):
            want, got = (one.search(Q[:3], K, **{limit: form}) for form in (mask, frame))
            np.testing.assert_array_equal(got[1], want[1])
        named = package.DataFrame({"key": ids[[5, 9, 11]].tolist()})
        for got, want in zip(
            one.search(Q[:3], K, filter=named), one.search(Q[:3], K, filter=[*ids[[5, 9, 11], None]]), strict=True
        ):
            np.testing.assert_array_equal(got, want)
    keyed = cc.Index(quantizer, keys=True).add(X[:9], range(9))
    assert keyed.remove(package.DataFrame({"key": [3, 5]})) == 2
    with pytest.raises(TypeError, match="^ids are a frame of 2 columns: want one"):
        keyed.remove(package.DataFrame({"key": [1], "other": [2]}))


def test_extension_arrays_of_pandas_are_ids(quantizer, X):
    pandas = pytest.importorskip("pandas")
    index = cc.Index(quantizer).add(X[:3], pandas.array([3, 5, 7]))
    assert index.remove(pandas.Series([5]).array) == 1 and index.ids.tolist() == [3, 7]
    with pytest.raises(ValueError, match="^ids.* missing"):
        index.remove(pandas.array([3, None]))


def test_a_text_among_lists_is_no_list_of_letters(vectors_of, quantizer, X, Q):
    pandas = pytest.importorskip("pandas")
    index = cc.Index(quantizer, keys=True).add(X[:3], ["a", "b", "c"])
    mixed = np.array([None, None], dtype=object)
    mixed[:] = [["a"], "bc"]
    for given in (pandas.Series([["a"], "bc"]), mixed):
        with pytest.raises(TypeError, match=r"^exclude\[1\] is 'bc': want a list for each query"):
            index.search(Q[:2], 3, exclude=given)
    mixed[1] = 5
    with pytest.raises(TypeError, match=r"^filter\[1\] is 5: want a list for each query"):
        vectors_of[150][0].search(Q[:2], 3, filter=mixed)


@pytest.mark.parametrize("kind", ["ids", "integers"])
def test_ids_of_few_vectors_may_be_0_and_1(quantizer, X, Q, kind):
    index = cc.Index(quantizer, keys=kind == "integers").add(X[:3], range(3))
    for ids in ([[0, 1, 0], [1, 1, 1]], [0, 1, 1], np.array([[0, 1, 1], [0, 0, 1]])):
        found = index.search(Q[:2], 3, exclude=ids)[1]
        assert (found[:, 0] == 2).all() or found[1].tolist()[:2] in ([0, 2], [2, 0])


def test_masked_ids_are_refused(quantizer, X):
    index = cc.Index(quantizer).add(X[:4])
    masked = np.ma.array([1, 2], mask=[False, True])
    for change in (
        index.remove,
        index.reconstruct,
        lambda ids: index.update(X[:2], ids),
        lambda ids: index.add(X[:2], ids),
    ):
        with pytest.raises(TypeError, match="^ids are a masked array: drop what is masked"):
            change(masked)
    assert index.remove(masked.compressed()) == 1
