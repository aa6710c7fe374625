"""Files with other content under checksums that fit: what a reader must not take for granted."""

import json
import zlib
from pathlib import Path

import numpy as np

TYPES = {"F32": "<f4", "I64": "<i8", "U8": "|u1", "U32": "<u4"}


def parts(path):
    """The metadata of a file, and its tensors by name."""
    content = Path(path).read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    texts = header.pop("__metadata__")
    tensors = {}
    for name, about in header.items():
        first, last = about["data_offsets"]
        flat = np.frombuffer(content[end + first : end + last], TYPES[about["dtype"]])
        tensors[name] = flat.reshape(about["shape"]).copy()
    return texts, tensors


def write(path, texts, tensors):
    """Write a file of these, with checksums as docs/file-format.md has them."""
    texts = {name: text for name, text in texts.items() if name != "checksum" and not name.startswith("crc32.")}
    names = {dtype: name for name, dtype in TYPES.items()}
    header, body = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": names[array.dtype.str], "shape": list(array.shape), "data_offsets": offsets}
        texts[f"crc32.{name}"] = str(zlib.crc32(raw))
        body += raw
    lines = [f"{name}={text}" for name, text in sorted(texts.items())]
    lines += sorted(" ".join([name, about["dtype"], *map(str, about["shape"])]) for name, about in header.items())
    texts["checksum"] = str(zlib.crc32("".join(f"{line}\n" for line in lines).encode()))
    head = json.dumps({"__metadata__": texts, **header}).encode()
    head += b" " * (-(8 + len(head)) % 64)
    Path(path).write_bytes(len(head).to_bytes(8, "little") + head + body)


def in_bytes(index, path):
    """Write an index of half-byte codes as version 2 had it: a byte for each code."""
    index.save(path)
    texts, tensors = parts(path)
    n = int(texts.pop("nibbles"))
    texts["compcodes"] = '{"version":2}'
    lines = tensors["codes"]
    codes = [lines[:, m // 2] >> 4 * (m % 2) & 15 for m in range(n)]
    rest = [lines[:, line] for line in range((n + 1) // 2, lines.shape[1])]
    write(path, texts, tensors | {"codes": np.stack(codes + rest, axis=1)})
