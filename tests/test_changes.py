"""Changes of an index: whole or not at all, ids that are never used again, and rows that are named by id."""

import copy
import pickle
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest

import compcodes as cc
from compcodes.errors import ArgumentTypeError, ArgumentValueError

KINDS = [
    {},
    {"metric": "cosine"},
    {"metric": "l2"},
    {"metric": "l2", "exact_norms": False},
    {"scale": True},
    {"residuals": True},
]


def state(index, Q):
    return [index.ids, index.codes, *index.search(Q, len(index) + 1)]


def assert_same(index, before, Q):
    for now, then in zip(state(index, Q), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_in_place(quantizer, X, Q, kind):
    index = cc.Index(quantizer, **kind).add(X)
    ids = np.random.default_rng(0).permutation(len(X))[:200]
    now = X.copy()
    now[ids] = 1.1 * X[::-1][:200] + 0.5
    assert index.update(now[ids], ids) is index
    np.testing.assert_array_equal(index.ids, np.arange(len(X)))
    plain = cc.Index(quantizer, **kind).add(now)
    np.testing.assert_array_equal(index.codes, plain.codes)
    found, want = (i.search(Q, 10, rerank=now, n_candidates=len(X)) for i in (index, plain))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)
    if kind in ({}, {"metric": "l2"}, {"scale": True}):
        for a, b in zip(index.search(Q, 30), plain.search(Q, 30), strict=True):
            np.testing.assert_array_equal(a, b)
    before = state(index, Q)
    for rows, wrong, message in [
        (X[:2], [3, 1500], "no id 1500"),
        (X[:3], [-1, 3, 99999], "no id -1, nor 1 other"),
        (X[:2], [4, 4], "4 twice"),
        (X[:2], [4], "ids have shape"),
        (np.full((1, 12), np.nan), [4], "X row 0"),
        (X[:2, :5], [4, 5], "X has 5 dimensions"),
    ]:
        with pytest.raises(ValueError, match=message):
            index.update(rows, wrong)
    assert_same(index, before, Q)
    index.update(X[:0], [])
    assert_same(index, before, Q)


def test_ids_are_never_used_again(quantizer, X, tmp_path):
    index = cc.Index(quantizer, "l2").add(X[:10])
    index.remove([9])
    index.add(X[:1])
    assert index.ids[-1] == 10
    assert (10 in index, 9 in index, np.int64(0) in index, -1 in index, 2**80 in index, "a" in index) == (
        *(True, False, True),
        *(False, False, False),
    )
    index.remove([10])
    for again in (copy.deepcopy(index), pickle.loads(pickle.dumps(index)), cc.Index(quantizer, "l2").merge(index)):
        assert again.add(X[:2]).ids[-2:].tolist() == [11, 12]
    assert len(index.reset()) == 0
    assert index.add(X[:2]).ids.tolist() == [11, 12]
    index.save(tmp_path / "index.cc")
    loaded = cc.Index.load(tmp_path / "index.cc")
    loaded.remove([12])
    loaded.save(tmp_path / "index.cc")
    mapped = cc.Index.load(tmp_path / "index.cc", mmap=True)
    assert mapped.add(X[:1]).ids.tolist() == [11, 13]
    index.add(X[:1], ids=[2**63 - 1])
    with pytest.raises(ValueError, match="no ids are left"):
        index.add(X[:1])
    assert len(index) == 3


