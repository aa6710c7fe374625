"""Ctrl-C: long work stops soon, and so do loops of brief calls; nothing is half done after it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals differ")

# Work runs on one thread, and processor time is counted, not the time of day: others may use the machine meanwhile.
BEGIN = """
import os, signal, sys, tempfile, threading, time
import numpy as np, compcodes as cc
folder = tempfile.mkdtemp()
path = os.path.join(folder, "index.cc")
rng = np.random.default_rng(0)

def made(n, M=4, K=16, d=8, **how):
    codebooks = np.random.default_rng(0).normal(size=(M, K, d))
    q = cc.CompositionalCodes.from_codebooks(codebooks).set_params(encoder="greedy", n_jobs=1)
    codes = np.random.default_rng(1).integers(K, size=(n, M), dtype=np.uint8)
    return cc.Index(q, n_jobs=1, **how).add_codes(codes) if n else cc.Index(q, n_jobs=1, **how)

sent = []

def interrupt_after(seconds):
    def interrupt():
        time.sleep(seconds)
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()

def interrupted(work, seconds):
    "Processor seconds from the signal to the exception, and what `work` returned, called again and again until then."
    returned = []
    try:
        interrupt_after(seconds)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            returned.append(work())
    except KeyboardInterrupt:
        print(time.process_time() - sent[0], len(returned))
        return returned
    sys.exit("not interrupted")
"""


def run(body):
    """Run `body`; return the processor seconds until it heard the signal, and how many calls had returned."""
    done = subprocess.run([sys.executable, "-c", BEGIN + body], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seconds, calls = done.stdout.split()
    return float(seconds), int(calls)


# Each ends with an assertion that what was there is whole, or that exactly what was done is there.
LOOPS = {
    "save": """
index = made(1000)
index.save(path)
want = open(path, "rb").read()
interrupted(lambda: index.save(path), 0.5)
assert open(path, "rb").read() == want
assert os.listdir(folder) == ["index.cc"]
""",
    "load": """
made(1000).save(path)
interrupted(lambda: len(cc.Index.load(path, n_jobs=1)), 0.5)
""",
    "add": """
index, x = made(0), rng.normal(size=(1, 8))
done = interrupted(lambda: index.add(x), 0.5)
# The exception may come when the call has returned and before the list has its result.
assert len(index) - len(done) in (0, 1)
""",
    "merge": """
index, number = made(0), iter(range(10**9))
one = np.zeros((1, 4), np.uint8)
others = iter(lambda: cc.Index(index.quantizer, n_jobs=1).add_codes(one, [next(number)]), None)
done = interrupted(lambda: index.merge(next(others)), 0.5)
assert len(index) - len(done) in (0, 1)
""",
    "sharded add": """
index = cc.ShardedIndex.create(os.path.join(folder, "sharded"), made(0).quantizer, n_jobs=1)
x = rng.normal(size=(1, 8))
done = interrupted(lambda: index.add(x), 0.5)
again = cc.ShardedIndex.open(index.path)
assert len(again) - len(done) in (0, 1)
assert len(again.verify()) == len(again)
""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_ends_a_loop_of_brief_calls(name):
    seconds, calls = run(LOOPS[name])
    assert seconds < 1
    assert calls > 0


LONG = {
    "save": """
index = made(3_000_000, M=16, K=256)
index.save(path)
want = os.stat(path)
interrupted(lambda: index.save(path), 0.2)
assert os.listdir(folder) == ["index.cc"]
assert os.stat(path).st_size == want.st_size
assert len(cc.Index.load(path)) == len(index)
""",
    "load": """
made(3_000_000, M=16, K=256).save(path)
interrupted(lambda: cc.Index.load(path, n_jobs=1), 0.2)
""",
    "filter": """
index, ids = made(2_000_000), rng.permutation(2_000_000)
x = rng.normal(size=(1, 8))
interrupted(lambda: index.search(x, 1, filter=ids), 0.2)
""",
    "first encode": """
codebooks, X = rng.normal(size=(8, 256, 3000)), rng.normal(size=(20, 3000))
def encode():
    return cc.CompositionalCodes.from_codebooks(codebooks).set_params(n_jobs=1).encode(X)
interrupted(encode, 0.5)
""",
    "add with scale": """
index, X = made(0, M=8, K=256, d=64, scale=True), rng.normal(size=(300_000, 64))
interrupted(lambda: index.add(X), 0.5)
assert len(index) % len(X) == 0
""",
    "add with residuals": """
index, X = made(0, M=8, K=256, d=64, residuals=True), rng.normal(size=(300_000, 64))
interrupted(lambda: index.add(X), 0.5)
assert len(index) % len(X) == 0
""",
}


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_stops_what_lasts(name):
    seconds, _ = run(LONG[name])
    assert seconds < 1


