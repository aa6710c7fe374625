"""Many machines in small: what Dask costs, what workers send, and what that means for a thousand of them.

    COMPCODES_DATA=… python benches/cluster.py [--parts costs] [--rows 100000] [--end-to-end 200000] [--repeat 1]
        [--effort low] [--tiny] [--save]

Two workers of one thread stand for machines. Their processor time and the bytes that they send are counted, so that
other work on this machine disturbs little: the gain that is shown is the local processor time over that of the busiest
worker plus the client's, for a worker waits while the client solves. The model of costs is fitted from these numbers.
"""

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import compcodes as cc
from common import Report, parser, sift
from compcodes import _core
from compcodes.training.effort import EFFORTS
from compcodes.training.spread import FAN

PARTS = ("inner-product", "costs", "end-to-end")
IDLE = 4.0
"""Seconds that the cost of waiting is measured for; it is taken off what work takes."""
SAMPLE = 200_000
"""Vectors that the program trains on at most."""
MACHINES = (1, 10, 100, 1000)
NETWORK = 1.25e9
"""Bytes per second of one machine: 10 Gbit/s."""
TRIP = 5e-3
"""Seconds that a task takes to be sent out and to be heard of."""
TRIPS = 8
"""Tasks of an iteration that wait for each other; of the inner-product loss 17."""


@contextlib.contextmanager
def workers(count):
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0", memory_limit="1.5GB") as cluster,
        Client(cluster) as client,
    ):
        yield client


def counters(client):
    """Processor seconds of this process and of the workers, and the bytes that the workers have sent."""

    def of(dask_worker):
        return time.process_time(), dask_worker.transfer_outgoing_bytes_total

    seconds, sent = zip(*client.run(of).values(), strict=True)
    return time.process_time(), np.array(seconds), np.array(sent)


def measured(client, work):
    """Wall time, processor time here and on the workers, and bytes sent while something is done."""
    before = counters(client)
    time.sleep(IDLE)
    here, there, sent = counters(client)
    start = time.perf_counter()
    result = work()
    wall = time.perf_counter() - start
    later, after, total = counters(client)
    # Processes that wait listen to each other: that is no part of the work, and longer on a busy machine.
    idle, idle_there = (here - before[0]) / IDLE, (there - before[1]) / IDLE
    return result, wall, later - here - idle * wall, after - there - idle_there * wall, total - sent


def busy(report):
    """Tell how busy the machine is: what others do makes processor time longer, too."""
    report("load of the machine over 1, 5 and 15 minutes: {:.1f}, {:.1f}, {:.1f}\n".format(*os.getloadavg()))


def local(work):
    start, wall = time.process_time(), time.perf_counter()
    result = work()
    return result, time.process_time() - start, time.perf_counter() - wall


def best_of(repeat, here, there):
    """The quickest of several runs of each, by turns: other work on the machine makes some of them slower."""
    runs = [(here(), there()) for _ in range(repeat)]
    return min((a for a, _ in runs), key=lambda run: run[1]), min(
        (b for _, b in runs), key=lambda run: run[3].max() + run[2]
    )


