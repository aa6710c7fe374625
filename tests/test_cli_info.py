"""The command `info`."""

import numpy as np


def test_info_knows_what_a_file_is(work):
    index = work.index()
    assert work.json("info", work.path("model"))["kind"] == "model"
    assert work.json("info", work.path("x.npy")) == {
        "file": work.path("x.npy"), "kind": "vectors", "vectors": 200, "dimension": 6, "type": "float32",
        "bytes": 4800,
    }  # fmt: skip
    found = work.json("info", index)
    assert (found["kind"], found["vectors"], found["bytes_per_vector"]) == ("index", 200, 2)
    code, out, _ = work("info", index)
    assert code == 0
    assert "index" in out


def test_info_tells_ids_from_vectors(work):
    found = work.json("info", work.save("ids", np.array([7, 3, 5])))
    assert (found["kind"], found["ids"], found["smallest"], found["largest"]) == ("ids", 3, 3, 7)
    found = work.json("info", work.save("one", np.zeros(6, "f4")))
    assert (found["kind"], found["vectors"], found["dimension"]) == ("vectors", 1, 6)


def test_info_says_what_of_a_file_is_codebooks(work):
    found = work.json("info", work.index("--scale"))
    assert (found["metric"], found["scale"], found["bytes_per_vector"]) == ("ip", True, 3)
    assert found["codebooks_bytes"] == 3 * 8 * 6 * 4 == work.json("info", work.path("model"))["codebooks_bytes"]
    out = work("info", work.path("index"))[1]
    assert "codebook bytes    576 bytes" in out
    assert "scale             yes" in out
