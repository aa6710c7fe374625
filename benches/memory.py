"""Peak memory beside the inputs: what each operation holds at most, its result included, that was not there before it.

    COMPCODES_DATA=… python benches/memory.py [--tiny] [--save]

Each operation runs in a process of its own, which has loaded its inputs already; the figure is the largest resident set
during the operation less that before it.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import compcodes as cc
from common import Report, parser, peak_memory

SETTINGS = {
    "ip": {},
    "ip, scale": {"scale": True},
    "ip, residuals": {"residuals": True},
    "cosine": {"metric": "cosine"},
    "l2": {"metric": "l2"},
}


def fit(work, X):
    return cc.CompositionalCodes(**work["effort"]).fit(X)


def operations():
    """By name: what is prepared, outside the measurement, and what is done with it."""

    def quantizer(work, _):
        return cc.Quantizer.load(work["model"])

    def index(work, _):
        return cc.Index.load(work["index"])

    yield "fit", lambda work, X: None, lambda _, work, X: fit(work, X)
    yield "encode", quantizer, lambda q, work, X: q.encode(X)
    for name, options in SETTINGS.items():
        yield f"add, {name}", lambda work, X, o=options: cc.Index(quantizer(work, X), **o), lambda i, work, X: i.add(X)
    yield "search", index, lambda i, work, X: i.search(X[:1000], 100)
    yield "search, filtered", index, lambda i, work, X: i.search(X[:1000], 100, filter=np.arange(0, len(X), 3))
    yield "search, re-ranked", index, lambda i, work, X: i.search(X[:1000], 10, rerank=X)
    yield "remove a third", index, lambda i, work, X: i.remove(i.ids[::3])
    yield "save", index, lambda i, work, X: i.save(work["index"] + " again")
    yield "load", lambda work, X: None, lambda _, work, X: cc.Index.load(work["index"])
    yield "load, mapped", lambda work, X: None, lambda _, work, X: cc.Index.load(work["index"], mmap=True)
    yield "exact search", lambda work, X: None, lambda _, work, X: cc.evaluate.ground_truth(X, X[:200], 100)


def resident():
    """Bytes held now, the peak so far forgotten where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def measure(work, name):
    """In a process of its own: bytes that operation `name` holds at most beside what was there."""
    X = np.load(f"{work['vectors']}.npy")
    _, prepare, run = next(operation for operation in operations() if operation[0] == name)
    prepared = prepare(work, X)
    before = resident()
    result = run(prepared, work, X)
    peak = peak_memory() - before
    del result
    return peak


def main():
    options = parser(__doc__)
    options.add_argument("--worker", nargs=2, help="used by this program")
    args = options.parse_args()
    if args.worker:
        print(measure(json.loads(args.worker[0]), args.worker[1]))
        return
    n, d = (20_000, 16) if args.tiny else (500_000, 128)
    effort = {"n_codebooks": 4, "n_codewords": 16} if args.tiny else {"n_codebooks": 8}
    # Memory does not depend on how many iterations there are.
    brief = {"anneal": 2, "max_iter": 2, "loss": {"name": "inner-product", "eta": 4, "weight_power": 1, "demand": 0}}
    report = Report("memory", args.save, f"{n:,} vectors of {d} dimensions, drawn")
    with tempfile.TemporaryDirectory() as folder:
        work = {name: f"{folder}/{name}" for name in ("model", "index", "vectors")} | {"effort": effort | brief}
        X = drawn(n, d)
        np.save(f"{work['vectors']}.npy", X)
        q = fit(work, X[:20_000]).set_params(encoder="beam")
        q.save(work["model"])
        index = cc.Index(q).add(X)
        index.save(work["index"])
        codes, size = Path(work["index"]).stat().st_size, X.nbytes
        report(f"## Peak memory beside the inputs\n\nVectors: {size / 1e6:.1f} MB; index: {codes / 1e6:.1f} MB.\n")
        table(report, work, size, [name for name, *_ in operations()])
        groups = {"n_codebooks": 6, "n_codewords": 16, "n_groups": 3} if args.tiny else {"n_codebooks": 64}
        n, d = (2_000, 16) if args.tiny else (100_000, 768)
        work["effort"] = groups | brief | {"loss": {"name": "inner-product"}}
        X = drawn(n, d)
        np.save(f"{work['vectors']}.npy", X)
        report(f"{groups['n_codebooks']} codebooks in groups, {n:,} × {d}, {X.nbytes / 1e6:.1f} MB:\n")
        table(report, work, X.nbytes, ["fit"])


def drawn(n, d):
    rng = np.random.default_rng(0)
    return (4 * rng.normal(size=(1000, d))[rng.integers(1000, size=n)] + rng.normal(size=(n, d))).astype(np.float32)


def table(report, work, size, names):
    rows = []
    for name in names:
        command = [sys.executable, __file__, "--worker", json.dumps(work), name]
        peak = int(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        rows.append([name, f"{peak / 1e6:.1f}", f"{peak / size:.2f}"])
    report.table(["", "MB", "of the vectors"], rows)


if __name__ == "__main__":
    main()
