"""The vector stores for LangChain and LlamaIndex, and what they share."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc
from compcodes.interop import _store
from compcodes.interop._store import Store


def unfitted():
    return cc.CompositionalCodes(3, 8, metric="cosine", loss="reconstruction", anneal=1, max_iter=1)


@pytest.fixture
def store(X):
    store = Store(unfitted())
    store.add(X[:300], [f"item-{i}" for i in range(300)], [{"n": i} for i in range(300)])
    return store


def test_a_store_names_what_it_finds(store, X):
    scores, ids = store.index.search(X[7], 5)
    assert [(one.id, one.record, one.score) for one in store.search(X[7], 5)] == [
        (f"item-{i}", {"n": i}, score) for i, score in zip(ids[0].tolist(), scores[0].tolist(), strict=True)
    ]
    assert [one.record["n"] % 10 for one in store.search(X[7], 40, lambda id, record: record["n"] % 10 == 3)] == [
        3
    ] * 30


def test_adding_under_an_id_that_is_there_replaces(store, X):
    store.add(X[[20, 21]], ["item-5", "new"], [{"n": -5}, {"n": -1}])
    assert len(store) == len(store.index) == 301
    assert store.get("item-5") == {"n": -5}
    found = {one.id for one in store.search(X[20], 3)}
    assert found == {"item-5", "item-20"} | found
    store.delete(["new", "never there"])
    store.add(X[[22]], ["newer"], [{"n": -2}])
    assert store.search(X[22], 300, lambda id, record: record["n"] == -2)[0].id == "newer"


def test_a_failed_addition_leaves_nothing(store, X):
    bad = X[:2].copy()
    bad[1, 0] = np.nan
    for vectors, ids, message in [
        (bad, ["a", "b"], "NaN"),
        (X[:2], ["a", "a"], "twice"),
        (X[:2], ["a", 3], "want strings"),
        (X[:2, :5], ["a", "b"], "12"),
        (X[:3], ["a", "b"], "are 2 for 3 vectors"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            store.add(vectors, ids, [{"n": 0}, {"n": 1}])
        assert len(store) == len(store.index) == 300 and store.get("a") is None
        assert len(store.items()) == 300


def test_files_keep_all_of_it(store, X, tmp_path):
    store.delete(["item-1"])
    store.save(tmp_path / "kept")
    again = Store.load(tmp_path / "kept")
    assert again.search(X[3], 9) == store.search(X[3], 9)
    again.add(X[[1]], ["item-1"], [{"n": 1}])
    assert len(again) == 300
    cc.Index(store.index.quantizer).add(X[:3]).save(tmp_path / "kept" / "index.cc")
    with pytest.raises(ValueError, match="are not of one time"):
        Store.load(tmp_path / "kept")
    with pytest.raises(ValueError, match="nothing to save"):
        Store(unfitted()).save(tmp_path / "none")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("what", ["index", "records", "index in its place", "records in their place"])
def test_a_save_that_fails_leaves_the_store_before(store, X, tmp_path, monkeypatch, what):
    kept = tmp_path / "kept"
    store.save(kept)
    want, before = store.search(X[3], 9), contents(kept)
    store.delete([f"item-{i}" for i in range(0, 200, 2)])

    def fail(*args, **others):
        raise OSError(28, "No space left on device")

    def fail_halfway(path, text, **others):
        with path.open("w") as file:
            file.write(text[:100])
        fail()

    replace = Path.replace
    start = {"index in its place": "index", "records in their place": "records"}.get(what)

    def fail_to_replace(path, target):
        return fail() if Path(target).name.startswith(start) else replace(path, target)

    for folder, left in ((kept, before), (tmp_path / "first", {})):
        with monkeypatch.context() as patch:
            if what == "index":
                patch.setattr(cc.Index, "save", fail)
            elif what == "records":
                patch.setattr(Path, "write_text", fail_halfway)
            else:
                patch.setattr(Path, "replace", fail_to_replace)
            with pytest.raises(OSError, match="No space left"):
                store.save(folder)
        assert contents(folder) == left
    assert Store.load(kept).search(X[3], 9) == want
    store.save(kept)
    assert Store.load(kept).search(X[3], 9) == store.search(X[3], 9) != want
    assert len(contents(kept)) == 2


def test_records_alone_may_change(store, X, tmp_path):
    store.save(tmp_path)
    before = (tmp_path / "index.cc").read_bytes()
    store.add(X[[7]], ["item-7"], [{"n": "another"}])
    store.save(tmp_path)
    assert (tmp_path / "index.cc").read_bytes() == before
    assert Store.load(tmp_path).get("item-7") == {"n": "another"}
    assert len(contents(tmp_path)) == 2


SAVER = """
import os, sys, time
from compcodes.interop._store import Store
whole, folder, done, count = sys.argv[1:]
store = Store.load(whole)
store.delete([id for id, _ in store.items()][int(count):])
while not os.path.exists(done):
    store.save(folder)
    time.sleep(0.01)  # the lock goes to anyone
