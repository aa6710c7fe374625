"""Charts: what is drawn is what was given."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from compcodes.plot import Panel, svg, thinned

matplotlib_figure = pytest.importorskip("matplotlib.figure")

SVG = "{http://www.w3.org/2000/svg}"


def chart(**options):
    panel = Panel("a < b & c", "x", "y", **options)
    panel.line("one", [1, 10, 100], [0.0, 0.5, 1.0], markers=True)
    panel.line("two", [1, 10, 100], [0.25, 0.25, 0.25])
    return panel


def drawn(panel, names=("one", "two")):
    axes = matplotlib_figure.Figure().subplots()
    panel.draw(axes, names)
    return axes


def test_a_panel_draws_its_series():
    axes = drawn(chart(log_x=True, y_range=(0, 2), x_ticks=[1, 10]))
    assert [line.get_label() for line in axes.get_lines()] == ["one", "two"]
    np.testing.assert_array_equal(axes.get_lines()[0].get_xydata(), [[1, 0], [10, 0.5], [100, 1]])
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()) == ("log", "linear", (0, 2))
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("a < b & c", "x", "y")
    assert axes.get_xticks().tolist() == [1, 10]


def test_a_series_looks_alike_in_every_panel():
    alone = Panel("title")
    alone.line("two", [1, 2], [3, 4])
    both, one = drawn(chart()).get_lines()[1], drawn(alone).get_lines()[0]
    assert (one.get_color(), one.get_linestyle()) == (both.get_color(), both.get_linestyle())


def test_a_figure_has_a_title_for_each_panel_and_one_legend():
    picture = ElementTree.fromstring(svg([chart()] * 3, label="l", columns=2))
    texts = [text.text.strip() for text in picture.iter(f"{SVG}text")]
    assert (texts.count("one"), texts.count("two"), texts.count("a < b & c")) == (1, 1, 3)


def test_equal_panels_are_equal_text():
    assert svg([chart()], label="a figure") == svg([chart()], label="a figure")


@pytest.mark.parametrize("values", [[], [float("nan")], [3.0], [2.0, 2.0]])
def test_few_or_equal_values(values):
    panel = Panel("title", log_x=True)
    panel.line("one", range(1, len(values) + 1), values)
    ElementTree.fromstring(svg([panel], label="a figure"))


def test_regions_and_dots():
    panel = Panel("map", square=True)
    panel.cell(9, [(0, 0), (1, 0), (1, 1)])
    panel.dots([(0.5, 0.25)])
    axes = drawn(panel, [])
    assert axes.patches[0].get_xy().tolist()[:3] == [[0, 0], [1, 0], [1, 1]]
    assert axes.get_lines()[0].get_xydata().tolist() == [[0.5, 0.25]]
    assert axes.get_xticks().tolist() == []


def test_a_curve_is_thinned_to_its_ends_and_what_is_between():
    at, values = thinned([i / 1000 for i in range(1, 1001)])
    assert (at[0], at[-1]) == (1, 1000)
    assert len(at) < 50
    assert values == [p / 1000 for p in at]
    assert thinned([0.5]) == ([1], [0.5])
    assert thinned([]) == ([], [])
