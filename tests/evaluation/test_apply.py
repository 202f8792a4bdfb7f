import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.data import Split
from xaibench.evaluation import PROTOCOLS, apply
from xaibench.evaluation.apply import (
    AppliedExplainer,
    AppliedMetric,
    decode_maps,
    encode_maps,
    round_maps,
    to_device,
    training_batches,
)
from xaibench.evaluation.protocol import SIGNS, resolve_sign
from xaibench.explainers import NotFittedError, NotFittedForModelError
from xaibench.metrics import METRICS, chance_level
from xaibench.metrics.shared.inputs import PERFECT_CHANCE
from xaibench.registry.info import ExplainerInfo, MetricInfo

#: A map that is positive everywhere and large inside the mask: it is right only if it is scaled.
MAPS = torch.tensor([[[1.0, 0.2], [0.2, 0.1]]])
BATCH = (torch.zeros(1, 1, 2, 2), torch.tensor([[[True, False], [False, False]]]), torch.tensor([0]))


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()


@pytest.fixture
def split():
    rng = torch.Generator().manual_seed(0)
    images, masks = torch.randn(20, 1, 2, 2, generator=rng), torch.zeros(20, 2, 2, dtype=torch.bool)
    masks[:, 0] = True
    return Split(images, masks, torch.arange(20) % 2)


@pytest.mark.parametrize(
    "metric", ["iou", "jaccard", "IoU", "xaibench.metrics.localization.iou:iou", "xaibench:iou", xb.iou]
)
@pytest.mark.parametrize(("protocol", "score"), [("area", 1.0), ("scaled", 1.0), ("published", 0.25)])
def test_the_protocol_goes_by_the_metric_and_not_by_its_name(metric, protocol, score):
    applied = AppliedMetric(metric, protocol=protocol)
    assert applied.name == "iou"
    assert applied(MAPS, BATCH)["value"].tolist() == [score]


@MetricInfo("Own", "ground-truth", higher_is_better=True, range=(0.0, 1.0), thresholded=True)
def own(maps, masks, *, threshold=0.0, reduction="mean"):
    return (maps > threshold).mean((1, 2))


def test_a_metric_of_ones_own_that_says_it_is_cut_is_cut():
    scores = {p: AppliedMetric(own, protocol=p)(MAPS, BATCH)["value"].tolist() for p in ("scaled", "published")}
    assert scores == {"scaled": [0.25], "published": [1.0]}


#: Largest by magnitude in the mask, by value outside.
SIGNED = torch.tensor([[[-3.0, 1.0], [2.0, -0.5]]])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"])
def test_a_sign_is_that_of_all_metrics_except_those_whose_definition_leaves_no_choice(name, protocol):
    info = METRICS.resolve(name).info
    read = METRICS.resolve(info.skill_of).info if info.skill_of else info
    drops_sign = read.map_sign == "magnitude" or (read.thresholded and protocol == "scaled")
    expected = {"magnitude": SIGNED.abs(), "signed": SIGNED.clip(0) if drops_sign else SIGNED}
    if info.map_sign == "own":
        expected = {"magnitude": SIGNED, "signed": SIGNED}
    for sign, maps in expected.items():
        scored = AppliedMetric(name, protocol=protocol, sign=sign)(SIGNED, BATCH)
        pd.testing.assert_frame_equal(scored, AppliedMetric(name, protocol=protocol)(maps, BATCH))


@pytest.mark.parametrize(("sign", "score"), [("magnitude", 1.0), ("signed", 0.0)])
def test_one_map_is_ranked_in_one_way(sign, score):
    for name in ("hit", "iou", "f1", "topk_precision"):
        assert AppliedMetric(name, protocol="area", sign=sign)(SIGNED, BATCH)["value"].tolist() == [score]


def test_a_function_without_a_record_gets_maps_as_they_are():
    def most_negative(maps, masks, *, reduction="mean"):
        return maps.reshape(len(maps), -1).min(axis=1)

    for sign, protocol in itertools.product((*SIGNS, None), PROTOCOLS):
        scores = AppliedMetric(most_negative, protocol=protocol, sign=sign)(SIGNED, BATCH)
        assert scores["value"].tolist() == [-3.0]
        assert resolve_sign(None, protocol, sign) is None
    assert resolve_sign(METRICS.resolve("sparseness").info, "published", "signed") is None
    assert resolve_sign(METRICS.resolve("insertion").info, "published", "magnitude") is None


