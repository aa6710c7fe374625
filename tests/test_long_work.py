"""Progress, interruption, threads and processes."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import compcodes as cc
from conftest import vectors


def test_progress_is_told_and_its_exception_stops_the_work(X):
    told = []
    q = cc.CompositionalCodes(4, 16, max_iter=3, tol=0)
    q.fit(X, progress=lambda *args: told.append(args))
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == ["choose loss", "fit"]
    assert all(0 < done <= total for _, done, total in told)
    before = q.codebooks_

    def stop(*_):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        q.fit(X, progress=stop)
    assert q.codebooks_ is before
    with pytest.raises(TypeError, match="progress"):
        q.fit(X, progress=3)


@pytest.mark.parametrize("n_groups", [1, 3])
def test_every_stage_of_a_fit_ends_at_its_total(X, n_groups):
    last = {}
    q = cc.CompositionalCodes(6, 16, n_groups=n_groups, n_lists=4, anneal=2, max_iter=2)
    q.fit(X, progress=lambda stage, done, total: last.update({stage: done / total}))
    assert {"lists", "fit"} <= set(last) and set(last.values()) == {1.0}


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, compcodes as cc
X = np.random.default_rng(0).normal(size=(400_000, 128)).astype(np.float32)
small = X[:2000]
q = cc.CompositionalCodes(4, 16, max_iter=1, n_jobs=1).fit(small)
before = q.codebooks_
sent = []
def interrupt():
    time.sleep(float(sys.argv[2]))
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    if sys.argv[1] == "fit":
        q.set_params(n_codebooks=8, n_codewords=256).fit(X)
    elif sys.argv[1] == "truth":
        cc.evaluate.ground_truth(X, X[:20_000], 10, n_jobs=1)
    else:
        while True:
            q.encode(X)
except KeyboardInterrupt:
    used = time.process_time() - sent[0]
    assert q.codebooks_ is before
    print("stopped", used)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.parametrize("work", ["fit", "truth", "encode"])
@pytest.mark.parametrize("after", ["0.3", "1.7"])
def test_ctrl_c_stops_the_work(work, after):
    run = subprocess.run([sys.executable, "-c", INTERRUPTED, work, after], capture_output=True, text=True, timeout=120)
    assert run.stdout.startswith("stopped"), run.stderr
    # Seconds of the processor, on one thread: how long others keep the machine busy meanwhile does not count.
    assert float(run.stdout.split()[1]) < 1


def ticks_during(work):
    """How often another thread gets to run while `work()` does.

    Only where `work` gives up the interpreter lock: this thread is not asked to.
    """
    ticks, done = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    interval, thread = sys.getswitchinterval(), threading.Thread(target=tick)
    sys.setswitchinterval(1000)
    try:
        thread.start()
        before = ticks
        work()
        return ticks - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="no usleep")
def test_a_held_lock_is_noticed():
    assert ticks_during(lambda: ctypes.PyDLL(None).usleep(300_000)) <= 1  # at most while the function is looked up
    assert ticks_during(lambda: ctypes.CDLL(None).usleep(300_000)) > 10


LONG = {
    "encode": lambda index, X: index.quantizer.encode(X),
    "fit": lambda index, X: cc.ResidualQuantizer(2, 64).fit(X),
    "add": lambda index, X: index.add(X),
    "search": lambda index, X: index.search(X[:2000], 200),
    "exact search": lambda index, X: cc.evaluate.ground_truth(X[:10_000], X[:10_000], 10),
}


@pytest.mark.parametrize("name", LONG)
def test_the_interpreter_lock_is_free_during_long_work(name):
    X = vectors(40_000, 64)
    books = 4 * np.random.default_rng(0).normal(size=(4, 256, 64)).astype(np.float32)
    index = cc.Index(cc.CompositionalCodes.from_codebooks(books).set_params(encoder="greedy"))
    index.add_codes(np.random.default_rng(0).integers(256, size=(40_000, 4)).astype(np.uint8))
    assert ticks_during(lambda: LONG[name](index, X)) > 5


def test_many_threads_search_while_one_adds(quantizer, X, Q):
    index = cc.Index(quantizer)
    codes = quantizer.encode(X)
    index.add_codes(codes[:100])
    allowed = {}
    for n in range(100, 1501, 100):
        allowed[n] = cc.Index(quantizer).add_codes(codes[:n]).search(Q, 5)[1]
    wrong, done = [], threading.Event()

    def search():
        while not done.is_set():
            ids = index.search(Q, 5)[1]
            if not any((ids == want).all() for want in allowed.values()):
                wrong.append(ids)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(100, 1500, 100):
        index.add_codes(codes[n : n + 100])
        time.sleep(0.01)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(index) == 1500


def _encode_in_child(quantizer, X, queue):
    index = cc.Index(quantizer).add(np.tile(X, (20, 1)))  # large enough that packing is spread over threads
    queue.put(index.codes[: len(X)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_encodes_too(quantizer, X):
    cc.Index(quantizer).add(np.tile(X, (20, 1)))
    want = quantizer.encode(X)  # the pool now exists, and its threads do not survive the fork
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_encode_in_child, args=(quantizer, X, queue))
    child.start()
    got = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    np.testing.assert_array_equal(got, want)


def test_negative_jobs_count_from_all_cores(quantizer, X):
    def fit(jobs):
        return cc.CompositionalCodes(2, 8, loss="reconstruction", anneal=1, max_iter=1, n_jobs=jobs).fit(X).codebooks_

    codebooks = [fit(jobs) for jobs in (1, -1, -1000, 1000)]
    for others in codebooks[1:]:
        np.testing.assert_array_equal(others, codebooks[0])


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_other_signals_are_handled_as_ever():
    code = (
        "import signal, os, threading, time, numpy as np, compcodes as cc\n"
        "seen = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))\n"
        "X = np.random.default_rng(0).normal(size=(60_000, 64)).astype('f4')\n"
        "threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()\n"
        "q = cc.CompositionalCodes(4, 256, encoder='greedy', loss='reconstruction', max_iter=2, tol=0).fit(X)\n"
        "print(len(seen), len(q.history_))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.split() == ["1", "3"], run.stderr
    assert signal.getsignal(signal.SIGINT) is not None
