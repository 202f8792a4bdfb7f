import numpy as np
import pandas as pd
import pytest
from refusals import refused
from scipy import stats

from xaibench.report import RunFolderError
from xaibench.scores.run_comparison import compare_runs


def write(
    folder, shift=0.0, noise=0.05, explainers=("saliency", "lime"), samples=60, seed=0, higher=True, images=range(1000)
):
    rng, moved = np.random.default_rng(0), np.random.default_rng(seed + 1)
    parts = []
    for explainer in explainers:
        values = rng.random(samples)
        values = values + (shift if explainer == "saliency" else 0) + noise * moved.normal(size=samples)
        parts.append(
            pd.DataFrame(
                {
                    **{"dataset": "d", "subset": "d", "variant": "-", "model": "cnn", "seed": 0},
                    **{"explainer": explainer, "sample": range(samples), "correct": True, "metric": "iou"},
                    **{"value": values, "higher_is_better": higher, "reason": "", "data_seed": 0},
                }
            )
        )
    folder.mkdir()
    pd.concat(parts).to_parquet(folder / "scores.parquet")
    if images is not None:
        rows = {"dataset": "d", "data_seed": 0, "sample": range(samples), "image": list(images)[:samples]}
        pd.DataFrame(rows).to_parquet(folder / "images.parquet")
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
    refused(RunFolderError, "", compare_runs, [one])
    refused(RunFolderError, "gone", lambda: compare_runs([one, tmp_path / "gone"]))
    refused(RunFolderError, "", lambda: compare_runs([one, write(tmp_path / "c", explainers=("rise",))]))
    (one / "scores.parquet").write_bytes(b"PAR1")
    refused(RunFolderError, "", compare_runs, [one, one])


def test_the_same_image_is_paired_wherever_it_stands(tmp_path):
    one = write(tmp_path / "a", noise=0)
    other = write(tmp_path / "b", noise=0, images=range(59, -1, -1))
    scores = pd.read_parquet(other / "scores.parquet")
    scores["value"] = scores.groupby("explainer")["value"].transform(lambda values: values.to_numpy()[::-1])
    scores.to_parquet(other / "scores.parquet")
    table = compare_runs([one, other])
    assert table["paired"].all()
    assert (table["difference"] == 0).all()


@pytest.mark.parametrize("images", [None, range(2000, 3000)])
def test_unlike_or_unknown_images_are_not_paired(tmp_path, images):
    """The first image of one run is not that of the other, though both have the number 0."""
    one = write(tmp_path / "a", samples=80)
    table = compare_runs([one, write(tmp_path / "b", shift=0.2, samples=60, images=images)]).set_index("explainer")
    assert not table["paired"].any()
    assert set(table["n"]) == {60}
    moved = table.loc["saliency"]
    values = [
        pd.read_parquet(tmp_path / name / "scores.parquet").query("explainer == 'saliency'")["value"] for name in "ab"
    ]
    smaller_df = 2 * stats.t.sf(abs(stats.ttest_ind(*values, equal_var=False).statistic), 59)
    assert smaller_df * (1 - 1e-9) <= moved["p"] <= 1.5 * smaller_df  # more for skewed scores
    assert moved["difference"] == pytest.approx(values[1].mean() - values[0].mean())
    assert moved["low"] < moved["difference"] < moved["high"]


def test_few_shared_images_make_no_pairs(tmp_path):
    table = compare_runs([write(tmp_path / "a"), write(tmp_path / "b", images=[*range(29), *range(100, 200)])])
    assert not table["paired"].any()
    table = compare_runs([tmp_path / "a", write(tmp_path / "c", images=[*range(30), *range(100, 200)])])
    assert table["paired"].all()
    assert set(table["n"]) == {30}


@pytest.mark.parametrize("images", [None, range(1000)])
def test_rounding_is_no_difference(tmp_path, images):
    one, other = write(tmp_path / "a", noise=0, images=images), write(tmp_path / "b", noise=0, images=images)
    scores = pd.read_parquet(other / "scores.parquet")
    scores["value"] += 6e-10
    scores.to_parquet(other / "scores.parquet")
    table = compare_runs([one, other])
    assert table["better"].isna().all()
    if images is not None:
        assert (table["p"] == 1).all()


@pytest.mark.parametrize("step", [0.0, 1e-9, 0.5])
def test_runs_that_each_score_all_alike(tmp_path, step):
    one, other = write(tmp_path / "a", images=None), write(tmp_path / "b", images=None)
    for number, folder in enumerate((one, other)):
        pd.read_parquet(folder / "scores.parquet").assign(value=0.25 + number * step).to_parquet(
            folder / "scores.parquet"
        )
    table = compare_runs([one, other])
    assert list(table["better"]) == ([True] * 2 if step == 0.5 else [None] * 2)


def patients(folder, groups):
    rows = {"dataset": "d", "data_seed": 0, "sample": range(len(groups)), "id": "", "group": groups, "file": ""}
    pd.DataFrame(rows).to_csv(folder / "samples.csv", index=False)


@pytest.mark.parametrize("images", [range(1000), None])
def test_slices_of_a_patient_are_no_patients(tmp_path, images):
    """Four slices of each of fifteen patients: a test over sixty slices is surer than one over fifteen patients."""
    folders = [
        write(tmp_path / name, shift=shift, seed=shift > 0, images=images) for name, shift in (("a", 0), ("b", 0.1))
    ]
    table = pd.read_parquet(folders[1] / "scores.parquet")
    table["value"] += np.random.default_rng(3).normal(0, 0.3, 15)[table["sample"] // 4]  # patients change alike
    table.to_parquet(folders[1] / "scores.parquet")
    alone = compare_runs(folders).set_index("explainer")
    for folder in folders:
        patients(folder, np.arange(60) // 4)
    grouped = compare_runs(folders).set_index("explainer")
    width, narrow = (found["high"] - found["low"] for found in (grouped, alone))
    assert (grouped["difference"] - alone["difference"]).abs().max() < 1e-12
    if images is not None:
        assert (width / narrow > 1.6).all()
        values = [
            pd.read_parquet(folder / "scores.parquet").query("explainer == 'lime'")["value"] for folder in folders
        ]
        means = (values[1] - values[0]).to_numpy().reshape(15, 4).mean(axis=1)
        student = stats.ttest_1samp(means, 0).pvalue
        assert student <= grouped.loc["lime", "p"] <= student + 0.1  # more for skewed differences
    else:
        assert (width / narrow > 1.1).all()


def test_a_sample_without_a_group_is_one_by_itself(tmp_path):
    folders = [write(tmp_path / "a"), write(tmp_path / "b", shift=0.1, seed=1)]
    alone = compare_runs(folders)
    for folder in folders:
        patients(folder, [None] * 60)
    pd.testing.assert_frame_equal(compare_runs(folders), alone)
    patients(folders[0], np.arange(60) // 4)
    (folders[1] / "samples.csv").unlink()
    one_knows = compare_runs(folders)
    patients(folders[1], np.arange(60) // 4)
    pd.testing.assert_frame_equal(compare_runs(folders), one_knows)
