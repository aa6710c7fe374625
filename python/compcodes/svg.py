"""Small charts as SVG text: lines over a linear or logarithmic axis, points, and coloured regions. Needs nothing.

A `Panel` is one pair of axes; `figure` puts panels side by side with one legend. Colours follow the reader's light or
dark scheme. The same input gives the same text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from numpy.typing import NDArray

__all__ = ["STYLE", "Panel", "figure", "thinned"]

_LIGHT = ("#0969da", "#d1480e", "#1a7f37", "#8250df", "#9a6700", "#bf3989", "#57606a")
_DARK = ("#58a6ff", "#ff8b4d", "#3fb950", "#bc8cff", "#d29922", "#f778ba", "#9aa4af")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 4", "12 4")


def _colours(colours: Sequence[str], ink: str, muted: str, rule: str, paper: str) -> str:
    rules = [f".cc-s{i}{{stroke:{c}}}.cc-f{i}{{fill:{c}}}" for i, c in enumerate(colours)]
    rules += [
        f".cc-text{{fill:{ink}}}.cc-muted{{fill:{muted}}}.cc-rule{{stroke:{rule}}}.cc-dot{{stroke:{muted}}}.cc-paper{{fill:{paper}}}"
    ]
    return "".join(rules)


STYLE = (
    ".cc-text,.cc-muted{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:11px}"
    ".cc-title{font-size:12.5px;font-weight:600}.cc-line{fill:none;stroke-width:1.9;stroke-linejoin:round}"
    ".cc-rule{stroke-width:1}.cc-cell{fill-opacity:.28;stroke-width:.8}.cc-dot{stroke-width:2;stroke-linecap:round;stroke-opacity:.55}"
    + _colours(_LIGHT, "#1f2328", "#59636e", "#d8dee4", "#ffffff")
    + "@media (prefers-color-scheme:dark){"
    + _colours(_DARK, "#e6edf3", "#9198a1", "#3d444d", "#0d1117")
    + "}"
)
"""The style sheet of the charts; a page that holds charts inline includes it once."""

_WIDTH, _HEIGHT = 330, 230  # of the axes' rectangle and what belongs to it
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 30, 42
_GAP = 8
_LEGEND = 20


@dataclass
class Panel:
    """One pair of axes and what is drawn in it.

    Parameters
    ----------
    title, x, y : str
        The headings of panel and axes.
    log_x, log_y : bool
        A logarithmic axis; values must be above 0.
    y_range : (low, high), optional
        By default what the values need.
    square : bool
        Equal scales, no ticks: a map rather than a chart.
    """

    title: str
    x: str = ""
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None
    x_ticks: Sequence[float] | None = None
    square: bool = False
    _lines: list[tuple[str, list[tuple[float, float]], bool]] = field(default_factory=list)
    _cells: list[tuple[int, list[tuple[float, float]]]] = field(default_factory=list)
    _dots: list[tuple[float, float]] = field(default_factory=list)

    def line(self, name: str, xs: Sequence[float], ys: Sequence[float], *, markers: bool = False) -> None:
        """Add a series: a line through points, each marked if `markers`."""
        points = [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        self._lines.append((name, [p for p in points if math.isfinite(p[1])], markers))

    def cell(self, colour: int, corners: Sequence[tuple[float, float]]) -> None:
        """Add a filled polygon in one of the seven colours."""
        self._cells.append((colour % len(_LIGHT), list(corners)))

    def dots(self, points: Sequence[tuple[float, float]]) -> None:
        """Add small dots."""
        self._dots += points

    @property
    def names(self) -> list[str]:
        """The series, in the order they were added."""
        return list(dict.fromkeys(name for name, _, _ in self._lines))


def figure(panels: Sequence[Panel], *, label: str, columns: int = 3, inline: bool = False) -> str:
    """Lay panels out in rows, above them the legend of all their series.

    Parameters
    ----------
    panels : sequence of Panel
    label : str
        What the figure shows, for those who cannot see it.
    columns : int, default 3
        Panels in a row.
    inline : bool, default False
        For a page that has `STYLE` already: leave out the style, and the background.

    Returns
    -------
    str
        An ``<svg>`` element: by itself the content of a .svg file.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.names))
    width = columns * _WIDTH + (columns - 1) * _GAP
    legend, top = _legend(names, width)
    height = top + rows * _HEIGHT + (rows - 1) * _GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(label)}">',
    ]
    if not inline:
        out += [f"<style>{STYLE}</style>", f'<rect class="cc-paper" width="{width}" height="{height}"/>']
    out.append(legend)
    for i, panel in enumerate(panels):
        left, upper = i % columns * (_WIDTH + _GAP), top + i // columns * (_HEIGHT + _GAP)
        out += [f'<g transform="translate({left} {upper})">', *_draw(panel, names), "</g>"]
    return "\n".join([*out, "</svg>"])


