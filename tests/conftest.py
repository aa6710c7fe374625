import json
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc
from compcodes import cli


def vectors(n, d, seed=0):
    """Vectors with structure: a few clusters, and noise."""
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(20, d))
    return (centers[rng.integers(20, size=n)] + rng.normal(size=(n, d))).astype(np.float32)


@pytest.fixture(scope="session")
def X():
    return vectors(1500, 12)


@pytest.fixture(scope="session")
def Q():
    return vectors(40, 12, seed=1)


@pytest.fixture(scope="session")
def quantizer(X):
    return cc.CompositionalCodes(n_codebooks=4, n_codewords=16, max_iter=5).fit(X)


class Work:
    """A folder with vectors, queries and what the command makes of them."""

    _model = None

    def __init__(self, folder, capsys):
        self.folder, self._capsys = folder, capsys
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(200, 6)).astype("f4")
        self.Q = rng.normal(size=(9, 6)).astype("f4")
        self.save("x", self.X)
        self.save("q", self.Q)

    def path(self, name):
        return str(self.folder / name)

    def save(self, name, array):
        np.save(self.path(f"{name}.npy"), array)
        return self.path(f"{name}.npy")

    def __call__(self, *argv):
        """Run the command: its exit code, standard output and standard error."""
        code = cli.main([str(word) for word in argv])
        return code, *self._capsys.readouterr()

    def json(self, *argv):
        """Run the command with --json: what it found."""
        quiet = ("--quiet",) * (argv[0] == "compare")  # which tells how far it is where it lasts
        code, out, err = self(*argv, *quiet, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def model(self):
        """A model of the vectors in x.npy, trained once."""
        if Work._model is None:
            sizes = "--codebooks", 3, "--codewords", 8, "--iterations", 3
            self("fit", self.path("x.npy"), "-o", self.path("model"), *sizes)
            Work._model = Path(self.path("model")).read_bytes()
        Path(self.path("model")).write_bytes(Work._model)
        return self.path("model")

    def index(self, *options):
        self("build", self.model(), self.path("x.npy"), "-o", self.path("index"), *options)
        return self.path("index")


@pytest.fixture
def work(tmp_path, capsys):
    return Work(tmp_path, capsys)
