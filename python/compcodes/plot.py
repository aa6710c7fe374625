"""Charts by matplotlib (``pip install 'compcodes[plot]'``): recall curves, and panels of lines for reports."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes.evaluate import recall_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panel", "recall_figure", "svg", "thinned"]

_INK = "#010203"  # replaces the colour of text until a picture is written
_LIGHT, _DARK = "#1f2328", "#e6edf3"
_STYLES = ("-", "--", ":", "-.")
_MARKERS = "osD^vPX"


def recall_figure(
    results: Mapping[str, ArrayLike], true_ids: ArrayLike, R: tuple[int, ...] = (1, 10, 100), title: str = ""
) -> Figure:
    """Draw recall@P over P, one panel for each R and one curve for each result.

    Parameters
    ----------
    results : mapping of str to (nq, P) int
        Found ids by name, best first; with at least as many columns as the largest R to be useful.
    true_ids : (nq, ≥ max(R)) int
        From `compcodes.evaluate.ground_truth`.
    R : tuple of int
        How many of the true best to look for.

    Returns
    -------
    matplotlib Figure
        Write it with ``figure.savefig("recall.png")``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    figure = _figure(4.2 * len(R), 3.6)
    panels = figure.subplots(1, len(R), sharey=True, squeeze=False)[0]
    for panel, r in zip(panels, R, strict=True):
        for name, ids in results.items():
            curve = recall_curve(ids, true_ids, R=r)
            panel.plot(range(1, len(curve) + 1), curve, label=name, clip_on=False)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_xlabel("P, number of vectors found")
        panel.set_title(f"the true best {r}" if r > 1 else "the true best")
        panel.set_ylim(0, 1.02)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share that is found, recall@P")
    if len(results) > 1:
        panels[0].legend(loc="lower right")
    figure.suptitle(title)
    return figure


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
    x_ticks : sequence of float, optional
        By default matplotlib's.
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
    shares: int | None = None
    _lines: list[tuple[str, Sequence[float], Sequence[float], bool]] = field(default_factory=list)
    _cells: list[tuple[int, Sequence[tuple[float, float]]]] = field(default_factory=list)
    _dots: list[tuple[float, float]] = field(default_factory=list)

    def line(self, name: str, xs: Sequence[float], ys: Sequence[float], *, markers: bool = False) -> None:
        """Add a series: a line through points, each marked if `markers`."""
        self._lines.append((name, xs, ys, markers))

    def cell(self, colour: int, corners: Sequence[tuple[float, float]]) -> None:
        """Add a filled polygon in one of matplotlib's ten colours."""
        self._cells.append((colour, corners))

    def dots(self, points: Sequence[tuple[float, float]]) -> None:
        """Add small dots."""
        self._dots += points

    def draw(self, axes: Axes, names: Sequence[str]) -> None:
        """Draw into `axes`; the place of a series in `names` decides on its colour and style."""
        axes.set(title=self.title, xlabel=self.x, ylabel=self.y)
        for colour, corners in self._cells:
            axes.fill(*zip(*corners, strict=True), facecolor=(f"C{colour % 10}", 0.3), edgecolor="0.5", linewidth=0.5)
        if self._dots:
            axes.plot(*zip(*self._dots, strict=True), ".", color="0.4", markersize=2)
        for name, xs, ys, markers in self._lines:
            i = names.index(name)
            marker = _MARKERS[i % len(_MARKERS)] if markers or len(xs) == 1 else ""
            axes.plot(xs, ys, color=f"C{i}", linestyle=_STYLES[i % 4], marker=marker, markersize=4, label=name)
        axes.set_xscale("log" if self.log_x else "linear")
        axes.set_yscale("log" if self.log_y else "linear")
        if self.x_ticks is not None:
            axes.set_xticks(self.x_ticks, minor=False)
            axes.minorticks_off()
        if self.x_ticks is not None or self.log_x:
            axes.xaxis.set_major_formatter("{x:g}")
        if self.y_range is not None:
            axes.set_ylim(*self.y_range)
        elif self.shares is not None:
            self._fit_shares(axes, 0.5 / self.shares)
        if self.square:
            axes.set(aspect="equal", xticks=[], yticks=[])
        else:
            axes.grid(alpha=0.3)

    def _fit_shares(self, axes: Axes, least: float) -> None:
        """Let the axis of y span the values; `least` is half of what one trial counts."""
        values = [y for _, _, ys, _ in self._lines for y in ys]
        if not values:
            return
        low, high = min(values), max(values)
        if low < 0.9 < high:
            # 0 and 1 are infinitely far away on this scale: they are drawn half a trial short of that.
            for line in axes.get_lines():
                line.set_ydata(np.clip(np.asarray(line.get_ydata(), float), least, 1 - least))
            axes.set_yscale("logit", one_half="0.5")
            low, high = max(low, least), min(high, 1 - least)
            ticks = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999]
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
            axes.set_ylim(low / 1.2, 1 - (1 - high) / 1.5)
            return
        room = max(0.05 * (high - low), 0.002)
        axes.set_ylim(max(low - room, -0.02), min(high + room, 1.005))