def _legend(names: Sequence[str], width: int) -> tuple[str, int]:
    """Draw the legend, in as many lines as it takes, and return also its height."""
    out, x, y = [], 12.0, 0
    for i, name in enumerate(names):
        needs = 50 + 6.6 * len(name)
        if x > 12 and x + needs > width:
            x, y = 12.0, y + _LEGEND
        out.append(
            f'<path class="cc-line cc-s{i % len(_LIGHT)}" stroke-dasharray="{_dash(i)}" d="M{x:.0f} {y + 14}h24"/>'
            f'<text class="cc-text" x="{x + 30:.0f}" y="{y + 18}">{escape(name)}</text>'
        )
        x += needs
    return "\n".join(out), y + _LEGEND + 6 if names else 0


def _dash(i: int) -> str:
    return _DASHES[i % len(_DASHES)] or "none"


class _Axis:
    """From values to positions."""

    def __init__(self, low: float, high: float, begin: float, end: float, log: bool) -> None:
        self.log = log
        low, high = (math.log10(low), math.log10(high)) if log else (low, high)
        if high <= low:
            low, high = low - 0.5, high + 0.5
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value: float) -> float:
        value = math.log10(value) if self.log else value
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.log:
            powers = [10.0**p for p in range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)]
            if len(powers) > 1:
                return powers
            near = [m * 10.0 ** (math.floor(self.low) + j) for j in (0, 1) for m in (1, 2, 5)]
            return [value for value in near if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
        rough = (self.high - self.low) / 4
        power = 10 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _draw(panel: Panel, names: Sequence[str]) -> list[str]:
    points = [p for _, line, _ in panel._lines for p in line] + panel._dots + [p for _, c in panel._cells for p in c]
    if not points:
        points = [(1.0, 1.0)]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    left, bottom = (10, 10) if panel.square else (_LEFT, _BOTTOM)
    right, top = _WIDTH - _RIGHT, _TOP
    if panel.square:
        side = min(right - left, _HEIGHT - bottom - top)
        right = left + side
    low, high = panel.y_range or _padded(min(ys), max(ys), panel.log_y or panel.square)
    x_axis = _Axis(min(xs), max(xs), left, right, panel.log_x)
    y_axis = _Axis(low, high, _HEIGHT - bottom, top, panel.log_y)
    out = [f'<text class="cc-text cc-title" x="{left}" y="18">{escape(panel.title)}</text>']
    if not panel.square:
        out += _frame(panel, x_axis, y_axis)
    for colour, corners in panel._cells:
        path = " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in corners)
        out.append(f'<polygon class="cc-cell cc-f{colour} cc-rule" points="{path}"/>')
    if panel._dots:
        path = "".join(f"M{x_axis(x):.1f} {y_axis(y):.1f}h0" for x, y in panel._dots)
        out.append(f'<path class="cc-dot" d="{path}"/>')
    for name, line, markers in panel._lines:
        if not line:
            continue
        i = names.index(name)
        at = [(x_axis(x), y_axis(y)) for x, y in line]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        colour = i % len(_LIGHT)
        title = f"<title>{escape(name)}</title>"
        if len(at) > 1:
            out.append(f'<path class="cc-line cc-s{colour}" stroke-dasharray="{_dash(i)}" d="{path}">{title}</path>')
        if markers or len(at) == 1:
            out += [f'<circle class="cc-f{colour}" r="3" cx="{x:.1f}" cy="{y:.1f}">{title}</circle>' for x, y in at]
    return out


def _padded(low: float, high: float, tight: bool) -> tuple[float, float]:
    return (low, high) if tight else (min(low, 0.0) if low < 0.35 * high else low - 0.05 * (high - low), high * 1.03)


def _frame(panel: Panel, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    out = []
    for y in y_axis.ticks():
        at = y_axis(y)
        out.append(f'<path class="cc-rule" d="M{x_axis.begin} {at:.1f}H{x_axis.end}"/>')
        out.append(f'<text class="cc-muted" text-anchor="end" x="{x_axis.begin - 6}" y="{at + 4:.1f}">{y:.4g}</text>')
    for x in panel.x_ticks or x_axis.ticks():
        at = x_axis(x)
        out.append(f'<path class="cc-rule" d="M{at:.1f} {y_axis.begin}v4"/>')
        out.append(
            f'<text class="cc-muted" text-anchor="middle" x="{at:.1f}" y="{y_axis.begin + 17}">{_short(x)}</text>'
        )
    middle_x, middle_y = (x_axis.begin + x_axis.end) / 2, (y_axis.begin + y_axis.end) / 2
    out.append(f'<path class="cc-rule" d="M{x_axis.begin} {y_axis.begin}H{x_axis.end}"/>')
    out.append(
        f'<text class="cc-muted" text-anchor="middle" x="{middle_x}" y="{y_axis.begin + 34}">{escape(panel.x)}</text>'
    )
    out.append(
        f'<text class="cc-muted" text-anchor="middle" transform="translate(12 {middle_y}) rotate(-90)">'
        f"{escape(panel.y)}</text>"
    )
    return out


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def thinned(curve: Sequence[float] | NDArray[Any], most: int = 48) -> tuple[list[int], list[float]]:
    """Positions 1, 2, … of a curve, ever sparser as they grow, and its values there: for a logarithmic axis."""
    n = len(curve)
    if n == 0:
        return [], []
    at = {round(n ** (i / (most - 1))) for i in range(most)} if n > 1 else {1}
    positions = sorted(at | {1, n})
    return positions, [float(curve[p - 1]) for p in positions]
