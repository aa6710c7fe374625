"""How k-means, M-combination, M-selection and group M-selection divide the plane.

1,500 random points in the plane, K = 5 codewords and M = 3: each region belongs to one sum of codewords (Figure 1).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import CompositionalCodes
from compcodes._choices import Selection
from compcodes.plot import Panel, svg
from experiments.lab import Lab
from experiments.report import Report, Table

__all__ = ["NAME", "run", "sums"]

NAME = "partition"

_N, _K, _M = 1500, 5, 3
_SCHEMES: dict[str, Selection] = {
    "k-means": "group",
    "M-combination": "m-combination",
    "M-selection": "m-selection",
    "group": "group",
}
_SEEDS = 20  # starts, of which the best is drawn: in the plane a start decides much


def run(lab: Lab) -> Report:
    """Train the four schemes, draw their regions, and compare their objectives and sizes."""
    X = np.random.default_rng(0).normal(size=(_N, 2)).astype(np.float32)
    panels, objectives = [], {}
    table = Table(
        "sizes",
        "The sums of codewords, how many of them differ, how many are some point's, and the mean squared error.",
        ["scheme", "sums", "different", "used", "error"],
    )
    for name, selection in _SCHEMES.items():
        M = 1 if name == "k-means" else _M
        model = min(_models(M, selection, X, lab), key=lambda model: float(model.history_[-1]["objective"]))
        points = sums(model.codebooks_, selection)
        distinct = np.unique(points.round(5), axis=0)
        distances = ((X[:, None, :] - distinct) ** 2).sum(axis=2)
        objectives[name] = float(distances.min(axis=1).mean())
        used = len(np.unique(distances.argmin(axis=1)))
        table.rows.append([name, len(points), len(distinct), used, objectives[name]])
        panel = Panel(f"{name}: {len(distinct)} elements", square=True)
        low, high = X.min(axis=0), X.max(axis=0)
        for i, corners in enumerate(_cells(distinct, low, high)):
            panel.cell(i * 3, corners)
        panel.dots([(float(x), float(y)) for x, y in X])
        panels.append(panel)
    report = Report(
        NAME,
        "How the schemes divide the plane",
        f"{_N:,} random points in the plane (normal, seed 0), K = {_K} and M = {_M}, the greedy encoder and the "
        f"squared "
        f"error; of {_SEEDS} starts the best. Each region is nearest to one sum of codewords, and the error that of "
        f"the "
        "nearest.",
        [table],
        {"regions": svg(panels, label="Regions of the plane under four schemes", columns=2)},
    )
    order = [(name, objectives[name]) for name in ("group", "M-selection", "M-combination")]
    report.expect_order("Property 3, error", order, falling=False)
    pair = [(name, objectives[name]) for name in ("M-selection", "k-means")]
    report.expect_order("Property 3, error", pair, falling=False)
    counts = [(name, float(next(row[1] for row in table.rows if row[0] == name))) for name in _SCHEMES]
    chain = [counts[3], counts[2], counts[1]]
    report.expect_order("Property 4, number of sums", chain, falling=True)
    report.discussion = (
        "The property speaks of the best solutions, the figures of what alternating optimisation found. No order is "
        "promised between M-combination and k-means."
    )
    return report


def _models(M: int, selection: Selection, X: NDArray[np.float32], lab: Lab) -> list[CompositionalCodes]:
    seeds = range(2 if lab.quick else _SEEDS)
    return [
        CompositionalCodes(
            M, _K, selection, encoder="greedy", loss="reconstruction",
            init="random" if seed % 2 else "residual", max_iter=60, tol=1e-5, random_state=seed, n_jobs=lab.n_jobs,
        ).fit(X)
        for seed in seeds
    ]  # fmt: skip


def sums(codebooks: NDArray[np.float32], selection: str) -> NDArray[Any]:
    """All sums of codewords that a scheme can choose, (number of codes, d): the paper's compositional dictionary."""
    M, K, _ = codebooks.shape
    if selection == "group":
        chosen = np.array(list(itertools.product(range(K), repeat=M)))
    else:
        choose = itertools.combinations if selection == "m-combination" else itertools.combinations_with_replacement
        chosen = np.array(list(choose(range(K), M)))
    return np.asarray(codebooks[np.arange(M), chosen].sum(axis=1))


def _cells(points: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> list[list[tuple[float, float]]]:
    """Polygons of what is nearest to each point, within a rectangle: its corners, cut by each bisector in turn."""
    cells = []
    for i, center in enumerate(points):
        corners = [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]
        for j, other in enumerate(points):
            if j != i and corners:
                normal = other - center
                corners = _cut(corners, normal, float(normal @ (other + center) / 2))
        if corners:
            cells.append([(float(x), float(y)) for x, y in corners])
    return cells


def _cut(corners: list[tuple[float, float]], normal: NDArray[Any], limit: float) -> list[tuple[float, float]]:
    """Keep of a convex polygon where ⟨normal, x⟩ ≤ limit."""
    over = [normal[0] * x + normal[1] * y - limit for x, y in corners]
    kept = []
    for k, corner in enumerate(corners):
        before, value = over[k - 1], over[k]
        if (before > 0) != (value > 0):
            part = before / (before - value)
            (x0, y0), (x1, y1) = corners[k - 1], corner
            kept.append((x0 + part * (x1 - x0), y0 + part * (y1 - y0)))
        if value <= 0:
            kept.append(corner)
    return kept
