"""Inverted lists of many vectors: how search grows, what training, building and memory take, and how cold disks are.

    COMPCODES_DATA=folder python benches/lists_scale.py growth [--n 6400000] [--save]
    COMPCODES_DATA=folder python benches/lists_scale.py training [--n 1000000] [--lists 4096]
    python benches/lists_scale.py keys [--n 200000]
    COMPCODES_DATA=folder python benches/lists_scale.py lsq [--n 50000]
    COMPCODES_DATA=folder python benches/lists_scale.py building [--n 10000000]
    python benches/lists_scale.py memory [--n 10000000]
    python benches/lists_scale.py disk [--n 100000000]
    COMPCODES_DATA=folder python benches/lists_scale.py spilling [--n 200000]
    COMPCODES_DATA=folder python benches/lists_scale.py probes [--n 200000]

One thread and processor time, but for "disk", which is by the clock, and "building", which is too, and takes all cores.
Vectors are noisy copies of the base set, in bytes.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import compcodes as cc
from common import Report, parser, peak_memory, sift, source
from compcodes import _core

K = 10


def copies(path, n):
    """The base set and noisy copies of it, in bytes, as a memory map."""
    base = np.asarray(sift("base", 500_000))
    rng = np.random.default_rng(0)
    if base.dtype != np.uint8:
        base = np.clip(np.asarray(base, np.float32) * 20 + 128, 0, 255).astype(np.uint8)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(n, base.shape[1]))
    for first in range(0, n, len(base)):
        rows = base[: n - first]
        noise = rng.normal(0, 8, size=rows.shape).astype(np.float32) if first else 0
        X[first : first + len(rows)] = np.clip(rows + noise, 0, 255).astype(np.uint8)
    return X


def seconds(work, runs=3):
    """Least processor time of some runs, and what the last returned."""
    best = math.inf
    for _ in range(runs):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    return best, found


def growth(report, folder, n, tiny):
    """The fastest search that finds 90%, by probes and candidates, for more and more vectors."""
    queries = np.asarray(sift("query", 50 if tiny else 500), np.float32)
    sizes = [2000, 4000] if tiny else [*(100_000 * 4**i for i in range(8) if 200_000 * 4**i <= n), n]
    X, table = copies(folder / "x.npy", sizes[-1]), []
    for n in sizes:
        n_lists = round(math.sqrt(n))
        learn = X[np.sort(np.random.default_rng(1).choice(n, min(n, max(50_000, 64 * n_lists)), replace=False))]
        model = cc.CompositionalCodes(16, 16, n_lists=n_lists, effort="low", n_jobs=1).fit(learn)
        index = cc.Index(model, n_jobs=1).add(X[:n])
        truth = cc.evaluate.ground_truth(X[:n], queries, K)[1]
        best = None
        for n_candidates in (50, 100, 200, 400, 800, 1600):
            for n_probe in (4, 8, 16, 24, 32, 48, 64, 96, 128):
                if n_probe > n_lists:
                    break
                options = {"n_probe": n_probe, "n_candidates": n_candidates, "rerank": X[:n]}
                search = partial(index.search, queries, K, **options)
                found = cc.evaluate.recall(search()[1], truth, K, K)
                if found >= (0.5 if tiny else 0.9):
                    taken = seconds(search)[0] / len(queries)
                    if best is None or taken < best[0]:
                        best = taken, n_probe, n_candidates, found
                    break
        sizes_of = index.list_sizes
        largest = f"{sizes_of.max() / sizes_of.mean():.1f}"
        if best is None:
            table.append([f"{n:,}", n_lists, "", "", "below 0.90", "", largest])
            continue
        taken, n_probe, n_candidates, found = best
        table.append([f"{n:,}", n_lists, n_probe, n_candidates, f"{found:.3f}", f"{taken * 1e6:.1f}", largest])
    header = ["vectors", "lists", "probes", "re-ranked", "R10@10", "µs per query", "largest list / mean"]
    d = X.shape[1]
    report(f"vectors of {d} numbers in codes of 16 × 16; trained on 64 per list, 50,000 at least, or on all\n")
    report.table(header, table)
    known = [(float(row[0].replace(",", "")), float(row[5])) for row in table if row[5]]
    if len(known) > 1:
        x, y = np.log(np.array(known)).T
        report(f"Time per query grows by the power {np.polyfit(x, y, 1)[0]:.2f} of the number of vectors.\n")


def training(report, folder, n, n_lists, tiny):
    """Centroids of the same vectors by compcodes and by faiss."""
    from compcodes.training import lists
    from compcodes.training.divided import Whole
    from compcodes.training.shards import Local

    X = np.asarray(copies(folder / "x.npy", n), np.float32)
    # What a fit does before it trains codebooks: centroids, the list of each vector, and the curve of recall.
    vectors = Whole(Local(X, n_jobs=1))
    taken, (made, based) = seconds(lambda: lists.train_lists(vectors, n_lists, 1.0, "ip", None, 0, 1, None), 1)
    places = based.base.places
    sizes = np.bincount(places, minlength=n_lists)
    loss = float(((X[:100_000] - made.centroids[places[:100_000]]) ** 2).sum(1).mean())
    table = [["compcodes", f"{taken:.1f}", f"{loss:.0f}", f"{sizes.max() / sizes.mean():.1f}"]]
    report(f"{n:,} vectors of {X.shape[1]} numbers, {n_lists:,} lists\n")
    try:
        import faiss
    except ImportError:
        report.table(["method", "seconds", "mean squared error", "largest list / mean"], table)
        return
    faiss.omp_set_num_threads(1)
    means = faiss.Kmeans(X.shape[1], n_lists, niter=10, max_points_per_centroid=128, seed=0)

    def train():
        means.train(X)
        return means.index.search(X, 1)

    taken, (squares, found) = seconds(train, 1)
    sizes = np.bincount(found[:, 0], minlength=n_lists)
    name = "faiss Kmeans, 10 iterations, 128 vectors for each"
    table.append([name, f"{taken:.1f}", f"{squares[:100_000].mean():.0f}", f"{sizes.max() / sizes.mean():.1f}"])
    report.table(["method", "seconds", "mean squared error", "largest list / mean"], table)
    report("Both assign all vectors in the end; compcodes also measures how many lists a search needs.\n")


def attention(n, d=64, rank=24, seed=0):
    """Keys of low rank whose lengths are log-normal, and queries from another distribution."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(rank, d)) * np.geomspace(1, 0.1, rank)[:, None]
    turn = np.linalg.qr(rng.normal(size=(rank, rank)))[0]

    def directions(count, mix):
        rows = rng.normal(size=(count, rank)) @ mix @ basis + 0.05 * rng.normal(size=(count, d))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    keys = directions(n, np.eye(rank)) * rng.lognormal(0, 0.8, size=(n, 1))
    queries = directions(3000, 0.5 * np.eye(rank) + 0.5 * turn) * 8
    return keys.astype(np.float32), queries[:1000].astype(np.float32), queries[1000:].astype(np.float32)


