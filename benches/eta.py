"""What η does: errors along and across the vectors, as a table and as docs/images/eta.svg.

    python benches/eta.py [--tiny] [--save]

The embedded words, scaled to length 1, in 8 bytes: inner products are cosines, and weights by length change nothing.
"""

import numpy as np

import compcodes as cc
from accuracy import effort
from common import Report, arguments
from pictures import figure, keep
from sets import SETS, few

ETAS = (1, 2, 4, 8, 16, 32)
DRAWN = (1, 4, 16)
CUTS = [(1, 1), (10, 10), (10, 100)]
BYTES = 8


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def along_and_across(X, approximations):
    """Of each error the part along x, and that in one random direction across x; lengths of `X` are 1."""
    errors = X - approximations
    along = (errors * X).sum(axis=1)
    across = np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    across -= (across * X).sum(axis=1, keepdims=True) * X
    return along, (errors * unit(across)).sum(axis=1)


def draw(panel, eta, along, across):
    from matplotlib.patches import Ellipse

    panel.scatter(along[:400], across[:400], s=4, alpha=0.5, linewidths=0)
    middle, size = along.mean(), (4 * along.std(), 4 * across.std())
    panel.add_patch(Ellipse((middle, 0), *size, fill=False, color="black", linewidth=1.2))
    panel.axhline(0, color="grey", linewidth=0.5)
    panel.axvline(0, color="grey", linewidth=0.5)
    panel.set(title=f"η = {eta}", xlabel="error along x", xlim=(-0.08, 0.44), ylim=(-0.15, 0.15), aspect="equal")


def main():
    args = arguments(__doc__)
    report = Report("eta", args.save, "embedded GloVe words")
    data = few(SETS["glove"]()) if args.tiny else SETS["glove"]()
    X, Q = unit(data.base), unit(data.queries)
    true = cc.evaluate.ground_truth(X, Q, 10)[1]
    drawing, panels = figure(len(DRAWN), 2.4, sharey=True)
    rows = []
    for eta in ETAS:
        q = cc.CompositionalCodes(BYTES, loss=cc.InnerProduct(eta=eta, weight_power=0), **effort(args.tiny)).fit(X)
        approximations = q.decode(q.encode(X))
        ids = cc.evaluate.ground_truth(approximations, Q, 100)[1]
        along, across = along_and_across(X, approximations)
        mse = ((X - approximations) ** 2).sum(axis=1).mean()
        recalls = [f"{cc.evaluate.recall(ids, true, R, P):.3f}" for R, P in CUTS]
        rows.append([eta, f"{along.mean():.3f} ± {along.std():.3f}", f"± {across.std():.3f}", f"{mse:.4f}", *recalls])
        if eta in DRAWN:
            draw(panels[DRAWN.index(eta)], eta, along, across)
    report(f"## {len(X):,} words of length 1 in {BYTES} bytes, {len(Q):,} others as queries\n")
    heads = ["η", "error along x", "across x, a direction", "MSE", *(f"R{R}@{P}" for R, P in CUTS)]
    report.table(heads, rows)
    panels[0].set_ylabel("error across x")
    keep(drawing, "eta", args.save)


if __name__ == "__main__":
    main()
