"""The site: `make docs` builds it into site/, and whatever Sphinx would warn of is an error there.

Sphinx reads docstrings from the installed package, compiled classes included, checks every internal link and anchor,
and needs nothing from the network. The pages are Markdown (MyST), which repositories show as they are.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import shutil
from pathlib import Path
from typing import Any

import compcodes

project = "compcodes"
author = "the compcodes authors"
copyright = "the compcodes authors"
version = release = compcodes.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_templates", "results/*.md"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "py:obj"  # `name` in a docstring links where there is such a name, and is code where there is not
autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autosummary_context = {"elsewhere": compcodes.__all__}  # what the package itself shows has its entry there
autodoc_member_order = "bysource"
# What the vector stores are made for: without it the pages lack only what they inherit from there.
autodoc_mock_imports = [name for name in ("langchain_core", "llama_index") if importlib.util.find_spec(name) is None]
autodoc_typehints = "none"  # docstrings tell shapes and types, which annotations cannot
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False

templates_path = ["_templates"]
html_theme = "furo"
html_title = "compcodes"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

PUBLIC = [
    "compcodes",
    "compcodes.data",
    "compcodes.errors",
    "compcodes.evaluate",
    "compcodes.interop.langchain",
    "compcodes.interop.llama_index",
    "compcodes.plot",
    "compcodes.progress",
    "compcodes.quantizers",
    "compcodes.reference",
]
"""Modules of which every public name has its entry in the API reference."""


def without_entry(names: set[str]) -> list[str]:
    """Return the public classes and functions that are not among `names`, which the reference describes."""
    from sphinx.ext.autodoc.mock import mock

    missing = []
    for module_name in PUBLIC:
        with mock(autodoc_mock_imports):
            module = importlib.import_module(module_name)
        for name in module.__all__:
            thing = getattr(module, name)
            known = {f"{module_name}.{name}", f"compcodes.{name}"}
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and not known & names:
                missing.append(f"{module_name}.{name}")
    return missing


def check_reference(app: Any, env: Any) -> None:
    """Warn, which is an error in `make docs`, of public names that the reference leaves out."""
    from sphinx.util import logging

    if missing := without_entry({entry[0] for entry in env.get_domain("py").get_objects()}):
        logging.getLogger(__name__).warning("the API reference leaves out: %s", ", ".join(missing))


def bring_results(app: Any) -> None:
    """Lay the benchmarks' tables beside the pages, from which they are linked."""
    folder = Path(app.srcdir, "measured")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(app.srcdir).parent / "benches" / "results", folder)


def keep_bars(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let |x| in a docstring be an absolute value: in reStructuredText it would be a substitution."""
    lines[:] = [line if "`" in line or ">>>" in line else line.replace("|", "\\|") for line in lines]


def setup(app: Any) -> None:
    """Connect the checks."""
    app.connect("builder-inited", bring_results)
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("env-check-consistency", check_reference)
