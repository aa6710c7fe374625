"""How many queries a search can prove: the share whose ten best, after re-ranking, are certainly the exact ones."""

import os
from pathlib import Path

import numpy as np

import compcodes as cc
from common import Report, arguments, sift

K = 10


def sets():
    folder = os.environ.get("COMPCODES_DATA")
    if folder and Path(folder, "sift").is_dir():
        yield "SIFT", sift("learn", 20_000), sift("base"), sift("query", 200)
    if folder and Path(folder, "gowalla128").is_dir():
        items, users = (np.load(Path(folder, "gowalla128", f"{name}.npy")) for name in ("items", "users"))
        yield "Gowalla", items[:20_000], items, users[:200]
    words = cc.data.glove()[1]
    yield "GloVe words", words, words, words[:200]


def main(args):
    report = Report("certified", args.save)
    rows = []
    for name, train, X, Q in sets():
        if args.tiny:
            train, X, Q = train[:2000], X[:2000], Q[:20]
        for M in (8,) if args.tiny else (8, 16):
            q = cc.CompositionalCodes(n_codebooks=M, n_codewords=64 if args.tiny else 256, max_iter=3, encoder="greedy")
            index = cc.Index(q.fit(train), residuals=True).add(X)
            shares = []
            for n_candidates in (100, 1000, 10_000):
                _, _, certified = index.search(Q, K, rerank=X, n_candidates=n_candidates, certify=True)
                shares.append(f"{certified.mean():.3f}" if n_candidates < len(X) else "all compared")
            rows.append((name, f"{len(X):,}", M, *shares))
            print(*rows[-1], flush=True)
    report()
    report.table(("data", "vectors", "M", "100 candidates", "1,000", "10,000"), rows)


if __name__ == "__main__":
    main(arguments(__doc__))
