"""What a byte buys: recall against the bytes of a code, as a table and as docs/images/bytes.svg.

    COMPCODES_DATA=… python benches/curves.py [--tiny] [--save]

Everything has its defaults but that training takes at most 20,000 vectors, and 50,000 are searched.
"""

import compcodes as cc
from accuracy import effort
from common import Report, arguments
from pictures import figure, keep
from sets import SETS, Missing, few

BYTES = (2, 4, 8, 16)
CUTS = [(1, 1), (10, 10), (1, 10), (10, 100)]
NAMES = ("glove", "gowalla", "sift")


def recalls(data, sizes, tiny):
    """Recall at each of `CUTS`, for each size."""
    base = data.base[:50_000]
    true = cc.evaluate.ground_truth(base, data.queries, 10)[1]
    for size in sizes:
        q = cc.CompositionalCodes(size, max_train=20_000, **effort(tiny)).fit(data.learn, queries=data.samples)
        ids = cc.Index(q).add(base).search(data.queries, 100)[1]
        yield [cc.evaluate.recall(ids, true, R, P) for R, P in CUTS]


def main():
    args = arguments(__doc__)
    report = Report("curves", args.save, "named below")
    names, sizes = (("glove",), BYTES[:2]) if args.tiny else (NAMES, BYTES)
    found = {}
    for name in names:
        try:
            data = few(SETS[name]()) if args.tiny else SETS[name]()
        except Missing as why:
            report(f"Left out: {name}: {why}.\n")
            continue
        title = f"{data.name}, {min(len(data.base), 50_000):,} × {data.base.shape[1]}"
        report(f"## {title}\n")
        rows = found[title] = list(recalls(data, sizes, args.tiny))
        report.table(
            ["bytes", *(f"R{R}@{P}" for R, P in CUTS)],
            [[size, *(f"{value:.3f}" for value in row)] for size, row in zip(sizes, rows, strict=True)],
        )
    drawing, panels = figure(len(found), 3.2, sharey=True)
    for panel, (title, rows) in zip(panels, found.items(), strict=True):
        for (R, P), values in zip(CUTS, zip(*rows, strict=True), strict=True):
            best = f"the best {R}" if R > 1 else "the best"
            panel.plot(sizes, values, marker="o", label=f"{best} in the first {P}" if P > 1 else f"{best} is first")
        panel.set(title=title, xlabel="bytes a vector", xticks=sizes, ylim=(0, 1.02))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share that is found")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    keep(drawing, "bytes", args.save)


if __name__ == "__main__":
    main()
