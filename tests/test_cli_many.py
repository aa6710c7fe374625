"""The command reads a folder or a pattern of files as it reads one file."""

import itertools

import numpy as np
import pytest

from compcodes import Index, data, evaluate
from compcodes.data import Files, many

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

CUTS = (0, 70, 71, 71, 200)
TITLES = [f"doc {i}" for i in range(200)]
WAYS = ["folder", "pattern"]


class Place:
    """The vectors of `work` in one Parquet file, and in a folder of some."""

    def __init__(self, work):
        self.work, self.one, self.folder = work, work.path("all.parquet"), work.folder / "parts"
        self.folder.mkdir()
        self._write(self.one, 0, 200)
        for part, (a, b) in enumerate(itertools.pairwise(CUTS)):
            self._write(self.folder / f"{part}.parquet", a, b)

    def _write(self, path, a, b):
        X = self.work.X[a:b]
        columns = {"title": pa.array(TITLES[a:b], pa.string()), "number": np.arange(1000 + a, 1000 + b)}
        for name, rows in (("a", X), ("b", X[:, :2])):
            columns[name] = pa.array(rows.tolist(), pa.list_(pa.float32()))
        pq.write_table(pa.table(columns), path, row_group_size=50)

    def __getitem__(self, way):
        return str(self.folder) if way == "folder" else str(self.folder / "*.parquet")


@pytest.fixture
def place(work, monkeypatch):
    monkeypatch.setattr(many, "PIECE", 24 * 60)
    return Place(work)


@pytest.fixture
def never_whole(monkeypatch):
    """Reading all vectors of many files at once is an error."""

    def refuse(self, *args, **others):
        raise AssertionError("read as a whole")

    monkeypatch.setattr(Files, "__array__", refuse)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("column", ["title", "number"])
@pytest.mark.parametrize("shards", [(), ("--shards", 3)])
def test_ids_are_a_column_across_files(work, place, never_whole, way, column, shards):
    want = TITLES if column == "title" else list(range(1000, 1200))
    model, q, many_files = work.model(), work.path("q.npy"), place[way]
    work.json("build", model, place.one, "--column", "a", "--id-column", column, "-o", work.path("one"))
    one = work.json("search", work.path("one"), q)
    for number, given in enumerate(
        [
            (many_files, "--column", "a", "--id-column", column),
            (f"{many_files}:a", "--id-column", column),
            (f"{many_files}:a", "--ids", f"{many_files}:{column}"),
        ]
    ):
        index = work.path(f"index {number}")
        assert work.json("build", model, *given, *shards, "-o", index)["vectors"] == 200
        found = work.json("search", index, q)
        assert (found["ids"], found["scores"]) == (one["ids"], one["scores"])
        if not shards:
            assert Index.load(index).ids.tolist() == want


@pytest.mark.parametrize("way", WAYS)
def test_codes_of_many_files_are_those_of_one(work, place, never_whole, way):
    codes = []
    for source in (place.one, place[way]):
        out = work.path("codes.npy")
        assert work.json("encode", work.model(), source, "--column", "a", "-o", out)["vectors"] == 200
        codes.append(np.load(out))
    np.testing.assert_array_equal(*codes)