def keys(report, n, tiny):
    """The 10 best among 100, for keys of very different lengths."""
    X, Q, samples = attention(n)
    n_lists, n_probe, found_k = round(math.sqrt(n)), 32, 100
    truth, table = cc.evaluate.ground_truth(X, Q, K)[1], []
    size = {"n_codewords": 16} if tiny else {}

    def add(name, search, cost):
        taken, ids = seconds(search)
        recall = f"{cc.evaluate.recall(ids, truth, K, found_k):.3f}"
        table.append([name, cost, recall, f"{len(Q) / taken:,.0f}"])

    model = cc.CompositionalCodes(8, **size, n_lists=n_lists, effort="low", n_jobs=1).fit(X[:100_000], queries=samples)
    index = cc.Index(model, n_jobs=1).add(X)
    sizes = index.list_sizes
    report(f"{n:,} keys, {n_lists} lists; largest list {sizes.max() / sizes.mean():.1f} times the mean\n")
    add(f"compcodes, {n_probe} probes", lambda: index.search(Q, found_k, n_probe=n_probe)[1], 8)
    add("compcodes, recall=0.95", lambda: index.search(Q, found_k)[1], 8)
    try:
        import faiss

        faiss.omp_set_num_threads(1)
        for name, metric, rows in (
            ("faiss IVFPQ, of directions", faiss.METRIC_INNER_PRODUCT, X / np.linalg.norm(X, axis=1, keepdims=True)),
            ("faiss IVFPQ", faiss.METRIC_INNER_PRODUCT, X),
        ):
            rival = faiss.index_factory(X.shape[1], f"IVF{n_lists},PQ8" + ("x4" if tiny else ""), metric)
            faiss.extract_index_ivf(rival).cp.spherical = "directions" in name
            rival.train(rows[:100_000])
            rival.add(rows)
            faiss.extract_index_ivf(rival).nprobe = n_probe
            add(f"{name}, {n_probe} probes", lambda rival=rival: rival.search(Q, found_k)[1], 8)
    except ImportError:
        pass
    try:
        import scann

        builder = scann.scann_ops_pybind.builder(X, found_k, "dot_product").set_n_training_threads(1)
        builder = builder.tree(n_lists, n_probe, training_sample_size=100_000)
        # 16 blocks of 4 bits: 8 bytes, as the others.
        searcher = builder.score_ah(X.shape[1] // 16, anisotropic_quantization_threshold=0.2).build()
        search = lambda: searcher.search_batched(Q, found_k, leaves_to_search=n_probe)[0].astype(np.int64)  # noqa: E731
        add(f"ScaNN tree AH, {n_probe} probes", search, 8)
    except ImportError:
        pass
    report.table(["method", "bytes", "R10@100", "queries per second"], table)


def lsq(report, n, tiny):
    """The same numbers of lists gone through, of codes of the same bytes."""
    X, Q = np.asarray(sift("base", n), np.float32), np.asarray(sift("query", 50 if tiny else 500), np.float32)
    n_lists = round(math.sqrt(len(X)))
    truth, table = cc.evaluate.ground_truth(X, Q, K)[1], []
    learn = np.asarray(sift("learn", 20_000), np.float32)
    size = {"n_codewords": 16} if tiny else {}
    model = cc.CompositionalCodes(8, **size, n_lists=n_lists, effort="low", n_jobs=1).fit(learn)
    index = cc.Index(model, n_jobs=1).add(X)
    searches = {"compcodes": lambda p: index.search(Q, K, n_probe=p)[1]}
    try:
        import faiss

        faiss.omp_set_num_threads(1)
        rivals = [] if tiny else [f"IVF{n_lists},LSQ8x8", f"IVF{n_lists},RQ8x8"]
        for name in rivals:
            rival = faiss.index_factory(X.shape[1], name, faiss.METRIC_INNER_PRODUCT)
            rival.train(learn)
            rival.add(X)

            def search(p, rival=rival):
                rival.nprobe = p
                return rival.search(Q, K)[1]

            searches[f"faiss {name}"] = search
    except ImportError:
        pass
    for name, search in searches.items():
        for n_probe in (1, 8, 32):
            taken, ids = seconds(lambda search=search, p=n_probe: search(p))
            table.append([name, n_probe, f"{cc.evaluate.recall(ids, truth, K, K):.3f}", f"{len(Q) / taken:,.0f}"])
    report(f"{len(X):,} vectors of {X.shape[1]} numbers, {len(learn):,} others to train on, {n_lists} lists, 8 bytes\n")
    report.table(["method", "probes", "R10@10", "queries per second"], table)


def building(report, folder, n, tiny):
    """Memory and time of `compcodes build` from a memory map, in a process of its own, that was killed once."""
    X = copies(folder / "x.npy", n)
    n_lists = 20 if tiny else min(3162, round(math.sqrt(n)))
    learn = X[np.sort(np.random.default_rng(1).choice(n, min(n, max(20_000, 64 * n_lists)), replace=False))]
    cc.CompositionalCodes(16, 16, n_lists=n_lists, effort="low").fit(learn).save(folder / "model.cc")
    del learn
    command = [sys.executable, __file__, "--child", str(folder)]
    table = []
    for name in ("killed halfway", "after that") if not tiny else ("whole",):
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if name == "killed halfway":
            pieces = time.perf_counter() + 60
            while time.perf_counter() < pieces and child.poll() is None:
                time.sleep(1)
            child.kill()
            child.communicate()
            table.append([name, f"{time.perf_counter() - start:.0f}", "", "", ""])
            continue
        out = child.communicate()[0]
        peak, size = map(int, out.splitlines()[-1].split())  # below what the command prints
        taken = f"{time.perf_counter() - start:.0f}"
        table.append([name, taken, f"{peak / 1e6:,.0f}", f"{(peak - 8 * n) / 1e6:,.0f}", f"{size / n:.2f}"])
    report(f"{n:,} vectors of {X.shape[1]} numbers, {n_lists:,} lists, codes of 16 × 16\n")
    header = ["build", "seconds by the clock", "peak memory, MB", "above the codes", "bytes per vector in the file"]
    report.table(header, table)


def child(folder):
    """Build in this process, and print its peak memory and the size of what it wrote."""
    from compcodes.cli import main as command

    folder = Path(folder)
    command(["build", str(folder / "model.cc"), str(folder / "x.npy"), "-o", str(folder / "index.cc"), "--quiet"])
    print(peak_memory(), (folder / "index.cc").stat().st_size)


def second_lists(X, centroids, places, weight):
    """Of each vector the list whose residual is small and, by `weight`, orthogonal to that of its own."""
    squares, second = (centroids**2).sum(1), np.empty(len(X), int)
    for first in range(0, len(X), 4096):
        rows = np.asarray(X[first : first + 4096], np.float32)
        own = places[first : first + 4096]
        residuals = rows - centroids[own]
        lengths = np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1e-9)
        # ⟨r', r⟩ with r' = x − c'.
        along = ((rows * residuals).sum(1, keepdims=True) - residuals @ centroids.T) / lengths
        cost = squares - 2 * rows @ centroids.T + weight * along**2
        cost[np.arange(len(rows)), own] = np.inf
        second[first : first + 4096] = cost.argmin(1)
    return second


