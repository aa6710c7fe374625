"""The documentation's examples run; the commands, files and pictures that it names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


WITH_EXAMPLES = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=names(WITH_EXAMPLES))
def test_python_examples_run(page, tmp_path, monkeypatch):
    """In order, each going on from those before; on fewer vectors."""
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for code in blocks(page):
        code = code.replace("size=(20_000, ", "size=(2_000, ")
        exec(compile(code, str(page), "exec"), namespace)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)`?", README.read_text()))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_what_a_page_names_exists(page):
    text = page.read_text()
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    missing += [name for name in re.findall(r"benches/\w+\.py", text) if not (ROOT / name).exists()]
    assert missing == []
