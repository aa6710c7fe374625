"""Codebooks of 16 codewords beside faiss' FastScan, on the same codes, and beside codebooks of 256 of the same bytes.

    COMPCODES_DATA=… python benches/nibbles.py [--tiny] [--save]

One thread. `COMPCODES_ISA=avx2` measures what a processor without AVX-512 would do; faiss keeps to that with
`FAISS_OPT_LEVEL=avx2`. CPU time; the engines take turns, and a ratio is that of the least times.
"""

import os
import time

import faiss
import numpy as np

import compcodes as cc
from common import Report, arguments, least, sift


def main():
    args = arguments(__doc__.splitlines()[0])
    report = Report("nibbles", args.save)
    n, repeats = (3000, 2) if args.tiny else (1_000_000, 20)
    faiss.omp_set_num_threads(1)
    learn = np.asarray(sift("learn", 3000 if args.tiny else 20_000), np.float32)
    learn = learn[:, : learn.shape[1] // 32 * 32] if learn.shape[1] >= 32 else np.tile(learn, 4)[:, :32]
    d = learn.shape[1]
    queries = learn[::40][:64].copy()
    rng = np.random.default_rng(0)
    rows = []
    for bytes_ in (8, 16):
        fast = faiss.IndexPQFastScan(d, 2 * bytes_, 4, faiss.METRIC_INNER_PRODUCT)
        fast.train(learn)
        wide = faiss.IndexPQ(d, bytes_, 8, faiss.METRIC_INNER_PRODUCT)
        wide.train(learn)
        # Any vectors do: those of learn again and again, with noise.
        for first in range(0, n, 50_000):
            some = learn[rng.integers(len(learn), size=min(50_000, n - first))]
            some = (some + rng.normal(scale=some.std() / 4, size=some.shape)).astype(np.float32)
            fast.add(some)
            wide.add(some)
        ours, ours_wide = (cc.Index.from_faiss(index, n_jobs=1) for index in (fast, wide))
        for nq, k in ((1, 100), (64, 100)):
            Q = np.ascontiguousarray(queries[:nq])
            works = [lambda index=index, Q=Q, k=k: index.search(Q, k) for index in (fast, ours, ours_wide)]
            times = least(max(2, repeats // nq), *works, clock=time.process_time) * 1e6
            rows.append(
                [f"{bytes_} bytes, {nq} quer{'y' if nq == 1 else 'ies'}, k = {k}"]
                + [f"{t:,.0f}" for t in times]
                + [f"{times[0] / times[1]:.2f}", f"{times[2] / times[1]:.2f}"]
            )
    level = os.environ.get("FAISS_OPT_LEVEL", "the best that it finds")
    report(f"## {n:,} codes, inner product, one thread; faiss {faiss.__version__} on {level}\n")
    header = ["", "FastScan, µs", "16 codewords, µs", "256 codewords, µs", "× FastScan", "× 256 codewords"]
    report.table(header, rows)


if __name__ == "__main__":
    main()