def spilling(report, n, tiny):
    """Codes to pass over until so many of the 10 nearest are among them: each in one list, or in two."""
    from compcodes.training import lists
    from compcodes.training.divided import Whole
    from compcodes.training.shards import Local

    queries = np.asarray(sift("query", 50 if tiny else 1000), np.float32)
    sets = {source(): (np.asarray(sift("base", n), np.float32), queries), "keys": attention(n)[:2]}
    for name, (X, Q) in sets.items():
        n_lists, table = round(math.sqrt(len(X))), []
        truth = cc.evaluate.ground_truth(X, Q, K)[1]
        made, based = lists.train_lists(Whole(Local(X, n_jobs=1)), n_lists, 1.0, "ip", None, 0, 1, None)
        places = based.base.places
        order = np.argsort(-(Q @ made.centroids.T), axis=1)
        ranks = np.argsort(order, axis=1)
        sizes = np.bincount(places, minlength=n_lists)
        kinds = {"one list": None, "two, the nearest": 0.0, "two, λ = 1": 1.0, "two, λ = 1.5": 1.5}
        for kind, weight in kinds.items():
            at, held = np.take_along_axis(ranks, places[truth], axis=1), sizes
            if weight is not None:
                second = second_lists(X, made.centroids, places, weight)
                at = np.minimum(at, np.take_along_axis(ranks, second[truth], axis=1))
                held = sizes + np.bincount(second, minlength=n_lists)
            passed = np.cumsum(held[order], axis=1).mean(0)
            found = np.cumsum(np.bincount(at.ravel(), minlength=n_lists)) / at.size
            needed = [int(np.searchsorted(found, least)) for least in (0.8, 0.9, 0.95, 0.98)]
            table.append([kind, *(f"{i + 1}: {passed[min(i, n_lists - 1)]:,.0f}" for i in needed)])
        report(
            f"{name}: {len(X):,} vectors, {n_lists} lists; probes, and codes passed over, for shares of the nearest\n"
        )
        report.table(["each vector in", "0.80", "0.90", "0.95", "0.98"], table)


