"""A vector store for LlamaIndex: ``pip install llama-index-core``.

Embeddings are stored as codes of a few bytes each, together with the nodes.

    from llama_index.core import StorageContext, VectorStoreIndex
    from compcodes.interop.llama_index import CompcodesVectorStore

    storage = StorageContext.from_defaults(vector_store=CompcodesVectorStore())
    index = VectorStoreIndex.from_documents(documents, storage_context=storage)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import (
    build_metadata_filter_fn,
    metadata_dict_to_node,
    node_to_metadata_dict,
)

from compcodes.errors import ArgumentValueError
from compcodes.interop._store import Store
from compcodes.quantizers.protocol import QuantizerLike

__all__ = ["CompcodesVectorStore"]

Allows = Callable[[str, dict[str, Any]], bool]


class CompcodesVectorStore(BasePydanticVectorStore):
    """Nodes found by the codes of their embeddings.

    Parameters
    ----------
    quantizer : fitted or unfitted quantizer, optional
        An unfitted one is trained on the first nodes that are added, so there should be many of them: some thousands,
        of the kind that will follow. By default ``CompositionalCodes(n_codebooks=16, metric="cosine", effort="low")``,
        which takes 16 bytes per vector.
    """

    stores_text: bool = True
    flat_metadata: bool = False
    _store: Store = PrivateAttr()

    def __init__(self, quantizer: QuantizerLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._store = Store(quantizer)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex stores."""
        return "CompcodesVectorStore"

    @property
    def client(self) -> Any:
        """The index of the codes; None before anything was added."""
        return self._store.index

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Add nodes that have embeddings, and return their ids."""
        records = [
            {"ref": node.ref_doc_id, "node": node_to_metadata_dict(node, flat_metadata=self.flat_metadata)}
            for node in nodes
        ]
        ids = [node.node_id for node in nodes]
        if nodes:
            self._store.add([node.get_embedding() for node in nodes], ids, records)
        return ids

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove all nodes of a document."""
        self._store.delete([id for id, record in self._store.items() if record["ref"] == ref_doc_id])

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove the nodes with these ids that satisfy the filters."""
        allows = self._allows(node_ids, None, filters)
        self._store.delete([id for id, record in self._store.items() if allows is None or allows(id, record)])

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes with these ids that satisfy the filters."""
        allows = self._allows(node_ids, None, filters)
        return [_node(record) for id, record in self._store.items() if allows is None or allows(id, record)]

    def clear(self) -> None:
        """Remove all nodes."""
        self._store.clear()

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes that match an embedding best, with scores in the quantizer's metric."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ArgumentValueError(
                "query", f".mode is {query.mode}, which is not offered: want {VectorStoreQueryMode.DEFAULT}"
            )
        if query.query_embedding is None:
            raise ArgumentValueError("query", "has no embedding")
        allows = self._allows(query.node_ids, query.doc_ids, query.filters)
        found = self._store.search(query.query_embedding, query.similarity_top_k, allows)
        return VectorStoreQueryResult(
            nodes=[_node(one.record) for one in found],
            similarities=[one.score for one in found],
            ids=[one.id for one in found],
        )

    def persist(self, persist_path: str | os.PathLike[str], fs: Any = None) -> None:
        """Write the store into a folder of the local file system."""
        if fs is not None:
            raise ArgumentValueError("fs", "is given: the store is written to the local file system only")
        self._store.save(persist_path)

    @classmethod
    def from_persist_path(cls, persist_path: str | os.PathLike[str]) -> CompcodesVectorStore:
        """Read what `persist` wrote."""
        store = cls()
        store._store = Store.load(persist_path)
        return store

    def _allows(
        self, node_ids: list[str] | None, doc_ids: list[str] | None, filters: MetadataFilters | None
    ) -> Allows | None:
        if node_ids is None and doc_ids is None and filters is None:
            return None
        nodes = None if node_ids is None else set(node_ids)
        documents = None if doc_ids is None else set(doc_ids)

        def metadata(id: str) -> Any:
            record = self._store.get(id)
            return {} if record is None else _node(record).metadata

        holds = build_metadata_filter_fn(metadata, filters)

        def allows(id: str, record: dict[str, Any]) -> bool:
            return (
                (nodes is None or id in nodes)
                and (documents is None or record["ref"] in documents)
                and (filters is None or bool(holds(id)))
            )

        return allows


def _node(record: dict[str, Any]) -> BaseNode:
    return metadata_dict_to_node(record["node"])
