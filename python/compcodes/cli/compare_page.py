"""The report of ``compcodes compare`` as one HTML page: no script, no other file, for light and dark screens.

Its charts need matplotlib; without it the page says so, and has its tables.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from compcodes.cli.common import duration
from compcodes.plot import Panel, svg

__all__ = ["page"]

_PAGE_STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--muted:#59636e;--rule:#d8dee4;--paper:#fff;--card:#f6f8fa;--good:#1a7f37}
@media (prefers-color-scheme:dark){
:root{--ink:#e6edf3;--muted:#9198a1;--rule:#3d444d;--paper:#0d1117;--card:#151b23;--good:#3fb950}}
body{margin:0 auto;padding:2rem 1.2rem 4rem;max-width:64rem;background:var(--paper);color:var(--ink);
font:15px/1.55 system-ui,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:1.7rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{margin:.4rem 0}.muted{color:var(--muted)}
.card{background:var(--card);border:1px solid var(--rule);border-left:4px solid var(--good);border-radius:6px;
padding:.9rem 1.1rem;margin:1.4rem 0}
pre{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:.7rem .9rem;
font-size:13px}
.card pre{background:var(--paper)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:.34rem .6rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
th{font-weight:600;color:var(--muted);white-space:normal;vertical-align:bottom}
tr.size td{font-weight:600;padding-top:1rem}td.best{color:var(--good);font-weight:650}
img{max-width:100%;height:auto;display:block;margin:.8rem 0}
.unfinished{border-left-color:#bf8700}
"""

METRICS = {"ip": "inner product", "l2": "Euclidean distance", "cosine": "cosine"}
"""How metrics are called in sentences."""
_NUMBERS: dict[str, tuple[str, bool]] = {  # heading, and whether higher is better
    "vector_error": ("x error", False),
    "inner_product_error": ("score error", False),
    "fit_seconds": ("train", False),
    "encode_seconds_each": ("encode, per vector", False),
    "search_seconds_each": ("search, per query", False),
}


