"""The experiments of *Inner Product Similarity Search using Compositional Codes* (Du & Wang), each a module.

A module has a ``NAME``, a docstring whose first line is its title, and ``run(lab)``, which returns a `Report`: tables,
a figure, and whether what the paper claims came out. ``python -m experiments`` runs
them; `docs/paper.md` is what they wrote. They are no part of the package.
"""

from __future__ import annotations

from types import ModuleType

from experiments import classification, curves, errors, partition, schemes, times
from experiments.lab import Lab
from experiments.report import Report

__all__ = ["EXPERIMENTS", "Lab", "Report", "title"]

EXPERIMENTS: dict[str, ModuleType] = {
    module.NAME: module for module in (partition, schemes, curves, errors, classification, times)
}


def title(module: ModuleType) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return str(module.__doc__).partition("\n")[0].rstrip(".")