def probes(report, n, tiny):
    """Vectors in the lists that hold so many of the 10 nearest: the same number of lists for all queries, or by gap."""
    from compcodes.training.reach import list_scores
    from sets import Missing, glove, gowalla

    def given():
        queries = np.asarray(sift("query", 50 if tiny else 1000), np.float32)
        for metric in ("ip", "l2"):
            yield f"{source()}, {metric}", np.asarray(sift("base", n), np.float32), queries, None, metric
        for load, metrics in ((glove, ("ip", "cosine", "l2")), (gowalla, ("ip",))):
            try:
                one = load()
            except Missing as missing:
                print(missing)
                continue
            for metric in metrics if not tiny else ():
                yield f"{one.name}, {metric}", one.base, one.queries[:1000], one.samples, metric
        X, Q, samples = attention(n)
        yield "keys, ip", X, Q, samples, "ip"

    table = []
    size = {"n_lists": "auto", "loss": "reconstruction", "anneal": 0, "max_iter": 0, "n_jobs": 1}
    for name, X, Q, samples, metric in given():
        X, Q = (np.ascontiguousarray(each, dtype=np.float32) for each in (X, Q))
        model = cc.CompositionalCodes(2, 16, **size, metric=metric).fit(X, queries=samples)
        index, made = cc.Index(model, metric=metric, n_jobs=1).add(X), model._lists
        truth = cc.evaluate.ground_truth(X, Q, K, metric=metric)[1]
        scores = list_scores(made, Q, metric, made.bonuses)
        order = np.argsort(-scores, axis=1, kind="stable")
        at = np.take_along_axis(np.argsort(order, axis=1), model.assign(X)[truth], axis=1)
        passed = np.cumsum(index.list_sizes[order], axis=1)
        held = np.cumsum(np.bincount(at.ravel(), minlength=len(made))) / at.size
        shards = _core.Shards([index._core], [0], [np.zeros(0, np.int64)])
        for recall in (0.8, 0.9, 0.95, 0.98, 0.99):
            own = shards.probes(Q, recall=recall, n_jobs=1)
            share, cost = (at < own[:, None]).mean(), passed[np.arange(len(Q)), own - 1].mean()
            same = np.interp(share, np.append(0, held), np.append(0, passed.mean(axis=0)))
            row = [name, len(made), recall, f"{share:.3f}", f"{own.min()} to {own.max()}", f"{own.mean():.1f}"]
            table.append([*row, f"{cost:,.0f}", f"{same:,.0f}", f"{cost / same:.2f}"])
    report("Queries are searched for by lists alone: codes do not matter. The same number holds the same share.\n")
    header = ["vectors, metric", "lists", "recall=", "of the 10 nearest", "lists searched", "mean", "vectors in them"]
    report.table([*header, "by the same number", "ratio"], table)


