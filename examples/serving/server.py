"""A search server of the standard library alone: processes that share one mapped index.

    python examples/serving/server.py index.cc --port 8000 --processes 2

POST /search?k=10 takes queries as float32 bytes, one row after another, and answers with JSON: ids and scores. Once
the file is written anew, as `Index.save` does it, the next request is answered from the new one; those under way finish
with the old one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np

import compcodes as cc

LARGEST = 16 * 1024 * 1024  # bytes of a request
MOST = 1000  # results per query


class Mapped:
    """The index in a file, mapped; loaded anew once the file is another."""

    def __init__(self, path: str) -> None:
        self._path, self._lock = path, threading.Lock()
        self._seen: tuple[int, int] | None = None
        self()

    def __call__(self) -> cc.Index:
        """Return the index as the file has it now."""
        status = os.stat(self._path)
        seen = (status.st_ino, status.st_mtime_ns)
        if seen != self._seen:
            with self._lock:
                if seen != self._seen:
                    # One thread per search: requests are what runs in parallel.
                    self._index = cc.Index.load(self._path, n_jobs=1, mmap=True)
                    self._seen = seen
        return self._index


class Handler(BaseHTTPRequestHandler):
    """One connection; `current` returns the index to search."""

    current = None
    protocol_version = "HTTP/1.1"  # connections stay open
    wbufsize = -1  # header and body leave together
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Search."""
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if url.path != "/search" or not 0 < length <= LARGEST:
            self.close_connection = True
            return self._answer(404 if url.path != "/search" else 413, {"error": "want POST /search with queries"})
        body = self.rfile.read(length)
        try:
            index = self.current()
            k = int(parse_qs(url.query).get("k", ["10"])[0])
            queries = np.frombuffer(body, np.float32).reshape(-1, index.quantizer.codebooks_.shape[2])
            if k > MOST:
                raise ValueError(f"k is {k}: want at most {MOST}")
            scores, ids = index.search(queries, k)
        except ValueError as error:  # another number of dimensions, NaN, a k that is none: the message says which
            return self._answer(400, {"error": str(error)})
        # Where fewer than k were found the rest is id −1 with a score of −inf, which JSON lacks.
        found = [
            [[int(i), float(s)] for i, s in zip(*row, strict=True) if i >= 0] for row in zip(ids, scores, strict=True)
        ]
        return self._answer(200, {"found": found})

    def _answer(self, code: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


def serve(listening: socket.socket, current: object) -> None:
    """Answer on a socket that listens already, a thread per connection, for ever."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(listening.getsockname(), type("", (Handler,), {"current": staticmethod(current)}), False)
    server.socket.close()
    server.socket = listening
    server.serve_forever()


def serve_file(listening: socket.socket, path: str) -> None:
    """Answer from a file: what each of the processes does."""
    serve(listening, Mapped(path))


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Open the socket that all processes accept from."""
    return socket.create_server((host, port), backlog=128)


def start(path: str, listening: socket.socket, processes: int) -> list[multiprocessing.process.BaseProcess]:
    """Start the processes; they end with this one."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=serve_file, args=(listening, path), daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    return workers


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    workers = start(arguments.index, listen(arguments.port), arguments.processes)
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
