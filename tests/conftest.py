"""Shared by all tests: the oracles are importable, and torch uses one thread (sizes are small)."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
