import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compcodes import data

VALUE = {"fvecs": "<f4", "bvecs": "u1", "ivecs": "<i4"}


def write_vecs(path, array):
    """Write rows in the TEXMEX layout."""
    with open(path, "wb") as file:
        for row in array:
            file.write(np.array([len(row)], "<i4").tobytes() + row.tobytes())


@pytest.mark.parametrize("kind", VALUE)
@settings(max_examples=15)
@given(n=st.integers(1, 9), d=st.integers(1, 7), seed=st.integers(0, 99))
def test_vecs_files_come_back_as_they_were(tmp_path_factory, kind, n, d, seed):
    array = np.random.default_rng(seed).integers(0, 255, size=(n, d)).astype(VALUE[kind])
    path = tmp_path_factory.mktemp("vecs") / f"a.{kind}"
    write_vecs(path, array)
    loaded = data.load(path)
    assert loaded.dtype == VALUE[kind]
    assert np.array_equal(loaded, array)
    assert isinstance(loaded, np.memmap)
    assert not loaded.flags.owndata


@pytest.mark.parametrize("kind", VALUE)
def test_a_vecs_file_cut_off_anywhere_is_refused(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    write_vecs(path, np.arange(12).reshape(3, 4).astype(VALUE[kind]))
    whole = path.read_bytes()
    row = len(whole) // 3
    for size in set(range(len(whole))) - {row, 2 * row}:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"a\.[fbi]vecs: (no vectors|cut off|the first vector)"):
            data.load(path)


@pytest.mark.parametrize(("position", "message"), [(0, "first vector claims -1"), (20, "vector 1 claims -1")])
def test_a_vecs_file_with_another_dimension_is_refused(tmp_path, position, message):
    path = tmp_path / "a.fvecs"
    write_vecs(path, np.zeros((3, 4), "<f4"))
    content = bytearray(path.read_bytes())
    content[position : position + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        data.load(path)


def test_npy_is_mapped_and_written(tmp_path):
    array = np.arange(6, dtype="f2").reshape(2, 3)
    data.save(tmp_path / "a.npy", array)
    loaded = data.load(tmp_path / "a.npy")
    assert isinstance(loaded, np.memmap)
    assert loaded.dtype == "f2"
    assert np.array_equal(loaded, array)
    assert os.listdir(tmp_path) == ["a.npy"]


def test_numbers_of_a_foreign_byte_order_become_native(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.5, 2.5]], ">f4"))
    loaded = data.load(tmp_path / "a.npy")
    assert loaded.dtype == np.float32
    assert loaded.dtype.isnative
    assert loaded.tolist() == [[1.5, 2.5]]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    data.save(path, [[1.0]])
    with pytest.raises(ValueError, match="Object arrays"):
        data.save(path, [[object()]])
    assert data.load(path).tolist() == [[1.0]]
    assert os.listdir(tmp_path) == ["a.npy"]


def test_only_npy_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"out\.fvecs: results are written as \.npy"):
        data.save(tmp_path / "out.fvecs", [[1.0]])


@pytest.mark.parametrize("size", [0, 5, 60, 130])
def test_a_npy_file_cut_off_is_refused(tmp_path, size):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((10, 3)))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"a\.npy: not a whole \.npy file"):
        data.load(path)


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros(3), r"\(3,\) of float64"),
        (np.zeros((1, 2, 3)), r"\(1, 2, 3\)"),
        (np.array([["a"]]), "<U1"),
        (np.zeros((1, 1), complex), "complex128"),
    ],
)
def test_what_is_not_vectors_is_refused(tmp_path, array, found):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=f"vectors must be a 2-D array of numbers, found shape.*{found}"):
        data.load(tmp_path / "a.npy")


def test_a_single_query_is_one_row(tmp_path):
    np.save(tmp_path / "one.npy", np.arange(3.0))
    np.save(tmp_path / "two.npy", np.zeros((2, 3)))
    assert data.load_queries(tmp_path / "one.npy").tolist() == [[0, 1, 2]]
    assert data.load_queries(tmp_path / "two.npy").shape == (2, 3)
    np.save(tmp_path / "text.npy", np.array(["a"]))
    with pytest.raises(ValueError, match="vectors must be a 2-D array of numbers"):
        data.load_queries(tmp_path / "text.npy")


def test_unknown_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match=r"a\.txt: unknown kind of vector file '\.txt', expected one of \.npy, "):
        data.load("a.txt")
    for kind in ("npy", "fvecs", "parquet", "h5"):
        path = tmp_path / f"none.{kind}"
        with pytest.raises(FileNotFoundError) as caught:
            data.load(path)
        assert str(caught.value) == f"[Errno 2] No such file or directory: {str(path)!r}"


