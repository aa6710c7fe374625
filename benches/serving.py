"""Latency under load: 8 clients, an index that processes share, and updates going on.

    python benches/serving.py [--tiny] [--save]

The server is that of examples/serving, on the loopback address; codes and codebooks are random, 8 bytes each. Clients
are threads of one more process on the same cores. "Closed loop": each asks again as soon as it is answered, so
latencies are those of a server that is never idle. "Paced": half as many requests, at fixed times; a latency counts
from when the request was due. Every half second a writer exchanges a thousand vectors: with processes it writes the
file anew, and they map the new one; with threads it calls `Index.update` on the very index that is searched.
"""

import http.client
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import compcodes as cc
from common import Report, arguments

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "serving"))
import server

CLIENTS, D, K = 8, 64, 10


def make(path, n):
    """An index of n random codes."""
    rng = np.random.default_rng(0)
    q = cc.CompositionalCodes.from_codebooks(rng.normal(size=(8, 256, D)).astype(np.float32))
    q.set_params(encoder="greedy")
    cc.Index(q).add_codes(rng.integers(256, size=(n, 8)).astype(np.uint8)).save(path)


def change(index, rng):
    """Exchange a thousand vectors."""
    ids = rng.choice(len(index), min(1000, len(index)), replace=False)
    index.update(rng.normal(size=(len(ids), D)).astype(np.float32), ids)


def write_files(path, stop, versions):
    """Change the index and write its file, until told to stop."""
    index, rng = cc.Index.load(path, n_jobs=1), np.random.default_rng(1)
    while not stop.wait(0.5):
        change(index, rng)
        index.save(path)
        with versions.get_lock():
            versions.value += 1


def serve_threads(listening, path, stop, versions):
    """One process: its threads search the index that one of them changes."""
    index = cc.Index.load(path, n_jobs=1)

    def work():
        rng = np.random.default_rng(1)
        while not stop.wait(0.5):
            change(index, rng)
            with versions.get_lock():
                versions.value += 1

    threading.Thread(target=work, daemon=True).start()
    server.serve(listening, lambda: index)


def ask(port, seconds, rate, out):
    """Eight clients for some seconds, `rate` requests per second in all, or as many as are answered."""
    latencies, lock, wrong = [], threading.Lock(), []

    def client(number):
        rng = np.random.default_rng(number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        own, begin = [], time.perf_counter()
        due = begin + (number / rate if rate else 0)
        while due < begin + seconds:
            if rate:
                time.sleep(max(0.0, due - time.perf_counter()))
            query = rng.normal(size=D).astype(np.float32)
            connection.request("POST", f"/search?k={K}", query.tobytes())
            response = connection.getresponse()
            found = json.loads(response.read())
            now = time.perf_counter()
            own.append(now - due)
            if response.status != 200 or len(found["found"][0]) != K:
                wrong.append(found)
                break
            due = due + CLIENTS / rate if rate else now
        with lock:
            latencies.extend(own)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put((latencies, wrong))


def run(context, port, seconds, rate):
    """What the clients saw: requests per second, and milliseconds of the median and the 99th percentile."""
    out = context.Queue()
    clients = context.Process(target=ask, args=(port, seconds, rate, out), daemon=True)
    clients.start()
    latencies, wrong = out.get(timeout=seconds + 60)
    clients.join()
    if wrong:
        raise SystemExit(f"a wrong answer: {wrong[0]}")
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e3
    return len(latencies) / seconds, p50, p99


def memory(pid, path):
    """Kilobytes: of the whole process its own; of the mapped file what is resident, and its share of that."""
    rollup = dict(part.split(":") for part in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    number = {name: int(value.split()[0]) for name, value in rollup.items()}
    own = number["Private_Clean"] + number["Private_Dirty"]
    resident = share = 0
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            inside = str(path) in line
        elif inside and name in ("Rss:", "Pss:"):
            kilobytes = int(rest.split()[0])
            resident, share = resident + (name == "Rss:") * kilobytes, share + (name == "Pss:") * kilobytes
    return own, resident, share


def main():
    options = arguments(__doc__)
    n, seconds = (20_000, 0.6) if options.tiny else (1_000_000, 8)
    report = Report("serving", options.save, f"{n:,} random codes of 8 bytes, {CLIENTS} clients, k = {K}")
    context = multiprocessing.get_context("spawn")
    rows, shared = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "index.cc"))
        make(path, n)
        size = Path(path).stat().st_size
        ways = [("1 process", 1), ("2 processes", 2), ("1 process, updated in place", 0)]
        for name, processes in ways[1:] if options.tiny else ways:
            for updates in (False, True):
                if not processes and not updates:
                    continue
                listening = server.listen(0)
                port, stop, versions = listening.getsockname()[1], context.Event(), context.Value("l", 0)
                if processes:
                    workers = server.start(path, listening, processes)
                    writer = context.Process(target=write_files, args=(path, stop, versions), daemon=True)
                else:
                    workers = [
                        context.Process(target=serve_threads, args=(listening, path, stop, versions), daemon=True)
                    ]
                    writer = None
                    workers[0].start()
                if writer and updates:
                    writer.start()
                run(context, port, seconds / 4, 0)  # to warm up
                most, p50, p99 = run(context, port, seconds, 0)
                _, paced50, paced99 = run(context, port, seconds, most / 2)
                if processes == 2 and Path("/proc/self/smaps_rollup").exists() and not updates:
                    shared = [memory(worker.pid, path) for worker in workers]
                stop.set()
                if writer and updates:
                    writer.join()
                for worker in workers:
                    worker.terminate()
                    worker.join()
                listening.close()
                told = f"{versions.value}" if updates else "–"
                rows.append([name, told, f"{most:,.0f}", *(f"{ms:.2f}" for ms in (p50, p99, paced50, paced99))])
    header = ["server", "updates", "requests/s", "p50, ms", "p99, ms", "paced p50, ms", "paced p99, ms"]
    report.table(header, rows)
    if shared:
        report(f"Memory of two processes that map one file of {size / 2**20:,.1f} MB, in MB:\n")
        header = ["process", "private, Python and numpy included", "of the file: resident", "its share of these pages"]
        report.table(header, [[i, *(f"{kb / 1024:,.1f}" for kb in row)] for i, row in enumerate(shared)])


if __name__ == "__main__":
    main()
