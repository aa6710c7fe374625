"""Where experiments are done: the settings, the data, and models that several of them use, each trained once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import evaluate
from compcodes.comparison import METHODS, Contestant, train
from compcodes.progress import ProgressCallback
from experiments.datasets import Dataset, datasets

__all__ = ["PAPER_METHODS", "Lab"]

PAPER_METHODS = ["CC", "CKM", "OPQ", "PQ", "LSH"]
"""What the paper compares; "compcodes" stands beside them."""

_QUICK = {"n_codewords": 16, "max_iter": 2, "anneal": 1}


@dataclass
class Lab:
    """The settings of a run.

    Parameters
    ----------
    folder : Path, optional
        Where the paper's data are (see `experiments.datasets`).
    bits : tuple of int, optional
        Code lengths instead of the paper's.
    limit : int, optional
        Take only so many vectors of each database.
    quick : bool
        Cut data and training to what takes seconds: figures then mean nothing.
    n_jobs : int, optional
        Threads.
    progress : callable, optional
    """

    folder: Path | None = None
    bits: tuple[int, ...] | None = None
    limit: int | None = None
    quick: bool = False
    n_jobs: int | None = None
    progress: ProgressCallback | None = None
    _datasets: list[Dataset] | None = None
    _cache: dict[Any, Any] = field(default_factory=dict)

    @property
    def datasets(self) -> list[Dataset]:
        """The paper's data sets or their stand-ins."""
        if self._datasets is None:
            self._datasets = datasets(self.folder, limit=self.limit, quick=self.quick)
        return self._datasets

    @property
    def effort(self) -> dict[str, Any]:
        """Parameters that make training short, if it shall be."""
        return _QUICK if self.quick else {}

    def lengths(self, *bits: int) -> list[int]:
        """Return the code lengths in bits to use where the paper has these."""
        return list(self.bits or bits)

    @staticmethod
    def methods(bits: int, *, hashes: bool = True) -> list[str]:
        """Return the methods that are compared at a length.

        This package's defaults are among them up to 64 bits: beyond, their training takes longer than all the rest.
        """
        papers = [name for name in PAPER_METHODS if hashes or not METHODS[name].hashes]
        return ["compcodes", *papers] if bits <= 64 else papers

    def contestant(self, dataset: Dataset, name: str, bits: int) -> Contestant:
        """Return a method trained on a data set, with its codes."""
        key = ("model", dataset.name, name, bits)
        made: Contestant = self._once(key, lambda: self._train(dataset, name, bits))
        return made

    def truth(self, dataset: Dataset) -> NDArray[np.int64]:
        """Return the rows of the 100 exact answers to each query, best first."""
        true: NDArray[np.int64] = self._once(("truth", dataset.name), lambda: self._truth(dataset))
        return true

    def answers(self, dataset: Dataset, name: str, bits: int, k: int = 1000) -> NDArray[np.int64]:
        """Return the rows of the `k` best answers to each query by code, best first."""
        most = min(k, len(dataset.base))
        key = ("answers", dataset.name, name, bits)
        found: NDArray[np.int64] = self._once(
            key, lambda: self.contestant(dataset, name, bits).search(dataset.queries, min(1000, len(dataset.base)))
        )
        return found[:, :most]

    def _train(self, dataset: Dataset, name: str, bits: int) -> Contestant:
        if bits % 8:
            raise ValueError(f"{bits} bits are not a whole number of bytes")
        label, progress = f"{name} {bits}", self.progress
        own = None if progress is None else lambda stage, done, total: progress(f"{label} {stage}", done, total)
        effort = dict(self.effort)
        if self.quick and "loss" not in METHODS[name].parameters:
            effort["loss"] = "reconstruction"  # to choose one takes longer than all the rest
        return train(
            METHODS[name], bits // 8, dataset.learn, dataset.base,
            queries=dataset.sample, n_jobs=self.n_jobs, progress=own, **effort,
        )  # fmt: skip

    def _truth(self, dataset: Dataset) -> NDArray[np.int64]:
        k = min(100, len(dataset.base))
        return evaluate.ground_truth(dataset.base, dataset.queries, k, n_jobs=self.n_jobs, progress=self.progress)[1]

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]
