"""Paths of weights, and reading them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from refusals import refused

from xaibench.models import WeightsNotFoundError
from xaibench.models.networks.pretrained_weights import is_file, named_weights, read_weights


@pytest.mark.parametrize("weights", ["a.pth", "a.pt", "a.bin", "a.safetensors", "folder/a", Path("a")])
def test_paths(weights):
    assert is_file(weights)


@pytest.mark.parametrize("weights", ["IMAGENET1K_V1", "pretrained", None])
def test_names(weights):
    assert not is_file(weights)


def test_the_default_is_torchvisions_first_and_its_statistics_come_along():
    entry = named_weights("resnet50", "IMAGENET1K_V1")
    assert entry.name == "IMAGENET1K_V1"
    assert tuple(entry.transforms().mean) == (0.485, 0.456, 0.406)
    refused(ValueError, "'V2'", lambda: named_weights("resnet50", "V2"))


@pytest.mark.parametrize("name", ["broken.pth", "broken.safetensors"])
def test_a_broken_file_says_so(tmp_path, name):
    (tmp_path / name).write_bytes(b"no tensors at all")
    refused(ValueError, name, read_weights, tmp_path / name)


@pytest.mark.parametrize("content", [[torch.zeros(1)], {}, {"epoch": 3}, torch.zeros(2)])
def test_something_else_than_tensors_by_name_and_no_file(tmp_path, content):
    torch.save(content, tmp_path / "a.pth")
    refused(ValueError, "tensors", lambda: read_weights(tmp_path / "a.pth"))
    refused(WeightsNotFoundError, "no such file", lambda: read_weights("/nowhere/a.pth"))
