"""What a byte buys: recall against the bytes of a code, as a table and as docs/images/bytes.svg.

    COMPCODES_DATA=… python benches/curves.py [--tiny] [--save]

Everything has its defaults. At most 50,000 vectors are searched. Training takes all of them, or 20,000 of a training
set that is apart. For Gowalla also what it costs to train on a sample of the very vectors that are searched.
"""

import compcodes as cc
from accuracy import effort
from common import Report, arguments
from pictures import figure, keep
from sets import SETS, Missing, few

BYTES = (2, 4, 8, 16)
CUTS = [(1, 1), (10, 10), (1, 10), (10, 100)]
NAMES = ("glove", "gowalla", "sift")


def recalls(data, models):
    """Recall at each of `CUTS`, for each model."""
    base = data.base[:50_000]
    true = cc.evaluate.ground_truth(base, data.queries, 10)[1]
    for q in models:
        ids = cc.Index(q.fit(data.learn, queries=data.samples)).add(base).search(data.queries, 100)[1]
        yield [cc.evaluate.recall(ids, true, R, P) for R, P in CUTS]


def table(report, head, names, rows):
    cells = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(names, rows, strict=True)]
    report.table([head, *(f"R{R}@{P}" for R, P in CUTS)], cells)


def samples(report, data, tiny):
    """Training on a part of what is searched, drawn by weight."""
    sizes = (1000,) if tiny else (10_000, 20_000)
    names = [*(f"{n:,} of them" for n in sizes), f"all {len(data.learn):,}"]
    models = (cc.CompositionalCodes(8, max_train=n, **effort(tiny)) for n in (*sizes, None))
    report(f"## {data.name}, 8 bytes, by what was trained on\n")
    table(report, "trained on", names, list(recalls(data, models)))


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
        most = None if data.learn is data.base else 20_000
        models = (cc.CompositionalCodes(size, max_train=most, **effort(args.tiny)) for size in sizes)
        rows = found[title] = list(recalls(data, models))
        table(report, "bytes", sizes, rows)
        if name == "gowalla" or args.tiny:
            samples(report, data, args.tiny)
    drawing, panels = figure(len(found), 3.2, sharey=True)
    for panel, (title, rows) in zip(panels, found.items(), strict=True):
        for (R, P), values in zip(CUTS, zip(*rows, strict=True), strict=True):
            best = f"the best {R}" if R > 1 else "the best"
            panel.plot(sizes, values, marker="o", label=f"{best} in the first {P}" if P > 1 else f"{best} is first")
        panel.set(title=title, xlabel="bytes per vector", xticks=sizes, ylim=(0, 1.02))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share that is found")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    keep(drawing, "bytes", args.save)


if __name__ == "__main__":
    main()
