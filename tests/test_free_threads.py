"""Without an interpreter lock, as with one: many threads search, add, encode and make pools at once."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import compcodes as cc


def test_the_import_leaves_the_lock_off_where_it_was_off():
    """A module that is not declared to be free of the lock turns it on for the whole process."""
    if not hasattr(sys, "_is_gil_enabled"):
        pytest.skip("this Python always has the lock")
    code = "import sys, numpy; before = sys._is_gil_enabled(); import compcodes; assert sys._is_gil_enabled() == before"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_threads_do_all_sorts_of_things_at_once(quantizer, X, Q):
    index = cc.Index(quantizer).add(X)
    known = index.search(Q, 5)
    codes = quantizer.encode(X)
    start = threading.Barrier(8)
    failed = []

    def guarded(work):
        try:
            start.wait()
            for turn in range(4):
                work(turn)
        except BaseException as error:
            failed.append(error)

    def search(turn):
        allowed = np.arange(len(X))  # those that nobody removes
        for found, want in zip(index.search(Q, 5, filter=allowed), known, strict=True):
            np.testing.assert_array_equal(found, want)

    def add(turn):
        first = 10_000 + 2_000 * threading.get_native_id() + 500 * turn
        ids = np.arange(first, first + 100)
        index.add(X[:100], ids)
        assert index.remove(ids) == 100

    def encode(turn):
        np.testing.assert_array_equal(quantizer.encode(X[: 100 + turn]), codes[: 100 + turn])

    def with_own_pool(turn):
        np.testing.assert_array_equal(cc.Index(quantizer, n_jobs=3 + turn).add(X).search(Q, 5)[1], known[1])

    works = [search, search, add, add, encode, encode, with_own_pool, with_own_pool]
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(index) == len(X)
