"""Searching codes beside faiss: its own product quantizer's codes, taken over, so that both do the same work.

    COMPCODES_DATA=… python benches/search.py [--tiny] [--save]

One thread. The engines take turns; a ratio is that of the least times, for other work on a machine only ever adds.
"""

import faiss
import numpy as np

import compcodes as cc
from common import Report, arguments, least, sift


def quantized(index, learn, database):
    index.train(learn)
    index.add(database)
    return index


def main():
    args = arguments(__doc__.splitlines()[0])
    report = Report("search", args.save)
    n, repeats = (3000, 2) if args.tiny else (1_000_000, 60)
    faiss.omp_set_num_threads(2)
    learn = np.asarray(sift("learn", 3000 if args.tiny else 50_000), np.float32)
    base = np.asarray(sift("base", n), np.float32)
    learn, base = (X[:, : X.shape[1] // 16 * 16] for X in (learn, base))
    d = base.shape[1]
    rng = np.random.default_rng(0)
    noisy = [base[: n - len(base)] + rng.normal(size=(n - len(base), d)).astype(np.float32)] if len(base) < n else []
    database = np.concatenate([base, *noisy])
    queries = learn[::40][:64].copy()

    rows, small = [], []
    for bytes_, repeat in ((8, repeats), (16, repeats)):
        pq = quantized(faiss.IndexPQ(d, bytes_, 8, faiss.METRIC_INNER_PRODUCT), learn, database)
        fast = quantized(faiss.IndexPQFastScan(d, 2 * bytes_, 4, faiss.METRIC_INNER_PRODUCT), learn, database)
        ours = cc.Index.from_faiss(pq, n_jobs=1)
        faiss.omp_set_num_threads(1)
        for nq, k in ((1, 100), (64, 100), (1, 1000)):
            Q = np.ascontiguousarray(queries[:nq])

            def threads(jobs, ours=ours, Q=Q, k=k):
                ours.n_jobs = jobs
                ours.search(Q, k)

            works = [lambda index=index, Q=Q, k=k: index.search(Q, k) for index in (pq, fast)]
            works += [lambda: threads(1), lambda: threads(2)]
            times = least(max(2, int(repeat // nq)), *works) * 1e6
            rows.append(
                [f"{bytes_} bytes, {nq} quer{'y' if nq == 1 else 'ies'}, k = {k}"]
                + [f"{t:,.0f}" for t in times[:3]]
                + [f"{times[0] / times[2]:.1f}", f"{times[1] / times[2]:.1f}", f"{times[2] / times[3]:.2f}"]
            )
        for few in (1000, 20_000):
            index = cc.Index(ours.quantizer, n_jobs=1).add_codes(ours.codes[:few])
            (seconds,) = least(200, lambda index=index: index.search(queries[:1], 10))
            small.append([f"{len(index):,} of {bytes_} bytes", f"{seconds * 1e6:.0f}"])
        faiss.omp_set_num_threads(2)
    report(f"## {len(database):,} codes, inner product, one thread\n")
    header = ["", "IndexPQ, µs", "IndexPQFastScan (4 bits), µs", "compcodes, µs"]
    report.table([*header, "× IndexPQ", "× FastScan", "2 threads ×"], rows)
    report("## One query from Python over few codes, k = 10\n")
    report.table(["codes", "µs"], small)


if __name__ == "__main__":
    main()
