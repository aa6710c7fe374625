"""How many queries a search can prove: the share whose ten best, after re-ranking, are certainly the exact ones.

    COMPCODES_DATA=… python benches/certified.py [--tiny] [--save]

With the plain loss, whose bounds are the smallest; of a training set that is apart 20,000 vectors.
"""

import compcodes as cc
from accuracy import effort
from common import Report, arguments
from sets import SETS, Missing, few

K = 10
CANDIDATES = (100, 1000, 10_000)


def main():
    args = arguments(__doc__)
    report = Report("certified", args.save, "named below")
    rows = []
    for name in ("glove",) if args.tiny else ("glove", "gowalla", "sift"):
        try:
            data = few(SETS[name]()) if args.tiny else SETS[name]()
        except Missing as why:
            report(f"Left out: {name}: {why}.\n")
            continue
        X, Q = data.base, data.queries[:500]
        most = None if data.learn is data.base else 20_000
        for M in (2,) if args.tiny else (8, 16):
            q = cc.CompositionalCodes(M, loss="reconstruction", max_train=most, **effort(args.tiny)).fit(data.learn)
            index = cc.Index(q.set_params(encoder=cc.LocalSearch(rounds=16)), residuals=True).add(X)
            shares = []
            for n_candidates in CANDIDATES:
                _, _, certified = index.search(Q, K, rerank=X, n_candidates=n_candidates, certify=True)
                shares.append(f"{certified.mean():.3f}" if n_candidates < len(X) else "all compared")
            rows.append([f"{data.name}, {len(X):,}", str(M), *shares])
    report("## Queries whose 10 best are proven\n")
    report.table(["", "bytes", *(f"{n:,} candidates" for n in CANDIDATES)], rows)


if __name__ == "__main__":
    main()
