"""A worker that is killed changes no result; a sharded index is built and searched on a cluster."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import compcodes as cc

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (6000, 12)).astype(np.uint8)
Q = RNG.normal(size=(20, 12)).astype(np.float32)
MODEL = cc.CompositionalCodes(3, 16, effort="low", max_iter=3, anneal=8, loss="reconstruction")


@pytest.fixture(scope="module")
def client():
    with dask.config.set(
        {"distributed.scheduler.allowed-failures": 10, "distributed.deploy.lost-worker-timeout": "1h"}
    ):
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GB"
        )
        with distributed.Client(cluster) as client:
            yield client
        # A cluster that was told of a killed worker's end before its beginning raises that here, its processes closed.
        with contextlib.suppress(KeyError):
            cluster.close()


@pytest.fixture(scope="module")
def quantizer():
    return MODEL.fit(X)


def killing(client, after):
    """Kill one of the workers after so many seconds."""
    address = sorted(client.nthreads())[0]
    pid = client.run(os.getpid, workers=[address])[address]

    def kill():
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):  # the work was done before
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def settled(client):
    client.wait_for_workers(2, timeout=60)


def test_training_survives_a_killed_worker(client, quantizer):
    settled(client)
    seen = []

    def kill(stage, done, total):
        if not seen and done > total / 3:
            seen.append(killing(client, 0))

    model = cc.CompositionalCodes(**MODEL.get_params())
    model.fit(da.from_array(X, chunks=(1000, 12)), progress=kill)
    seen[0].join()
    np.testing.assert_array_equal(model.codebooks_, quantizer.codebooks_)


def test_training_begins_anew_where_a_large_model_is_lost(client, quantizer, monkeypatch):
    from compcodes import cluster

    settled(client)
    monkeypatch.setattr(cluster, "LARGE", 0)
    seen = []

    def kill(stage, done, total):
        if not seen and done > total / 3:
            seen.append(killing(client, 0))

    model = cc.CompositionalCodes(**MODEL.get_params())
    model.fit(da.from_array(X, chunks=(1000, 12)), progress=kill)
    seen[0].join()
    np.testing.assert_array_equal(model.codebooks_, quantizer.codebooks_)


def test_work_that_the_cluster_leaves_lying_is_begun_anew(client, quantizer, monkeypatch):
    from compcodes import cluster

    settled(client)
    monkeypatch.setattr(cluster, "LOOK", 0.3)
    workers, pids = cluster.Workers(client), client.run(os.getpid)
    address, asked = sorted(pids)[0], []

    def work():
        if not asked:
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)
            while client.nthreads():
                time.sleep(0.01)
        # Nobody is there the first time, and who comes is not meant.
        asked.append(workers.submit(abs, -5, worker=address))
        settled(client)
        return workers.gather(asked[-1:])

    assert cluster.again(work) == [5] and len(asked) == 2
    asked.clear()
    monkeypatch.setattr(cluster, "ATTEMPTS", 1)
    settled(client)
    pids = client.run(os.getpid)
    address = sorted(pids)[0]
    with pytest.raises(RuntimeError, match="does nothing of what it was asked for"):
        cluster.again(work)


def test_blocks_of_a_fit_that_lost_all_workers_can_be_read_again(client):
    """Whatever is still wanted of it lies where no worker is; the user's own tasks do not."""
    from compcodes.training.dask import Cluster

    settled(client)
    cluster, pids = Cluster(client), client.run(os.getpid)
    blocks = (da.from_array(X, chunks=(1000, 12)) + 1).to_delayed().ravel()
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    while client.nthreads():
        time.sleep(0.01)
    lost = cluster.keep([cluster.holding(False, 1, blocks)], sorted(pids)[0])
    settled(client)
    kept = cluster.keep([cluster.holding(False, 1, blocks)], sorted(client.nthreads())[1])
    assert cluster.gather([cluster.submit(len, kept)]) == [6000]
    assert kept.key != lost.key and client.who_has([kept])[kept.key] == (sorted(client.nthreads())[1],)