def svg(panels: Sequence[Panel], *, label: str, columns: int = 3, themed: bool = False) -> str:
    """Draw panels in rows, above them the legend of all their series.

    Parameters
    ----------
    panels : sequence of Panel
    label : str
        What the figure shows, for those who cannot see it.
    columns : int, default 3
        Panels in a row.
    themed : bool, default False
        Without a background, and with dark or light text as the reader's screen asks for; by default on white.

    Returns
    -------
    str
        The content of an SVG file. The same panels give the same text.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels for name, *_ in panel._lines))
    with _style(label, themed):
        figure = _figure(3.6 * columns, 2.8 * rows + 0.3)
        places = figure.subplots(rows, columns, squeeze=False).flat
        handles: dict[str, Any] = {}
        for panel, axes in zip(panels, places, strict=False):
            panel.draw(axes, names)
            handles |= {str(line.get_label()): line for line in axes.get_lines() if line.get_label() in names}
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        if names:
            figure.legend([handles[name] for name in names], names, loc="outside upper left", ncols=7, frameon=False)
        out = io.StringIO()
        background = "none" if themed else "white"
        figure.savefig(out, format="svg", facecolor=background, metadata={"Date": None, "Title": label})
    return _coloured(out.getvalue()) if themed else out.getvalue()


@contextmanager
def _style(label: str, themed: bool) -> Iterator[None]:
    """Let the same panels give the same text, and text a colour that can be told from all others."""
    try:
        import matplotlib as mpl
    except ImportError:
        yield  # `_figure` says so
        return
    style: Any = {"svg.hashsalt": label, "svg.fonttype": "none"}
    if themed:
        inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
        style |= dict.fromkeys(inks, _INK) | {"axes.facecolor": "none", "grid.color": "#808080"}
    with mpl.rc_context(style):
        yield


def _coloured(picture: str) -> str:
    """Let a picture's text follow the reader's screen."""
    rules = f":root{{--ink:{_LIGHT}}}@media (prefers-color-scheme:dark){{:root{{--ink:{_DARK}}}}}"
    head, tag, rest = picture.partition("<defs>")
    return head + f"<style>{rules}text{{fill:var(--ink)}}</style>" + tag + rest.replace(_INK, "var(--ink)")


def thinned(curve: Sequence[float] | NDArray[Any], most: int = 48) -> tuple[list[int], list[float]]:
    """Positions 1, 2, … of a curve, ever sparser as they grow, and its values there: for a logarithmic axis."""
    n = len(curve)
    if n == 0:
        return [], []
    at = {round(n ** (i / (most - 1))) for i in range(most)} if n > 1 else {1}
    positions = sorted(at | {1, n})
    return positions, [float(curve[p - 1]) for p in positions]


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("drawing needs matplotlib; run: pip install 'compcodes[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")