def test_ids(tmp_path):
    data.save(tmp_path / "ids.npy", np.array([3, 1], np.uint8))
    assert data.load_ids(tmp_path / "ids.npy").dtype == np.int64
    data.save(tmp_path / "float.npy", [1.5])
    with pytest.raises(ValueError, match="ids must be integers, found float64"):
        data.load_ids(tmp_path / "float.npy")
    data.save(tmp_path / "big.npy", np.array([2**63], np.uint64))
    with pytest.raises(ValueError, match="ids must fit 64-bit signed integers, found 9223372036854775808"):
        data.load_ids(tmp_path / "big.npy")


class TestParquet:
    array = np.arange(12, dtype="f4").reshape(4, 3)

    @pytest.fixture
    def write(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        def write(**columns):
            pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
            return tmp_path / "a.parquet"

        return write

    def test_a_column_of_lists_among_others(self, write):
        loaded = data.load(write(name=list("abcd"), vector=list(self.array)))
        assert loaded.dtype == "f4"
        assert np.array_equal(loaded, self.array)

    def test_number_columns(self, write):
        assert np.array_equal(data.load(write(**{f"x{i}": self.array[:, i] for i in range(3)})), self.array)

    def test_lists_of_different_lengths(self, write):
        with pytest.raises(ValueError, match=r"column 'v' row 1 has 2 numbers, row 0 has 1: want rows of one length"):
            data.load(write(v=[[1.0], [1.0, 2.0]]))

    def test_missing_values(self, write):
        with pytest.raises(ValueError, match="column 'v' has 1 missing values"):
            data.load(write(v=[[1.0], None]))

    def test_missing_values_in_lists(self, write):
        with pytest.raises(ValueError, match="column 'v' has 1 missing values"):
            data.load(write(v=[[1.0, None], [1.0, 2.0]]))

    def test_two_columns_of_lists(self, write):
        with pytest.raises(ValueError, match=r"expected one column of lists, found \['v', 'w'\]"):
            data.load(write(v=[[1.0]], w=[[1.0]]))

    def test_text_columns(self, write):
        with pytest.raises(ValueError, match="column 'name' is not of numbers, and none is of lists"):
            data.load(write(name=["a"]))

    def test_a_broken_file(self, tmp_path):
        pytest.importorskip("pyarrow")
        (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing")
        with pytest.raises(ValueError, match="not a whole Parquet file"):
            data.load(tmp_path / "a.parquet")


class TestHdf5:
    array = np.arange(12, dtype="f4").reshape(4, 3)

    @pytest.fixture
    def path(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["train"] = self.array
            file.create_dataset("group/packed", data=self.array, compression="gzip")
        return tmp_path / "a.h5"

    @pytest.mark.parametrize(("name", "mapped"), [("train", True), ("group/packed", False)])
    def test_a_dataset_is_chosen_by_name(self, path, name, mapped):
        loaded = data.load(f"{path}:{name}")
        assert np.array_equal(loaded, self.array)
        assert isinstance(loaded, np.memmap) == mapped

    def test_the_name_is_needed_where_there_are_two(self, path):
        with pytest.raises(ValueError, match=r"choose a dataset as .*a\.h5:NAME; it holds group/packed, train"):
            data.load(path)

    def test_the_name_is_not_needed_where_there_is_one(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "one.hdf5", "w") as file:
            file["only"] = self.array
        assert np.array_equal(data.load(tmp_path / "one.hdf5"), self.array)

    @pytest.mark.parametrize("name", ["other", "group"])
    def test_a_wrong_name(self, path, name):
        with pytest.raises(ValueError, match=f"no dataset '{name}'; it holds group/packed, train"):
            data.load(f"{path}:{name}")

    def test_a_broken_file(self, tmp_path):
        pytest.importorskip("h5py")
        (tmp_path / "a.h5").write_bytes(b"nothing")
        with pytest.raises(ValueError, match="not a whole HDF5 file"):
            data.load(tmp_path / "a.h5")


@pytest.mark.parametrize(("kind", "package"), [("parquet", "pyarrow"), ("hdf5", "h5py")])
def test_a_format_whose_package_is_missing_says_what_to_install(monkeypatch, tmp_path, kind, package):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / f"a.{kind}").touch()
    with pytest.raises(ImportError, match=rf"reading it needs {package}; run: pip install 'compcodes\[{kind}\]'"):
        data.load(tmp_path / f"a.{kind}")


def test_the_package_imports_no_optional_package():
    code = "import sys, compcodes, compcodes.cli; print({'pyarrow', 'h5py', 'matplotlib'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_glove_words_stand_beside_their_vectors():
    words, vectors = data.glove()
    assert len(words) == len(set(words)) == len(vectors) == 20_000
    assert vectors.shape[1] == 100
    assert isinstance(vectors, np.memmap)
    queen = vectors[words.index("queen")].astype("f4")
    near = vectors.astype("f4") @ queen
    assert "king" in [words[i] for i in np.argsort(-near)[:10]]
