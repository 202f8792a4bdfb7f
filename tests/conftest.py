"""Shared by all tests: the oracles are importable, and torch uses one thread (sizes are small)."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)

#: The doctest collector would import this file a second time, and torch takes the device that it registers only once.
collect_ignore = ["pretend_device.py"]
