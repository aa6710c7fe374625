import xml.etree.ElementTree as ElementTree

import pytest

from compcodes.svg import Panel, figure, thinned

SVG = "{http://www.w3.org/2000/svg}"


def parsed(panels, **options):
    return ElementTree.fromstring(figure(panels, label="a figure", **options))


def chart(**options):
    panel = Panel("title", "x", "y", **options)
    panel.line("one", [1, 10, 100], [0.0, 0.5, 1.0], markers=True)
    panel.line("two", [1, 10, 100], [0.25, 0.25, 0.25])
    return panel


def positions(svg):
    return [(float(dot.get("cx")), float(dot.get("cy"))) for dot in svg.iter(f"{SVG}circle")]


def test_a_logarithmic_axis_puts_powers_at_equal_distances():
    (x0, y0), (x1, y1), (x2, y2) = positions(parsed([chart(log_x=True, y_range=(0, 1))]))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2  # upwards


def test_a_linear_axis_is_in_proportion():
    (x0, _), (x1, _), (x2, _) = positions(parsed([chart(y_range=(0, 1))]))
    assert (x1 - x0) / (x2 - x0) == pytest.approx(9 / 99, abs=0.01)


def test_a_legend_names_each_series_once():
    svg = parsed([chart(), chart()])
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert (texts.count("one"), texts.count("two"), texts.count("title")) == (1, 1, 2)


def test_ticks_are_round_numbers():
    texts = {text.text for text in parsed([chart(log_x=True, y_range=(0, 1))]).iter(f"{SVG}text")}
    assert {"0", "0.25", "0.5", "0.75", "1", "10", "100"} <= texts


def test_names_are_escaped():
    panel = Panel("a < b & c")
    panel.line("<script>", [1, 2], [1, 2])
    assert "<script>" not in figure([panel], label='"quoted"')
    assert parsed([panel]).find(f"{SVG}g/{SVG}text").text == "a < b & c"


def test_nothing_is_asked_of_elsewhere():
    text = figure([chart()], label="a figure")
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in text
    assert "<style>" not in figure([chart()], label="a figure", inline=True)


@pytest.mark.parametrize("values", [[], [float("nan")], [3.0], [2.0, 2.0]])
def test_few_or_equal_values(values):
    panel = Panel("title", log_x=True)
    panel.line("one", range(1, len(values) + 1), values)
    assert "nan" not in figure([panel], label="a figure")


def test_regions_and_dots():
    panel = Panel("map", square=True)
    panel.cell(9, [(0, 0), (1, 0), (1, 1)])
    panel.dots([(0.5, 0.5)])
    svg = parsed([panel])
    assert len(list(svg.iter(f"{SVG}polygon"))) == 1
    assert any("h0" in path.get("d") for path in svg.iter(f"{SVG}path"))


def test_a_curve_is_thinned_to_its_ends_and_what_is_between():
    at, values = thinned([i / 1000 for i in range(1, 1001)])
    assert (at[0], at[-1]) == (1, 1000)
    assert len(at) < 50
    assert values == [p / 1000 for p in at]
    assert thinned([0.5]) == ([1], [0.5])
    assert thinned([]) == ([], [])
