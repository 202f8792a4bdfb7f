"""Maps that a metric cannot score are scored as chance, so that a method does not gain by leaving images out."""

import numpy as np
import pytest
import torch

import xaibench as xb
from xaibench.evaluation import PROTOCOLS
from xaibench.evaluation.apply import AppliedMetric
from xaibench.metrics import METRICS, chance_level
from xaibench.metrics.shared.inputs import PERFECT_CHANCE

RAW = [name for name in METRICS if METRICS.resolve(name).info.chance_level]
SKILLS = [name for name in METRICS if METRICS.resolve(name).info.skill_of]
#: Scores of a zero map that are defined.
DEFINED = {"iou": 0.0, "recall": 0.0, "f1": 0.0}
CHANCE = ": scored as chance"


def samples():
    """Masks of several sizes, the last one empty."""
    masks = torch.from_numpy(np.random.default_rng(0).random((5, 6, 6)) < 0.3)
    masks[4] = False
    return torch.rand(5, 1, 6, 6), masks, torch.zeros(5, dtype=torch.int64)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", RAW)
def test_a_zero_map_has_the_chance_level_and_an_empty_mask_no_score(name, protocol):
    table = AppliedMetric(name, protocol=protocol)(torch.zeros(5, 6, 6), samples())
    assert table["reason"].iloc[4] == "mask is empty"
    assert np.isnan(table["value"].iloc[4])
    if name in DEFINED and protocol != "area":
        assert table["value"].tolist()[:4] == [DEFINED[name]] * 4
        assert table["reason"].tolist()[:4] == [""] * 4
        return
    thresholds = {"scaled": {"threshold": 0.5, "scaled": True}, "area": {"threshold": "area"}}
    expected = chance_level(name, samples()[1][:4].numpy(), thresholds.get(protocol, {}))
    np.testing.assert_array_equal(table["value"][:4], expected)
    assert table["reason"][:4].str.endswith(CHANCE).all()


@pytest.mark.parametrize("name", SKILLS)
def test_the_skill_of_a_zero_map_is_exactly_zero(name):
    table = AppliedMetric(name, protocol="scaled")(torch.zeros(5, 6, 6), samples())
    assert table["value"].tolist()[:4] == [0.0] * 4
    assert table["reason"].tolist() == [f"map is all zero{CHANCE}"] * 4 + ["mask is empty"]


def test_the_skill_is_zero_also_if_the_raw_scores_were_rounded():
    metric = AppliedMetric("emd_skill", protocol="scaled")
    raw = metric.raw(torch.zeros(5, 6, 6), samples())
    raw["value"] = raw["value"].astype("float32").astype(float)
    assert metric.against_chance(raw, samples()[1])["value"].tolist()[:4] == [0.0] * 4


def test_where_chance_is_perfect_the_skill_stays_undefined():
    images, masks, targets = samples()
    full = torch.ones_like(masks)
    table = AppliedMetric("precision_skill", protocol="scaled")(torch.zeros(5, 6, 6), (images, full, targets))
    assert table["value"].isna().all()
    assert set(table["reason"]) == {PERFECT_CHANCE}


def test_other_metrics_and_the_functions_stay_as_they_are():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 2))
    table = AppliedMetric("deletion", protocol="scaled", device="cpu")(torch.zeros(5, 6, 6), samples(), model)
    assert table["value"].isna().all()
    assert set(table["reason"]) == {"map is constant"}
    assert np.isnan(xb.emd_perf(np.zeros((1, 6, 6)), samples()[1][:1].numpy(), reduction="none")).all()


def test_a_metric_without_a_chance_level_stays_undefined():
    def own(maps, masks, *, reduction="mean"):
        return np.where(maps.any((1, 2)), 0.5, np.nan)

    table = AppliedMetric(own, protocol="scaled")(torch.zeros(5, 6, 6), samples())
    assert table["value"].isna().all()
    assert table["reason"].tolist() == ["map is all zero"] * 4 + ["mask is empty"]


@pytest.mark.parametrize("metric", ["emd_perf", "emd_skill", "topk_precision", "precision_skill", "roc_auc"])
def test_a_method_that_leaves_images_out_does_not_gain(metric):
    data = xb.load("xai-tris/lin-white-8x8", n_samples=400, alpha=0.3)
    model = xb.models.build("llr", (1, 8, 8), 2, seed=0)
    xb.models.fit(model, data.train, data.val, epochs=30, batch_size=64, lr=0.02, progress=False, device="cpu")
    honest = xb.explain("input_x_gradient", model, data.test.images, data.test.targets, device="cpu", progress=False)
    scores = AppliedMetric(metric, protocol="scaled")(honest, data.test[:])["value"].to_numpy()
    worse = int(scores[1::2].mean() < scores[::2].mean())  # of the images at even or odd places
    picky = honest.clone()
    picky[worse::2] = 0
    kept = np.delete(scores, np.arange(worse, len(scores), 2))
    assert kept.mean() > scores.mean(), "the mean over the other images is higher"
    found = xb.evaluate({"honest": honest, "picky": picky}, data, metrics=[metric], controls=False, progress=False)
    means = found.summary().set_index("method")["mean"]
    assert means["picky"] < means["honest"]
    assert found.summary()["n_valid"].tolist() == [len(scores)] * 2
    note = (
        f"Maps scored as chance, because they are constant or no pixel is above the threshold: picky {len(picky) // 2}."
    )
    assert note in found.notes()


def test_undefined_scores_are_counted_where_there_are_any():
    images, masks, targets = samples()
    found = xb.evaluate(
        {"mine": torch.rand(5, 6, 6)}, xb.data.Split(images, masks, targets), metrics=["iou", "hit"], controls=False
    )
    assert found.notes()[1:] == [
        "iou: 4 of 5 samples have a score (1: mask is empty).",
        "hit: 4 of 5 samples have a score (1: mask is empty).",
    ]
    whole = xb.data.Split(images[:4], masks[:4], targets[:4])
    assert len(xb.evaluate({"mine": torch.rand(4, 6, 6)}, whole, metrics=["iou"], controls=False).notes()) == 1


def test_a_metric_without_any_score_says_why():
    images, masks, targets = samples()
    split = xb.data.Split(images, torch.zeros_like(masks), targets)
    found = xb.evaluate({"mine": torch.rand(5, 6, 6)}, split, metrics=["iou", "hit"], controls=["uniform"])
    assert "nan" not in str(found)
    assert found.table().to_numpy().tolist() == [["–", "–"], ["–", "–"]]
    assert "iou: 0 of 5 samples have a score (5: mask is empty)." in found.notes()


def test_a_method_with_fewer_scores_is_named():
    images, masks, targets = samples()
    maps = torch.rand(5, 6, 6)
    maps[1] = 0

    def without_zeros(maps, masks, *, reduction="none"):
        return np.where(maps.any((1, 2)), 0.5, np.nan)

    split = xb.data.Split(images, masks, targets)
    found = xb.evaluate({"mine": maps, "other": torch.rand(5, 6, 6)}, split, metrics=[without_zeros], controls=False)
    (note,) = [note for note in found.notes() if "have a score" in note]
    assert note.startswith("without_zeros, mine: 4 of 5 samples have a score (1: ")


def test_a_single_sample_has_no_interval():
    images, masks, targets = samples()
    split = xb.data.Split(images[:1], masks[:1], targets[:1])
    found = xb.evaluate({"mine": torch.rand(1, 6, 6)}, split, metrics=["iou"], controls=False)
    assert found.table().iloc[0, 0].endswith(" [–]")