def test_evaluate_passes_signed_maps_to_a_function(split):
    maps = np.random.default_rng(0).integers(-9, 9, (20, 2, 2)).astype(np.float32)

    def most_negative(maps, masks, *, reduction="mean"):
        return maps.reshape(len(maps), -1).min(axis=1)

    scores = xb.evaluate({"mine": maps}, split, metrics=[most_negative], controls=False).scores
    assert scores["value"].tolist() == maps.reshape(20, -1).min(axis=1).tolist()


@pytest.mark.parametrize(("map_sign", "expected"), [("own", SIGNED), ("value", SIGNED.abs())])
def test_a_record_states_how_a_metric_of_ones_own_reads_signs(map_sign, expected):
    seen = []

    @MetricInfo("Own", "ground-truth", higher_is_better=True, map_sign=map_sign)
    def metric(maps, masks, *, reduction="mean"):
        seen.append(maps.copy())
        return np.zeros(len(maps))

    AppliedMetric(metric, protocol="area", sign="magnitude")(SIGNED, BATCH)
    assert np.array_equal(seen[0], expected)


@pytest.mark.parametrize(
    ("maps", "protocol", "parameters", "reason"),
    [
        (torch.ones(1, 2, 2), "scaled", {}, "no pixel above the threshold: scored as chance"),
        (-torch.ones(1, 2, 2), "published", {}, "no pixel above the threshold: scored as chance"),
        (MAPS, "scaled", {"threshold": 1.0}, "no pixel above the threshold"),
        (MAPS, "published", {"threshold": 2.0}, "no pixel above the threshold"),
        (MAPS, "published", {}, ""),
        (torch.zeros(1, 2, 2), "area", {}, "map is all zero: scored as chance"),
        (torch.zeros(1, 2, 2), "scaled", {"threshold": "area"}, "map is all zero: scored as chance"),
        (-torch.ones(1, 2, 2), "area", {}, ""),
    ],
)
def test_the_reason_is_of_the_map_and_threshold_that_were_used(maps, protocol, parameters, reason):
    table = AppliedMetric("precision", parameters, protocol=protocol)(maps, BATCH)
    assert table["reason"].tolist() == [reason]
    assert table["value"].isna().tolist() == [reason.endswith("threshold")], "noise has no score either"


def test_a_metric_that_is_asked_for_its_curve_gives_one_a_sample(split):
    model, images, targets = network(), split.images, split.targets
    maps = xb.explain("saliency", model, images, targets, device="cpu")
    table = AppliedMetric("deletion", {"return_curves": True}, protocol="scaled", device="cpu")(maps, split[:], model)
    assert list(table) == ["sample", "value", "curve", "reason"]
    scores, curves = xb.deletion(model, images, maps, targets, reduction="none", return_curves=True)
    assert np.array_equal(table["value"], scores, equal_nan=True)
    assert np.array_equal(table["curve"].tolist(), curves.values.tolist(), equal_nan=True)


def test_what_a_metric_needs_must_be_there(split):
    maps = split.masks.float()
    with pytest.raises(ValueError, match="Metric 'deletion' needs a model, but none was given; give one"):
        AppliedMetric("deletion", protocol="scaled")(maps, split[:])
    with pytest.raises(ValueError, match="Metric 'sensitivity_max' needs the explainer, but none was given; give the"):
        AppliedMetric("sensitivity_max", protocol="scaled", device="cpu")(maps, split[:], network())
    with pytest.raises(TypeError, match="Metric 'iou' has no parameter 'reduction'"):
        AppliedMetric("iou", {"reduction": "mean"}, protocol="scaled")


def fits(explainer, split, **settings):
    batches = functools.partial(training_batches, split)
    return AppliedExplainer(explainer, settings, device="cpu", training=batches)


def fitted_by_hand(model, split):
    return xb.explainers.PatternNet().fit(model, [split[:]])