@pytest.mark.parametrize("certify", [False, True])
def test_rows_of_rerank_are_found_by_id(quantizer, X, Q, certify):
    index = cc.Index(quantizer, residuals=True).add(X)
    late = X[::-1][:500] + 0.25
    index.remove(np.arange(500))
    kept = {"rerank": X[500:], "certify": certify}
    want = index.search(Q, 10, **kept)
    index.add(late, ids=np.arange(500))
    now = np.concatenate([late, X[500:]])  # as a file has them in which rows are exchanged
    with pytest.raises(ValueError, match="rerank_ids"):
        index.search(Q, 10, rerank=now, certify=certify)
    order = np.random.default_rng(0).permutation(1600)
    rows = np.concatenate([now, np.full((100, 12), np.nan, "f4")])[order]
    for again in (index, pickle.loads(pickle.dumps(index))):
        with pytest.raises(ValueError, match="rerank_ids"):
            again.search(Q, 10, rerank=now, certify=certify)
        in_order = again.search(Q, 10, rerank=now[again.ids], rerank_ids=again.ids, certify=certify)
        by_id = again.search(Q, 10, rerank=rows, rerank_ids=order, certify=certify)
        fetch = Mock(side_effect=now.__getitem__)
        called = again.search(Q, 10, rerank=fetch, certify=certify)
        for a, b, c in zip(in_order, by_id, called, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
        scores = np.einsum("qd,qkd->qk", Q.astype("f8"), now[by_id[1]].astype("f8"))
        np.testing.assert_allclose(by_id[0], scores, rtol=1e-5, atol=1e-5)
        fetch.assert_called_once()
        asked = fetch.call_args.args[0]
        assert len(np.unique(asked)) == len(asked) < 1500
    exact = np.argsort(-(Q.astype("f8") @ now.T.astype("f8")), axis=1)[:, :10]
    if certify:
        assert in_order[2].any()
        np.testing.assert_array_equal(in_order[1][in_order[2]], exact[in_order[2]])
    # One after the other removed and added, all of them: the order is that of adding again.
    index.remove(np.arange(500))
    for a, b in zip(
        index.search(Q, 10, rerank=X[500:], rerank_ids=np.arange(500, 1500), certify=certify), want, strict=True
    ):
        np.testing.assert_array_equal(a, b)
    index.reset().add(X)
    index.search(Q, 10, rerank=X, certify=certify)


def test_wrong_rows_by_id_are_named(index_of_few, X, Q):
    index, few = index_of_few, X[:50]
    for wrong, message in [
        ({"rerank": few, "rerank_ids": np.arange(1, 51)}, "rerank_ids lacks 0"),
        ({"rerank": few[:40], "rerank_ids": np.arange(40)}, r"rerank_ids lacks \d"),
        ({"rerank": few, "rerank_ids": np.zeros(50, int)}, "rerank_ids holds 0 twice"),
        ({"rerank": few, "rerank_ids": np.arange(49)}, "rerank_ids have shape"),
        ({"rerank": np.full((50, 12), np.nan), "rerank_ids": np.arange(50)[::-1].copy()}, "rerank row"),
        ({"rerank": lambda ids: few[ids][1:]}, "rerank returned 49 rows for 50 ids"),
        ({"rerank": lambda ids: np.full((len(ids), 12), np.nan)}, "rerank returned: row 0"),
        ({"rerank": lambda ids: few[ids][:, :3]}, "rerank returned something that has 3 dimensions, the model has 12"),
        ({"rerank": lambda ids: few, "rerank_ids": np.arange(50)}, "rerank_ids goes with rerank"),
        ({"rerank_ids": np.arange(50)}, "rerank_ids goes with rerank"),
    ]:
        with pytest.raises(ArgumentValueError, match=message) as caught:
            index.search(Q, 50, **wrong)
        assert caught.value.argument in ("rerank", "rerank_ids")
    with pytest.raises(ArgumentTypeError, match="^rerank returned something that has dtype"):
        index.search(Q, 50, rerank=lambda ids: few[ids].astype(str))
    with pytest.raises(ArgumentValueError, match="^rerank returned: row 0 is missing"):
        index.search(Q, 50, rerank=lambda ids: [[None] * 12] * len(ids))

    def fail(ids):
        index.add(few)  # the index is not held meanwhile
        raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        index.search(Q, 5, rerank=fail)
    assert len(index) == 100


@pytest.fixture
def index_of_few(quantizer, X):
    return cc.Index(quantizer).add(X[:50])


def test_ranges_of_ids_have_any_bounds_and_steps(quantizer, X):
    ids = np.append(np.arange(100), [2**40, 2**63 - 2, 2**63 - 1])
    index = cc.Index(quantizer).add(X[:103], ids=ids)
    for allowed in [
        range(0, 20_000_000, 2),
        range(0, 10**10, 2),
        range(10, 90, 7),
        range(90, 10, -7),
        range(2**63 - 1, -1, -(2**62)),
        range(-5, 10**30, 3),
        range(-(10**30), 10**30, 10**15 + 1),
        range(0, 2**100, 2**90),
        range(1, 2**100, 2**63 - 2),
        range(2**64, 2**65, 5),
        range(-10, 0),
        range(5, 5),
        range(2**63 - 1, 2**64),
        range(2**63 - 1),
    ]:
        found = index.search(X[:1], 103, filter=allowed)[1]
        assert sorted(found[found >= 0].tolist()) == [id for id in ids.tolist() if id in allowed], allowed


def test_ids_filter_as_a_mask_does(quantizer, Q):
    rng = np.random.default_rng(0)
    codes = rng.integers(16, size=(30_000, 4)).astype(np.uint8)
    for ids in (np.arange(30_000), rng.permutation(30_000), np.sort(rng.choice(2**60, 30_000, replace=False))):
        index = cc.Index(quantizer).add_codes(codes, ids)
        mask = rng.random(30_000) < 0.4
        wanted = np.append(rng.permutation(ids[mask]), [-1, 2**62, -(2**63)])
        for a, b in zip(index.search(Q, 9, filter=mask), index.search(Q, 9, filter=wanted), strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_index_and_its_quantizer_are_changed_apart(quantizer, X, Q):
    index = cc.Index(quantizer).add(X[:100])
    want = cc.Index(quantizer).add(X).codes
    index.quantizer.set_params(n_codebooks=2, n_codewords=8, max_iter=1).fit(-X)
    index.add(X[100:])
    np.testing.assert_array_equal(index.codes, want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", ["add", "update"])
def test_what_is_stopped_has_not_happened(quantizer, X, Q, kind, work):
    index = cc.Index(quantizer, **kind).add(X)
    before = state(index, Q)

    def stop(*_):
        raise KeyboardInterrupt

    arguments = (9 * X,) if work == "add" else (9 * X[:500], np.arange(500))
    with pytest.raises(KeyboardInterrupt):
        getattr(index, work)(*arguments, progress=stop)
    assert_same(index, before, Q)


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, compcodes as cc

rng = np.random.default_rng(0)
q = cc.CompositionalCodes.from_codebooks(rng.normal(size=(4, 16, 8)).astype("f4"))
codes = rng.integers(16, size=(60_000, 4)).astype("u1")
index = cc.Index(q, sys.argv[1]).add_codes(codes, rng.permutation(60_000))
other = cc.Index(q, sys.argv[1]).add_codes(codes, np.arange(10**9, 10**9 + 60_000))
low = np.zeros((10, 4), "u1")
within = {"add_codes", "remove", "merge"}


def interrupt(delay):
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGINT)  # once: what comes too late for a change is not lost


heard_in = set()
for round in range(16):
    sender = threading.Thread(target=interrupt, args=(0.001 + 0.013 * round,))
    n = len(index)
    assert n == 60_000
    try:
        sender.start()
        while True:
            index.add_codes(codes)
            n += 60_000
            index.remove(index.ids[60_000:])
            n -= 60_000
            index.merge(other)
            n += 60_000
            index.remove(other.ids)
            n -= 60_000
    except KeyboardInterrupt as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        name = trace.tb_frame.f_code.co_name
        if name in within:
            heard_in.add(name)
            assert len(index) == n, (name, len(index), n)
    sender.join()
    if len(index) > 60_000:
        index.remove(index.ids[60_000:])
print("heard", *sorted(heard_in))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_ctrl_c_leaves_changes_whole_or_undone(metric):
    run = subprocess.run([sys.executable, "-c", INTERRUPTED, metric], capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("heard ")
