"""The three schemes at several code lengths.

Recall at position 100 of M-combination, M-selection and group M-selection, for 1, 10, 50 and 100 nearest neighbours
under the inner product (Figure 2).
"""

from __future__ import annotations

from compcodes import CompositionalCodes, Index, evaluate
from compcodes.paper.lab import Lab
from compcodes.paper.report import Report, Table
from compcodes.svg import Panel, figure

__all__ = ["NAME", "run"]

NAME = "schemes"

_SCHEMES = {"group": "group M-selection", "m-selection": "M-selection", "m-combination": "M-combination"}
_SOUGHT = (1, 10, 50, 100)
_POSITION = 100


def run(lab: Lab) -> Report:
    """Train each scheme at each length, and look among the first 100 found."""
    dataset = lab.datasets[0]
    true = lab.truth(dataset)
    lengths = lab.lengths(32, 64, 96, 128)
    table = Table("recall", f"Recall@{_POSITION}.", ["scheme", "bits", *(f"{R} NN" for R in _SOUGHT)])
    recalls: dict[tuple[str, int], list[float]] = {}
    for selection, name in _SCHEMES.items():
        for bits in lengths:
            ids = _answers(lab, selection, bits)
            recalls[name, bits] = [evaluate.recall(ids, true, R, min(_POSITION, ids.shape[1])) for R in _SOUGHT]
            table.rows.append([name, bits, *recalls[name, bits]])
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
        [table],
        {"recall": figure(panels, label="Recall at 100 of the three schemes", columns=2)},
    )
    for bits in lengths:
        for i, R in ((1, 10), (3, 100)):
            values = [(name, recalls[name, bits][i]) for name in _SCHEMES.values()]
            report.expect_order(f"{bits} bits, {R} NN", values, falling=True)
    for name in _SCHEMES.values():
        values = [(f"{bits} bits", recalls[name, bits][1]) for bits in lengths]
        report.expect_order(f"{name}, 10 NN", values, falling=False)
    values = [(f"{R} NN", recall) for R, recall in zip(_SOUGHT, recalls[_SCHEMES["group"], lengths[0]], strict=True)]
    report.expect_order(f"group M-selection, {lengths[0]} bits", values, falling=True)
    report.discussion = (
        "Group M-selection owes its lead to K^M sums of codewords where the others have fewer by a factor of about M!. "
        "M-selection and M-combination differ little, as the share of codes that name a codeword twice is small "
        "when K is 256: their order may turn on chance, and where a line above says so, by how little it shows."
    )
    return report


def _answers(lab: Lab, selection: str, bits: int):  # type: ignore[no-untyped-def]
    dataset = lab.datasets[0]
    if selection == "group":
        return lab.answers(dataset, "CC", bits, _POSITION)
    model = CompositionalCodes(
        bits // 8, selection=selection, encoder="greedy", loss="reconstruction", n_jobs=lab.n_jobs
    ).set_params(**lab.effort)
    model.fit(dataset.learn, progress=lab.progress)
    index = Index(model).add(dataset.base, progress=lab.progress)
    return index.search(dataset.queries, _POSITION)[1]
