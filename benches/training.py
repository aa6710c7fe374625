"""Encoding and training: speed beside the bare matrix product, memory, and the order of the schemes.

    COMPCODES_DATA=… python benches/training.py [--tiny] [--save]

numpy should run its best kernel: unset OPENBLAS_CORETYPE. All times are of one thread unless said otherwise, and
those that a ratio compares are taken in turn, so that a machine's mood meets both.
"""

import subprocess
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

import compcodes as cc
from common import Report, arguments, sift
from compcodes import _core
from compcodes.training import trainer as training
from compcodes.training.shards import Local


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(repeats, *works):
    """Seconds of each work, (works, repeats), taken in turn after one round of warming up."""
    for work in works:
        work()
    return np.array([[seconds(work) for work in works] for _ in range(repeats)]).T


def greedy(*args, **params):
    """A model by the paper's procedure."""
    return cc.CompositionalCodes(*args, encoder="greedy", loss="reconstruction", **params)


def encoding(report, X, repeats):
    X = np.asarray(X, dtype=np.float32)
    codebooks = greedy(max_iter=2).fit(X[:20_000]).codebooks_
    encoder = _core.Encoder(codebooks, "group")
    words = codebooks.reshape(-1, codebooks.shape[2])
    product = np.empty((len(X), len(words)), dtype=np.float32)
    bare, one, two = in_turn(
        repeats,
        lambda: np.dot(X, words.T, out=product),
        lambda: encoder.encode(X, 1),
        lambda: encoder.encode(X, 2),
    )
    report(f"## Greedy encoding, {len(X):,} × {X.shape[1]}, M = 8, K = 256\n")
    report.table(
        ["", "µs per vector (median)", "ratio (median, min to max)"],
        [
            ["numpy X·Dᵀ, float32, one thread", f"{np.median(bare) / len(X) * 1e6:.2f}", "1"],
            ["encode, one thread", f"{np.median(one) / len(X) * 1e6:.2f}", ratio(one / bare) + " of numpy's"],
            [
                "encode, two threads",
                f"{np.median(two) / len(X) * 1e6:.2f}",
                ratio(one / two) + " × faster than one",
            ],
        ],
    )


def ratio(values):
    return f"{np.median(values):.2f} ({values.min():.2f} to {values.max():.2f})"


def iteration(report, X, repeats):
    q = greedy(max_iter=1, n_jobs=1).fit(X[:20_000])
    codes = q.encode(X)
    trainer = training.Trainer(Local(X, n_jobs=1), 8, 256, "group", 1, 0, 1e-3, 0, n_jobs=1)

    def whole():
        trainer.improve(trainer.reseeded(trainer.update(q.codebooks_, codes), codes), codes)

    encoder = _core.Encoder(q.codebooks_, "group")
    encode, update, whole_times = in_turn(
        repeats, lambda: encoder.encode(X, 1), lambda: trainer.update(q.codebooks_, codes), whole
    )
    report(f"## One training iteration, {len(X):,} × {X.shape[1]}, one thread\n")
    report.table(
        ["", "seconds (median)", "of encode alone"],
        [
            ["encode", f"{np.median(encode):.2f}", "1"],
            ["assembly and solve", f"{np.median(update):.2f}", ratio(update / encode)],
            ["whole iteration", f"{np.median(whole_times):.2f}", ratio(whole_times / encode)],
        ],
    )


MEMORY = """
import sys
import numpy as np, compcodes as cc
sys.path.insert(0, {folder!r})
from common import peak_memory as peak, sift
X = np.array(sift("base", {n}))
small = cc.CompositionalCodes(2, 4, anneal=1, max_iter=1).fit(X[:100])
before = peak()
q = cc.CompositionalCodes({params}).fit(X)
after_fit = peak()
codes = q.encode(X)
print(before, after_fit, peak(), codes.nbytes + len(X) * 8)
"""


def memory(report, n):
    """Peak of a fresh process above what it held before."""
    report(f"## Peak memory above inputs, {n:,} × 128\n")
    rows = []
    for name, params in [
        ("greedy, reconstruction", "encoder='greedy', loss='reconstruction', max_iter=1"),
        ("local search, inner product", "anneal=1, max_iter=1"),
    ]:
        code = MEMORY.format(folder=sys.path[0], n=n, params=params)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        before, fit, encode, output = (int(number) for number in run.stdout.split())
        megabytes = [f"{size / 2**20:.0f}" for size in (fit - before, encode - before, output)]
        rows.append([name, *megabytes])
    report.table(["", "fit, MB", "fit and encode, MB", "of which codes and errors of all rows, MB"], rows)


def objectives(report, learn, base, max_iter):
    report(f"## Mean squared error, 8 bytes, greedy encoder: {len(learn):,} in-sample, {len(base):,} out-of-sample\n")
    rows = []
    for init in ("residual", "random"):
        for selection in ("group", "m-selection", "m-combination"):
            q = greedy(selection=selection, init=init, max_iter=max_iter, tol=0)
            took = seconds(lambda q=q: q.fit(learn))
            rows.append((f"{selection}, {init} start", error(q, learn), error(q, base), took))
    pq = faiss_pq(learn, base)
    rows += [pq] if pq else []
    reference = pq or rows[0]
    report.table(
        ["", "in-sample", "out-of-sample", f"below {reference[0]}", "seconds to train"],
        [
            [
                name,
                f"{a:.6g}",
                f"{b:.6g}",
                f"{1 - a / reference[1]:.1%}, {1 - b / reference[2]:.1%}",
                f"{took:.0f}",
            ]
            for name, a, b, took in rows
        ],
    )


def error(q, X):
    return _core.errors(q.codebooks_, X, q.encode(X), 1.0).mean()


def faiss_pq(learn, base):
    try:
        import faiss
    except ImportError:
        return None
    learn, base = (np.asarray(X, dtype=np.float32) for X in (learn, base))
    dim = learn.shape[1] // 8 * 8
    pq = faiss.ProductQuantizer(dim, 8, 8)
    if dim != learn.shape[1]:
        return None
    took = seconds(lambda: pq.train(learn))
    mse = [float(((X - pq.decode(pq.compute_codes(X))) ** 2).sum(axis=1).mean()) for X in (learn, base)]
    return ("faiss PQ", *mse, took)


def main():
    args = arguments(__doc__.splitlines()[0])
    report = Report("training", args.save)
    n, repeats = (2000, 2) if args.tiny else (100_000, 7)
    with threadpool_limits(1):
        encoding(report, sift("learn", n), repeats)
        iteration(report, sift("base", 2000 if args.tiny else 500_000), 1 if args.tiny else 3)
    memory(report, 2000 if args.tiny else 500_000)
    objectives(report, sift("learn", n), sift("base", 2000 if args.tiny else 200_000), 3 if args.tiny else 60)


if __name__ == "__main__":
    main()
