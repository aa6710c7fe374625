"""With one file and the same vectors, the Rust crate and the Python package choose the same codes and find the same."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc
import write_files

# The first of them builds the Rust side.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "v1"


@pytest.fixture(scope="session")
def program():
    """The example that does in Rust what `python_finds` does here."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo, which builds the Rust side, is not installed")
    # As `make test` builds it: see the Makefile.
    build = ["cargo", "build", "--workspace", "--release", "--example", "files", "--message-format=json"]
    built = subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    found = [json.loads(line).get("executable") for line in built.stdout.splitlines()]
    return next(path for path in found if path)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Files of each kind, by this version."""
    folder = tmp_path_factory.mktemp("files")
    for version in ("v2", "v3"):
        write_files.main(folder / version)
    return folder


@pytest.fixture(scope="session")
def vectors():
    return np.array(json.loads((DATA / "expected.json").read_text())["X"], np.float32)


def rust_finds(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True, timeout=300)
    return {name: [int(word) for word in words] for name, *words in map(str.split, done.stdout.splitlines())}


def python_finds(path, X):
    quantizer = cc.Quantizer.load(path)
    try:
        index = cc.Index.load(path)
    except ValueError:
        index = cc.Index(quantizer)
    scores, ids = index.add(X).search(X[:3], 10)
    found = {"ids": ids, "scores": scores.view(np.uint32)}
    if getattr(quantizer, "centroids_", None) is None:
        found["codes"] = quantizer.encode(X)
    return {name: array.ravel().tolist() for name, array in found.items()}


NAMES = sorted(path.name for path in DATA.glob("*.cc") if path.name != "model-rust.cc")
# What is added here has no keys.
OWN = [
    f"{path.parent.name}/{path.name}"
    for version in ("v2", "v3")
    for path in sorted((DATA.parent / version).glob("*.cc"))
    if "-keys-" not in path.name
]


@pytest.mark.parametrize("name", OWN)
def test_rust_reads_what_python_wrote(program, made, vectors, tmp_path, name):
    vectors.tofile(tmp_path / "x.f32")
    assert rust_finds(program, "read", made / name, tmp_path / "x.f32") == python_finds(made / name, vectors)


@pytest.mark.parametrize("name", [*NAMES, "model-rust.cc"])
def test_rust_reads_files_of_the_first_version(program, vectors, tmp_path, name):
    vectors.tofile(tmp_path / "x.f32")
    assert rust_finds(program, "read", DATA / name, tmp_path / "x.f32") == python_finds(DATA / name, vectors)


@pytest.mark.parametrize("loss", ["reconstruction", "inner-product"])
def test_rust_encodes_in_groups_as_python_does(program, tmp_path, loss):
    X = np.random.default_rng(0).normal(size=(300, 12)).astype(np.float32)
    X.tofile(tmp_path / "x.f32")
    q = cc.CompositionalCodes(5, 8, n_groups=2, loss=loss, anneal=2, max_iter=2).fit(X)
    q.save(tmp_path / "model.cc")
    assert rust_finds(program, "read", tmp_path / "model.cc", tmp_path / "x.f32") == python_finds(
        tmp_path / "model.cc", X
    )


@pytest.mark.parametrize("eta", [1, 6])
@pytest.mark.parametrize("encoder", ["greedy", "beam", "local-search"])
def test_python_reads_what_rust_wrote(program, tmp_path, encoder, eta):
    X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    X.tofile(tmp_path / "x.f32")
    model = tmp_path / "model.cc"
    found = rust_finds(program, "write", model, tmp_path / "x.f32", 6, encoder, eta)
    assert found == python_finds(model, X)
    # What Python writes of it is the same model again.
    loaded = cc.Quantizer.load(model)
    assert loaded.loss_.get("eta", 1) in (eta, None)
    loaded.save(model)
    assert rust_finds(program, "read", model, tmp_path / "x.f32") == found
    # The encoding matters: the codes are not those of codebooks alone.
    plain = cc.CompositionalCodes.from_codebooks(loaded.codebooks_).encode(X)
    assert plain.ravel().tolist() != found["codes"]
