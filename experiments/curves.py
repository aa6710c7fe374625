"""Recall against position of compositional codes and the methods they are compared with.

For SIFT-like data and linear models with 64 and 128 bits and 1, 10 and 100 neighbours; for ratings with 32 and 64 bits
and 50 and 100 neighbours (Figures 3 to 6).
"""

from __future__ import annotations

from compcodes import evaluate
from compcodes.plot import Panel, svg, thinned
from experiments.datasets import Dataset
from experiments.lab import PAPER_METHODS, Lab
from experiments.report import Report, Table

__all__ = ["NAME", "run"]

NAME = "curves"

_POSITIONS = (1, 10, 100, 500)


def run(lab: Lab) -> Report:
    """Search with every method, and draw recall@1 to recall@1000."""
    report = Report(
        NAME,
        "Recall against position",
        "CC is the paper's own procedure (greedy, squared error); compcodes is this package with its defaults, up to "
        "64 "
        "bits, which the paper does not have. Exact answers are by inner product, over all vectors.",
    )
    for dataset in lab.datasets:
        _compare(lab, dataset, report)
    report.discussion = _DISCUSSION
    return report


def _compare(lab: Lab, dataset: Dataset, report: Report) -> None:
    ratings = dataset.stands_for == "Netflix"
    lengths = lab.lengths(32, 64) if ratings else lab.lengths(64, 128)
    sought = (50, 100) if ratings else (1, 10, 100)
    true = lab.truth(dataset)
    table = Table(
        f"{dataset.stands_for.lower()}",
        dataset.description,
        ["method", "bits", *(f"{R} NN, recall@{P}" for R in sought for P in _POSITIONS if P >= R)],
    )
    panels = []
    for bits in lengths:
        names = lab.methods(bits)
        curves = {
            name: {R: evaluate.recall_curve(lab.answers(dataset, name, bits), true, R) for R in sought}
            for name in names
        }
        for name in names:
            cells = [float(curves[name][R][min(P, len(curves[name][R])) - 1])
                     for R in sought for P in _POSITIONS if P >= R]  # fmt: skip
            table.rows.append([name, bits, *cells])
        for R in sought:
            title = f"{bits} bits, {R} nearest" if R > 1 else f"{bits} bits, the nearest"
            panel = Panel(title, "position P", "recall@P", log_x=True, y_range=(0, 1))
            for name in names:
                panel.line(name, *thinned(curves[name][R]))
            panels.append(panel)
            at: dict[str, float] = {
                name: float(curves[name][R][min(100, len(curves[name][R])) - 1]) for name in PAPER_METHODS
            }
            report.expect_best(f"{dataset.name}, {bits} bits, {R} NN, recall@100", at, "CC", largest=True)
    report.tables.append(table)
    label = f"Recall against position on {dataset.name}"
    report.figures[table.name] = svg(panels, label=label, columns=len(sought))


_DISCUSSION = """\
The paper's argument is about the error of approximation: sums of free codewords approximate better than products of
subspaces. It predicts the order where that error decides. Three things that it is silent about decide too. Free
codewords are many numbers to learn, d · M · K where a product has d · K: with few training vectors they fit these
better than others (the last table of the next section). The greedy encoder falls behind the best sum as M grows.
And a query's best answers lie along it, so that the part of the error along x counts for more than the rest: OPQ,
whose squared error is not small, does better in recall than in error. The row "compcodes" differs from "CC" in a
better encoder and in a loss that counts these two: errors along x, and errors of long vectors. LSH sees directions
only: where lengths differ it cannot answer by inner product at all."""
