"""Folders of files are one array, read piece by piece."""

import itertools
import struct

import numpy as np
import pytest

import compcodes as cc
from compcodes.data import many, open_many

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1000, 6)).astype(np.float32)
CUTS = (0, 300, 301, 301, 1000)


def vecs(rows):
    return b"".join(struct.pack("<i", 6) + row.tobytes() for row in rows)


def write(kind, place, system):
    system.makedirs(place, exist_ok=True)
    for i, (a, b) in enumerate(itertools.pairwise(CUTS)):
        with system.open(f"{place}/part-{i}{kind}", "wb") as file:
            if kind == ".npy":
                np.save(file, X[a:b])
            elif kind == ".fvecs":
                file.write(vecs(X[a : max(b, a + 1)] if a == b else X[a:b]) if a != b else vecs(X[:0]))
            else:
                names = np.arange(a, b)
                pq.write_table(pa.table({"id": names, "v": list(X[a:b])}), file, row_group_size=100)


@pytest.mark.parametrize("kind", [".npy", ".fvecs", ".parquet"])
@pytest.mark.parametrize("where", ["local", "file://", "memory://"])
def test_a_folder_is_one_array(kind, where, tmp_path, monkeypatch):
    monkeypatch.setattr(many, "PIECE", 24 * 130)
    place = f"memory://many{kind}" if where == "memory://" else str(tmp_path / "many")
    system = fsspec.filesystem("memory" if where == "memory://" else "file")
    write(kind, place, system)
    if kind == ".fvecs":  # has no file without vectors
        system.rm(f"{place}/part-2.fvecs")
    place = f"file://{place}" if where == "file://" else place
    for source in (place, f"{place}/part-*{kind}"):
        files = open_many(source)
        assert files.shape == (1000, 6) and files.dtype == np.float32 and len(files.pieces()) > 5
        np.testing.assert_array_equal(files[:], X)
        np.testing.assert_array_equal(files[250:400], X[250:400])
        np.testing.assert_array_equal(files[::-7], X[::-7])
        rows = RNG.integers(-1000, 1000, 50)
        np.testing.assert_array_equal(files[rows], X[rows])
        np.testing.assert_array_equal(np.concatenate(list(files.blocks(299, 900))), X[299:900])
    assert len(open_many([f"{place}/part-0{kind}"])) == 300


def test_what_is_no_set_of_vectors_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no vector files"):
        open_many(tmp_path)
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :5])
    with pytest.raises(ValueError, match=r"a\.npy and .*b\.npy hold vectors of different dimensions: 6 and 5"):
        open_many(tmp_path)
    np.save(tmp_path / "b.npy", X.astype(np.float16))
    with pytest.raises(ValueError, match="different types"):
        open_many(tmp_path)
    np.save(tmp_path / "b.npy", np.asfortranarray(X))
    with pytest.raises(ValueError, match="Fortran"):
        open_many(tmp_path)
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut off"):
        open_many(tmp_path)
    (tmp_path / "b.npy").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"b\.npy: not a whole \.npy"):
        open_many(tmp_path)
    (tmp_path / "c.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a whole Parquet"):
        open_many(tmp_path / "*.parquet")
    pq.write_table(pa.table({"a": list(X), "b": list(X)}), tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="one column of lists"):
        open_many([tmp_path / "c.parquet"])
    with pytest.raises(ValueError, match="no column 'z'; it holds a, b"):
        open_many([tmp_path / "c.parquet"], column="z")
    np.testing.assert_array_equal(open_many([tmp_path / "c.parquet"], column="b")[:], X)
    np.save(tmp_path / "a.npy", X)
    files = open_many([tmp_path / "a.npy"])
    np.save(tmp_path / "a.npy", X[:10])
    with pytest.raises(ValueError, match="was the file changed"):
        files[:]


def test_training_on_files_is_training_on_their_vectors(tmp_path):
    np.save(tmp_path / "a.npy", X[:400])
    np.save(tmp_path / "b.npy", X[400:])
    files = open_many(tmp_path)
    model = cc.CompositionalCodes(2, 16, effort="low", max_iter=1, anneal=0, loss="reconstruction")
    want = model.fit(X).codebooks_
    np.testing.assert_allclose(model.fit(files).codebooks_, want, atol=1e-4)
    model.set_params(max_train=300)
    np.testing.assert_allclose(model.fit(files).codebooks_, model.fit(X).codebooks_, atol=1e-4)
    product = cc.ProductQuantizer(2, 16)
    np.testing.assert_array_equal(product.fit(files).codebooks_, product.fit(X).codebooks_)


@pytest.mark.parametrize("place", ["{}", "{}/*.npy", "file://{}", "file://{}/*.npy"])
def test_hidden_files_are_left_out(tmp_path, place):
    if "://" in place:
        pytest.importorskip("fsspec")
    np.save(tmp_path / "0.npy", np.ones((3, 2)))
    np.save(tmp_path / ".hidden.npy", np.zeros((3, 2)))
    (tmp_path / "._0.npy").write_bytes(b"of macOS")
    assert open_many(place.format(tmp_path)).shape == (3, 2)
