"""The installed command: it finds parts of one's own in the folder it is run in or beside the suite, and cleans up."""

import os

import numpy as np
import pytest
from fresh_process import run_fresh
from installed import SCRIPT, installed

MINE = """
import torch

def squared(model, images, targets):
    return images.square().sum(1)

def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
"""
SUITE = """
name = "own"
title = "Own"
data = { parameters = { n_samples = 100 } }
training = { seeds = [0], epochs = 1 }
explaining = { samples = 4 }
cells = [{ datasets = ["xai-tris/lin-white-8x8"], models = ["llr"] }]
explainers = { "mine_of_the_test:squared" = {} }
metrics = { topk_precision = {} }
"""


@pytest.fixture(scope="module")
def xaibench(tmp_path_factory):
    with installed(tmp_path_factory.mktemp("said")) as command:
        yield command


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine_of_the_test.py").write_text(MINE)
    return tmp_path


def test_the_command_is_the_one_that_a_shell_runs():
    assert os.access(SCRIPT, os.X_OK)
    assert "xaibench.cli" in SCRIPT.read_text(encoding="utf-8")


def test_a_suite_finds_parts_where_it_is_run_and_where_it_lies(xaibench, folder):
    (folder / "suites").mkdir()
    (folder / "suites" / "beside_the_suite.py").write_text(MINE)
    both = '"mine_of_the_test:squared" = {}, "beside_the_suite:squared" = {}'
    (folder / "suites" / "own.toml").write_text(SUITE.replace('"mine_of_the_test:squared" = {}', both))
    ended = xaibench("run", "suites/own.toml", "--workers", "1", folder=folder)  # in a worker process
    assert ended.exit_code == 0, ended.stderr
    assert "6 jobs" in ended.stdout


def test_score_finds_a_network_in_the_folder_it_is_run_in(xaibench, folder):
    np.save(folder / "maps.npy", np.random.default_rng(0).random((1000, 8, 8)))
    ended = xaibench(
        *("score", "maps.npy", "--dataset", "xai-tris/lin-white-8x8", "--metrics", "average_drop"),
        *("--model", "mine_of_the_test:small"),
        folder=folder,
    )
    assert ended.exit_code == 0, ended.stderr
    assert "average_drop" in ended.stdout


#: ``xaibench`` at work on a temporary folder when it is told to end.
STOPPED = """
import os, signal, tempfile
import xaibench.cli

def at_work():
    with tempfile.TemporaryDirectory() as folder:
        print(folder, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

xaibench.cli.app = at_work
xaibench.cli.main()
"""


def test_a_command_that_is_told_to_end_deletes_its_temporary_folders():
    ended = run_fresh(STOPPED, check=False)
    assert ended.returncode == 128 + 15, ended.stderr
    assert os.path.isabs(folder := ended.stdout.strip())
    assert not os.path.exists(folder)
