"""Codebooks of 256 codewords or of 16, at equal bytes: what is found, and how fast, on this processor.

    COMPCODES_DATA=… python benches/kinds.py [--bytes 4,8,16] [--tiny] [--save]

Everything else has its defaults. At most 50,000 vectors are searched for recall; their codes are repeated to 1,000,000
for the queries per second, of one thread, k = 100, 64 queries at a time. Training takes all vectors, or 20,000 of a
training set that is apart. `COMPCODES_ISA=avx2` measures what a processor without AVX-512 would do.
"""

import time

import numpy as np
from threadpoolctl import threadpool_limits

import compcodes as cc
from common import Report, choice, least, parser
from sets import SETS, Missing, few

CUTS = [(1, 1), (10, 10), (10, 100)]


def measure(data, bytes_, n_codewords, tiny):
    """Recall at each of `CUTS`, CPU seconds of training, CPU µs of encoding per vector, and queries per second."""
    size = bytes_ if n_codewords > 16 else 2 * bytes_
    short = {"anneal": 3, "max_iter": 2} if tiny else {}
    most = None if data.learn is data.base else 20_000
    q = cc.CompositionalCodes(size, n_codewords=n_codewords, max_train=most, n_jobs=1, **short)
    begin = time.process_time()
    q.fit(data.learn, queries=data.samples)
    trained = time.process_time()
    base = data.base[:50_000]
    codes = q.encode(base)
    encoded = time.process_time()
    ids = cc.Index(q, n_jobs=1).add_codes(codes).search(data.queries, 100)[1]
    true = cc.evaluate.ground_truth(base, data.queries, 10)[1]
    n = 3000 if tiny else 1_000_000
    index = cc.Index(q, n_jobs=1).add_codes(np.resize(codes, (n, size)))
    queries = np.ascontiguousarray(data.queries[:64], dtype=np.float32)
    (seconds,) = least(2 if tiny else 10, lambda: index.search(queries, 100))
    recalls = [cc.evaluate.recall(ids, true, R, P) for R, P in CUTS]
    return recalls, trained - begin, (encoded - trained) / len(base) * 1e6, len(queries) / seconds


def main():
    options = parser(__doc__)
    options.add_argument(
        "--bytes", default="4,8,16", help="bytes per vector, separated by commas (default: %(default)s)"
    )
    options.add_argument("--sets", default="glove,gowalla,sift", help="default: %(default)s")
    args = options.parse_args()
    report = Report("kinds", args.save, "named below")
    names = ["glove"] if args.tiny else choice(args.sets, SETS)
    sizes = [2] if args.tiny else [int(size) for size in args.bytes.split(",")]
    with threadpool_limits(1):
        for name in names:
            try:
                data = few(SETS[name]()) if args.tiny else SETS[name]()
            except Missing as why:
                report(f"Left out: {name}: {why}.\n")
                continue
            report(f"## {data.name}, {min(len(data.base), 50_000):,} × {data.base.shape[1]}\n")
            heads = ["bytes", "codebooks", *(f"R{R}@{P}" for R, P in CUTS), "fit, s", "encode, µs", "queries/s of 10⁶"]
            report(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
            for bytes_ in sizes:
                for n_codewords in (256, 16):
                    found, fit, encode, rate = measure(data, bytes_, n_codewords, args.tiny)
                    size = bytes_ if n_codewords > 16 else 2 * bytes_
                    recalls = " | ".join(f"{value:.3f}" for value in found)
                    report(
                        f"| {bytes_} | {size} × {n_codewords} | {recalls} | {fit:.0f} | {encode:.0f} | {rate:,.0f} |"
                    )
            report("")


if __name__ == "__main__":
    main()
