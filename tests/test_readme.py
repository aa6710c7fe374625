"""The documentation's examples run; the commands, files and pictures that it names exist."""

import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest

from compcodes import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not {"measured", "generated"} & {*page.parts}]
PAGES = [README, ROOT / "CONTRIBUTING.md", *WRITTEN]


def blocks(page):
    """The blocks of Python and of commands, in order: (language, content)."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


WITH_EXAMPLES = [page for page in PAGES if blocks(page)]


def missing(page):
    """What a page says it needs, `<!-- needs: NAME -->`, and is not here: a module, a name, or NAME(parameter)."""
    for need in re.findall(r"<!-- needs: (.*?) -->", page.read_text()):
        name, _, parameter = need.rstrip(")").partition("(")
        module, *attributes = name.split(".")
        try:
            thing = importlib.import_module(module)
            for attribute in attributes:
                thing = getattr(thing, attribute)
            if parameter and parameter not in inspect.signature(thing).parameters:
                return need
        except (ImportError, AttributeError):
            return need
    return None


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=names(WITH_EXAMPLES))
def test_examples_run(page, tmp_path, monkeypatch):
    """In order, each going on from those before; on fewer vectors. Of commands, compcodes' own."""
    if need := missing(page):
        pytest.skip(f"needs {need}")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for language, code in blocks(page):
        if language == "sh":
            for line in code.replace("\\\n", " ").splitlines():
                if line.startswith("compcodes "):
                    assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
        else:
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
    missing += [name for name in re.findall(r"(?:benches|docs)/\w+\.py", text) if not (ROOT / name).exists()]
    assert missing == []
