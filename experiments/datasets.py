"""The paper's data sets where the user has their files, and what stands in for them otherwise.

In the folder that ``--data`` names:

    sift_{base,learn,query}.fvecs      SIFT1M, http://corpus-texmex.irisa.fr (may be in sift/)
    bigann_{base,learn,query}.bvecs    SIFT1B, from there too (may be in bigann/)
    netflix/mv_*.txt, or netflix/combined_data_*.txt
                                       the Netflix prize's ratings; once reduced to 512 numbers by PCA
    models.npy, model_queries.npy      linear models (n, d), and the features (nq, d) that they score
    holidays.npy, holidays_ids.npy     a Fisher vector of each Holidays image, and its number (100000 ...)
    ukbench.npy                        a Fisher vector of each UKBench image, in the order of the images

Without them stand in: the SIFT descriptors and the Gowalla factors in the folder that the environment variable
``COMPCODES_DATA`` names (``sift/{base,learn,query}.npy``, ``gowalla128/{items,users}.npy``), or else the word vectors
that come with this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import data
from experiments.netflix import load_netflix

__all__ = ["Dataset", "datasets"]


@dataclass(frozen=True)
class Dataset:
    """Vectors to learn from, a database, and queries, of one of the paper's data sets or standing in for one.

    Parameters
    ----------
    name : str
    stands_for : str
        The paper's data set: "SIFT1M", "SIFT1B", "Netflix" or "LM1M".
    about : str
        A sentence.
    learn, base, queries : (n, d)
    sample : (ns, d) or None
        Queries of the same kind that are not measured with: a loss may be chosen by them.
    """

    name: str
    stands_for: str
    about: str
    learn: NDArray[Any]
    base: NDArray[Any]
    queries: NDArray[Any]
    sample: NDArray[Any] | None = None

    @property
    def is_papers_own(self) -> bool:
        """Whether it is what the paper used."""
        return self.name == self.stands_for

    @property
    def description(self) -> str:
        """What it is, what it stands for, and how large it is."""
        role = "" if self.is_papers_own else f", standing in for {self.stands_for}"
        sizes = f"{len(self.base):,} vectors of {self.base.shape[1]}, {len(self.queries):,} queries"
        return f"**{self.name}**{role}: {self.about} ({sizes}, trained on {len(self.learn):,})."


# Of a stand-in: minutes, not hours.
_MOST_BASE, _MOST_LEARN, _MOST_QUERIES = 40_000, 20_000, 1000


def datasets(folder: Path | None, *, limit: int | None = None, quick: bool = False) -> list[Dataset]:
    """Return the data sets that are there, or their stand-ins.

    Parameters
    ----------
    folder : Path, optional
        Where the user has the paper's files.
    limit : int, optional
        Take only so many vectors of a database.
    quick : bool
        Cut everything to what takes a moment.

    Raises
    ------
    FileNotFoundError
        `folder` is none, or holds none of the files.
    """
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    found = [] if folder is None else list(_papers(folder))
    images = ("holidays.npy", "ukbench.npy")
    if folder is not None and not found and not any((folder / name).exists() for name in images):
        raise FileNotFoundError(
            f"{folder}: none of the paper's files are in it (python -m experiments --list names them)"
        )
    found = found or list(_stand_ins())
    if quick:
        limit = 700
    return [_cut(dataset, limit, quick) for dataset in found]


def _cut(dataset: Dataset, limit: int | None, quick: bool) -> Dataset:
    learn = dataset.learn[:limit] if quick or dataset.learn is dataset.base else dataset.learn
    queries = dataset.queries[:60] if quick else dataset.queries
    base = learn if dataset.learn is dataset.base else dataset.base[:limit]
    return Dataset(dataset.name, dataset.stands_for, dataset.about, learn, base, queries, dataset.sample)


def _papers(folder: Path) -> Iterator[Dataset]:
    makers: list[Callable[[Path], Dataset | None]] = [_sift1m, _sift1b, _netflix, _models]
    for make in makers:
        if (dataset := make(folder)) is not None:
            yield dataset


def _texmex(folder: Path, name: str, ending: str) -> dict[str, NDArray[Any]] | None:
    for place in (folder, folder / name):
        paths = {part: place / f"{name}_{part}{ending}" for part in ("learn", "base", "query")}
        if all(path.exists() for path in paths.values()):
            return {part: data.load(path) for part, path in paths.items()}
    return None


def _sift1m(folder: Path) -> Dataset | None:
    parts = _texmex(folder, "sift", ".fvecs")
    return (
        None
        if parts is None
        else Dataset("SIFT1M", "SIFT1M", "SIFT descriptors", parts["learn"], parts["base"], parts["query"])
    )


def _sift1b(folder: Path) -> Dataset | None:
    parts = _texmex(folder, "bigann", ".bvecs")
    return (
        None
        if parts is None
        else Dataset("SIFT1B", "SIFT1B", "SIFT descriptors", parts["learn"], parts["base"], parts["query"])
    )


def _netflix(folder: Path) -> Dataset | None:
    users = load_netflix(folder)
    if users is None:
        return None
    queries = users[np.random.default_rng(0).choice(len(users), min(10_000, len(users)), replace=False)]
    return Dataset("Netflix", "Netflix", "users by their ratings, 512 principal components", users, users, queries)


def _models(folder: Path) -> Dataset | None:
    paths = [folder / "models.npy", folder / "model_queries.npy"]
    if not all(path.exists() for path in paths):
        return None
    models, queries = map(data.load, paths)
    return Dataset("LM1M", "LM1M", "linear models, with features as queries", models, models, queries)


def _stand_ins() -> Iterator[Dataset]:
    found = [] if "COMPCODES_DATA" not in os.environ else list(_real(Path(os.environ["COMPCODES_DATA"])))
    yield from found
    roles = {"SIFT1M", "Netflix"} - {dataset.stands_for for dataset in found}
    vectors = data.glove()[1].astype(np.float32)[np.random.default_rng(0).permutation(20_000)]
    queries, base = vectors[:_MOST_QUERIES], vectors[_MOST_QUERIES:]
    about = "word vectors that come with the package"
    for role in sorted(roles, reverse=True) or ["LM1M"]:
        yield Dataset("GloVe", role, about, base, base, queries)


def _real(folder: Path) -> Iterator[Dataset]:
    def load(path: str, rows: slice) -> NDArray[Any]:
        part: NDArray[Any] = np.load(folder / path, mmap_mode="r")[rows].astype(np.float32)
        return part

    if (folder / "sift").is_dir():
        base = load("sift/base.npy", slice(_MOST_BASE))
        queries = load("sift/query.npy", slice(_MOST_QUERIES))
        yield Dataset("SIFT descriptors", "SIFT1M", "SIFT descriptors of other photographs", base, base, queries)
    if (folder / "gowalla128").is_dir():
        items, users = load("gowalla128/items.npy", slice(None)), load("gowalla128/users.npy", slice(-1000, None))
        sample = load("gowalla128/users.npy", slice(8000))
        about = "factors of places, with those of their visitors as queries"
        learn = items[np.random.default_rng(0).permutation(len(items))[:_MOST_LEARN]]
        yield Dataset("Gowalla", "Netflix", about, learn, items, users, sample)
