"""A vector store for LangChain: ``pip install langchain-core``.

Embeddings are stored as codes of a few bytes each; texts and metadata are stored unchanged.

    from compcodes.interop.langchain import CompcodesVectorStore

    store = CompcodesVectorStore.from_texts(texts, embedding)
    retriever = store.as_retriever(search_kwargs={"k": 5})
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from compcodes.errors import ArgumentValueError
from compcodes.interop._store import Found, Store
from compcodes.quantizers.protocol import QuantizerLike

__all__ = ["CompcodesVectorStore"]

Filter = Callable[[Document], bool] | dict[str, Any] | None


class CompcodesVectorStore(VectorStore):
    """Texts found by the codes of their embeddings.

    Parameters
    ----------
    embedding : langchain_core.embeddings.Embeddings
        Makes vectors of texts and queries.
    quantizer : fitted or unfitted quantizer, optional
        An unfitted one is trained on the first texts that are added, so there should be many of them: some thousands,
        of the kind that will follow. By default ``CompositionalCodes(n_codebooks=16, metric="cosine", effort="low")``,
        which takes 16 bytes per vector.
    """

    def __init__(self, embedding: Embeddings, *, quantizer: QuantizerLike | None = None) -> None:
        self._embedding, self._store = embedding, Store(quantizer)

    @property
    def embeddings(self) -> Embeddings:
        """What makes vectors of texts."""
        return self._embedding

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._store)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed and add texts, and return their ids. A text whose id already exists replaces the earlier one."""
        texts = list(texts)
        given: Sequence[str | None] = [None] * len(texts) if ids is None else ids
        names = [str(uuid.uuid4()) if id is None else id for id in given]
        metadatas = [{} for _ in texts] if metadatas is None else metadatas
        if not len(texts) == len(names) == len(metadatas):
            name, given_of_it = ("ids", names) if len(names) != len(texts) else ("metadatas", metadatas)
            raise ArgumentValueError(name, f"are {len(given_of_it)} for {len(texts)} texts: want as many of each")
        records = [{"text": text, "metadata": metadata} for text, metadata in zip(texts, metadatas, strict=True)]
        if texts:
            self._store.add(self._embedding.embed_documents(texts), names, records)
        return names

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Remove texts by their ids, or all; unknown ids are ignored."""
        if ids is None:
            self._store.clear()
        else:
            self._store.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ids are left out."""
        records = ((id, self._store.get(id)) for id in ids)
        return [_document(id, record) for id, record in records if record is not None]

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: Filter = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return documents with their scores in the quantizer's metric, higher being better.

        `filter` is a function of a document, or a dict of metadata that must be equal.
        """
        found = self._store.search(embedding, k, _allows(filter))
        return [(_document(one.id, one.record), one.score) for one in found]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the documents that match a vector best."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return documents with their scores in the quantizer's metric, higher being better."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, **kwargs)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the documents that match a text best."""
        return self.similarity_search_by_vector(self._embedding.embed_query(query), k, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return documents that match well and differ from each other, judged by their codes."""
        found: list[Found] = self._store.search(embedding, fetch_k, _allows(filter))
        if not found:
            return []
        vectors = list(self._store.approximations(found))
        chosen = maximal_marginal_relevance(np.array(embedding, np.float32), vectors, lambda_mult, k)
        return [_document(found[i].id, found[i].record) for i in chosen]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return documents that match well and differ from each other, judged by their codes."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        index = self._store.index
        if index is not None and index.metric != "cosine":
            raise ValueError(f"relevance from 0 to 1 is known for the metric 'cosine'; this store has {index.metric!r}")
        return lambda score: min(max((1 + score) / 2, 0.0), 1.0)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        quantizer: QuantizerLike | None = None,
        **kwargs: Any,
    ) -> CompcodesVectorStore:
        """Make a store of texts; without a fitted quantizer it is trained on them."""
        store = cls(embedding, quantizer=quantizer)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def save_local(self, folder: str | os.PathLike[str]) -> None:
        """Write the store into a folder."""
        self._store.save(folder)

    @classmethod
    def load_local(cls, folder: str | os.PathLike[str], embedding: Embeddings) -> CompcodesVectorStore:
        """Read what `save_local` wrote."""
        store = cls(embedding)
        store._store = Store.load(folder)
        return store


def _document(id: str, record: dict[str, Any]) -> Document:
    return Document(id=id, page_content=record["text"], metadata=dict(record["metadata"]))


def _allows(filter: Filter) -> Callable[[str, dict[str, Any]], bool] | None:
    if filter is None:
        return None
    if callable(filter):
        return lambda id, record: bool(filter(_document(id, record)))
    for name, value in filter.items():
        if name.startswith("$") or isinstance(value, (dict, list, tuple, set)):
            raise ArgumentValueError(
                "filter", f"has {value!r} for {name!r}: want a value to be equal to, or a function of a document"
            )
    absent = object()
    return lambda _, record: all(record["metadata"].get(name, absent) == value for name, value in filter.items())
