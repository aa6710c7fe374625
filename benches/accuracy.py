"""How many of the true best inner products are found, at equal bytes: compcodes with its defaults and its rivals.

    python benches/accuracy.py            # SIFT and Gowalla of COMPCODES_DATA, and the embedded words
    python benches/accuracy.py --tiny     # in seconds, only to see that it runs

Rivals come from faiss where it is installed; their codes are searched by their own decoded vectors, exactly.
"""

import os
import time
from pathlib import Path

import numpy as np

import compcodes as cc
from common import Report, arguments

BYTES = 8
CUTS = [(1, 1), (10, 10), (10, 100), (100, 200)]


def sets(tiny):
    """Name, training vectors, database, queries."""
    words = cc.data.glove()[1].astype(np.float32)
    shuffled = words[np.random.default_rng(0).permutation(len(words))]
    held = 200 if tiny else 1000
    rest = shuffled[held:3000] if tiny else shuffled[held:]
    yield "GloVe", rest, rest, shuffled[:held]
    folder = Path(os.environ.get("COMPCODES_DATA", ""))
    if tiny or not os.environ.get("COMPCODES_DATA"):
        return

    def load(path, rows=slice(None)):
        return np.load(folder / path, mmap_mode="r")[rows].astype(np.float32)

    if (folder / "gowalla128").is_dir():
        items = load("gowalla128/items.npy")
        yield "Gowalla", items, items, load("gowalla128/users.npy", slice(-2000, None))
    if (folder / "sift").is_dir():
        base, queries = load("sift/base.npy", slice(200_000)), load("sift/query.npy", slice(2000))
        yield "SIFT", load("sift/learn.npy"), base, queries


def ours(learn, base, tiny):
    """Decoded vectors by method, and what to say about it."""
    effort = {"n_codewords": 16, "anneal": 3, "max_iter": 2} if tiny else {}
    methods = {
        "compcodes": {},
        "compcodes, reconstruction": {"loss": "reconstruction"},
        "compcodes, the paper's": {"loss": "reconstruction", "encoder": "greedy"},
    }
    for name, params in methods.items():
        q = cc.CompositionalCodes(BYTES, **{**effort, **params})
        begin = time.process_time()
        q.fit(learn)
        fitted = time.process_time()
        codes = q.encode(base)
        encoded = time.process_time()
        chosen = ", ".join(f"{key} {value:g}" for key, value in q.loss_.items() if key != "name")
        yield f"{name} ({chosen})" if chosen else name, fitted - begin, encoded - fitted, q.decode(codes)


def rivals(learn, base, tiny):
    try:
        import faiss
    except ImportError:
        return
    d = learn.shape[1]
    bits = 4 if tiny else 8
    width = d // BYTES * BYTES if d % BYTES == 0 else d + BYTES - d % BYTES
    learn, base = (np.ascontiguousarray(np.pad(X, ((0, 0), (0, width - d)))) for X in (learn, base))
    makers = {
        "faiss PQ": lambda: faiss.IndexPQ(width, BYTES, bits),
        "faiss OPQ": lambda: faiss.index_factory(width, f"OPQ{BYTES},PQ{BYTES}x{bits}"),
        "faiss RQ, beam 5": lambda: faiss.IndexResidualQuantizer(width, BYTES, bits),
        "faiss LSQ": lambda: faiss.IndexLocalSearchQuantizer(width, BYTES, bits),
    }
    if tiny:
        del makers["faiss OPQ"]  # its rotation trains 8-bit codes whatever is asked, and warns 1,000 times
    for name, make in makers.items():
        index = make()
        begin = time.process_time()
        index.train(learn)
        trained = time.process_time()
        decoded = index.sa_decode(index.sa_encode(base))
        yield name, trained - begin, time.process_time() - trained, decoded[:, :d]


def main():
    options = arguments(__doc__)
    report = Report("accuracy", options.save)
    for name, learn, base, queries in sets(options.tiny):
        k = min(200, len(base))
        true = cc.evaluate.ground_truth(base, queries, min(100, k))[1]
        report(
            f"## {name}: {len(base):,} vectors of {base.shape[1]} numbers in {BYTES} bytes, {len(queries):,} queries\n"
        )
        heads = [*(f"R{R}@{P}" for R, P in CUTS), "MSE", "fit CPU s", "encode CPU µs"]
        report(f"| method | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
        for method in (ours, rivals):
            for label, fit, encode, decoded in method(learn, base, options.tiny):
                found = cc.evaluate.ground_truth(decoded, queries, k)[1]
                recalls = " | ".join(f"{cc.evaluate.recall(found, true, R, P):.3f}" for R, P in CUTS)
                mse = float(((base - decoded) ** 2).sum(axis=1).mean())
                report(f"| {label} | {recalls} | {mse:.5g} | {fit:.0f} | {encode / len(base) * 1e6:.0f} |")
        report("")


if __name__ == "__main__":
    main()
