"""Vectors as people have them: columns of frames, Arrow arrays, tensors, lists of arrays."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc
from compcodes._arrays import as_vectors


@pytest.fixture(scope="module")
def V(X):
    return X[:200]


def check(quantizer, V, value, is_shared=None):
    """Whatever takes vectors takes `value` for `V`, and does not copy it where it can be shared."""
    array = as_vectors(value, "X", 12)
    np.testing.assert_array_equal(array, V)
    if is_shared is not None:
        assert np.shares_memory(array, is_shared)
    index = cc.Index(quantizer).add(value)
    np.testing.assert_array_equal(index.codes, quantizer.encode(V))
    np.testing.assert_array_equal(quantizer.encode(value), index.codes)
    want = cc.Index(quantizer).add(V).search(V, 3, rerank=V)
    for found, right in zip(index.search(value, 3, rerank=value), want, strict=True):
        np.testing.assert_array_equal(found, right)
    few = cc.CompositionalCodes(2, 8, max_iter=1, anneal=0, loss="reconstruction")
    np.testing.assert_array_equal(few.fit(value).codebooks_, few.fit(V).codebooks_)


def refused(value, *messages):
    for message in messages:
        with pytest.raises((ValueError, TypeError), match=message):
            as_vectors(value, "X")


def test_lists_and_object_arrays(quantizer, V):
    check(quantizer, V, V.tolist())
    check(quantizer, V, list(V))
    check(quantizer, V, tuple(map(tuple, V.tolist())))
    rows = np.empty(len(V), dtype=object)
    rows[:] = list(V)
    check(quantizer, V, rows)
    refused([V[0], V[1][:5]], r"X row 1 has shape \(5,\), row 0 has \(12,\): want rows of one length")
    refused([V[0], None], "X row 1 is missing")
    refused(np.array([V[0], "abc"], dtype=object), "X")
    refused([["a", "b"]], "X has dtype <U1")


def test_pandas(quantizer, V):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"id": [f"n{i}" for i in range(len(V))], "vector": list(V)})
    check(quantizer, V, frame["vector"])
    check(quantizer, V, frame[["vector"]])
    check(quantizer, V, pd.Series(V.tolist()).map(tuple))
    numbers = pd.DataFrame(V)
    check(quantizer, V, numbers, is_shared=numbers.to_numpy())
    refused(frame, r"columns that are no numbers, 'id', 'vector': want a column of vectors, X\['…'\]")
    refused(pd.Series([V[0], None]), "X row 1 is missing")
    refused(pd.Series([V[0], pd.NA], dtype=object), "X row 1 is missing")
    nullable = numbers.astype("Float32")
    np.testing.assert_array_equal(as_vectors(nullable, "X"), V)
    nullable.iloc[7, 3] = pd.NA
    refused(nullable, "X row 7 has a missing value: fill or drop it")
    refused(pd.Series([1, None], dtype="Int64"), "X row 1 has a missing value: fill or drop it")
    index = cc.Index(quantizer, keys=True).add(frame["vector"], frame["id"])
    assert index.ids.tolist() == frame["id"].tolist()
    _, found = index.search(V[:2], 3, exclude=frame["id"][1:])
    assert found[:, 0].tolist() == ["n0", "n0"] and found[0, 1] is None
    assert cc.Index(quantizer).add(frame["vector"], frame.index).ids.tolist() == list(range(len(V)))
    histories = pd.Series([["n0", "n1"], []])
    want = index.search(V[:2], 1, exclude=histories.tolist())[1].tolist()
    assert index.search(V[:2], 1, exclude=histories)[1].tolist() == want != [["n0"], ["n0"]]
    assert index.search(V[:2], 2, filter=histories)[1].tolist()[1] == [None, None]
    numbered = cc.Index(quantizer).add(V)
    assert numbered.search(V[:2], 1, filter=pd.Series([[5], [6, 7]]))[1][0, 0] == 5
    assert numbered.search(V[:2], 1, filter=pd.Series([5]))[1].tolist() == [[5], [5]]


def test_polars(quantizer, V):
    pl = pytest.importorskip("polars")
    array = pl.Series("v", V, dtype=pl.Array(pl.Float32, 12))
    check(quantizer, V, array, is_shared=array.to_numpy())
    check(quantizer, V, array.to_frame())
    check(quantizer, V, array.cast(pl.List(pl.Float32)))
    check(quantizer, V, pl.DataFrame(V))
    check(quantizer, V, array.to_frame().lazy())
    refused(pl.Series([[1.0, 2.0], [3.0]]), "X row 1 has 1 numbers, row 0 has 2")
    refused(pl.Series([[1.0, 2.0], None]), "X has 1 missing values")
    refused(pl.DataFrame({"a": ["x"], "b": [1.0]}), "no numbers, 'a'")
    keys = pl.Series([f"n{i}" for i in range(len(V))])
    index = cc.Index(quantizer, keys=True).add(array, keys)
    assert index.remove(keys[:2]) == 2
    assert index.search(V[:1], 1, filter=keys[5:6])[1].tolist() == [["n5"]]
    each = pl.Series([["n7"], ["n8", "n9"]])
    assert index.search(V[:2], 1, filter=each)[1][0, 0] == "n7"


def test_pyarrow(quantizer, V):
    pa = pytest.importorskip("pyarrow")
    flat = pa.array(V.reshape(-1))
    fixed = pa.FixedSizeListArray.from_arrays(flat, 12)
    check(quantizer, V, fixed, is_shared=flat.to_numpy())
    check(quantizer, V, pa.concat_arrays([fixed[:3], fixed])[3:])
    check(quantizer, V, pa.chunked_array([fixed[:50], fixed[50:]]))
    check(quantizer, V, pa.array(V.tolist(), type=pa.list_(pa.float32())))
    check(quantizer, V, pa.array(V.tolist(), type=pa.large_list(pa.float32())))
    check(quantizer, V, pa.table({"v": fixed}))
    check(quantizer, V, pa.table({"v": fixed})["v"])
    check(quantizer, V, pa.table([pa.array(V[:, i]) for i in range(12)], names=list("abcdefghijkl")))
    check(quantizer, V, pa.FixedShapeTensorArray.from_numpy_ndarray(V))
    tensor = pa.Tensor.from_numpy(V)
    check(quantizer, V, tensor, is_shared=tensor.to_numpy())
    check(quantizer, V, pa.Tensor.from_numpy(np.repeat(V, 2, axis=1)[:, ::2]))
    lists = pa.array(V.tolist(), type=pa.list_(pa.float32()))
    want = cc.Index(quantizer).add(V).search(V[5], 3)
    columns = lists, lists.cast(pa.large_list(pa.float32())), fixed, pa.FixedShapeTensorArray.from_numpy_ndarray(V)
    for one in (*(column[5] for column in columns), pa.Tensor.from_numpy(V[5])):
        for found, right in zip(cc.Index(quantizer).add(V).search(one, 3), want, strict=True):
            np.testing.assert_array_equal(found, right)
    check(quantizer, V, list(lists))
    refused(pa.array([None, [1.0]])[0], "X is missing")
    refused(pa.array([[1.0, None]])[0], "X has 1 missing values")
    refused(pa.scalar(1.0), r"X has shape \(\)")
    refused(pa.SparseCOOTensor.from_dense_numpy(V), r"X is a sparse tensor: want a dense one, X\.to_tensor\(\)")

    class Capsule:
        """What other packages offer."""

        def __arrow_c_array__(self, schema=None):
            return fixed.__arrow_c_array__(schema)

    class Stream:
        def __arrow_c_stream__(self, schema=None):
            return pa.chunked_array([fixed]).__arrow_c_stream__(schema)

    class Frame:
        def __arrow_c_stream__(self, schema=None):
            return pa.table({"v": fixed}).__arrow_c_stream__(schema)

    for kind in (Capsule, Stream, Frame):
        check(quantizer, V, kind(), is_shared=flat.to_numpy())
    refused(pa.array([[1.0], [1.0, 2.0]]), "X row 1 has 2 numbers")
    refused(pa.array([[1.0], None]), "X has 1 missing values")
    refused(pa.array([[1.0], [None]]), "X has 1 missing values")
    refused(pa.array([["a"]]), "want lists of numbers")
    refused(pa.table({"v": fixed, "id": pa.array(["n"] * len(V))}), "no numbers, 'v', 'id'")


class Tensor:
    """As a package that shares its tensors by DLPack and no other way."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack(quantizer, V):
    V = V.copy()
    check(quantizer, V, Tensor(V), is_shared=V)

    class Elsewhere(Tensor):
        def __dlpack__(self, **arguments):
            raise BufferError("on cuda:0")

    refused(Elsewhere(V), "X cannot be shared by DLPack: want it in memory of the CPU")


