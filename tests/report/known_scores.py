"""Runs whose order and significant differences are known."""

import json

import numpy as np
import pandas as pd

from xaibench.scores.leaderboards import boards
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize

#: Deviations of the samples, which add up to zero.
NOISE = np.tile([-0.01, 0.01], 10)


def make_board(folder, means, noise=None, higher_is_better=True, own=(), controls=("sobel",)):
    """Write a run of one cell with these mean scores of twenty samples each, and return it with its leaderboards."""
    noise = noise or {}
    rows = [
        {"explainer": name, "sample": i, "value": mean + noise.get(name, 0 * NOISE)[i]}
        for name, mean in means.items()
        for i in range(len(NOISE))
    ]
    head = {"dataset": "d", "subset": "d", "variant": "-", "model": "m", "seed": 0, "data_seed": 0, "metric": "k"}
    scores = pd.DataFrame(rows).assign(**head, correct=True, higher_is_better=higher_is_better, reason="")
    scores.to_parquet(folder / "scores.parquet")
    parts = {"explainers": {name: {"control": True} for name in controls} | {name: {"own": True} for name in own}}
    (folder / "descriptions.json").write_text(json.dumps(parts))
    run = read_run(folder)
    return run, boards(run, *infer(run, summarize(run)))
