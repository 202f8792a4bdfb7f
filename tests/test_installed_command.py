"""The installed command finds parts of one's own where they lie: in the folder it is run in, or beside the suite."""

import os

import numpy as np
import pytest
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
