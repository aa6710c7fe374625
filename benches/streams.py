"""Online learning beside training on everything: the error of other vectors after one or two passes over the batches.

    COMPCODES_DATA=… python benches/streams.py [--tiny] [--save]

Plain loss, 8 bytes, everything else by default.
"""

import time

import numpy as np

import compcodes as cc
from accuracy import effort
from common import Report, arguments, sift

RUNS = ((20_000, 1), (10_000, 1), (10_000, 2))
"""(size of a batch, passes)."""


def held_out(q, X):
    codes = q.encode(X)
    return float(((X - q.decode(codes)) ** 2).sum(axis=1).mean())


def main():
    args = arguments(__doc__)
    report = Report("streams", args.save)
    learn = np.random.default_rng(0).permutation(sift("learn", 2000 if args.tiny else 100_000))
    base = np.asarray(sift("base", 1000 if args.tiny else 20_000), dtype=np.float32)
    params = {"loss": "reconstruction", **effort(args.tiny)}
    begin = time.perf_counter()
    whole = held_out(cc.CompositionalCodes(8, **params).fit(learn), base)
    rows = [["all at once", f"{whole:.5g}", "", f"{time.perf_counter() - begin:.0f}"]]
    for size, passes in RUNS:
        begin = time.perf_counter()
        q = cc.CompositionalCodes(8, **params)
        size = min(size, len(learn) // 2)
        for first in [*range(0, len(learn), size)] * passes:
            q.partial_fit(learn[first : first + size])
        took, error = time.perf_counter() - begin, held_out(q, base)
        name = f"batches of {size:,}, {passes} pass{'es' if passes > 1 else ''}"
        rows.append([name, f"{error:.5g}", f"{error / whole - 1:+.1%}", f"{took:.0f}"])
    report(f"## Error of {len(base):,} vectors after training on {len(learn):,}\n")
    report.table(["", "MSE", "beside all at once", "seconds"], rows)


if __name__ == "__main__":
    main()