def training(client, X, parameters, report, repeat):
    """Train here with one thread, and on the workers."""
    model = cc.CompositionalCodes(**parameters, n_jobs=1)
    chunked = da.from_array(np.asarray(X), chunks=(max(1, len(X) // 8), -1)).persist()
    model.fit(chunked[:1000])  # what processes do but once

    def fit(data):
        fitted = cc.CompositionalCodes(**parameters, n_jobs=1).fit(data)
        return fitted.codebooks_, fitted.history_

    ((want, history), cpu, wall_here), ((found, history_there), wall, here, there, sent) = best_of(
        repeat, lambda: local(lambda: fit(X)), lambda: measured(client, lambda: fit(chunked))
    )
    M, K, d = want.shape
    noisy = EFFORTS[parameters["effort"]].anneal
    halves = _core.halves(len(X), M, K, noisy)
    anneal = noisy - (halves[0] if halves else 0)  # the first are of a sample, on the client
    iterations = anneal + len(history)
    sums = 2 * (M * K) ** 2 * 4 + M * K * d * 8
    near = np.abs(found - want).max() / np.abs(want).max()
    report(f"training, {len(X):,} × {d}, {M} × {K}, {parameters['loss']}, effort {parameters['effort']}:\n")
    report.table(
        ("", "here, one thread", "two workers"),
        [
            ("processor time, s", f"{cpu:.1f}", f"{there.sum() + here:.1f}"),
            ("of it the busiest worker and the client, s", "", f"{there.max():.1f} + {here:.1f}"),
            ("wall time, s", f"{wall_here:.1f}", f"{wall:.1f}"),
            ("gain", "1", f"{cpu / (there.max() + here):.2f}"),
            ("more work than here", "", f"{(there.sum() + here) / cpu - 1:.1%}"),
            ("objective", f"{history[-1]['objective']:.6g}", f"{history_there[-1]['objective']:.6g}"),
            ("largest difference of a codeword, of the largest number", "", f"{near:.1e}"),
            ("iterations", str(iterations), str(iterations)),
            ("sent by a worker in an iteration, of the sums", "", f"{sent.max() / iterations / sums:.2f}"),
        ],
    )
    part, full = min(len(X), 200 * K), len(history) + 2
    model = cc.CompositionalCodes.from_codebooks(want)
    return model, {
        "per_row": there.sum() / (anneal * part + full * len(X)),
        "solve": here / iterations,
        "sent": sent.max() / iterations,
        "iterations": iterations,
        "anneal": anneal,
        "full": full,
        "part": 200 * K,
    }


def encoding(client, model, X, report, repeat):
    one = cc.CompositionalCodes.from_codebooks(model.codebooks_)
    one.n_jobs = 1
    chunked = da.from_array(np.asarray(X), chunks=(max(1, len(X) // 16), -1)).persist()
    one.encode(chunked[:100]).compute()
    (codes, cpu, wall_here), (found, wall, here, there, _) = best_of(
        repeat,
        lambda: local(lambda: one.encode(X)),
        lambda: measured(client, lambda: one.encode(chunked).compute()),
    )
    assert np.array_equal(found, codes)
    report(f"encoding, {len(X):,} vectors:\n")
    report.table(
        ("", "here, one thread", "two workers"),
        [
            ("processor time, s", f"{cpu:.2f}", f"{there.sum() + here:.2f}"),
            ("wall time, s", f"{wall_here:.2f}", f"{wall:.2f}"),
            ("gain", "1", f"{cpu / there.max():.2f}"),
        ],
    )
    return codes, cpu / len(X)


def searching(model, codes, Q, folder, report, n_shards=8):
    """One mapped index against as many vectors in shards, one thread."""
    whole = folder / "whole"
    cc.Index(model, "ip").add_codes(codes).save(whole)
    index = cc.ShardedIndex.create(folder / "shards", model, "ip", 1)
    for part in np.array_split(codes, n_shards):
        index.add_shard(index.empty().add_codes(part))
    one = cc.Index.load(whole, 1, mmap=True)
    times = {"one": [], "shards": []}
    for _ in range(9):
        for name, searched in (("one", one), ("shards", index)):
            found, cpu, _ = local(lambda searched=searched: searched.search(Q, 10))
            times[name].append(cpu)
        want = one.search(Q, 10)
        assert all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))
    best = {name: min(each) for name, each in times.items()}
    report(f"searching {len(codes):,} codes for {len(Q):,} queries, one thread, mapped:\n")
    report.table(
        ("", "one index", f"{n_shards} shards"),
        [
            ("processor time, ms", f"{1e3 * best['one']:.1f}", f"{1e3 * best['shards']:.1f}"),
            ("of one index", "1", f"{best['shards'] / best['one']:.2f}"),
        ],
    )
    return best["one"] / len(Q) / len(codes)


END_TO_END = """
import sys
from pathlib import Path
from dask.distributed import Client, LocalCluster
import compcodes as cc

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

if __name__ == "__main__":
    folder, sample = sys.argv[1], int(sys.argv[2])
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="1.5GB") as cluster:
        with Client(cluster) as client:
            X = cc.data.open_many(folder + "/vectors")
            q = cc.CompositionalCodes(16, 16, effort="low", max_train=sample).fit(X)
            index = cc.ShardedIndex.build(folder + "/index", q, X, 10, client=client)
            ids = index.search(X[:100], 10, client=client)[1]
            found = (ids == [[i] for i in range(100)]).any(axis=1).mean()
            print(peak(), max(client.run(peak).values()), found, len(index))
"""
"""What a user writes, to begin with a folder of Parquet files and end with answers."""


def end_to_end(rows, folder, report):
    """Write Parquet files of vectors, and run the program."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    learned, rng = sift("learn").astype(np.float32), np.random.default_rng(0)
    d, files = learned.shape[1], 10
    (folder / "vectors").mkdir()
    for i in range(files):
        n = rows // files
        X = learned[rng.integers(len(learned), size=n)] + rng.normal(scale=8, size=(n, d)).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(X.astype(np.float32).reshape(-1)), d)
        pq.write_table(pa.table({"vector": column}), folder / "vectors" / f"{i}.parquet", row_group_size=50_000)
    program = folder / "program.py"
    program.write_text(END_TO_END)
    start = time.perf_counter()
    command = [sys.executable, program, folder, str(min(rows // 10, SAMPLE))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.stderr)
    client, worker, found, n = run.stdout.split()
    report(f"From {rows:,} × {d} in {files} Parquet files to 10 shards and a query, by one program:\n")
    report.table(
        ("", ""),
        [
            ("wall time, s", f"{time.perf_counter() - start:.0f}"),
            ("peak memory of the client, MB", f"{int(client) / 1e6:.0f}"),
            ("peak memory of a worker, MB", f"{int(worker) / 1e6:.0f}"),
            ("vectors found", f"{int(n):,}"),
            ("queries that find themselves among 10", found),
        ],
    )


def costs(fit, encode, scan, shape, report):
    """What training, encoding and searching take by the model, on machines like this one with a fast network."""
    M, K, d = shape
    trained = 10_000_000
    rows = []
    for n in (10**8, 10**9, 10**10):
        for machines in MACHINES:
            passes = fit["anneal"] * min(fit["part"], trained) + fit["full"] * trained
            work = passes * fit["per_row"] / machines
            levels = math.ceil(math.log(machines, FAN)) if machines > 1 else 0  # of the tree in which sums are added
            received = min(machines, FAN) * fit["sent"] * max(1, levels)
            network = fit["iterations"] * (received / NETWORK + (TRIPS + levels) * TRIP)
            solve = fit["iterations"] * fit["solve"]
            bound = max((work, "encoding"), (network, "the network"), (solve, "solving"))[1]
            memory = n * M / machines
            scanning = n * scan / machines
            rows.append(
                (
                    f"10^{len(str(n)) - 1}",
                    f"{machines:,}",
                    f"{(work + network + solve) / 60:.1f} min, {bound}",
                    f"{fit['iterations'] * fit['sent'] / 1e9:,.1f} GB",
                    f"{n * encode / machines / 3600:,.2f} h",
                    f"{memory / 1e9:,.2f} GB",
                    f"{1e3 * (scanning + TRIP):,.0f} ms, {'scan' if scanning > TRIP else 'the way there'}",
                )
            )
    report(
        f"By the model: {M} × {K}, d = {d}, one thread for each machine, training on {trained:,} vectors of all, "
        f"{NETWORK * 8e-9:.0f} Gbit/s, {1e3 * TRIP:.0f} ms for each of {TRIPS} round trips of an iteration:\n"
    )
    report.table(
        (
            "vectors",
            "machines",
            "training, bound by",
            "sent by each",
            "encoding",
            "codes of a machine",
            "a query, bound by",
        ),
        rows,
    )


def main():
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=100_000, help="vectors to train on and to encode")
    options.add_argument("--end-to-end", type=int, default=200_000, help="vectors in Parquet files")
    options.add_argument("--repeat", type=int, default=1, help="how often to measure, of which the best counts")
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    options.add_argument("--effort", choices=tuple(EFFORTS), default="low", help="of training")
    args = options.parse_args()
    effort = "low" if args.tiny else args.effort
    rows, large = (2000, 4000) if args.tiny else (args.rows, args.end_to_end)
    name = "cluster" if args.parts == PARTS else "-".join(["cluster", *args.parts])
    report = Report(name, args.save)
    busy(report)
    X = np.ascontiguousarray(sift("base", rows))
    parameters = {"effort": effort, "n_codewords": 16 if args.tiny else 256}
    with workers(2) as client, tempfile.TemporaryDirectory() as folder:
        if "inner-product" in args.parts:
            training(client, X, parameters | {"loss": cc.InnerProduct(4.0, 0.0)}, report, args.repeat)
        if "costs" in args.parts:
            model, fit = training(client, X, parameters | {"loss": "reconstruction"}, report, args.repeat)
            codes, encode = encoding(client, model, X[: rows // 4], report, args.repeat)
            many = np.concatenate([codes] * max(1, (20_000 if args.tiny else 2_000_000) // len(codes)))
            scan = searching(model, many, np.asarray(X[:20], np.float32), Path(folder), report)
            costs(fit, encode, scan, model.codebooks_.shape, report)
    if "end-to-end" in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            end_to_end(large, Path(folder), report)
    busy(report)


if __name__ == "__main__":
    main()