"""


def test_processes_that_save_into_one_folder_leave_a_store(X, tmp_path):
    """And who loads it meanwhile gets one of theirs."""
    whole, folder, done = tmp_path / "whole", tmp_path / "folder", tmp_path / "done"
    q = cc.CompositionalCodes(2, n_codewords=8, n_jobs=1, effort="low").fit(X)
    store = Store(q)
    store.add(X[:30], [str(i) for i in range(30)], [{"row": i} for i in range(30)])
    store.save(whole)
    store.save(folder)
    processes = [subprocess.Popen([sys.executable, "-c", SAVER, whole, folder, done, str(n)]) for n in (10, 20)]
    sizes, end = set(), time.monotonic() + 60
    while not {10, 20} <= sizes and time.monotonic() < end:
        sizes.add(len(Store.load(folder).index))
    done.touch()
    assert [process.wait(60) for process in processes] == [0, 0]
    assert {10, 20} <= sizes <= {10, 20, 30}
    assert len(Store.load(folder).index) in (10, 20)
    assert len(list(folder.iterdir())) == 2  # the index and its records


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_folder(tmp_path):
    """A child shares what is open while it is forked, and may live on."""
    with _store._held(tmp_path, exclusively=True):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        probe = os.open(tmp_path, os.O_RDONLY)
        _store.fcntl.flock(probe, _store.fcntl.LOCK_EX | _store.fcntl.LOCK_NB)
        os.close(probe)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_records_hold_halves_of_surrogate_pairs(store, X, tmp_path):
    store.add(X[:1], ["\udc80"], [{"name": "a\udcff"}])
    store.save(tmp_path)
    found = {one.id: one.record for one in Store.load(tmp_path).search(X[0], 301)}
    assert len(found) == 301 and found["\udc80"] == {"name": "a\udcff"}


def test_a_store_of_the_first_version_loads_and_is_replaced(store, X, tmp_path):
    store.index.save(tmp_path / "index.cc")
    lines = [json.dumps([i, f"item-{i}", {"n": i}]) for i in range(300)]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "records-mine.jsonl").write_text("of the user")
    again = Store.load(tmp_path)
    assert again.search(X[3], 9) == store.search(X[3], 9)
    again.delete(["item-0"])
    again.save(tmp_path)
    assert len(Store.load(tmp_path)) == 299
    assert "records.jsonl" not in contents(tmp_path) and "records-mine.jsonl" in contents(tmp_path)


def test_the_package_imports_neither_library():
    code = "import sys, compcodes; sys.exit(any(name in sys.modules for name in ('langchain_core', 'llama_index')))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


WORDS, VECTORS = (None, None)


def embedded(text):
    """A vector of the embedded words that a text has."""
    global WORDS, VECTORS
    if WORDS is None:
        words, vectors = cc.data.glove()
        WORDS, VECTORS = {word: i for i, word in enumerate(words)}, np.asarray(vectors, np.float32)
    return np.mean([VECTORS[WORDS[word]] for word in text.split()], axis=0).tolist()


TEXTS = ["cat dog", "tea coffee", "piano violin", "rain snow", "bread butter"] * 20
METADATA = [{"row": i, "even": i % 2 == 0, "kind": "ab"[i % 2]} for i in range(100)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_langchain(tmp_path):
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from compcodes.interop.langchain import CompcodesVectorStore

    class Words(Embeddings):
        def embed_documents(self, texts):
            return [embedded(text) for text in texts]

        def embed_query(self, text):
            return embedded(text)

    ids = [f"t{i}" for i in range(100)]
    store = CompcodesVectorStore.from_texts(TEXTS, Words(), METADATA, ids=ids, quantizer=unfitted())
    found = store.similarity_search_with_score("cat dog", k=3)
    assert [document.page_content for document, _ in found] == ["cat dog"] * 3
    assert found[0][1] > 0.9
    assert {d.metadata["even"] for d in store.similarity_search("tea coffee", k=5, filter={"even": False})} == {False}
    for wrong in ({"row": {"$lt": 10}}, {"row": [1, 2]}, {"$or": 1}):
        with pytest.raises(ValueError, match="^filter has .*want a value to be equal to, or a function of a document"):
            store.similarity_search("tea", filter=wrong)
    only = store.similarity_search("rain snow", k=50, filter=lambda document: document.metadata["row"] < 10)
    assert [document.id for document in only][:2] == ["t3", "t8"] and len(only) == 10
    assert 0 <= store.similarity_search_with_relevance_scores("piano violin")[0][1] <= 1
    several = store.max_marginal_relevance_search("cat dog", k=3, fetch_k=100, lambda_mult=0.1)
    assert len({document.page_content for document in several}) == 3
    assert store.delete(["t0"]) and store.get_by_ids(["t0", "t1"]) == [
        Document(id="t1", page_content="tea coffee", metadata=METADATA[1])
    ]
    (fresh,) = store.add_documents([Document(page_content="milk sugar")])
    assert store.get_by_ids([fresh])[0].page_content == "milk sugar"
    assert store.as_retriever(search_kwargs={"k": 2}).invoke("bread butter")[0].page_content == "bread butter"
    store.save_local(tmp_path)
    again = CompcodesVectorStore.load_local(tmp_path, Words())
    assert again.similarity_search("cat dog", k=9) == store.similarity_search("cat dog", k=9)
    assert CompcodesVectorStore(Words()).similarity_search("cat dog") == []


@pytest.mark.filterwarnings("ignore")  # the library's own, of its dependencies
def test_llama_index(tmp_path):
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

    from compcodes.interop.llama_index import CompcodesVectorStore

    nodes = [
        TextNode(
            id_=f"n{i}",
            text=text,
            metadata=METADATA[i],
            embedding=embedded(text),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document-{i % 5}")},
        )
        for i, text in enumerate(TEXTS)
    ]
    store = CompcodesVectorStore(unfitted())
    assert store.add(nodes) == [node.node_id for node in nodes]
    assert len(store.client) == 100

    def ask(text, **others):
        return store.query(VectorStoreQuery(query_embedding=embedded(text), similarity_top_k=4, **others))

    found = ask("cat dog")
    assert [node.text for node in found.nodes] == ["cat dog"] * 4
    assert found.ids == [node.node_id for node in found.nodes] and found.similarities[0] > 0.9
    of_kind = MetadataFilters(filters=[MetadataFilter(key="kind", value="a")])
    assert {node.metadata["kind"] for node in ask("cat dog", filters=of_kind).nodes} == {"a"}
    assert ask("cat dog", node_ids=["n2", "n3"]).ids in (["n2", "n3"], ["n3", "n2"])
    assert {node.text for node in ask("cat dog", doc_ids=["document-1"]).nodes} == {"tea coffee"}
    store.delete("document-0")
    assert len(store.client) == 80 and ask("cat dog").nodes[0].text != "cat dog"
    store.delete_nodes(["n1"])
    assert [node.node_id for node in store.get_nodes(["n1", "n6"])] == ["n6"]
    with pytest.raises(ValueError, match="mode"):
        ask("cat dog", mode="sparse")
    store.persist(tmp_path)
    again = CompcodesVectorStore.from_persist_path(tmp_path)
    assert again.query(VectorStoreQuery(query_embedding=embedded("tea coffee"))).ids == ask("tea coffee").ids[:1]
    store.clear()
    assert ask("cat dog").nodes == []
