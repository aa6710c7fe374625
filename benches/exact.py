"""Exact answers beside faiss's flat index, and beside the way one writes in numpy.

    COMPCODES_DATA=… python benches/exact.py [--tiny] [--save]

One thread. The engines take turns; a ratio is that of the least times, for other work on a machine only ever adds.
The OpenBLAS that comes with faiss may not know a new processor, and then multiplies several times slower than it could:
OPENBLAS_CORETYPE=SkylakeX gives it its best kernel where there is AVX-512.
"""

import numpy as np
from threadpoolctl import threadpool_limits

import compcodes as cc
from common import Report, arguments, least, sift


def sorted_products(X, Q, k):
    """The whole matrix of products, and each row of it sorted."""
    return np.argsort(-(Q @ X.T), axis=1)[:, :k]


def main():
    import faiss

    args = arguments(__doc__.splitlines()[0])
    report = Report("exact", args.save)
    n, nq, repeats = (3000, 50, 1) if args.tiny else (200_000, 1000, 5)
    stored = np.ascontiguousarray(sift("base", n))
    X, half = stored.astype(np.float32), stored.astype(np.float16)
    queries = np.asarray(sift("query", nq), np.float32)
    flat = faiss.IndexFlatIP(X.shape[1])
    flat.add(X)
    faiss.omp_set_num_threads(1)

    rows = []
    for k in (1, 10, 100, 1000):
        works = [lambda X=X, k=k: cc.evaluate.ground_truth(X, queries, k, n_jobs=1) for X in (X, half, stored)]
        times = least(repeats, lambda k=k: flat.search(queries, k), *works, runs=1)
        rows.append([f"{k}", *(f"{t:.3f}" for t in times), *(f"{times[0] / t:.2f}" for t in times[1:])])
    kinds = ["float32", "float16", str(stored.dtype)]
    report(f"## {len(X):,} vectors of {X.shape[1]} numbers, {nq:,} queries, inner product, one thread\n")
    report.table(["k", "IndexFlatIP, s", *(f"{t}, s" for t in kinds), *(f"{t}, × faiss" for t in kinds)], rows)
    few = queries[: max(nq // 10, 1)]
    with threadpool_limits(1):
        times = least(
            1, lambda: sorted_products(X, few, 100), lambda: cc.evaluate.ground_truth(X, few, 100, n_jobs=1), runs=1
        )
    report(
        f"argsort of the products in numpy, {len(few)} queries: {times[0]:.3g} s, {times[0] / times[1]:.1f} × as long"
    )


if __name__ == "__main__":
    main()
