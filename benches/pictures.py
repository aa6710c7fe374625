"""What the pictures of the documentation share; needs matplotlib."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def figure(panels, height, **params):
    """A figure with panels in a row, and the panels."""
    drawing = Figure(figsize=(3.6 * panels, height), layout="constrained")
    return drawing, drawing.subplots(1, panels, squeeze=False, **params)[0]


def keep(drawing, name, save):
    """Draw, and write docs/images/NAME.svg where asked: the same picture gives the same bytes."""
    drawing.draw_without_rendering()
    if save:
        IMAGES.mkdir(exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
            drawing.savefig(IMAGES / f"{name}.svg", metadata={"Date": None}, facecolor="white")
