"""What an experiment found, and how it is written: Markdown for people, CSV for programs, SVG for the eye."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["Report", "Table"]


@dataclass
class Table:
    """Rows under a header; numbers are rounded where people read them only."""

    name: str
    caption: str
    header: list[str]
    rows: list[list[Any]] = field(default_factory=list)

    def markdown(self) -> str:
        """Return it as a table of Markdown."""
        lines = [f"| {' | '.join(self.header)} |", f"|{'---|' * len(self.header)}"]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in self.rows]
        return f"{self.caption}\n\n" + "\n".join(lines)

    def dictionaries(self) -> list[dict[str, Any]]:
        """Return a dictionary of each row."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


@dataclass
class Report:
    """What an experiment found.

    Parameters
    ----------
    name, title : str
    introduction : str
        What was done, before the tables.
    tables : list of Table
    figures : dict of str to str
        SVG text by name.
    claims : list of (str, bool, str)
        What the paper leads one to expect, whether it came out, and the figures that say so.
    discussion : str
        What to make of it, after the claims.
    skipped : list of str
        What was not done, and why.
    """

    name: str
    title: str
    introduction: str
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    claims: list[tuple[str, bool, str]] = field(default_factory=list)
    discussion: str = ""
    skipped: list[str] = field(default_factory=list)

    def expect_order(self, what: str, values: Sequence[tuple[str, float]], *, falling: bool) -> None:
        """Note whether values, in the order that the paper predicts, fall (or rise) from each to the next."""
        pairs = pairwise(values)
        holds = all((a >= b) if falling else (a <= b) for (_, a), (_, b) in pairs)
        sign = " ≥ " if falling else " ≤ "
        order = sign.join(name for name, _ in values)
        self.claims.append((f"{what}: {order}", holds, ", ".join(f"{name} {value:.4g}" for name, value in values)))

    def expect_best(self, what: str, values: dict[str, float], best: str, *, largest: bool) -> None:
        """Note whether `best` has the largest (or smallest) value of all."""
        if best not in values or len(values) < 2:
            return
        winner = (max if largest else min)(values, key=lambda name: values[name])
        ordered = sorted(values.items(), key=lambda item: -item[1] if largest else item[1])
        figures = ", ".join(f"{name} {value:.4g}" for name, value in ordered)
        self.claims.append((f"{what}: {best} is best", values[best] == values[winner], figures))

    def markdown(self, level: int = 1, folder: str = "") -> str:
        """Return the report as Markdown; figures are expected in `folder`."""
        parts = [f"{'#' * level} {self.title}", self.introduction]
        parts += [f"![{self.title}: {name}]({folder}{self.name}-{name}.svg)" for name in self.figures]
        parts += [table.markdown() for table in self.tables]
        if self.claims:
            lines = ["| the paper leads to expect | came out | figures |", "|---|---|---|"]
            lines += [f"| {claim} | {'yes' if holds else '**no**'} | {found} |" for claim, holds, found in self.claims]
            parts.append("\n".join(lines))
        parts += [f"Not done: {reason}" for reason in self.skipped]
        if self.discussion:
            parts.append(self.discussion)
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def write(self, folder: Path, *, markdown: bool = True) -> list[Path]:
        """Write .md, a .csv for each table and a .svg for each figure, and return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, svg in self.figures.items():
            written.append(folder / f"{self.name}-{name}.svg")
            written[-1].write_text(svg + "\n", encoding="utf-8")
        for table in self.tables:
            written.append(folder / f"{self.name}-{table.name}.csv")
            with written[-1].open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([table.header, *table.rows])
        if markdown:
            written.append(folder / f"{self.name}.md")
            written[-1].write_text(self.markdown(), encoding="utf-8")
        return written


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
