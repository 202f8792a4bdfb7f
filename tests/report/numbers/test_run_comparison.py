import numpy as np
import pandas as pd
import pytest

from xaibench.report import RunFolderError
from xaibench.report.numbers.run_comparison import compare_runs


def write(folder, shift=0.0, noise=0.05, explainers=("saliency", "lime"), samples=60, seed=0, higher=True):
    rng, moved = np.random.default_rng(0), np.random.default_rng(seed + 1)
    parts = []
    for explainer in explainers:
        values = rng.random(samples)
        values = values + (shift if explainer == "saliency" else 0) + noise * moved.normal(size=samples)
        parts.append(
            pd.DataFrame(
                {
                    **{"dataset": "d", "scenario": "d", "background": "-", "model": "cnn", "seed": 0},
                    **{"explainer": explainer, "sample": range(samples), "correct": True, "metric": "iou"},
                    **{"value": values, "higher_is_better": higher, "reason": "", "data_seed": 0},
                }
            )
        )
    folder.mkdir()
    pd.concat(parts).to_parquet(folder / "scores.parquet")
    return folder


def test_what_moved_is_told_from_chance(tmp_path):
    table = compare_runs([write(tmp_path / "a"), write(tmp_path / "b", shift=0.1, seed=1)]).set_index("explainer")
    moved = table.loc["saliency"]
    assert moved["difference"] == pytest.approx(0.1, abs=0.03)
    assert moved["low"] < moved["difference"] < moved["high"]
    assert moved["p_holm"] < 0.01
    assert moved["better"] is True
    assert table.loc["lime", "better"] is None
    assert list(table.index) == ["saliency", "lime"]
    assert (table["n"] == 60).all()


def test_the_direction_of_the_metric_says_what_is_better(tmp_path):
    table = compare_runs([write(tmp_path / "a", higher=False), write(tmp_path / "b", shift=0.1, seed=1, higher=False)])
    assert table.iloc[0]["better"] is False


def test_the_same_run_twice_has_not_moved(tmp_path):
    table = compare_runs([write(tmp_path / "a"), tmp_path / "a", tmp_path / "a"])
    assert len(table) == 4
    assert (table["difference"] == 0).all()
    assert (table["p"] == 1).all()


def test_only_what_both_have_is_compared(tmp_path):
    one, other = write(tmp_path / "a", samples=40), write(tmp_path / "b", explainers=("lime", "rise"), samples=30)
    table = compare_runs([one, other])
    assert table["explainer"].tolist() == ["lime"]
    assert table["n"].tolist() == [30]


def test_undefined_scores_are_left_out(tmp_path):
    scores = pd.read_parquet(write(tmp_path / "a") / "scores.parquet")
    scores.loc[scores.index[:5], "value"] = np.nan
    scores.to_parquet(tmp_path / "a" / "scores.parquet")
    table = compare_runs([write(tmp_path / "b"), tmp_path / "a"])
    assert set(table["n"]) == {55}


def test_what_cannot_be_compared_is_refused(tmp_path):
    one = write(tmp_path / "a")
    with pytest.raises(RunFolderError, match="two or more run folders to compare, got 1"):
        compare_runs([one])
    with pytest.raises(RunFolderError, match=r"gone is no run folder: there is no scores\.parquet"):
        compare_runs([one, tmp_path / "gone"])
    with pytest.raises(RunFolderError, match="no score in common"):
        compare_runs([one, write(tmp_path / "c", explainers=("rise",))])
    (one / "scores.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunFolderError, match="cannot be read"):
        compare_runs([one, one])
