"""Runs on a real Ray cluster of two nodes: the tables are the same if nodes or processes are killed during the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from refusals import refused

from xaibench.runfolder.schema import JOBS
from xaibench.runner import ArgumentError, run

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

TABLES = ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv", "samples.safetensors")

#: Slow explainers, so that something can happen during a job, and one that kills its own process once.
PARTS = """
import os, signal, time
from pathlib import Path

def slow(model, images, targets):
    time.sleep(0.4)
    return images[:, 0]

def slower(model, images, targets):
    time.sleep(0.5)
    return images[:, 0] ** 2

def dies_once(model, images, targets):
    flag = Path(__file__).with_name("died")
    if not flag.exists() and os.getpid() != int(Path(__file__).with_name("tester").read_text()):
        flag.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return images[:, 0] * 2
"""

SUITE = """
name = "ray"
title = "Ray"
data = { parameters = { n_samples = 200 } }
training = { epochs = 2, batch_size = 64 }
explaining = { samples = 4 }
cells = [{ datasets = ["xai-tris/lin-white-8x8", "xai-tris/xor-corr-8x8"], models = ["mlp"] }]

[explainers]
saliency = {}
uniform = {}
"ray_test_parts:slow" = {}
"ray_test_parts:slower" = {}
"ray_test_parts:dies_once" = {}

[metrics]
emd_perf = {}
topk_precision = {}
"""

COMMAND = """
import sys
from xaibench.runner import run
failed = run(sys.argv[1], sys.argv[2], engine="ray", address=sys.argv[3], device="cpu").failures
sys.exit(str(failed) if failed else 0)
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder with the parts, importable here and in every worker (which are started with this environment)."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "ray_test_parts.py").write_text(PARTS)
    (folder / "ray.toml").write_text(SUITE)
    (folder / "tester").write_text(str(os.getpid()))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), before]))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    os.environ.pop("PYTHONPATH") if before is None else os.environ.__setitem__("PYTHONPATH", before)


@pytest.fixture(scope="module")
def quiet_run(parts, tmp_path_factory):
    result = run(parts / "ray.toml", tmp_path_factory.mktemp("quiet"), engine="serial", device="cpu")
    assert result.failures == {}
    return result.folder


@pytest.fixture(scope="module")
def cluster(parts):
    found = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield found
    found.shutdown()


def same_tables(folder, other):
    return [name for name in TABLES if (folder / name).read_bytes() != (other / name).read_bytes()] == []


def results(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "store").rglob("*.*") if ".partial" not in path.name}


def when(condition, limit=120):
    """Wait until a condition is true."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_node_and_a_worker_lost_in_mid_run(parts, quiet_run, cluster, tmp_path):
    node = cluster.add_node(num_cpus=1)
    folder = tmp_path / "run"
    lost = []

    def lose():
        when(lambda: len(list((folder / "store" / "explain").glob("*.safetensors"))) >= 2)
        lost.append(len(results(folder)))
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    done = []
    result = run(
        parts / "ray.toml", folder, engine="ray", address=cluster.address, device="cpu",
        progress=lambda stage, count, total: done.append((stage, count, total)),
    )  # fmt: skip
    thread.join()
    assert result.failures == {}
    assert lost[0] < result.jobs, "the node was lost while jobs were still to be run"
    assert (parts / "died").exists(), "and a worker was killed"
    assert same_tables(folder, quiet_run)
    # The progress counts the jobs of both nodes, each once.
    assert len(done) == len(set(done)) == result.jobs
    assert {(stage, total) for stage, count, total in done if count == total} == {
        ("data", 2), ("train", 2), ("explain", 10), ("score", 20),
    }  # fmt: skip
    records = JOBS.read(folder)
    ended = records[~records["failed"]]
    assert sorted(ended["key"]) == sorted(set(ended["key"])), "nothing twice"
    assert len(ended) == result.jobs
    assert records["failed"].sum() >= 1, "what was lost is written down"
    assert records[records["key"].isin(records[records["failed"]]["key"])]["failed"].min() == 0


def test_the_driver_killed_in_mid_run(parts, quiet_run, cluster, tmp_path):
    cluster.add_node(num_cpus=1)
    folder = tmp_path / "run"
    command = [sys.executable, "-c", COMMAND, str(parts / "ray.toml"), str(folder), cluster.address]
    driver = subprocess.Popen(command, start_new_session=True)
    try:
        when(lambda: (folder / "store" / "explain").exists() or driver.poll() is not None)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL, "it was still at work"
    time.sleep(1)  # Ray ends its tasks
    before = results(folder)
    assert before
    result = run(parts / "ray.toml", folder, engine="ray", address=cluster.address, device="cpu")
    assert result.failures == {}
    assert same_tables(folder, quiet_run)
    assert results(folder).items() >= before.items(), "what was finished was not computed again"
    assert list(folder.rglob("*.corrupt-*")) == []


def test_a_store_that_the_machines_do_not_share_is_named(parts, cluster, tmp_path, monkeypatch):
    from xaibench.runner.store import Store, StoreError

    monkeypatch.setattr(Store, "has", lambda self, stage, key: False)
    with pytest.raises(StoreError, match=r"are not visible on this machine; give a store that every machine reaches"):
        run(parts / "ray.toml", tmp_path / "run", engine="ray", address=cluster.address, device="cpu")


class Context:
    """Runtime context of a Ray task to which the second GPU is assigned."""

    def get_accelerator_ids(self):
        return {"GPU": ["7"]}


def test_a_task_computes_on_the_gpu_that_it_was_given(monkeypatch):
    from xaibench.runner import ray_cluster as ray_engine

    # By its index among all GPUs, because Ray reuses the process, and torch lists the visible GPUs only once.
    assert ray_engine._ALL_GPUS["env_vars"] == {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setattr(ray, "get_runtime_context", Context)
    monkeypatch.setattr(ray_engine, "run_job", lambda job, store, device: device)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [ray_engine._run_on_node(None, None, device) for device in ("cuda", "cpu")] == ["cuda:1", "cpu"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert ray_engine._run_on_node(None, None, "cuda") == "cuda:7"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "cuda"}, "no machine of the Ray cluster has a GPU"),
        ({"device": "mps"}, "device is 'mps'; expected 'auto', 'cpu' or 'cuda' with engine 'ray'"),
        ({"workers": 0}, "workers is 0; expected 1 or more"),
        ({"address": "127.0.0.1:1"}, "There is no Ray cluster at '127.0.0.1:1' .*; start one with: ray start --head"),
    ],
)
def test_what_the_cluster_has_not(parts, cluster, tmp_path, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        run(parts / "ray.toml", tmp_path / "run", engine="ray", **({"address": cluster.address} | arguments))


def test_an_address_is_for_ray_alone(parts, tmp_path):
    suite = parts / "ray.toml"
    refused(ArgumentError, "address is 'auto'", lambda: run(suite, tmp_path / "run", engine="serial", address="auto"))


def test_scores_say_nothing_of_where_they_were_made(quiet_run):
    scores = pd.read_parquet(Path(quiet_run) / "scores.parquet")
    assert len(scores) == 2 * 5 * 2 * 4
