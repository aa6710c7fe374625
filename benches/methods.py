"""The methods beside ours and their rivals in faiss: error, and time of training and encoding, on one thread.

    python benches/methods.py            # SIFT and Gowalla of COMPCODES_DATA, else the embedded words
    python benches/methods.py --tiny     # in seconds, only to see that it runs

Both get the same training vectors, no more than both use (256 a codeword), and run as many iterations: 25 of k-means,
50 of the rotation. Times are CPU seconds.
"""

import os
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import compcodes as cc
from common import Report, arguments

BYTES = 8


def sets(tiny):
    """Name, training vectors, and those that are encoded."""
    folder = Path(os.environ.get("COMPCODES_DATA", ""))
    if tiny or not os.environ.get("COMPCODES_DATA"):
        words = cc.data.glove()[1].astype(np.float32)[: 1000 if tiny else None, :96]
        yield "GloVe, 96 of the numbers", words, words
        return

    def load(path, n):
        return np.load(folder / path, mmap_mode="r")[:n].astype(np.float32)

    if (folder / "sift").is_dir():
        yield "SIFT", load("sift/learn.npy", 65_536), load("sift/base.npy", 200_000)
    if (folder / "gowalla128").is_dir():
        items = load("gowalla128/items.npy", 65_536)
        yield "Gowalla", items, items


def ours(tiny):
    sizes = {"n_codebooks": BYTES, "n_codewords": 16 if tiny else 256, "n_jobs": 1}
    yield "PQ", cc.ProductQuantizer(**sizes)
    yield "OPQ, eigenvalue allocation", cc.OptimizedProductQuantizer(**sizes)
    yield "Cartesian k-means", cc.CartesianKMeans(**sizes)
    yield "RQ, beam 5", cc.ResidualQuantizer(**sizes)
    yield "random hyperplanes", cc.RandomHyperplaneHash(8 * BYTES, n_jobs=1)


def rivals(d, tiny):
    """What faiss has, by the name of ours."""
    try:
        import faiss
    except ImportError:
        return {}
    faiss.omp_set_num_threads(1)
    bits = 4 if tiny else 8
    found = {"PQ": faiss.IndexPQ(d, BYTES, bits), "RQ, beam 5": faiss.IndexResidualQuantizer(d, BYTES, bits)}
    if not tiny:  # its rotation trains 8-bit codes whatever is asked, and warns 1,000 times
        found["Cartesian k-means"] = faiss.index_factory(d, f"OPQ{BYTES},PQ{BYTES}x{bits}")
    return found


def measure(train, encode, decode, learn, base):
    """Mean squared error, CPU seconds of training, CPU microseconds of encoding per vector."""
    begin = time.process_time()
    train(learn)
    trained = time.process_time()
    codes = encode(base)
    encoded = time.process_time()
    error = ((base - decode(codes)) ** 2).sum(axis=1, dtype=np.float64).mean()
    return float(error), trained - begin, (encoded - trained) / len(base) * 1e6


def search(report, tiny):
    """Bits compared with bits."""
    n, rng = 20_000 if tiny else 1_000_000, np.random.default_rng(0)
    X = rng.normal(size=(64, 32)).astype(np.float32)
    q = cc.RandomHyperplaneHash(64, n_jobs=1).fit(X)
    codes = rng.integers(256, size=(n, 8), dtype=np.uint8)
    runs = {"random hyperplanes": lambda: q.search(X, codes, 100)}
    try:
        import faiss

        index = faiss.IndexBinaryFlat(64)
        index.add(codes)
        bits = q.encode(X)
        runs["faiss IndexBinaryFlat"] = lambda: index.search(bits, 100)
    except ImportError:
        pass
    rows = []
    for name, run in runs.items():
        times = []
        for _ in range(3):
            begin = time.process_time()
            run()
            times.append(time.process_time() - begin)
        rows.append([name, f"{min(times) * 1e3:.1f} ms"])
    report(f"## The 100 nearest of {n:,} codes of 64 bits, for 64 queries\n")
    report.table(["", "CPU time"], rows)


def main():
    options = arguments(__doc__)
    report = Report("methods", options.save)
    header = ["method", "MSE", "faiss", "ratio", "fit s", "faiss", "ratio", "encode µs", "faiss", "ratio"]
    with threadpool_limits(1):
        for name, learn, base in sets(options.tiny):
            report(f"## {name}: trained on {len(learn):,} vectors of {learn.shape[1]} numbers, {len(base):,} encoded\n")
            report(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
            faiss = rivals(learn.shape[1], options.tiny)
            for label, q in ours(options.tiny):
                own = measure(q.fit, q.encode, q.decode, learn, base)
                cells = [(f"{value:.4g}", "–", "–") for value in own]
                if rival := faiss.get(label):
                    other = measure(rival.train, rival.sa_encode, rival.sa_decode, learn, base)
                    pairs = zip(own, other, strict=True)
                    cells = [(f"{a:.4g}", f"{b:.4g}", f"{a / b:.3f}" if b else "–") for a, b in pairs]
                if label == "random hyperplanes":
                    cells[0] = ("–", "–", "–")  # it approximates directions, not vectors
                report(f"| {label} | {' | '.join(cell for group in cells for cell in group)} |")
            report("")
        search(report, options.tiny)


if __name__ == "__main__":
    main()