@pytest.mark.parametrize("give", ["pattern_net", "PatternNet", xb.explainers.PatternNet, xb.explainers.PatternNet()])
def test_what_must_be_fitted_is_fitted_to_the_network_it_explains(give, split):
    applied = fits(give, split)
    for model in (network(), network(1)):
        expected = xb.explain(fitted_by_hand(model, split), model, split.images, split.targets, device="cpu")
        assert torch.equal(applied(model, split.images, split.targets), expected)


def test_a_network_of_the_same_weights_is_not_fitted_to_again(split):
    @ExplainerInfo("Counting")
    class Counting:
        times = 0

        def fit(self, model, loader):
            Counting.times += 1
            return self

        def __call__(self, model, images, targets):
            return images[:, 0]

    applied, model = fits(Counting, split), network()
    for asked in (model, network(), model):
        applied(asked, split.images, split.targets)
    assert Counting.times == 1
    with torch.no_grad():
        model[1].weight += 1
    applied(model, split.images, split.targets)
    assert Counting.times == 2


class Brightness:
    """An explainer of a user: the image times what it was fitted to."""

    factor = 0.0

    def fit(self, model, loader):
        fitted = Brightness()
        fitted.factor = 2.0
        return fitted

    def __call__(self, model, images, targets):
        return self.factor * images[:, 0]


@pytest.mark.parametrize("give", [Brightness, Brightness()])
def test_an_object_of_a_user_is_fitted_like_its_class(give, split):
    assert torch.equal(fits(give, split)(network(), split.images, split.targets), 2 * split.images[:, 0])


def test_an_object_of_a_user_that_says_it_is_fitted_is_not_fitted_again(split):
    own = Brightness()
    own.factor, own.fitted = 3.0, True
    assert torch.equal(fits(own, split)(network(), split.images, split.targets), 3 * split.images[:, 0])


def test_an_object_that_comes_fitted_is_left_as_it_is_until_the_weights_change(split):
    model, few = network(), [split[:5]]
    own = xb.explainers.PatternNet().fit(model, few)
    applied = fits(own, split)
    expected = xb.explain(own, model, split.images, split.targets, device="cpu")
    assert torch.equal(applied(model, split.images, split.targets), expected)
    other = network(1)
    expected = xb.explain(fitted_by_hand(other, split), other, split.images, split.targets, device="cpu")
    assert torch.equal(applied(other, split.images, split.targets), expected)


def test_a_control_is_fitted_once_with_or_without_a_network(split):
    calls = []

    def batches():
        calls.append(None)
        return training_batches(split)

    applied = AppliedExplainer("prior", device="cpu", training=batches)
    expected = split.masks.double().mean(0)
    for model in (None, network(), network(1), None):
        maps = applied(model, split.images.double(), split.targets)
        assert all(one.double().equal(expected) for one in maps)
    assert calls == [None]


def test_without_training_samples_nothing_is_fitted(split):
    model = network()
    with pytest.raises(NotFittedError, match=r"PatternNet is not fitted\. Fit it to the network first"):
        AppliedExplainer("pattern_net", device="cpu")(model, split.images, split.targets)
    for explainer in (Brightness, Brightness()):
        with pytest.raises(NotFittedError, match=r"Brightness is not fitted\..*give a data set"):
            AppliedExplainer(explainer, device="cpu")(model, split.images, split.targets)
    fitted = AppliedExplainer(fitted_by_hand(model, split), device="cpu")
    fitted(model, split.images, split.targets)
    with pytest.raises(NotFittedForModelError, match="weights have changed"):
        fitted(network(1), split.images, split.targets)


@pytest.mark.parametrize("metric", ["parameter_randomization", "sensitivity_max", "data_consistency"])
def test_metrics_of_the_explainer_ask_a_fitted_one_like_any_other(metric, split):
    model = network()

    def by_hand(asked, images, targets):
        return xb.explain(fitted_by_hand(asked, split), asked, images, targets, device="cpu")

    applied, samples = AppliedMetric(metric, protocol="scaled", device="cpu"), split[:6]
    maps = by_hand(model, samples[0], samples[2])
    found = applied(maps, samples, model, fits("pattern_net", split))["value"].to_numpy()
    expected = getattr(xb.metrics, metric)(by_hand, model, samples[0], samples[2], reduction="none").numpy()
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.isfinite(found).any()


