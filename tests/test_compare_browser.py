"""The report of ``compcodes compare`` as a browser shows it: small and large windows, light and dark screens."""

import shutil
import subprocess

import numpy as np
import pytest

from compcodes.cli.compare_page import page

image = pytest.importorskip("matplotlib.image")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium-headless-shell")


def result(method, n_bytes, recall):
    positions = [1, 3, 10, 30, 100, 300, 1000]
    return {
        "method": method,
        "about": f"the method {method}",
        "bytes": n_bytes,
        "recall": {"1@1": recall / 2, "10@10": recall / 1.5, "10@100": recall, "100@1000": recall},
        "curve": {"P": positions, "recall": list(1 - (1 - recall) / np.array(positions) ** 0.3)},
        "vector_error": 12_345.678,
        "inner_product_error": 1_234.5678,
        "fit_seconds": 1234.5,
        "encode_seconds_each": 0.00123456,
        "search_seconds_each": 0.000123456,
        "command": "compcodes fit vectors.npy -o model.cc\ncompcodes build model.cc vectors.npy -o index.cc",
        "code": "import compcodes as cc",
    }


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    names = ["compcodes", "CC", "RQ", "CKM", "OPQ", "PQ", "LSH"]
    results = [result(name, b, 1 - 0.004 * (i + 1) * 8 / b) for b in (8, 16) for i, name in enumerate(names)]
    best = {key: results[0][key] for key in ("method", "bytes", "command", "code")} | {"reason": "It is the best."}
    found = {
        "vectors": 10_000,
        "dimension": 384,
        "queries": 1000,
        "metric": "ip",
        "held_out": True,
        "sampled": False,
        "bytes_before": 1536,
        "effort": "low",
        "planned": 14,
        "results": results,
        "failed": [],
        "recommended": best,
        "output": "report.html",
    }
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(page(found, "vectors.npy"), encoding="utf-8")
    return path


def browse(folder, *options):
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    ]  # fmt: skip
    return subprocess.run([*command, *options], check=True, capture_output=True, text=True, timeout=120).stdout


MEASURE = """<script>
const at = e => document.querySelector(e);
document.title = [
  document.documentElement.scrollWidth - window.innerWidth,
  at(".scroll").scrollWidth - at(".scroll").clientWidth,
  Math.min(...[...document.images].map(i => i.complete * i.naturalWidth)),
  Math.max(...[...document.images].map(i => i.getBoundingClientRect().right)) - window.innerWidth,
].join(" ");
</script>"""


@pytest.mark.parametrize("width", [1100, 1600, 420])
def test_what_is_wide_fits_or_scrolls_by_itself(report, tmp_path, width):
    copy = tmp_path / "measured.html"
    copy.write_text(report.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    dom = browse(tmp_path, f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom", copy.as_uri())
    page_over, table_over, picture, picture_over = map(
        float, dom.partition("<title>")[2].partition("</title>")[0].split()
    )
    assert page_over <= 0 and picture_over <= 0
    assert picture > 0  # the charts are drawn
    if width >= 1100:
        assert table_over <= 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_charts_follow_the_screen(report, tmp_path, dark):
    picture = tmp_path / "page.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    browse(tmp_path, scheme, "--window-size=1100,2600", f"--screenshot={picture}", report.as_uri())
    light = image.imread(picture)[..., :3].mean(axis=2)
    assert light.shape == (2600, 1100)
    background, ink = np.median(light), np.quantile(light, 0.001 if not dark else 0.999)
    assert (background < 0.2 and ink > 0.8) if dark else (background > 0.9 and ink < 0.3)
    # No block keeps the other scheme's paper, as a chart on white would in the dark.
    blocks = np.median(light[:2600].reshape(26, 100, 11, 100), axis=(1, 3))
    assert np.abs(blocks - background).max() < 0.15
