"""Suites of one cell that run in a second; tests state what they change."""

from pathlib import Path

import tomli_w

SMALL = {
    "name": "small",
    "title": "Small",
    "data": {"parameters": {"n_samples": 60}},
    "training": {"epochs": 1},
    "explaining": {"samples": 3},
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["mlp"]}],
    "explainers": {"saliency": {}, "uniform": {}},
    "metrics": {"iou": {}},
}


def write_suite(folder: Path, **tables) -> Path:
    """Write the small suite with other tables into a folder, and return its file."""
    folder.mkdir(exist_ok=True)
    file = folder / "suite.toml"
    file.write_text(tomli_w.dumps(SMALL | tables))
    return file
