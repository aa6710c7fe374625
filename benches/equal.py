"""Time to an equal error: the plain loss, beside the local search quantizer of faiss. One thread each."""

import time

import compcodes as cc
from rivals import padded, trained
from sets import Missing

ROUNDS = (0, 2, 4, 6, 8, 9, 10, 12, 16, 32, 64)
ITERATIONS = ((4, 1), (6, 1), (8, 1), (9, 1), (10, 1), (11, 1), (12, 1), (14, 1), (16, 2), (25, 4))
"""With noise and without."""


def squared_error(X, approximations):
    return float(((X - approximations[:, : X.shape[1]]) ** 2).sum(axis=1).mean())


def local_search_quantizer(report, data, bytes_, tiny):
    """faiss's, trained; None, said why, where there is no faiss."""
    try:
        return trained("faiss LSQ", data, bytes_, tiny)
    except Missing as why:
        report(f"Left out: {why}.\n")
        return None, 0.0


def training(report, data, bytes_, tiny, effort):
    """Train with more and more iterations until the error in the training set is no worse than faiss's."""
    report(f"## Training to an equal error: {len(data.learn):,} vectors of {data.name}, {bytes_} bytes, plain loss\n")
    index, theirs = local_search_quantizer(report, data, bytes_, tiny)
    if index is None:
        return
    codes = index.sa_encode(padded(data.learn, index.d))
    goal = squared_error(data.learn, index.sa_decode(codes))
    rows = [["faiss LSQ", f"{goal:.5g}", f"{theirs:.1f}", "1"]]
    for anneal, max_iter in ITERATIONS:
        params = {**effort, "anneal": anneal, "max_iter": max_iter}
        q = cc.CompositionalCodes(bytes_, loss="reconstruction", n_jobs=1, **params)
        begin = time.process_time()
        q.fit(data.learn)
        took = time.process_time() - begin
        error = squared_error(data.learn, q.decode(q.encode(data.learn)))
        label = f"compcodes, anneal={anneal}, max_iter={max_iter}"
        rows.append([label, f"{error:.5g}", f"{took:.1f}", f"{theirs / took:.1f}"])
        if error <= goal:
            break
    report.table(["", "MSE in the training set", "CPU s", "× as fast as faiss"], rows)


def encoding(report, data, bytes_, tiny, effort):
    """Encode with more and more rounds until the error is no worse than faiss's, each with its own codebooks."""
    base = data.base[:20_000]
    report(f"## Encoding to an equal error: {len(base):,} vectors of {data.name}, {bytes_} bytes, plain loss\n")
    index, _ = local_search_quantizer(report, data, bytes_, tiny)
    if index is None:
        return
    wide = padded(base, index.d)
    begin = time.process_time()
    codes = index.sa_encode(wide)
    theirs = time.process_time() - begin
    goal = squared_error(base, index.sa_decode(codes))
    q = cc.CompositionalCodes(bytes_, loss="reconstruction", n_jobs=1, **effort).fit(data.learn)
    rows = [["faiss LSQ", f"{goal:.5g}", f"{theirs / len(base) * 1e6:.1f}", "1"]]
    for rounds in ROUNDS:
        q.set_params(encoder=cc.LocalSearch(rounds=rounds))
        q.encode(base[:1])  # prepares the encoder
        begin = time.process_time()
        codes = q.encode(base)
        took = time.process_time() - begin
        error = squared_error(base, q.decode(codes))
        row = [f"compcodes, rounds={rounds}", f"{error:.5g}", f"{took / len(base) * 1e6:.1f}", f"{theirs / took:.1f}"]
        rows.append(row)
        if error <= goal:
            break
    report.table(["", "MSE", "CPU µs per vector", "× as fast as faiss"], rows)
