"""Indexes in several files: a folder with a manifest, searched as one index on one machine or on a cluster."""

from compcodes.sharded.index import ShardedIndex

__all__ = ["ShardedIndex"]