def page(found: dict[str, Any], name: str) -> str:
    """Return the page for what ``compcodes compare`` found for the vectors of that name."""
    best = found["recommended"]
    winner = next(r for r in found["results"] if (r["method"], r["bytes"]) == (best["method"], best["bytes"]))
    sizes = sorted({result["bytes"] for result in found["results"]})
    parts = [
        f"<h1>{escape(name)} in a few bytes</h1>",
        f'<p class="muted">{_summary(found)}</p>',
        *_unfinished(found),
        '<div class="card">',
        f"<p><strong>{escape(best['method'])} in {best['bytes']} bytes</strong>: {escape(winner['about'])}. "
        f"{escape(best['reason'])}</p>",
        f"<p>{_gain(found, winner)}</p>",
        f"<pre>{escape(best['command'] or best['code'])}</pre>",
        "</div>",
        "<h2>Ranking</h2>",
        f'<div class="scroll">{_ranking(found, sizes)}</div>',
        '<p class="muted">10@100 is the share of the true best 10 that are among the first 100 found, and also what is '
        "right after these 100 are re-ranked with exact scores. x error: mean ‖x − x̄‖²; score error: mean "
        "|⟨q, x⟩ − ⟨q, x̄⟩| of a query's 100 best. The best figure of each size is coloured.</p>",
        *_told_effort(found),
        *(f'<p class="muted">Not compared: {_failure(entry)}</p>' for entry in found["failed"]),
        "<h2>How many of the true best 10 are found</h2>",
        _chart(_curves(found, sizes), "Recall of the true best 10 against position"),
        "<h2>What it costs</h2>",
        _chart(_costs(found, sizes), "Recall against size and time"),
        "<h2>From Python</h2>",
        f"<pre>{escape(best['code'])}</pre>",
        "<h2>The methods</h2>",
        "<p>" + "<br>".join(f"<strong>{escape(k)}</strong>: {escape(v)}" for k, v in _methods(found).items()) + "</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>compcodes: {escape(name)}</title>\n<style>{_PAGE_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _unfinished(found: dict[str, Any]) -> list[str]:
    done, planned = len(found["results"]) + len(found["failed"]), found["planned"]
    if done == planned:
        return []
    told = f"Unfinished: {done} of {planned} are measured. The ranking and the advice are of these."
    return [f'<div class="card unfinished"><p>{told}</p></div>']


def _told_effort(found: dict[str, Any]) -> list[str]:
    if found["effort"] != "low":
        return []
    return ['<p class="muted">compcodes was trained with --effort low; its default takes longer and finds more.</p>']


def _methods(found: dict[str, Any]) -> dict[str, str]:
    return {result["method"]: result["about"] for result in found["results"]}


def _failure(entry: dict[str, Any]) -> str:
    return escape(f"{entry['method']} in {entry['bytes']} bytes: {entry['error']}")


def _summary(found: dict[str, Any]) -> str:
    part = "A sample of " if found["sampled"] else ""
    queries = "other vectors of the file as queries" if found["held_out"] else "queries"
    return (
        f"{part}{found['vectors']:,} vectors of {found['dimension']:,} numbers ({found['bytes_before']:,} bytes), "
        f"{found['queries']:,} {queries}; exact answers by {METRICS[found['metric']]}."
    )


def _gain(found: dict[str, Any], winner: dict[str, Any]) -> str:
    times = found["bytes_before"] / winner["bytes"]
    return (
        f"{times:,.3g} times smaller than the vectors. Of the true best 10, {winner['recall']['10@10']:.0%} are "
        f"among the "
        f"first 10 found and {winner['recall']['10@100']:.0%} among the first 100. Training took "
        f"{duration(winner['fit_seconds'])}, a query {duration(winner['search_seconds_each'])}."
    )


def _ranking(found: dict[str, Any], sizes: list[int]) -> str:
    measures = list(found["results"][0]["recall"])
    heads = "".join(f"<th>{head}</th>" for head in ["method", *measures, *(head for head, _ in _NUMBERS.values())])
    rows = [f"<thead><tr>{heads}</tr></thead><tbody>"]
    for size in sizes:
        results = [result for result in found["results"] if result["bytes"] == size]
        span = 1 + len(measures) + len(_NUMBERS)
        rows.append(f'<tr class="size"><td colspan="{span}">{size} byte{"s"[: size > 1]}</td></tr>')
        best_recall = {m: max(result["recall"][m] for result in results) for m in measures}
        least = {key: min((r[key] for r in results if r[key] is not None), default=None) for key in _NUMBERS}
        for result in results:
            cells = [_cell(f"{result['recall'][m]:.3f}", result["recall"][m] == best_recall[m]) for m in measures]
            for key in _NUMBERS:
                value = result[key]
                text = "–" if value is None else duration(value) if "seconds" in key else f"{value:.4g}"
                cells.append(_cell(text, value is not None and value == least[key]))
            rows.append(f"<tr><td>{escape(result['method'])}</td>{''.join(cells)}</tr>")
    return f"<table>{''.join(rows)}</tbody></table>"


def _cell(text: str, best: bool) -> str:
    return f'<td class="best">{text}</td>' if best else f"<td>{text}</td>"


def _chart(panels: list[Panel], label: str) -> str:
    """Return charts as an image embedded in the page."""
    try:
        picture = svg(panels, label=label, themed=True)
    except ImportError as error:
        return f'<p class="muted">{escape(str(error))}</p>'
    data = base64.b64encode(picture.encode()).decode()
    return f'<img alt="{escape(label)}" src="data:image/svg+xml;base64,{data}">'


def _curves(found: dict[str, Any], sizes: list[int]) -> list[Panel]:
    panels = []
    for size in sizes:
        panel = Panel(f"{size} byte{'s'[: size > 1]}", "position P", "recall 10@P", log_x=True, shares=_trials(found))
        for method in _methods(found):
            for result in found["results"]:
                if (result["method"], result["bytes"]) == (method, size):
                    panel.line(method, result["curve"]["P"], result["curve"]["recall"])
        panels.append(panel)
    return panels


def _costs(found: dict[str, Any], sizes: list[int]) -> list[Panel]:
    n = _trials(found)
    bytes_ = Panel("recall and size", "bytes", "recall 10@100", x_ticks=sizes, shares=n)
    training = Panel("recall and training time", "seconds to train", "recall 10@100", log_x=True, shares=n)
    search = Panel("recall and search time", "µs per query", "recall 10@100", log_x=True, shares=n)
    for method in _methods(found):
        results = sorted((r for r in found["results"] if r["method"] == method), key=lambda r: int(r["bytes"]))
        recalls = [r["recall"]["10@100"] for r in results]
        bytes_.line(method, [r["bytes"] for r in results], recalls, markers=True)
        training.line(method, [max(r["fit_seconds"], 1e-4) for r in results], recalls, markers=True)
        search.line(method, [max(r["search_seconds_each"], 1e-8) * 1e6 for r in results], recalls, markers=True)
    return [bytes_, training, search]


def _trials(found: dict[str, Any]) -> int:
    """Return how many true answers a recall is computed from."""
    return 10 * int(found["queries"])
