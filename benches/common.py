"""What the benchmarks share: data, the machine's description, and tables that are kept."""

import argparse
import datetime
import os
import platform
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import compcodes as cc
from compcodes import _core


def parser(description):
    """A parser with the options of every benchmark."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--tiny", action="store_true", help="in seconds, on the embedded words: only to see that it runs"
    )
    options.add_argument("--save", action="store_true", help="keep the tables under benches/results")
    return options


def arguments(description):
    return parser(description).parse_args()


def choice(given, known, between=","):
    """The names in `given`, all of them known."""
    names = [name.strip() for name in given.split(between)]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"{unknown[0]!r} is none of: {f'{between} '.join(known)}")
    return names


def sift(name, n=None):
    """A part of the SIFT vectors in COMPCODES_DATA; the embedded words where there are none."""
    folder = os.environ.get("COMPCODES_DATA")
    path = Path(folder or "", "sift", f"{name}.npy")
    if folder and path.exists():
        return np.load(path, mmap_mode="r")[:n]
    return cc.data.glove()[1][:n]


def source():
    found = os.environ.get("COMPCODES_DATA") and Path(os.environ["COMPCODES_DATA"], "sift").is_dir()
    return "SIFT of COMPCODES_DATA" if found else "embedded GloVe words (COMPCODES_DATA is not set)"


def machine():
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        cpu = names[0] if names else cpu
    blas = ", ".join(f"{i['internal_api']} {i.get('version')} {i.get('architecture', '')}" for i in threadpool_info())
    return (
        f"{cpu}, {os.cpu_count()} cores; compcodes {cc.__version__} on {_core.isa()}; numpy {np.__version__} ({blas})"
    )


def peak_memory():
    """Bytes that this process has held at most. (`ru_maxrss` of a child begins with its parent's.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def least(repeats, *works, runs=5, clock=time.perf_counter):
    """Least seconds of each work. They take turns, of `runs` runs each: the first brings its codes into the cache."""
    times = np.full(len(works), np.inf)
    for _ in range(repeats):
        for i, work in enumerate(works):
            for _ in range(runs):
                start = clock()
                work()
                times[i] = min(times[i], clock() - start)
    return times


class Report:
    """Prints lines as they come, and keeps them."""

    def __init__(self, name, save, data=None):
        self.lines = []
        self.path = Path(__file__).parent / "results" / f"{datetime.date.today()}-{name}.md" if save else None
        self(f"# {name}, {datetime.date.today()}\n\n{machine()}\n\nData: {data or source()}\n")

    def __call__(self, line=""):
        print(line, flush=True)
        self.lines.append(line)
        if self.path:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text("\n".join(self.lines) + "\n")

    def table(self, header, rows):
        self("| " + " | ".join(header) + " |")
        self("|" + "---|" * len(header))
        for row in rows:
            self("| " + " | ".join(map(str, row)) + " |")
        self()