def test_settings_of_explain_stand_among_the_parameters(split):
    model = network()
    applied = AppliedExplainer(
        "lime", {"n_samples": 30, "seed": 3, "channels": "abs_sum"}, seed=0, output="logit", device="cpu"
    )
    settings = {"n_samples": 30, "seed": 3, "channels": "abs_sum", "output": "logit"}
    expected = xb.explain("lime", model, split.images, split.targets, device="cpu", **settings)
    assert torch.equal(applied(model, split.images, split.targets), expected)


def test_a_model_is_copied_only_to_another_place():
    model = network()
    assert to_device(model, "cpu") is model
    assert to_device(model, "meta") is not model
    assert next(model.parameters()).device.type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("metric", ["deletion", "sensitivity_max", "parameter_randomization"])
def test_what_asks_the_model_asks_it_on_the_stated_device(metric, split):
    seen = set()
    model = network()
    model.register_forward_pre_hook(lambda module, inputs: seen.add(inputs[0].device.type))
    applied = AppliedMetric(metric, protocol="scaled", device="cuda")
    maps = split.masks[:4].float()
    applied(maps, split[:4], model, AppliedExplainer("saliency", device="cuda"))
    assert seen == {"cuda"}
    assert next(model.parameters()).device.type == "cpu"


def wide(seed=0):
    """float64 maps with usual, tiny and huge magnitudes, 40 decades in one map, zeros, and digits beyond float32."""
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((6, 8, 8)) * np.array([1.0, 1e-60, 1e300, 1e-310, 1.0, 0.0])[:, None, None]
    maps[4] = 10.0 ** rng.uniform(-40, 0, (8, 8))
    return torch.from_numpy(maps)


def test_maps_are_kept_in_four_bytes_a_pixel_and_come_back_to_a_ten_millionth():
    maps = wide()
    kept = encode_maps(maps)
    assert kept["maps"].dtype == torch.float32
    assert sum(part.numel() * part.element_size() for part in kept.values()) == 6 * (64 * 4 + 2)
    back = decode_maps(kept)
    assert back.dtype == torch.float64
    np.testing.assert_allclose(back[:3], maps[:3], rtol=2**-24, atol=0)
    largest = maps.abs().amax((1, 2), keepdim=True)
    assert ((back - maps).abs() <= 2**-24 * largest).all()
    assert torch.equal(round_maps(back), back)
    for same in (maps.float(), maps.half(), maps > 0):  # other dtypes are not changed
        assert list(encode_maps(same)) == ["maps"]
        assert torch.equal(round_maps(same), same)
    assert round_maps(maps[:0]).shape == (0, 8, 8)


def test_scores_of_kept_maps_are_those_of_the_maps(monkeypatch):
    maps, rng = wide()[:4].abs(), np.random.default_rng(1)  # for metrics that do not take magnitudes
    batch = (torch.zeros(4, 1, 8, 8), torch.from_numpy(rng.random((4, 8, 8)) < 0.2), torch.zeros(4).long())
    metrics = [AppliedMetric(name, protocol="scaled") for name in METRICS]
    metrics = [metric for metric in metrics if metric.info.kind in ("ground-truth", "map")]
    kept = [metric(maps, batch)["value"] for metric in metrics]
    monkeypatch.setattr(apply, "round_maps", lambda maps: maps)
    for metric, found in zip(metrics, kept, strict=True):
        np.testing.assert_allclose(found, metric(maps, batch)["value"], rtol=0, atol=1e-6)


def test_where_a_kept_map_ties_what_differed_by_less_the_order_moves():
    # The only case in which a score changes by more than rounding: ranks of pixels that agree to seven digits.
    maps = torch.tensor([[[1.0, 1.0 + 1e-9]]], dtype=torch.float64)
    batch = (torch.zeros(1, 1, 1, 2), torch.tensor([[[False, True]]]), torch.tensor([0]))
    assert xb.topk_precision(maps, batch[1]) == 1.0
    assert AppliedMetric("topk_precision", protocol="scaled")(maps, batch)["value"].tolist() == [
        xb.topk_precision(torch.ones(1, 1, 2), batch[1])
    ]


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