def test_lists_of_many_files_are_those_of_one(work, place, never_whole):
    model = work.path("listed")
    assert work("fit", work.path("x.npy"), "-o", model, "--codebooks", 2, "--codewords", 8, "--lists", 4)[0] == 0
    found = []
    for source in (place.one, place["folder"]):
        out, lists = work.path("codes.npy"), work.path("lists.npy")
        work.json("encode", model, f"{source}:a", "-o", out, "--lists", lists)
        found.append((np.load(out), np.load(lists)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
def test_eval_measures_against_many_files(work, place, never_whole, way, metric):
    index = work.index("--metric", metric)
    one, other = (
        work.json("eval", index, work.path("q.npy"), "--vectors", f"{source}:a") for source in (place.one, place[way])
    )
    assert one["recall"] == other["recall"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shards", [(), ("--shards", 3)])
def test_rerank_reads_the_candidates_from_many_files(work, place, never_whole, way, shards):
    index, q = work.path("index"), work.path("q.npy")
    work("build", work.model(), f"{place.one}:a", "--id-column", "title", *shards, "-o", index)
    one, other = (work.json("search", index, q, "--rerank", f"{source}:a") for source in (place.one, place[way]))
    assert (one["ids"], one["scores"]) == (other["ids"], other["scores"])


def test_compare_and_info_take_many_files(work, place):
    sizes = "--bytes", 2, "--methods", "PQ", "--iterations", 2
    for options in ((), ("--queries", work.path("q.npy")), ("--sample", 100)):
        one, other = (work.json("compare", f"{source}:a", *sizes, *options) for source in (place.one, place["folder"]))
        assert one["results"][0]["recall"] == other["results"][0]["recall"]
        assert one["sampled"] == other["sampled"] == ("--sample" in options)
    code = other["recommended"]["code"]
    assert f"X = cc.data.open_many({place['folder'] + ':a'!r})" in code
    found = work.json("info", place["pattern"] + ":b")
    assert (found["kind"], found["files"], found["vectors"], found["dimension"]) == ("vectors", 4, 200, 2)


def test_queries_come_in_many_files(work, place):
    queries = work.folder / "queries"
    queries.mkdir()
    np.save(queries / "0.npy", work.Q[:4])
    np.save(queries / "1.npy", work.Q[4:])
    index, x = work.index(), work.path("x.npy")
    assert work.json("search", index, queries)["ids"] == work.json("search", index, work.path("q.npy"))["ids"]
    one, other = (work.json("eval", index, q, "--vectors", x)["recall"] for q in (work.path("q.npy"), queries))
    assert one == other


def test_which_column_is_asked_for_by_the_name_of_the_folder(work, place):
    folder, model, out = place["folder"], work.model(), work.path("out.npy")
    index = work.index()
    for argv in (
        ("build", model, folder, "-o", out),
        ("encode", model, folder, "-o", out),
        ("search", index, work.path("q.npy"), "--rerank", folder),
        ("eval", index, work.path("q.npy"), "--vectors", folder),
        ("compare", folder),
        ("info", folder),
    ):
        code, _, err = work(*argv, *(("--quiet",) * (argv[0] == "compare")))
        assert code == 1
        assert f"expected one column of lists, found ['a', 'b']: choose one as {folder}:NAME" in err
    code, _, err = work("build", model, f"{folder}:a", "--ids", folder, "-o", out)
    assert code == 1 and f"choose the column of ids as {folder}:NAME; it holds title, number" in err
    code, _, err = work("build", model, "--codes", folder, "-o", out)
    assert code == 1 and f"{folder} stands for many files, and one is wanted here: data.open_many opens many" in err
    code, _, err = work("build", model, f"{folder}:a", "--column", "b", "-o", out)
    assert code == 1 and f"{folder}:a names a column already: leave out b" in err
    code, _, err = work("build", model, folder, "--column", "a", "--id-column", "none", "-o", out)
    assert code == 1 and "no column 'none'; it holds title, number, a, b" in err


def test_wrong_rows_and_counts_are_named(work, place):
    model, out, folder = work.model(), work.path("out.npy"), work.folder / "more"
    folder.mkdir()
    np.save(folder / "0.npy", work.X[:150])
    bad = work.X[:20].copy()
    bad[3, 1] = np.nan
    np.save(folder / "1.npy", bad)
    for argv in (
        ("encode", model, folder, "-o", out),
        ("build", model, folder, "-o", out),
        ("eval", work.index(), work.path("q.npy"), "--vectors", folder),
    ):
        code, _, err = work(*argv)
        assert code == 1
        assert f"{folder} row 153 holds NaN" in err or f"{folder} has 170 vectors, the index has 200" in err
    code, _, err = work("build", model, place.one + ":a", "--ids", f"{folder}", "-o", out)
    assert code == 1 and "ids must be integers or strings, found float32" in err
    code, _, err = work("search", work.index(), work.path("q.npy"), "--rerank", folder)
    assert code == 1 and f"{folder} has 170 vectors, the index has 200" in err
    code, _, err = work("search", work.index(), work.path("q.npy"), "--rerank", f"{place['folder']}:b")
    assert code == 1 and "has 2 dimensions, the model has 6" in err


def test_a_file_of_a_folder_is_not_overwritten(work):
    folder = work.folder / "vectors"
    folder.mkdir()
    np.save(folder / "0.npy", work.X)
    before = (folder / "0.npy").read_bytes()
    for source in (folder, folder / "*.npy"):
        code, _, err = work("encode", work.model(), source, "-o", folder / "0.npy")
        assert code == 2 and "would be overwritten" in err
    assert (folder / "0.npy").read_bytes() == before


def test_a_folder_that_a_colon_is_in_is_a_folder(work):
    odd = work.folder / "at 10:30"
    odd.mkdir()
    np.save(odd / "0.npy", work.X)
    assert work.json("info", odd)["vectors"] == 200
    assert work.json("encode", work.model(), odd / "*.npy", "-o", work.path("codes.npy"))["vectors"] == 200


def test_names_of_many_files(work, place, tmp_path):
    assert data.load_names(place["folder"], "title").tolist() == TITLES
    assert data.load_names(f"{place['pattern']}:number").tolist() == list(range(1000, 1200))
    assert data.load_names([place.one, place.one], "number").tolist() == 2 * list(range(1000, 1200))
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "0.txt").write_text("x\ny\n")
    np.save(texts / "1.npy", np.array(["z"]))
    assert data.load_names(texts / "*").tolist() == ["x", "y", "z"]
    np.save(texts / "1.npy", np.arange(3))
    with pytest.raises(ValueError, match=r"1\.npy holds ids that are integers, .*0\.txt strings"):
        data.load_names(texts / "*")
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("0.parquet", "1.parquet"):
        memory.pipe(f"/named/{name}", (place.folder / name).read_bytes())
    assert data.load_names("memory://named", "title").tolist() == TITLES[:71]
    assert data.load_names("memory://named:title").tolist() == TITLES[:71]
    np.testing.assert_array_equal(data.open_many("memory://named:a")[:], work.X[:71])


@pytest.mark.parametrize("k", [1, 7, 300])
def test_exact_answers_in_many_files_are_those_in_one(tmp_path, monkeypatch, k):
    """Also in the order of ties, which rounded scores do not tell."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(-2, 3, size=(40, 4)), 5, axis=0).astype(np.float32)[rng.permutation(200)]
    X[::3] *= np.float32(1 + 2**-23)  # scores that differ in float64 alone
    Q = rng.normal(size=(9, 4)).astype(np.float32)
    for part, (a, b) in enumerate(itertools.pairwise((0, 1, 30, 150, 200))):
        np.save(tmp_path / f"{part}.npy", X[a:b])
    monkeypatch.setattr(many, "PIECE", 16 * 20)
    seen = []
    for metric in ("ip", "cosine", "l2"):
        want = evaluate.ground_truth(X, Q, k, metric=metric)
        found = evaluate.ground_truth(
            data.open_many(tmp_path), Q, k, metric=metric, progress=lambda stage, done, n: seen.append((done, n))
        )
        for one, other in zip(want, found, strict=True):
            np.testing.assert_array_equal(one, other)
    assert seen[-1] == (200, 200)


def test_rerank_reads_files_as_it_reads_an_array(quantizer, X, Q, tmp_path, monkeypatch):
    monkeypatch.setattr(many, "PIECE", 48 * 100)
    np.save(tmp_path / "0.npy", X[:700])
    np.save(tmp_path / "1.npy", X[700:])
    files = data.open_many(tmp_path)
    index = Index(quantizer, residuals=True).add(X, np.random.default_rng(0).permutation(len(X)))
    for given in ({}, {"certify": True}, {"n_candidates": 20}):
        want, found = (index.search(Q, 5, rerank=rerank, **given) for rerank in (X, files))
        for one, other in zip(want, found, strict=True):
            np.testing.assert_array_equal(one, other)
    index.remove([3])
    with pytest.raises(ValueError, match="rerank has 1500 rows, the index holds 1499 vectors"):
        index.search(Q, 5, rerank=files)
    index.add(X[:1], [9999])
    with pytest.raises(ValueError, match="vectors were added after others were removed"):
        index.search(Q, 5, rerank=files)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shards", [(), ("--shards", 3)])
def test_ids_to_search_among_are_a_column_across_files(work, place, way, shards):
    index, few = work.path("index"), work.save("few", np.arange(1000, 1200))
    work("build", work.model(), f"{place.one}:a", "--id-column", "number", *shards, "-o", index)
    search = ("search", index, work.path("q.npy"), "-k", 5)
    for option in ("--filter", "--exclude"):
        want, found = (work(*search, option, names) for names in (few, f"{place[way]}:number"))
        assert (found, found[0]) == (want, 0)
    code, _, err = work(*search, "--filter", f"{place[way]}:title")
    assert code == 1 and f"{place[way]}:title: ids must be integers, found strings" in err
    code, _, err = work(*search, "--exclude", place[way])
    assert code == 2 and f"--exclude {place[way]} stands for many files: give one file, or name a column" in err


def test_a_column_of_files_that_have_none_is_refused(work):
    model, out, folder = work.model(), work.path("out"), work.folder / "npy"
    folder.mkdir()
    np.save(folder / "0.npy", work.X)
    file = folder / "0.npy"
    for argv, name in (
        (("build", model, folder, "-o", out, "--id-column", "v"), "--id-column v"),
        (("build", model, folder, "-o", out, "--ids", f"{folder}:v"), f"{folder}:v"),
        (("build", model, folder, "-o", out, "--column", "v"), "--column v"),
        (("fit", f"{folder}:v", "-o", out), f"{folder}:v"),
        (("encode", model, f"{folder}/*.npy:v", "-o", f"{out}.npy"), f"{folder}/*.npy:v"),
    ):
        code, _, err = work(*argv)
        assert code == 1 and f"error: {name} names a column of .parquet files, not of {file}" in err, err


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lists", [(), ("--lists", 6)])
def test_a_build_of_many_files_goes_on_where_it_was(work, place, monkeypatch, way, lists):
    work.json(
        "fit",
        work.path("x.npy"),
        "-o",
        work.path("model"),
        "--codebooks",
        3,
        "--codewords",
        8,
        "--effort",
        "low",
        *lists,
    )
    files = f"{place[way]}:a"
    argv = ("build", work.path("model"), files, "--id-column", "title", "-o", work.path("index"))
    assert "resumed" not in work.json(*argv)
    checkpoint = work.folder / "index.checkpoint"
    assert not checkpoint.exists()
    whole = Index.load(work.path("index"))
    encode, sizes = Index._encoded, []

    def dies(self, X, progress):
        sizes.append(len(X))
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return encode(self, X, progress)

    def go_on():
        found = work.json(*argv)
        again = Index.load(work.path("index"))
        np.testing.assert_array_equal(again.codes, whole.codes)
        np.testing.assert_array_equal(again.ids, whole.ids)
        assert not checkpoint.exists()
        return found.get("resumed", 0)

    for changed in (False, True):
        (work.folder / "index").unlink()
        sizes.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Index, "_encoded", dies)
            assert work(*argv)[0] == 130
        assert checkpoint.exists() and not (work.folder / "index").exists()
        if changed:  # a file of the same vectors, but how should anybody know?
            place._write(place.folder / "3.parquet", *CUTS[-2:])
        assert go_on() == (0 if changed else sum(sizes[:2]))
