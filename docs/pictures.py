"""Draw the pictures of the first page and of the page on the science: `python docs/pictures.py`.

The same data and seeds give the same files, under docs/images.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import compcodes as cc

sys.path.insert(0, str(Path(__file__).parents[1] / "benches"))
from pictures import figure, keep

INK, SOFT = "#1f2328", "#59636e"
COLOURS = [f"C{m}" for m in range(8)]


def idea() -> None:
    """A vector, the codewords that add up to it, its code, and the look-ups of a query."""
    rng = np.random.default_rng(3)
    drawing, (axes,) = figure(1, 2.7)
    drawing.set_size_inches(10, 2.9)
    axes.set(xlim=(0, 17.8), ylim=(-0.3, 5.8))
    axes.axis("off")

    def strip(x, y, values, colour, height=0.36, width=2.9):
        values = values / np.abs(values).max()
        step = width / len(values)
        at = x + step * np.arange(len(values))
        axes.bar(at, values * height, bottom=y, width=step * 0.8, align="edge", color=colour)

    words = rng.normal(size=(8, 36)) * np.geomspace(1, 0.25, 8)[:, None]
    code = rng.integers(0, 256, 8)
    x = words.sum(axis=0)
    query = x / np.linalg.norm(x) + 0.15 * rng.normal(size=36)
    strip(0.1, 3.0, x, INK, height=0.8)
    axes.text(0.1, 4.5, "a vector x\n100 numbers, 400 bytes", color=INK, va="bottom", fontsize=10)
    axes.text(3.65, 2.85, "≈", fontsize=20, ha="center", color=INK)
    for m in range(8):
        y = 4.95 - 0.62 * m
        strip(4.4, y, words[m], COLOURS[m], height=0.22, width=3.0)
        axes.text(7.6, y, f"codeword {code[m]} of book {m + 1}", va="center", fontsize=8.5, color=COLOURS[m])
        axes.text(12.15, y, f"{code[m]}", va="center", ha="right", fontsize=9.5, color=COLOURS[m], family="monospace")
        score = float(words[m] @ query)
        axes.text(16.1, y, f"table {m + 1}[{code[m]}]", va="center", ha="right", fontsize=8.5, color=COLOURS[m])
        axes.text(17.5, y, f"{score:+.2f}", va="center", ha="right", fontsize=9.5, color=COLOURS[m], family="monospace")
    axes.text(4.4, 5.4, "the sum of 8 codewords, one from each book", va="bottom", fontsize=10, color=INK)
    axes.text(12.2, 5.4, "code: 8 bytes", va="bottom", ha="center", fontsize=10, color=INK)
    axes.text(16.2, 5.4, "⟨query, x⟩: 8 look-ups", va="bottom", ha="center", fontsize=10, color=INK)
    total = float(x @ query)
    axes.plot([14.4, 17.6], [0.22, 0.22], color=SOFT, linewidth=0.8)
    axes.text(17.5, -0.1, f"{total:+.2f}", va="center", ha="right", fontsize=10, color=INK, family="monospace")
    keep(drawing, "idea", True)


def local_search() -> None:
    """The loss of the codes of 2,000 words against the rounds of local search, and against the width of a beam."""
    X = cc.data.glove()[1]
    q = cc.CompositionalCodes(n_codebooks=8, effort="low", loss="reconstruction").fit(X[:15_000])
    held_out = X[15_000:17_000]

    def error(encoder: object) -> float:
        q.encoder = encoder
        return float(((held_out - q.decode(q.encode(held_out))) ** 2).sum(axis=1).mean())

    rounds = [0, 1, 2, 4, 8, 16, 32, 64, 128]
    greedy = error(cc.Greedy())
    drawing, (axes,) = figure(1, 3.0)
    drawing.set_size_inches(6.4, 3.2)
    axes.axhline(greedy, color=SOFT, linestyle="--", linewidth=1)
    axes.text(0.7, greedy, "greedy, as in the paper", color=SOFT, fontsize=9, va="bottom")
    for width, colour in [(4, "C1"), (16, "C2")]:
        beam = error(cc.Beam(width=width))
        axes.axhline(beam, color=colour, linestyle=":", linewidth=1.2)
        axes.text(130, beam, f"beam of {width}", color=colour, fontsize=9, va="bottom", ha="right")
    axes.plot([max(r, 0.7) for r in rounds], [error(cc.LocalSearch(rounds=r)) for r in rounds], "o-", color="C0")
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.7, *rounds[1:]], [str(r) for r in rounds])
    axes.set(xlabel="rounds of local search", ylabel="mean squared error")
    axes.margins(y=0.1)
    axes.grid(alpha=0.3)
    keep(drawing, "local-search", True)


def bounds() -> None:
    """Sums of byte tables against exact sums of one query, and what the bound discards."""
    X = cc.data.glove()[1]
    q = cc.CompositionalCodes(n_codebooks=4, effort="low", loss="reconstruction").fit(X[:15_000])
    codes = q.encode(X[:15_000])
    tables = q.codebooks_ @ X[17_003]
    low = tables.min(axis=1, keepdims=True)
    step = float((tables - low).max() / 255)
    floors = np.floor((tables - low) / step)  # at most the entry, at least the entry less one step
    rows = np.arange(len(tables))
    exact = tables[rows, codes].sum(axis=1)
    upper = low.sum() + (floors[rows, codes].sum(axis=1) + len(tables)) * step
    limit = np.sort(exact)[-10]
    drawing, (axes,) = figure(1, 3.4)
    drawing.set_size_inches(6.4, 3.6)
    kept = upper >= limit
    axes.plot(exact[~kept], upper[~kept], ".", color="0.7", markersize=2, rasterized=True)
    axes.plot(exact[kept], upper[kept], ".", color="C1", markersize=4)
    axes.axhline(limit, color="C0", linewidth=1)
    line = [np.sort(exact)[-300], exact.max()]  # the upper end: further down nothing is in doubt
    axes.plot(line, line, color=SOFT, linewidth=0.8)
    axes.set(xlim=line, ylim=(line[0], line[1] + 0.1))
    axes.text(line[0], limit, " the 10th best so far", color="C0", fontsize=9, va="bottom")
    axes.set(xlabel="⟨q, x̄⟩ in float32", ylabel="upper bound from bytes")
    axes.set_title(f"{kept.sum()} of {len(codes):,} codes are scored in float32", fontsize=10)
    axes.grid(alpha=0.3)
    keep(drawing, "bounds", True)


def lists() -> None:
    """The plane in lists, a query, and the lists that it probes."""
    rng = np.random.default_rng(8)
    centers = rng.normal(size=(24, 2)) * [1.2, 0.8]
    points = centers[rng.integers(24, size=900)] + 0.22 * rng.normal(size=(900, 2))
    own = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    query = np.array([0.85, 0.55])
    probed = np.argsort(-(centers @ query))[:4]
    drawing, (axes,) = figure(1, 3.4)
    drawing.set_size_inches(6.4, 3.6)
    inside = np.isin(own, probed)
    axes.plot(*points[~inside].T, ".", color="0.75", markersize=3)
    for i, m in enumerate(probed):
        axes.plot(*points[own == m].T, ".", color=f"C{i}", markersize=4)
    axes.plot(*centers.T, "+", color=INK, markersize=7)
    axes.annotate("", xy=3.1 * query, xytext=(0, 0), arrowprops={"arrowstyle": "->", "color": INK})
    axes.text(*(3.1 * query), " query", fontsize=9, va="center")
    axes.set(aspect="equal", xticks=[], yticks=[], title="24 lists; the 4 whose centroids score best are scanned")
    axes.title.set_fontsize(10)
    keep(drawing, "lists-plane", True)


if __name__ == "__main__":
    for draw in (idea, local_search, bounds, lists):
        if len(sys.argv) == 1 or draw.__name__ in sys.argv[1:]:
            draw()