def test_only_our_own_tasks_are_meant_for_a_worker(client):
    from compcodes.training.dask import Cluster

    settled(client)
    cluster = Cluster(client)
    chunked = da.from_array(X, chunks=(1000, 12)) + 2
    places = cluster.places()
    holdings = [cluster.holding(False, 1, [block]) for block in chunked.to_delayed().ravel()]
    kept = [cluster.keep(holdings[:3], places[0]), cluster.keep(holdings[3:], places[1])]
    assert cluster.gather([cluster.submit(len, one) for one in kept]) == [3000, 3000]
    assert [client.who_has([one])[one.key] for one in kept] == [(place,) for place in places]

    def meant(dask_scheduler, keys):
        """Of some tasks and all that they are made of."""
        found, tasks = {}, [dask_scheduler.tasks[key] for key in keys]
        while tasks:
            task = tasks.pop()
            found[str(task.key)] = task.worker_restrictions, task.loose_restrictions
            tasks += task.dependencies
        return found

    found = client.run_on_scheduler(meant, keys=[one.key for one in kept])
    for key, (where, loosely) in found.items():
        assert loosely == key.startswith(("called", "hold")) == bool(where), key
    assert len([key for key in found if key.startswith("hold")]) == 6
    assert len([key for key in found if key.startswith("('add")]) == 6


WORKER = """
import asyncio, sys
from distributed import Worker

async def work():
    async with Worker(sys.argv[1], nthreads=1) as worker:
        await worker.finished()

asyncio.run(work())
"""


@pytest.mark.parametrize("work", ["build", "fit", "search"])
def test_a_cluster_without_workers_is_an_error_and_no_endless_wait(quantizer, tmp_path, monkeypatch, work):
    from compcodes import cluster

    monkeypatch.setattr(cluster, "PATIENCE", 1.0)
    monkeypatch.setattr(cluster, "LOOK", 0.2)
    seen, chunked = [], da.from_array(X, chunks=(1000, 12))
    searched = cc.ShardedIndex.build(tmp_path / "searched", quantizer, X, 3, "ip")
    found = searched.search(Q, 10)[1]
    want = {"build": found, "search": found, "fit": quantizer.codebooks_}

    def run(client, progress=None):
        if work == "build":
            return cc.ShardedIndex.build(
                tmp_path / "built", quantizer, chunked, 6, "ip", client=client, progress=progress
            ).search(Q, 10)[1]
        if work == "search":
            return [searched.search(Q, 10, client=client, progress=progress)[1] for _ in range(2)][-1]
        return cc.CompositionalCodes(**MODEL.get_params()).fit(chunked, progress=progress).codebooks_

    @contextlib.contextmanager
    def worker(address):
        """A process that nobody starts again."""
        process = subprocess.Popen([sys.executable, "-c", WORKER, address])
        yield process
        process.kill()
        process.wait()

    def kill(stage, done, total):
        seen.append(done)
        process.kill()

    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as here, distributed.Client(here) as client:
        with worker(here.scheduler_address) as process:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(cluster.NoWorkers, match=r"no workers for 1\.0 seconds: start some"):
                run(client, kill)
        assert seen and seen[0] > 0
        if work == "build":
            found = cc.ShardedIndex.open(tmp_path / "built").verify()
            assert 1 <= len(found.shards) < 6
        with worker(here.scheduler_address):
            client.wait_for_workers(1, timeout=60)
            np.testing.assert_array_equal(run(client), want[work])


