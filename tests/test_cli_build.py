"""The commands `encode` and `build`."""

import numpy as np
import pytest

from compcodes import Index


def test_codes_that_are_encoded_first_make_the_same_index(work):
    model = work.model()
    assert work.json("encode", model, work.path("x.npy"), "-o", work.path("codes.npy"))["bytes"] == 600
    work("build", model, "--codes", work.path("codes.npy"), "-o", work.path("a"))
    work("build", model, work.path("x.npy"), "-o", work.path("b"))
    a, b = (work.json("search", work.path(name), work.path("q.npy"))["ids"] for name in "ab")
    assert a == b


def test_ids_of_the_user(work):
    work.save("ids", np.arange(200) + 1000)
    index = work.index("--ids", work.path("ids.npy"))
    assert np.min(work.json("search", index, work.path("q.npy"))["ids"]) >= 1000
    assert work.json("eval", index, work.path("q.npy"), "--vectors", work.path("x.npy"))["recall"][-1]["recall"] > 0.5


def test_columns_and_keys(work):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = [f"doc {i}" for i in range(200)]
    columns = {"title": names, "body": pa.array([[0.0, 1.0]] * 200)}
    columns["embedding"] = pa.array(work.X.tolist(), pa.list_(pa.float32()))
    table = pa.table({**columns, "number": np.arange(200) * 2})
    docs = work.path("docs.parquet")
    parquet.write_table(table, docs)
    model, index = work.model(), work.path("keyed")
    code, _, err = work("build", model, docs, "-o", index)
    assert code == 1 and f"{docs}: expected one column of lists, found ['body', 'embedding']: choose one as" in err
    for given in (
        (docs, "--column", "embedding", "--id-column", "title"),
        (f"{docs}:embedding", "--id-column", "title"),
        (f"{docs}:embedding", "--ids", f"{docs}:title"),
    ):
        assert work.json("build", model, *given, "-o", index)["vectors"] == 200
        assert Index.load(index).ids.tolist() == names
    want = Index.load(work.index()).search(work.Q, 4)[1]
    found = work.json("search", index, work.path("q.npy"), "-k", 4)
    assert found["ids"] == [[names[i] for i in row] for row in want]
    out = work("search", index, work.path("q.npy"), "-k", 4, "-o", work.path("ids.npy"))[1]
    assert "searched 200 vectors" in out
    assert np.load(work.path("ids.npy")).tolist() == found["ids"]
    (work.folder / "some.txt").write_text("\n".join(found["ids"][0]))
    without = work.json("search", index, work.path("q.npy"), "--exclude", work.path("some.txt"))["ids"]
    assert not any(set(row) & set(found["ids"][0]) for row in without)
    (work.folder / "latin.txt").write_bytes(b"caf\xe9\n")
    told = work("search", index, work.path("q.npy"), "--exclude", work.path("latin.txt"))[2]
    assert "latin.txt: ids are not UTF-8 text: invalid continuation byte at byte 3" in told
    only = work.json("search", index, work.path("q.npy"), "-k", 7, "--filter", work.path("some.txt"))
    assert all(set(row) == set(found["ids"][0]) for row in only["ids"])
    assert work.json("info", index)["keys"]
    recall = work.json("eval", index, work.path("q.npy"), "--vectors", f"{docs}:embedding")["recall"]
    assert (
        recall == work.json("eval", work.path("index"), work.path("q.npy"), "--vectors", work.path("x.npy"))["recall"]
    )
    assert work.json("build", model, f"{docs}:embedding", "--ids", f"{docs}:number", "-o", index)["vectors"] == 200
    assert Index.load(index).ids.tolist() == list(range(0, 400, 2))
    code, _, err = work("build", model, f"{docs}:embedding", "--ids", docs, "-o", index)
    assert code == 1 and f"choose the column of ids as {docs}:NAME; it holds title, number" in err
    code, _, err = work("build", model, f"{docs}:nothing", "-o", index)
    assert code == 1 and f"{docs}: no column 'nothing'; it holds title, body, embedding, number" in err


def test_datasets_of_strings(work):
    h5py = pytest.importorskip("h5py")
    with h5py.File(work.path("docs.h5"), "w") as file:
        file["v"], file["id"] = work.X, [f"é{i}" for i in range(200)]
    given = (work.path("docs.h5"), "--column", "v", "--id-column", "id")
    assert work.json("build", work.model(), *given, "-o", work.path("keyed"))["vectors"] == 200
    assert Index.load(work.path("keyed")).ids[3] == "é3"
