"""Children of a process whose threads search and change an index."""

import os
import subprocess
import sys

import pytest

STRESS = """
import os, sys, threading, time, warnings
import numpy as np, compcodes as cc

warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks
folder, metric, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
rng = np.random.default_rng(0)
n_lists = int(sys.argv[4])
centroids = rng.normal(size=(n_lists, 8)).astype("f4") if n_lists else None
q = cc.CompositionalCodes.from_codebooks(rng.normal(size=(4, 16, 8)).astype("f4"), centroids=centroids)
codes = rng.integers(16, size=(20_000, 4)).astype("u1")
lists = rng.integers(n_lists, size=20_000) if n_lists else None
some = None if lists is None else lists[:3000]
X = rng.normal(size=(500, 8)).astype("f4")
index = cc.Index(q, metric).add_codes(codes, lists=lists)
stop = threading.Event()


def search(jobs):
    while not stop.is_set():
        index.search(X[:jobs], 10)


def change():
    while not stop.is_set():
        index.add_codes(codes[:3000], lists=some)
        index.update(X[:5], [1, 2, 3, 4, 5])
        index.remove(index.ids[-3000:])


def child(path):
    n = len(index)
    assert 20_000 <= n <= 26_000
    assert index.search(X[:3], 5)[1].min() >= 0
    index.search(X, 5)
    index.add(X)
    assert len(index) == n + 500
    index.remove(index.ids[:7])
    if n_lists:
        q.assign(X)
        assert index.search(X[:3], 5, n_probe=n_lists)[1].min() >= 0
    index.save(path)
    assert len(cc.Index.load(path)) == n + 493


threads = [threading.Thread(target=search, args=(1,)), threading.Thread(target=search, args=(400,))]
threads.append(threading.Thread(target=change))
for thread in threads:
    thread.start()
end, children = time.monotonic() + seconds, 0
while time.monotonic() < end:
    pid = os.fork()
    if pid == 0:
        try:
            child(os.path.join(folder, f"{os.getpid()}.cc"))
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    late = time.monotonic() + 60
    while (found := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > late:
            os.kill(pid, 9)
            stop.set()
            sys.exit("a child hangs")
        time.sleep(0.002)
    if found[1]:
        stop.set()
        sys.exit("a child failed")
    children += 1
stop.set()
for thread in threads:
    thread.join()
print("children", children)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize(("metric", "n_lists"), [("ip", 0), ("l2", 0), ("ip", 30), ("l2", 30)])
def test_children_of_a_busy_process_search_and_change_and_save(tmp_path, metric, n_lists):
    argv = [sys.executable, "-c", STRESS, str(tmp_path), metric, "2" if n_lists == 0 else "1", str(n_lists)]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[1]) > 0


NESTED = """
import os, threading
import numpy as np, compcodes as cc
q = cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(4, 16, 8)).astype("f4"))
index = cc.Index(q, "l2").add_codes(np.zeros((100, 4), "u1"))
for generation in range(3):
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    index.add_codes(np.ones((10, 4), "u1"))
    assert len(index) == 110 + 10 * generation and list(index.ids[-2:]) == [len(index) - 2, len(index) - 1]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_child_works_too():
    run = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