def test_a_build_that_is_left_lying_is_begun_anew(client, quantizer, tmp_path, monkeypatch):
    from compcodes import cluster

    settled(client)
    monkeypatch.setattr(cluster, "LOOK", 0.3)
    asked, chunked = [], da.from_array(X, chunks=(1000, 12))

    def submit(self, function, *arguments, worker=None):
        asked.append(function)
        lies = {"resources": {"none": 1}} if len(asked) in lying else {}
        return self.client.submit(cluster.called, function, *arguments, pure=False, **lies)

    lying = {2, 3}
    monkeypatch.setattr(cluster.Workers, "submit", submit)
    index = cc.ShardedIndex.build(tmp_path / "index", quantizer, chunked, 3, "ip", client=client)
    assert [shard.first_id for shard in index.shards] == [0, 2000, 4000] and len(asked) == 5
    lying = range(100)
    with pytest.raises(RuntimeError, match="does nothing of what it was asked for"):
        cc.ShardedIndex.build(tmp_path / "other", quantizer, chunked, 3, "ip", client=client)
    assert len(cc.ShardedIndex.open(tmp_path / "other")) == 0


def test_encoding_survives_a_killed_worker(client, quantizer):
    settled(client)
    codes = quantizer.encode(da.concatenate([da.from_array(X, chunks=(200, 12))] * 5))
    thread = killing(client, 0.2)
    np.testing.assert_array_equal(codes.compute(), np.concatenate([quantizer.encode(X)] * 5))
    thread.join()


def test_a_build_and_searches_survive_killed_workers(client, quantizer, tmp_path):
    settled(client)
    whole = cc.Index(quantizer, "ip").add(X)
    thread = killing(client, 0.1)
    chunked = da.from_array(X, chunks=(700, 12))
    index = cc.ShardedIndex.build(tmp_path / "index", quantizer, chunked, 6, "ip", client=client)
    thread.join()
    assert [shard.first_id for shard in index.shards] == list(range(0, 6000, 1000))
    want = whole.search(Q, 10)
    for found in (index.search(Q, 10), index.search(Q, 10, client=client)):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a, b)
    settled(client)
    thread = killing(client, 0.05)
    for _ in range(10):
        for a, b in zip(index.search(Q, 10, client=client), want, strict=True):
            np.testing.assert_array_equal(a, b)
    thread.join()
    index.remove([0, 1500, 5999])
    mask = RNG.random(5997) < 0.1
    for filter in (mask, index.ids[mask], range(10, 5000, 7), None):
        found = index.search(Q, 30, filter=filter, client=client)
        for a, b in zip(found, index.search(Q, 30, filter=filter), strict=True):
            np.testing.assert_array_equal(a, b)
    rows = X[index.ids]
    for a, b in zip(index.search(Q, 5, rerank=rows, client=client), index.search(Q, 5, rerank=rows), strict=True):
        np.testing.assert_array_equal(a, b)
    assert index.search(Q, 7000, client=client)[1].shape == (20, 7000)
    empty = cc.ShardedIndex.create(tmp_path / "empty", quantizer, "ip")
    assert (empty.search(Q, 3, client=client)[1] == -1).all()


def test_files_are_read_by_the_workers(client, quantizer, tmp_path):
    settled(client)
    (tmp_path / "vectors").mkdir()
    for i, part in enumerate(np.split(X, [2000, 2001])):
        np.save(tmp_path / "vectors" / f"{i}.npy", part)
    files = cc.data.open_many(tmp_path / "vectors")
    model = cc.CompositionalCodes(**MODEL.get_params()).fit(files)
    np.testing.assert_array_equal(model.codebooks_, quantizer.codebooks_)
    seen = []
    index = cc.ShardedIndex.build(
        tmp_path / "index", quantizer, files, 3, "ip", client=client, progress=lambda *at: seen.append(at)
    )
    assert seen[-1] == ("build", 6000, 6000)
    np.testing.assert_array_equal(index.search(Q, 10)[1], cc.Index(quantizer, "ip").add(X).search(Q, 10)[1])


