"""Inverted lists: recall and queries per second against the number of lists gone through, beside rivals.

    COMPCODES_DATA=folder python benches/lists.py [--n 200000] [--lists 450] [--codes 8x256,32x16]
        [--rivals ivfpq,fastscan] [--save]

One thread, processor time of a batch of queries; every method with its own sweep of probes. "codes" compares by codes
alone, "re-ranked" compares the best by codes with the vectors in float32. The last table is the fastest of each method
that finds so much. The database is the base set, and noisy copies of it beyond its size. --only gowalla searches items
by users, with sample users given to the training. COMPCODES_ISA=avx2 is for a machine without AVX-512, but holds for
compcodes alone.
"""

import math
import time
from pathlib import Path

import numpy as np

import compcodes as cc
from common import Report, parser, sift, source
from compcodes import _core

PROBES = (1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 128, 256)
RECALLS = (0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)
"""Of the lists, by measurement in training: as many for each query as it takes."""
K = 10
CANDIDATES = (25, 50, 75, 100, 150, 200, 400)
"""For exact scores, of every method that takes them."""


def database(n):
    base = np.asarray(sift("base", n), np.float32)
    rng = np.random.default_rng(0)
    while len(base) < n and len(base) > 100_000:
        more = base[: n - len(base)]
        base = np.concatenate([base, (more + rng.normal(0, 8, size=more.shape)).clip(0, 255).astype(np.float32)])
    return base


def seconds(work):
    """Least processor time of three runs."""
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    return best, found


def rows(name, search, probes, truth, n_queries):
    """A line for each number of probes: name, probes, recall of the 10 best among 10, queries per second."""
    for n in probes:
        taken, ids = seconds(lambda n=n: search(n))
        yield [name, n, f"{cc.evaluate.recall(ids, truth, K, K):.3f}", f"{n_queries / taken:,.0f}"]


def ours(X, learn, Q, n_lists, truth, samples, report, size, codes, keep):
    m, words = map(int, codes.split("x"))
    start = time.process_time()
    file = keep and Path(keep, f"{codes}-{len(X)}-{n_lists}.cc")
    if file and file.exists():
        index, how = cc.Index.load(file, n_jobs=1), "kept from an earlier run"
    else:
        size = {"n_codewords": words} | size
        model = cc.CompositionalCodes(m, **size, n_lists=n_lists, effort="low", n_jobs=1)
        model.fit(learn, queries=samples)
        trained = time.process_time() - start
        index = cc.Index(model, n_jobs=1).add(X)
        how = f"trained in {trained:.0f} s, added in {time.process_time() - start - trained:.0f} s of one core"
    if file:
        index.save(file)
    sizes = index.list_sizes
    shards = _core.Shards([index._core], [0], [np.zeros(0, np.int64)])
    lists = lambda recall: shards.probes(np.asarray(Q, np.float32), recall=recall)  # noqa: E731
    report(
        f"compcodes {codes}: {how}; largest list {sizes.max() / sizes.mean():.1f} times the mean, "
        f"drift {index.drift:.2f}, recall=0.95 goes through {lists(0.95).mean():.1f} lists\n"
    )
    counts = [n for n in PROBES if n < n_lists] + [n_lists]
    reaches = {n: {"n_probe": n} for n in counts}
    for recall in RECALLS:
        reaches[f"{lists(recall).mean():.1f} for {recall}"] = {"recall": recall}
    name = f"compcodes {codes}"
    yield from rows(f"{name}, codes", lambda n: index.search(Q, K, **reaches[n])[1], reaches, truth, len(Q))
    for n_candidates in CANDIDATES:
        search = lambda n, c=n_candidates: index.search(Q, K, **reaches[n], rerank=X, n_candidates=c)[1]  # noqa: E731
        yield from rows(f"{name}, {n_candidates} re-ranked", search, reaches, truth, len(Q))


def without_lists(X, learn, Q, truth, samples, size):
    flat = cc.CompositionalCodes(**size, effort="low", n_jobs=1).fit(learn, queries=samples)
    whole = cc.Index(flat, n_jobs=1).add(X)
    yield from rows("compcodes without lists, codes", lambda n: whole.search(Q, K)[1], [1], truth, len(Q))


def fastest(table, least):
    """The fastest row of each method that finds at least so much."""
    best = {}
    for row in table:
        method = row[0].split(", ")[0] + (", SOAR" if "SOAR" in row[0] else "")
        speed = float(row[3].replace(",", ""))
        if float(row[2]) >= least and speed > best.get(method, (0.0,))[0]:
            best[method] = speed, row
    return [[f"{least:.2f}", *row] for _, row in sorted(best.values(), key=lambda found: -found[0])]