# A change that has been made returns, whatever the handler of a signal raised in it; that comes later.
TOO_LATE = """
import queue, select
index, one, many = made(0), np.zeros((1, 4), np.uint8), np.zeros((100_000, 4), np.uint8)
raised = []

class Mine(KeyboardInterrupt):
    pass

def change_too_late(number, make):
    "Send a signal whose handler raises what `make` makes, until a change returns nevertheless."
    def handler(*_):
        raised.append(make())
        raise raised[-1]

    def send():
        time.sleep(0.001)
        os.kill(os.getpid(), number)

    signal.signal(number, handler)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        raised.clear()
        sender = threading.Thread(target=send)
        try:
            sender.start()
            while True:
                index.add_codes(many)
                if raised:
                    return
                index.reset()
                if raised:
                    return
        except BaseException as error:
            assert raised and error is raised[0], repr(error)
            sender.join()
    sys.exit("never too late")

def test(number, make, then):
    caught, start = None, time.monotonic()
    try:
        change_too_late(number, make)
        start = time.monotonic()
        then()
    except BaseException as error:
        caught = error
    assert raised and caught is raised[0], repr(caught)
    assert time.monotonic() - start < 2
    time.sleep(0.1)
    index.add_codes(one)
    assert len(raised) == 1, raised
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
"""
ERRORS = {
    "SIGINT": "KeyboardInterrupt",
    "SIGTERM": "lambda: SystemExit(7)",
    "SIGALRM": "lambda: TimeoutError('too long')",
    "SIGHUP": "Mine",
}
BLOCKING = {
    "sleep": "time.sleep(10)",
    "queue": "queue.Queue().get(timeout=10)",
    "select": "select.select([], [], [], 10)",
}


def succeeds(body):
    done = subprocess.run([sys.executable, "-c", BEGIN + body], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("number", "then"),
    [
        *((number, "next call") for number in ERRORS),
        *(("SIGINT", then) for then in BLOCKING),
        *((number, "sleep") for number in ("SIGTERM", "SIGHUP")),
    ],
)
def test_what_a_handler_raised_too_late_is_raised_soon(number, then):
    work = BLOCKING.get(then, "index.save(path)")
    succeeds(TOO_LATE + f"test(signal.{number}, {ERRORS[number]}, lambda: {work})\n")


def test_other_handlers_stay():
    succeeds(
        TOO_LATE + "others = []\n"
        "def other(*_): others.append(1)\n"
        "signal.signal(signal.SIGURG, other)\n"
        "try:\n"
        "    change_too_late(signal.SIGTERM, lambda: SystemExit(7))\n"
        "    time.sleep(10)\n"
        "    sys.exit('not raised')\n"
        "except SystemExit as error:\n"
        "    assert error is raised[0], error\n"
        "assert signal.getsignal(signal.SIGURG) is other\n"
        "assert not others\n"
    )


def test_what_was_too_late_is_raised_in_the_parent_of_a_fork_alone():
    fork = """
def fork():
    child = os.fork()
    if child == 0:
        try:
            index.add_codes(one)
            time.sleep(0.1)
            index.save(path)
            os._exit(signal.getsignal(signal.SIGURG) != signal.SIG_DFL)
        except BaseException:
            os._exit(2)
    children.append(child)
    time.sleep(10)

children = []
test(signal.SIGINT, KeyboardInterrupt, fork)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
"""
    succeeds(TOO_LATE + fork)