def test_workers_read_the_files_of_the_client_s_folder(client, quantizer, tmp_path, monkeypatch):
    settled(client)
    folders = tmp_path / "of workers", tmp_path / "of the client"
    for folder, vectors in zip(folders, (X[::-1].copy(), X), strict=True):
        (folder / "vectors").mkdir(parents=True)
        np.save(folder / "vectors" / "0.npy", vectors)
    client.run(os.chdir, folders[0])
    monkeypatch.chdir(folders[1])
    files = cc.data.open_many("vectors")
    index = cc.ShardedIndex.build(tmp_path / "index", quantizer, files, 3, "ip", client=client)
    np.testing.assert_array_equal(index.search(Q, 10)[1], cc.Index(quantizer, "ip").add(X).search(Q, 10)[1])


def fitted_there(X):
    return cc.CompositionalCodes(**MODEL.get_params()).fit(da.from_array(X, chunks=(2000, 12))).codebooks_


def test_tasks_train_and_others_go_on_meanwhile(client, quantizer):
    settled(client)
    tasks = [client.submit(fitted_there, X, pure=False) for _ in range(5)]  # more than there are places
    for task in tasks:
        np.testing.assert_array_equal(task.result(timeout=120), quantizer.codebooks_)


def test_no_more_shards_are_built_at_a_time_than_there_are_threads(client, quantizer, tmp_path, monkeypatch):
    from compcodes import cluster

    settled(client)
    asked, submit = [], cluster.Workers.submit

    def counted(self, function, *arguments, worker=None):
        if arguments:
            asked.append(submit(self, function, *arguments, worker=worker))
            most.append(sum(not task.done() for task in asked))
        return asked[-1]

    most = []
    monkeypatch.setattr(cluster.Workers, "submit", counted)
    cc.ShardedIndex.build(tmp_path / "index", quantizer, da.from_array(X, chunks=(100, 12)), 12, "ip", client=client)
    assert len(asked) == 12 and max(most) <= 2


def test_arrays_of_dask_are_taken_as_they_come_over_the_network(client, quantizer):
    settled(client)
    far = da.from_array(X.astype(np.float32), chunks=(1000, 12))
    assert not np.asarray(far).flags.aligned  # if Dask aligns them one day, this test is of no use any more
    index = cc.Index(quantizer, "ip").add(far)
    np.testing.assert_array_equal(index.codes, quantizer.encode(X))
    assert len(index.search(far[:1000], 3, rerank=far)[1]) == 1000
    cc.ProductQuantizer(3, 16, max_iter=1).fit(far)


def test_a_single_delayed_block_is_all_vectors(client, quantizer):
    settled(client)
    model = cc.CompositionalCodes(**MODEL.get_params()).fit(dask.delayed(X))
    np.testing.assert_array_equal(model.codebooks_, quantizer.codebooks_)
    with pytest.raises(
        TypeError, match=r"X row 0 is a delayed value of Dask: want what it stands for, X row 0\.compute"
    ):
        model.encode([dask.delayed(X)])


def test_a_worker_with_another_version_is_refused(client, monkeypatch):
    settled(client)
    monkeypatch.setattr(cc._core, "__version__", "0.0.0")
    with pytest.raises(RuntimeError, match=r"this worker has compcodes .*, the client 0\.0\.0: install the same"):
        cc.CompositionalCodes(3, 16).fit(da.from_array(X.copy() + 1, chunks=(900, 12)))


def test_a_task_takes_its_worker_share_of_threads(client):
    from compcodes.cluster import share_of_threads

    settled(client)
    assert client.submit(share_of_threads, pure=False).result() == 1
    assert share_of_threads() is None


def test_columns_of_data_frames_are_blocks(client, quantizer, tmp_path):
    pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    table = pytest.importorskip("pyarrow").table({"v": list(X), "n": range(6000)})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "v.parquet", row_group_size=1500)
    model = cc.CompositionalCodes(**MODEL.get_params())
    with dask.config.set({"dataframe.convert-string": False}):
        frame = frames.read_parquet(tmp_path / "v.parquet", split_row_groups=True)
        np.testing.assert_array_equal(model.fit(frame["v"]).codebooks_, quantizer.codebooks_)
    with pytest.raises(TypeError, match="convert-string"):
        model.fit([dask.delayed(np.array(["[1 2]"]))])
