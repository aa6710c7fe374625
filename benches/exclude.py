"""What it costs that each query excludes its own: beside the same batch without, and by the kind of what is given.

    python benches/exclude.py [--tiny] [--save]

64 queries, k = 20, eight codebooks, one thread; CPU time of calls from Python, arguments read anew each time. Codes and
codebooks are random, since only their number matters. The kinds take turns with the plain batch, and a ratio is that of
the least times. Keys are compared with the plain batch of the index with keys, which the last column compares with that
of the index without.
"""

import time

import numpy as np
from scipy import sparse

import compcodes as cc
from common import Report, arguments, least

N_QUERIES, K, M, DIM = 64, 20, 8, 64
HISTORIES = (20, 100, 300)


def kinds_of(rng, n, history, keys):
    """What 64 users have already, as each kind of argument; keys come last."""
    arrays = [rng.choice(n, history, replace=False) for _ in range(N_QUERIES)]
    ends = np.arange(N_QUERIES + 1) * history
    mask = np.zeros((N_QUERIES, n), dtype=bool)
    for row, ids in zip(mask, arrays, strict=True):
        row[ids] = True
    return {
        "arrays": arrays,
        "lists": [ids.tolist() for ids in arrays],
        "CSR": sparse.csr_matrix((np.ones(ends[-1]), np.concatenate(arrays), ends), shape=(N_QUERIES, n)),
        "booleans": mask,
        "keys": [[keys[i] for i in ids] for ids in arrays],
    }


def main():
    args = arguments(__doc__.splitlines()[0])
    report = Report("exclude", args.save, "random codes")
    rng = np.random.default_rng(0)
    codebooks = (rng.normal(size=(M, 256, DIM)) / np.sqrt(M)).astype(np.float32)
    queries = rng.normal(size=(N_QUERIES, DIM)).astype(np.float32)
    q = cc.CompositionalCodes.from_codebooks(codebooks)
    rows = []
    for n in (2000,) if args.tiny else (20_000, 100_000, 1_000_000):
        codes = rng.integers(256, size=(n, M)).astype(np.uint8)
        names = [f"item-{i}" for i in range(n)]
        index = cc.Index(q, n_jobs=1).add_codes(codes)
        keyed = cc.Index(q, n_jobs=1, keys=True).add_codes(codes, names)
        for history in HISTORIES:
            kinds = kinds_of(rng, n, history, names)

            def search(own, exclude):
                return lambda: own.search(queries, K, exclude=exclude)

            own = {kind: keyed if kind == "keys" else index for kind in kinds}
            works = [search(index, None), search(keyed, None)] + [search(own[kind], kinds[kind]) for kind in kinds]
            plain, plain_keyed, *times = least(2 if args.tiny else 8, *works, clock=time.process_time)
            ratios = [
                f"{seconds / (plain_keyed if kind == 'keys' else plain):.2f}"
                for kind, seconds in zip(kinds, times, strict=True)
            ]
            rows.append([f"{n:,}", history, f"{plain * 1e6:,.0f}", *ratios, f"{plain_keyed / plain:.2f}"])
    report("Times the plain batch\n")
    report.table(["vectors", "excluded", "plain, µs", *kinds, "plain, with keys"], rows)


if __name__ == "__main__":
    main()