def forget(path):
    """Have the system drop what it keeps of a file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def synthetic(n_lists):
    """A model of 8 bytes that was not trained, and its generator of numbers."""
    rng, d = np.random.default_rng(0), 128
    centroids = rng.normal(size=(n_lists, d)).astype(np.float32)
    books = (0.3 * rng.normal(size=(8, 256, d))).astype(np.float32)
    return cc.CompositionalCodes.from_codebooks(books, centroids=centroids), rng


def resident():
    """Bytes that this process holds now."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def memory(report, folder, n, tiny):
    """Bytes per vector that an index holds in memory and in its file, by what names its vectors."""
    n_lists = 20 if tiny else 3162
    model, rng = synthetic(n_lists)
    codes = rng.integers(0, 256, size=(n, 8), dtype=np.uint8)
    lists = rng.integers(0, n_lists, size=n)
    kinds = {
        "positions": None,
        "given, below 2³²": rng.permutation(n) * 2,
        "given, beyond": rng.permutation(n) * 2 + 2**32,
    }
    cc.Index(model).add_codes(codes[:1000], lists=lists[:1000])
    table = []
    for kind, ids in kinds.items():
        before = resident()
        index = cc.Index(model)
        index.add_codes(codes, ids, lists=lists)
        held = resident() - before
        index.save(folder / "index.cc")
        size = (folder / "index.cc").stat().st_size
        table.append([kind, f"{held / n:.2f}", f"{(held / n) - 8:.2f}", f"{size / n:.2f}"])
        del index
    report(f"{n:,} codes of 8 bytes in {n_lists:,} lists, added at once\n")
    report.table(["ids", "bytes per vector in memory", "beside the codes", "in the file"], table)


