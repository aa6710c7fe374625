"""The three schemes at several code lengths.

Recall at position 100 of M-combination, M-selection and group M-selection, for 1, 10, 50 and 100 nearest neighbours
under the inner product (Figure 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compcodes import CompositionalCodes, Index, evaluate
from compcodes._choices import Selection
from compcodes.plot import Panel, svg
from experiments.lab import Lab
from experiments.report import Report, Table

__all__ = ["NAME", "run"]

NAME = "schemes"

_SCHEMES: dict[Selection, str] = {
    "group": "group M-selection",
    "m-selection": "M-selection",
    "m-combination": "M-combination",
}
_SOUGHT = (1, 10, 50, 100)
_POSITION = 100


def run(lab: Lab) -> Report:
    """Train each scheme at each length, look among the first 100 found, and measure the errors that explain it."""
    dataset = lab.datasets[0]
    true = lab.truth(dataset)
    lengths = lab.lengths(32, 64, 96, 128)
    found = Table("recall", f"Recall@{_POSITION}.", ["scheme", "bits", *(f"{R} NN" for R in _SOUGHT)])
    explained = Table(
        "errors",
        "Mean squared error of the training vectors and of the database (VAE), and mean error of the inner products "
        "of a "
        "query with its 100 best (IPAE).",
        ["scheme", "bits", "VAE, training", "VAE, database", "IPAE"],
    )
    recalls: dict[tuple[str, int], list[float]] = {}
    losses: dict[tuple[str, int], list[float]] = {}
    for selection, name in _SCHEMES.items():
        for bits in lengths:
            model, codes = _train(lab, selection, bits)
            ids = Index(model, n_jobs=lab.n_jobs).add_codes(codes).search(dataset.queries, _POSITION)[1]
            recalls[name, bits] = [evaluate.recall(ids, true, R, _POSITION) for R in _SOUGHT]
            losses[name, bits] = [
                evaluate.vector_error(dataset.learn, model.decode_batches(model.encode(dataset.learn))),
                evaluate.vector_error(dataset.base, model.decode_batches(codes)),
                evaluate.inner_product_error(dataset.base, model.decode_batches(codes), dataset.queries, true),
            ]
            found.rows.append([name, bits, *recalls[name, bits]])
            explained.rows.append([name, bits, *losses[name, bits]])
    panels = []
    for i, R in enumerate(_SOUGHT):
        panel = Panel(f"{R} nearest" if R > 1 else "the nearest", "bits", f"recall@{_POSITION}", x_ticks=lengths)
        panel.y_range = (0, 1)
        for name in _SCHEMES.values():
            panel.line(name, lengths, [recalls[name, bits][i] for bits in lengths], markers=True)
        panels.append(panel)
    report = Report(
        NAME,
        "The three schemes at several code lengths",
        f"K = 256 and M = bits / 8, the greedy encoder and the squared error. {dataset.description}",
        [found, explained],
        {"recall": svg(panels, label="Recall at 100 of the three schemes", columns=2)},
    )
    names = list(_SCHEMES.values())
    for bits in lengths:
        for i, R in ((1, 10), (3, 100)):
            report.expect_order(f"{bits} bits, {R} NN", [(n, recalls[n, bits][i]) for n in names], falling=True)
        errors = [(n, losses[n, bits][0]) for n in names]
        report.expect_order(f"{bits} bits, Property 3, training error", errors, falling=False)
    for name in names:
        values = [(f"{bits} bits", recalls[name, bits][1]) for bits in lengths]
        report.expect_order(f"{name}, 10 NN", values, falling=False)
    values = [(f"{R} NN", recall) for R, recall in zip(_SOUGHT, recalls[names[0], lengths[0]], strict=True)]
    report.expect_order(f"{names[0]}, {lengths[0]} bits", values, falling=True)
    report.discussion = _DISCUSSION
    return report


def _train(lab: Lab, selection: Selection, bits: int) -> tuple[CompositionalCodes, NDArray[np.uint8]]:
    """Return the model of a scheme and the codes of the database."""
    dataset = lab.datasets[0]
    if selection == "group":
        made = lab.contestant(dataset, "CC", bits)
        return made.model, made.codes
    model = CompositionalCodes(
        bits // 8, selection=selection, encoder="greedy", loss="reconstruction", n_jobs=lab.n_jobs
    ).set_params(**lab.effort)
    model.fit(dataset.learn, progress=lab.progress)
    return model, model.encode(dataset.base, progress=lab.progress)


_DISCUSSION = """\
Property 3 is about the error of the vectors that are trained on: the second table shows it. Recall follows the
error of inner products (IPAE) rather than that of vectors: where the schemes differ in VAE but hardly in IPAE, they
find nearly the same, and a line above may say no by a figure's last digits. M-selection and M-combination differ
little throughout, as few codes name a codeword twice when K is 256."""
