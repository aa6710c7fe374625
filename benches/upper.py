"""Would a first pass over the upper nibbles of 8-bit codes discard much? A bound by the best of 16 codewords says.

    COMPCODES_DATA=… python benches/upper.py [--tiny] [--save]

Codewords are ordered so that the 16 that share an upper nibble are close: a codebook is halved four times along its
first principal component. A vector passes if its sum of the groups' maxima reaches the score of the 80th best of
200,000, as the 400th best of 1,000,000 would be. A block of 64 passes if one of its vectors does; it has to be looked
up in full.
"""

import numpy as np

import compcodes as cc
from common import Report, arguments, sift


def halves(C, rows, times):
    """Indexes of codewords in groups of those that are close."""
    if times == 0:
        return [rows]
    centered = C[rows] - C[rows].mean(axis=0)
    along = centered @ np.linalg.svd(centered, full_matrices=False)[2][0]
    order, half = rows[np.argsort(along)], len(rows) // 2
    return halves(C, order[:half], times - 1) + halves(C, order[half:], times - 1)


def passing(q, codes, queries, rank):
    """The shares of vectors and of blocks that pass."""
    books = q.codebooks_
    groups = np.array([halves(C, np.arange(len(C)), 4) for C in books])  # (M, 16, K / 16)
    places = np.arange(len(books))
    shares = []
    for query in queries:
        tables = books @ query
        bounds = np.empty_like(tables)
        for table, bound, rows in zip(tables, bounds, groups, strict=True):
            bound[rows] = table[rows].max(axis=1, keepdims=True)
        floor = np.sort(tables[places, codes].sum(axis=1))[-rank]
        passes = bounds[places, codes].sum(axis=1) >= floor
        shares.append([passes.mean(), passes[: len(passes) // 64 * 64].reshape(-1, 64).any(axis=1).mean()])
    return np.mean(shares, axis=0)


def main():
    args = arguments(__doc__.splitlines()[0])
    report = Report("upper", args.save)
    learn = np.asarray(sift("learn", 2000 if args.tiny else 20_000), np.float32)
    base = np.asarray(sift("base", 2000 if args.tiny else 200_000), np.float32)
    queries = learn[-20:]
    learn = learn[:-20]
    rank, rows = max(1, len(base) // 2500), []
    sizes = {"n_codewords": 32 if args.tiny else 256, "n_jobs": 1}
    width = learn.shape[1] // 8 * 8
    for q in (cc.ProductQuantizer(8, **sizes), cc.ResidualQuantizer(8, beam=1, max_iter=5, **sizes)):
        codes = q.fit(learn[:, :width]).encode(base[:, :width])
        vectors, blocks = passing(q, codes, queries[:, :width], rank)
        rows.append([type(q).__name__, f"{vectors:.1%}", f"{blocks:.1%}"])
    report.table(["8 bytes", "vectors that pass", "blocks of 64 that pass"], rows)


if __name__ == "__main__":
    main()