def disk(report, folder, n, tiny):
    """Random codes, mapped, searched before and after they are in memory."""
    n_lists = 20 if tiny else 10_000
    model, rng = synthetic(n_lists)
    index = cc.Index(model)
    start, piece = time.perf_counter(), 20_000_000
    for first in range(0, n, piece):
        rows = min(piece, n - first)
        codes = rng.integers(0, 256, size=(rows, 8), dtype=np.uint8)
        index.add_codes(codes, lists=rng.integers(0, n_lists, size=rows))
        del codes
    path = folder / "index.cc"
    index.save(path)
    size = path.stat().st_size
    made = f"{n:,} codes of 8 bytes in {n_lists:,} lists: made in {time.perf_counter() - start:.0f} s"
    report(f"{made}, a file of {size / 1e9:.2f} GB, {size / n:.2f} bytes per vector\n")
    del index
    queries, table = rng.normal(size=(256, 128)).astype(np.float32), []
    for n_probe in (1, 16, 128):
        forget(path)
        start = time.perf_counter()
        index = cc.Index.load(path, mmap=True, n_jobs=1)
        opened = time.perf_counter() - start
        forget(path)
        times = []
        for query in queries[:32]:
            start = time.perf_counter()
            index.search(query, K, n_probe=n_probe)
            times.append(time.perf_counter() - start)
        index.search(queries, K, n_probe=n_probe)
        start = time.perf_counter()
        for query in queries:
            index.search(query, K, n_probe=n_probe)
        warm = (time.perf_counter() - start) / len(queries)
        cold = f"{times[0] * 1e3:.1f}", f"{np.median(times) * 1e3:.2f}"
        table.append([n_probe, f"{opened:.2f}", *cold, f"{warm * 1e3:.2f}"])
    header = ["probes", "opened in, s", "cold, the first query, ms", "median of the first 32", "warm, ms per query"]
    report.table(header, table)


def main():
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
        return
    options = parser(__doc__)
    options.add_argument(
        "what",
        nargs="*",
        help="growth, training, keys, lsq, building, memory, disk, spilling, probes; all of them by default",
    )
    options.add_argument("--n", type=int, help="vectors")
    options.add_argument("--lists", type=int, default=4096, help="for training")
    args = options.parse_args()
    names = {"growth": 6_400_000, "training": 1_000_000, "keys": 200_000, "lsq": 50_000, "building": 10_000_000}
    names |= {"memory": 10_000_000, "disk": 100_000_000, "spilling": 200_000, "probes": 200_000}
    for what in args.what or names:
        n = args.n or (4000 if args.tiny else names[what])
        report = Report(f"lists-{what}", args.save, source() if what not in ("keys", "memory", "disk") else "made")
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            folder = Path(folder)
            match what:
                case "growth":
                    growth(report, folder, n, args.tiny)
                case "training":
                    training(report, folder, n, 20 if args.tiny else args.lists, args.tiny)
                case "keys":
                    keys(report, n, args.tiny)
                case "lsq":
                    lsq(report, n, args.tiny)
                case "building":
                    building(report, folder, n, args.tiny)
                case "memory":
                    memory(report, folder, n, args.tiny)
                case "disk":
                    disk(report, folder, n, args.tiny)
                case "spilling":
                    spilling(report, n, args.tiny)
                case "probes":
                    probes(report, n, args.tiny)
                case _:
                    raise SystemExit(f"{what!r} is none of: {', '.join(names)}")


if __name__ == "__main__":
    main()