def faiss_rivals(X, learn, Q, n_lists, truth, names):
    try:
        import faiss
    except ImportError:
        return
    faiss.omp_set_num_threads(1)
    probes = [n for n in PROBES if n < n_lists]
    inner = faiss.METRIC_INNER_PRODUCT
    parts = max(m for m in range(1, 9) if X.shape[1] % m == 0)
    kinds = {
        "ivfpq": (f"IVF{n_lists},PQ{parts}", None),
        "fastscan": (f"IVF{n_lists},PQ{X.shape[1] // 2}x4fs,RFlat", CANDIDATES),
        "fastscan4": (f"IVF{n_lists},PQ{X.shape[1] // 4}x4fs,RFlat", CANDIDATES),
        "rabitq": (f"IVF{n_lists},RaBitQ", None),
        "lsq": (f"IVF{n_lists},LSQ8x8", None),
    }
    for name in names:
        if name not in kinds:
            continue
        key, factors = kinds[name]
        try:
            index = faiss.index_factory(X.shape[1], key, inner)
        except RuntimeError as error:
            print(f"faiss {key}: {error}")
            continue
        index.train(learn)
        index.add(X)
        inverted = faiss.extract_index_ivf(index)
        for factor in factors or (None,):
            if factor is not None:
                index.k_factor = factor / K

            def search(n, index=index, inverted=inverted):
                inverted.nprobe = n
                return index.search(Q, K)[1]

            title = f"faiss {key.replace(',', ' ')}" + (f", {factor} re-ranked" if factor else "")
            yield from rows(title, search, probes, truth, len(Q))


def hnsw(X, Q, truth):
    try:
        import hnswlib
    except ImportError:
        return
    index = hnswlib.Index(space="ip", dim=X.shape[1])
    index.init_index(max_elements=len(X), M=16, ef_construction=200)
    index.set_num_threads(1)
    index.add_items(X)

    def search(n):
        index.set_ef(n)
        return index.knn_query(Q, K)[0].astype(np.int64)

    yield from rows("hnswlib M=16, ef", search, (10, 15, 20, 25, 30, 40, 60, 80, 160), truth, len(Q))


def scann_trees(X, Q, n_lists, truth):
    try:
        import scann
    except ImportError:
        return
    for spill in (None, 1.5):
        builder = scann.scann_ops_pybind.builder(X, K, "dot_product")
        more = {} if spill is None else {"soar_lambda": spill, "overretrieve_factor": 2.0}
        builder = builder.tree(n_lists, 16, training_sample_size=len(X), **more)
        searcher = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100).build()
        for reorder in CANDIDATES:

            def search(n, searcher=searcher, reorder=reorder):
                found = searcher.search_batched(Q, K, pre_reorder_num_neighbors=reorder, leaves_to_search=n)
                return found[0].astype(np.int64)

            name = f"ScaNN tree AH{', SOAR' if spill else ''}, {reorder} re-ranked"
            yield from rows(name, search, [n for n in PROBES if n < n_lists], truth, len(Q))


def main():
    options = parser(__doc__)
    options.add_argument("--n", type=int, default=200_000, help="vectors in the database")
    options.add_argument("--lists", type=int, help="lists, √n by default")
    options.add_argument("--codes", default="8x256,32x16", help="codebooks x codewords, one or more")
    options.add_argument("--keep", help="folder that indexes are kept in, and taken from by the next run")
    rivals = "flat,ivfpq,fastscan,fastscan4,rabitq,hnsw,scann"
    options.add_argument("--rivals", default=rivals, help=f"of {rivals} and lsq, which takes long to train")
    options.add_argument("--only", choices=["sift", "gowalla"], default="sift")
    args = options.parse_args()
    n, n_queries = (3000, 50) if args.tiny else (args.n, 1000)
    samples = None
    if args.only == "gowalla" and not args.tiny:
        from sets import gowalla

        one = gowalla()
        X, learn, Q, samples = (np.asarray(a, np.float32) for a in (one.base, one.learn, one.queries, one.samples))
        data = one.name
    else:
        X, Q = database(n), np.asarray(sift("query", n_queries), np.float32)
        learn, data = (X[:2000] if args.tiny else np.asarray(sift("learn", 50_000), np.float32)), source()
    n_lists = args.lists or (20 if args.tiny else round(math.sqrt(len(X))))
    report = Report("lists", args.save, data)
    report(f"{len(X):,} vectors, {len(Q):,} queries, {n_lists:,} lists, inner product\n")
    truth = cc.evaluate.ground_truth(X, Q, K)[1]
    size = {"n_codewords": 16, "anneal": 3, "max_iter": 2, "loss": "reconstruction"} if args.tiny else {}
    names = ["flat", "ivfpq"] if args.tiny else [name.strip() for name in args.rivals.split(",")]
    codes = ["8x16"] if args.tiny else args.codes.split(",")
    table = [row for each in codes for row in ours(X, learn, Q, n_lists, truth, samples, report, size, each, args.keep)]
    table += without_lists(X, learn, Q, truth, samples, size) if "flat" in names else []
    table += faiss_rivals(X, learn, Q, n_lists, truth, names)
    table += hnsw(X, Q, truth) if "hnsw" in names else []
    table += scann_trees(X, Q, n_lists, truth) if "scann" in names else []
    header = ["method", "probes", "R10@10", "queries per second"]
    report.table(header, table)
    report.table(["R10@10 at least", *header], fastest(table, 0.9) + fastest(table, 0.95))


if __name__ == "__main__":
    main()