def test_torch(quantizer, V):
    torch = pytest.importorskip("torch")
    V = V.copy()
    tensor = torch.from_numpy(V)
    check(quantizer, V, tensor, is_shared=V)
    check(quantizer, V, tensor.clone().requires_grad_())
    check(quantizer, V, list(tensor))
    half = tensor.to(torch.bfloat16)
    np.testing.assert_array_equal(as_vectors(half, "X"), half.float().numpy())
    refused(tensor.to("meta"), "X is on meta: want it in memory of the CPU")


WITH_JAX = """
import jax.numpy as jnp, numpy as np
import compcodes as cc
from compcodes._arrays import as_vectors
from conftest import vectors
from test_columns import check

V = vectors(200, 12)
quantizer = cc.CompositionalCodes(4, 16, effort="low", max_iter=1, anneal=0).fit(V)
check(quantizer, V, jnp.asarray(V))
check(quantizer, V, list(jnp.asarray(V)))
half = jnp.asarray(V, dtype=jnp.bfloat16)
np.testing.assert_array_equal(as_vectors(half, "X"), np.asarray(half.astype(jnp.float32)))
print("checked")
"""


def test_jax():
    """In a process of its own, since JAX warns whoever forks one that it was imported into."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    done = subprocess.run(
        [sys.executable, "-c", WITH_JAX], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "checked\n", done.stderr


def test_arrays_that_are_not_aligned_are_copied(quantizer, X):
    """Such as tasks of Dask get them, read from the network."""
    raw = b"\0" + X[:50].tobytes()
    odd = np.frombuffer(raw, np.float32, offset=1).reshape(50, -1)
    assert not odd.flags.aligned
    index = cc.Index(quantizer).add(odd)
    np.testing.assert_array_equal(index.codes, quantizer.encode(X[:50]))
    for a, b in zip(index.search(odd, 3, rerank=odd), index.search(X[:50], 3, rerank=X[:50]), strict=True):
        np.testing.assert_array_equal(a, b)
    cc.ProductQuantizer(2, 4, max_iter=1).fit(odd)
