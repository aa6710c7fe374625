"""Kill a worker of a Dask cluster at random while it trains, encodes, builds or searches: the result is as without.

    python tests/soak/kill_workers.py [--count 100] [--seed 0]

Each run ends with the right result, with a clear error, or the program with exit code 1.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import dask
import dask.array as da
import distributed
import numpy as np

import compcodes as cc

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (20_000, 16)).astype(np.uint8)
Q = RNG.normal(size=(50, 16)).astype(np.float32)
CHUNKED = da.from_array(X, chunks=(3000, 16))
MODEL = cc.CompositionalCodes(4, 16, effort="low", loss="reconstruction", anneal=20, max_iter=4)
CLEAR = (distributed.scheduler.KilledWorker, RuntimeError, OSError)


def work(client, model, folder):
    """By name: what is done on the cluster, and what it must give."""
    whole = cc.Index(model, "ip").add(X)
    index = cc.ShardedIndex.build(folder / "searched", model, X, 6, "ip")

    def build():
        with tempfile.TemporaryDirectory() as place:
            made = cc.ShardedIndex.build(Path(place) / "index", model, CHUNKED, 6, "ip", client=client)
            return made.search(Q, 10)[1]

    yield "train", lambda: cc.CompositionalCodes(**MODEL.get_params()).fit(CHUNKED).codebooks_, model.codebooks_
    yield "encode", lambda: model.encode(CHUNKED).compute(), whole.codes
    yield "build", build, whole.search(Q, 10)[1]
    yield "search", lambda: [index.search(Q, 10, client=client)[1] for _ in range(20)][-1], whole.search(Q, 10)[1]


def ready(cluster, client):
    """Wait for both workers. One that is killed before its nanny has heard that it started is not started again."""
    client.wait_for_workers(2, timeout=300)
    running = distributed.Status.running
    while not all(nanny.process and nanny.process.status == running for nanny in cluster.workers.values()):
        time.sleep(0.05)


def process(client, rng):
    """The number of a worker's process; of one that is really there."""
    while True:
        with contextlib.suppress(OSError, KeyError, IndexError):
            address = sorted(client.nthreads())[rng.integers(2)]
            return client.run(os.getpid, workers=[address])[address]
        time.sleep(0.2)


@contextlib.contextmanager
def local_cluster():
    """Two workers that may be killed at any time."""
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
    )
    yield cluster
    # A cluster that was told of a killed worker's end before its beginning raises that here, its processes closed.
    with contextlib.suppress(KeyError):
        cluster.close()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    args = options.parse_args()
    rng, right, clear = np.random.default_rng(args.seed), 0, 0
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    model = MODEL.fit(X)
    with (
        tempfile.TemporaryDirectory() as folder,
        # A local cluster gives up workers that are gone now and were gone so long ago: here they are killed often.
        dask.config.set({"distributed.scheduler.allowed-failures": 3, "distributed.deploy.lost-worker-timeout": "1h"}),
        local_cluster() as cluster,
        distributed.Client(cluster) as client,
    ):
        jobs = list(work(client, model, Path(folder)))
        took = {}
        for name, run, want in jobs:
            start = time.perf_counter()
            np.testing.assert_array_equal(run(), want)
            took[name] = time.perf_counter() - start
        for count in range(args.count):
            ready(cluster, client)
            name, run, want = jobs[rng.integers(len(jobs))]
            pid = process(client, rng)
            timer = threading.Timer(rng.random() * took[name], os.kill, (pid, signal.SIGKILL))
            timer.start()
            try:
                found = run()
                if not np.array_equal(found, want):
                    print(f"run {count}, {name}: another result", file=sys.stderr)
                    return 1
                right += 1
            except CLEAR as error:
                clear += 1
                print(f"run {count}, {name}: {type(error).__name__}: {error}")
            timer.join()
            print(f"\r{count + 1} runs", end="", flush=True)
    print(f"\n{args.count} runs with a killed worker: {right} right results, {clear} clear errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
