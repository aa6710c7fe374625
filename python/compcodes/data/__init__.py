"""Vectors from files, and a small set of real ones.

`load` reads .npy, .fvecs, .bvecs, .ivecs, .parquet and .hdf5; `save` writes .npy; `glove` is 20,000 word
vectors that come with the package. `open_many` opens folders of files that are larger than memory.
"""

from compcodes.data.files import load, load_ids, load_queries, save
from compcodes.data.many import Files, open_many
from compcodes.data.names import load_names
from compcodes.data.words import glove

__all__ = ["Files", "glove", "load", "load_ids", "load_names", "load_queries", "open_many", "save"]
