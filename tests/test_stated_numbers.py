"""Sentences of the documentation that name every, all or none, recomputed from the committed results."""

from pathlib import Path

import pandas as pd
import pytest

from xaibench.explainers import EXPLAINERS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "examples/leaderboard/results"


def rigid_corr_means(suite):
    """Return the EMD performance of each explainer and network on RIGID CORR."""
    means = {}
    for file in sorted(RESULTS.glob(f"*/{suite}@*/scores.parquet")):
        rows = pd.read_parquet(file, filters=[("metric", "==", "emd_perf")])
        rows = rows[rows["dataset"].astype(str).str.contains("rigid-corr")]
        for (explainer, model), values in rows.groupby(["explainer", "model"], observed=True)["value"]:
            means[explainer, model] = values.mean()
    return means


@pytest.mark.parametrize(("suite", "above", "count"), [("xai-tris-8x8", 85, 85), ("xai-tris-64x64", 75, 83)])
def test_the_laplace_filter_is_above_explainers_on_rigid_corr(suite, above, count):
    means = rigid_corr_means(suite)
    infos = {name: getattr(EXPLAINERS.resolve(name), "info", None) for name in EXPLAINERS}
    others = {name for name, info in infos.items() if info and (info.control or info.reference)}
    explainers = [key for key in means if key[0] not in others]
    laplace = [means["laplace", model] > means[name, model] for name, model in explainers]
    assert (sum(laplace), len(laplace)) == (above, count)
    home = (ROOT / "docs/index.md").read_text()
    assert "At 8×8 pixels, on moved and rotated shapes with correlated backgrounds" in home
    assert "At 64×64 pixels it is above in 75 of 83." in home
