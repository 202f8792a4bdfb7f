"""What every metric does with its input, and what all of them promise about its output."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xaibench import metrics
from xaibench.metrics import undefined_reasons
from xaibench.metrics.shared import inputs

OF_MAGNITUDE = ["emd", "emd_perf", "topk_precision", "mass_accuracy"]
OF_RANKS = ["topk_precision", "hit", "roc_auc", "average_precision"]
AT_THRESHOLD = ["iou", "precision", "recall", "f1"]
OF_ANY_SCALE = list(dict.fromkeys(OF_MAGNITUDE + OF_RANKS))
GROUND_TRUTH = OF_ANY_SCALE + AT_THRESHOLD


def each(names):
    return pytest.mark.parametrize("metric", [metrics.METRICS.resolve(name) for name in names], ids=names)


every_metric = each(GROUND_TRUTH)


anything = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, -1.0, 2.0]), st.floats(allow_nan=False, allow_infinity=False)
)


@st.composite
def batches(draw, values=None):
    """Signed maps with ties, zeros and wide ranges, and masks that may be empty or full."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4)))
    some = anything if values is None else values
    return draw(hnp.arrays(np.float64, shape, elements=some)), draw(hnp.arrays(np.bool_, shape))


moderate = settings(deadline=None)


def same_bits(one, other):
    return np.array_equal(one, other, equal_nan=True)


@every_metric
@given(batch=batches(), data=st.data())
@moderate
def test_scores_do_not_depend_on_the_batch(metric, batch, data):
    maps, masks = batch
    whole = metric(maps, masks, reduction="none")
    order = np.array(data.draw(st.permutations(range(len(maps)))))
    assert same_bits(metric(maps[order], masks[order], reduction="none"), whole[order])
    alone = [metric(values, mask, reduction="none")[0] for values, mask in zip(maps, masks, strict=True)]
    assert same_bits(np.array(alone), whole)
    assert same_bits(np.array(metric(maps[order], masks[order])), np.array(metric(maps, masks)))


@every_metric
def test_scores_do_not_depend_on_the_block(metric, monkeypatch):
    rng = np.random.default_rng(0)
    maps, masks = rng.standard_normal((7, 5, 6)), rng.random((7, 5, 6)) < 0.3
    whole = metric(maps, masks, reduction="none")
    monkeypatch.setattr(inputs, "_BLOCK_PIXELS", 2 * 5 * 6)
    assert [block.stop - block.start for block in inputs._blocks(maps)] == [2, 2, 2, 2]
    assert same_bits(metric(maps, masks, reduction="none"), whole)


@every_metric
@given(batch=batches())
@moderate
def test_scores_are_in_range_or_nan_with_a_reason(metric, batch):
    scores, reasons = metric(*batch, reduction="none"), undefined_reasons(*batch, metric.__name__)
    low, high = metric.info.range
    for score, reason in zip(scores, reasons, strict=True):
        assert math.isnan(score) == (reason != "")
        assert reason or low <= score <= high


@each(OF_MAGNITUDE)
@given(batch=batches())
@moderate
def test_sign_of_the_map_does_not_matter(metric, batch):
    maps, masks = batch
    assert same_bits(metric(-maps, masks, reduction="none"), metric(maps, masks, reduction="none"))


@each(OF_MAGNITUDE)
@given(batch=batches(values=st.one_of(st.floats(0.001, 1e6), st.just(0.0))), factor=st.floats(1e-200, 1e200))
@moderate
def test_scale_of_the_map_does_not_matter(metric, batch, factor):
    maps, masks = batch
    scaled, scores = metric(maps * factor, masks, reduction="none"), metric(maps, masks, reduction="none")
    np.testing.assert_allclose(scaled, scores, rtol=1e-9, atol=1e-12)


@each(OF_RANKS)
@given(batch=batches(values=st.one_of(st.floats(-1e6, 1e6, width=32), st.just(0.0))), power=st.integers(-300, 300))
@moderate
def test_scaling_a_map_changes_no_bit_of_a_rank_metric(metric, batch, power):
    maps, masks = batch  # a power of two moves no two values together or apart
    scaled = metric(maps * 2.0**power, masks, reduction="none")
    assert same_bits(scaled, metric(maps, masks, reduction="none"))


@every_metric
@given(batch=batches(values=st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, -1.0]))))
@moderate
def test_transposing_the_images_changes_nothing(metric, batch):
    maps, masks = batch
    turned = metric(maps.transpose(0, 2, 1), masks.transpose(0, 2, 1), reduction="none")
    np.testing.assert_allclose(turned, metric(maps, masks, reduction="none"), rtol=1e-9, atol=1e-12)


@each([name for name in OF_ANY_SCALE if name != "emd"])
@given(masks=hnp.arrays(np.bool_, (3, 4, 4)), factor=st.floats(1e-30, 1e30))
@moderate
def test_the_mask_itself_scores_one(metric, masks, factor):
    masks[:, 1, 2], masks[:, 2, 1] = True, False
    assert metric(masks * factor, masks, reduction="none").tolist() == [1.0, 1.0, 1.0]


@each([name for name in GROUND_TRUTH if metrics.METRICS.resolve(name).info.higher_is_better])
def test_quantus_neighbors_do_not_change_a_score(metric):
    # Quantus scales by the largest value of the whole batch, so that a map's score depends on who is beside it.
    rng = np.random.default_rng(0)
    maps, masks = rng.random((2, 6, 6)), rng.random((2, 6, 6)) < 0.3
    alone = metric(maps, masks, reduction="none")[0]
    maps[1] *= 1e6
    assert metric(maps, masks, reduction="none")[0] == alone


@each(GROUND_TRUTH)
def test_an_empty_mask_is_left_out_of_the_mean(metric):
    # As the published functions do, which skip such a sample; a score of 0 would pull the mean down.
    maps, masks = np.random.default_rng(0).random((3, 4, 4)), np.eye(4, dtype=bool)[None].repeat(3, axis=0)
    masks[1] = False
    scores = metric(maps, masks, reduction="none")
    assert np.isnan(scores).tolist() == [False, True, False]
    assert metric(maps, masks) == pytest.approx((scores[0] + scores[2]) / 2, rel=1e-15)


@every_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_torch_gives_what_numpy_gives_in_its_own_kind(metric, dtype):
    generator = torch.Generator().manual_seed(1)
    maps = (8 * torch.randn(4, 5, 6, generator=generator)).to(dtype)
    masks = torch.rand(4, 5, 6, generator=generator) < 0.3
    scores = metric(maps, masks, reduction="none")
    assert isinstance(scores, torch.Tensor)
    assert scores.dtype == torch.float64
    assert scores.device == maps.device
    ours = metric(maps.double().numpy(), masks.numpy(), reduction="none")
    assert isinstance(ours, np.ndarray)
    assert ours.dtype == np.float64
    assert same_bits(scores.numpy(), ours)
    assert metric(maps, masks) == metric(maps.double().numpy(), masks.numpy())


@every_metric
def test_kinds_may_be_mixed_and_gradients_are_left_alone(metric):
    maps = torch.rand(2, 3, 3, requires_grad=True)
    masks = np.eye(3, dtype=bool)[None].repeat(2, axis=0)
    scores = metric(maps, masks, reduction="none")
    assert isinstance(scores, torch.Tensor)
    assert not scores.requires_grad
    assert isinstance(metric(maps.detach().numpy(), torch.from_numpy(masks), reduction="none"), np.ndarray)


@every_metric
def test_input_is_left_as_it_was(metric):
    maps, masks = np.random.default_rng(0).standard_normal((3, 4, 4)), np.ones((3, 4, 4), dtype=np.int64)
    before = maps.copy()
    metric(maps, masks)
    assert same_bits(maps, before)


@every_metric
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float32])
def test_binary_masks_of_any_type_are_taken(metric, dtype):
    rng = np.random.default_rng(0)
    maps, masks = rng.random((2, 4, 4)), rng.integers(0, 2, (2, 4, 4))
    assert metric(maps, masks.astype(dtype)) == metric(maps, masks.astype(bool))


@every_metric
def test_mean_is_over_the_defined_scores(metric):
    maps, masks = np.ones((4, 3, 3)), np.ones((4, 3, 3), dtype=bool)
    masks[:, 2, 2], masks[:2] = False, False
    maps[2, 0, 0] = 5
    scores = metric(maps, masks, reduction="none")
    assert np.isnan(scores).tolist() == [True, True, False, False]
    mean = metric(maps, masks)
    assert isinstance(mean, float)
    assert mean == pytest.approx((scores[2] + scores[3]) / 2, rel=1e-15)
    assert math.isnan(metric(maps[:2], masks[:2]))


@every_metric
def test_no_samples_have_no_mean(metric):
    maps, masks = np.empty((0, 3, 3)), np.empty((0, 3, 3), dtype=bool)
    assert metric(maps, masks, reduction="none").shape == (0,)
    assert math.isnan(metric(maps, masks))
    assert undefined_reasons(maps, masks) == []


BAD = {
    "shapes differ": (np.ones((2, 3, 3)), np.ones((2, 3, 4)), r"got maps \[2, 3, 3\] and masks \[2, 3, 4\]"),
    "numbers differ": (np.ones((2, 3, 3)), np.ones((1, 3, 3)), r"got maps \[2, 3, 3\] and masks \[1, 3, 3\]"),
    "one mask for many": (np.ones((2, 3, 3)), np.ones((3, 3)), r"got maps \[2, 3, 3\] and masks \[3, 3\]"),
    "channels": (np.ones((2, 1, 3, 3)), np.ones((2, 3, 3)), r"\[2, 1, 3, 3\].*Reduce the channels"),
    "flat": (
        np.ones(9),
        np.ones(9),
        r"must have the same shape \[N, H, W\] or \[H, W\], or .* volumes, got maps \[9\]",
    ),
    "no pixels": (np.ones((2, 0, 3)), np.ones((2, 0, 3)), r"got maps \[2, 0, 3\]"),
    "gray mask": (np.ones((3, 3)), np.full((3, 3), 0.5), r"masks must be binary .* got the value 0\.5"),
    "0-255 mask": (np.ones((3, 3)), np.full((3, 3), 255), r"got the value 255"),
    "nan mask": (np.ones((3, 3)), np.full((3, 3), np.nan), r"masks must be binary .* got the value nan"),
}


@every_metric
@pytest.mark.parametrize(("maps", "masks", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_bad_input_is_refused(metric, maps, masks, message, kind):
    with pytest.raises(ValueError, match=message):
        metric(kind(maps), kind(masks))


@every_metric
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_maps_that_are_not_finite_are_refused_by_sample(metric, bad):
    maps, masks = np.ones((4, 2, 2)), np.ones((4, 2, 2), dtype=bool)
    maps[2, 0, 1] = maps[3, 1, 1] = bad
    with pytest.raises(ValueError, match=r"finite, got NaN or infinity in 2 of 4 samples \(the first is sample 2\)"):
        metric(maps, masks)
    assert undefined_reasons(maps, masks) == ["", "", "map is not finite", "map is not finite"]


@every_metric
@pytest.mark.parametrize(
    ("maps", "masks", "message"),
    [
        ([[1.0]], np.ones((1, 1)), "maps must be a numpy array or a torch tensor, got list"),
        (np.ones((1, 1)), None, "masks must be a numpy array or a torch tensor, got NoneType"),
        (np.ones((1, 1), dtype=complex), np.ones((1, 1)), "maps must hold real numbers, got complex128"),
        (torch.ones(1, 1, dtype=torch.complex64), np.ones((1, 1)), "maps must hold real numbers, got complex64"),
        (np.ones((1, 1)), np.array([["yes"]]), "masks must hold real numbers, got <U3"),
    ],
)
def test_bad_types_are_refused(metric, maps, masks, message):
    with pytest.raises(TypeError, match=message):
        metric(maps, masks)


@every_metric
def test_unknown_reduction_is_refused(metric):
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'none', got 'sum'"):
        metric(np.ones((2, 2)), np.ones((2, 2)), reduction="sum")


def test_undefined_reasons_name_the_first_cause():
    maps, masks = np.ones((4, 2, 2)), np.ones((4, 2, 2), dtype=bool)
    maps[0], masks[0], maps[1], masks[2] = np.nan, False, 0, False
    expected = ["map is not finite", "map is all zero", "mask is empty", ""]
    assert undefined_reasons(maps, masks) == expected
    assert undefined_reasons(torch.from_numpy(maps), torch.from_numpy(masks)) == expected
    assert undefined_reasons(maps[1], masks[1]) == ["map is all zero"]


def test_undefined_reasons_are_those_of_the_metric():
    maps, masks = np.ones((4, 2, 2)), np.ones((4, 2, 2), dtype=bool)
    maps[0], masks[1], masks[2, 0, 0] = 0, False, False

    def ask(*metric, **threshold):
        return undefined_reasons(maps, masks, *metric, **threshold)

    assert ask() == ask("emd") == ask("hit") == ["map is all zero", "mask is empty", "", ""]
    assert ask("iou") == ask("Recall") == ["", "mask is empty", "", ""]
    assert ask("precision") == ["no pixel above the threshold", "mask is empty", "", ""]
    assert ask("precision", threshold=1.0)[2:] == ["no pixel above the threshold"] * 2
    assert ask("roc_auc") == ["mask covers the whole image", "mask is empty", "", "mask covers the whole image"]
    assert ask("sparseness") == ["map is all zero", "", "", ""]
    with pytest.raises(ValueError, match="Unknown metric 'io'; did you mean 'iou'"):
        ask("io")


def test_reasons_of_what_asks_the_model():
    maps, masks = np.array([[[0.0, 0.0]], [[2.0, 2.0]], [[1.0, 2.0]], [[np.nan, 0.0]]]), np.zeros((4, 1, 2))

    def ask(metric):
        return undefined_reasons(maps, masks, metric)

    for name in ("deletion", "road", "average_drop"):  # the mask is not theirs
        assert ask(name) == ["map is constant", "map is constant", "", "map is not finite"]
    assert ask("infidelity") == ["map is all zero", "", "", "map is not finite"]
    for name in ("sensitivity_max", "parameter_randomization"):  # nor are the maps, which they make themselves
        assert ask(name) == ["", "", "", "map is not finite"]


OF_MAPS = each(["sparseness", "complexity"])


@OF_MAPS
@given(batch=batches(), data=st.data())
@moderate
def test_scores_of_maps_do_not_depend_on_the_batch(metric, batch, data):
    maps = batch[0]
    whole = metric(maps, reduction="none")
    order = np.array(data.draw(st.permutations(range(len(maps)))))
    assert same_bits(metric(maps[order], reduction="none"), whole[order])
    assert same_bits(np.array([metric(values, reduction="none")[0] for values in maps]), whole)
    assert same_bits(np.array(metric(maps[order])), np.array(metric(maps)))
    assert same_bits(metric(torch.from_numpy(maps), reduction="none").numpy(), whole)
    assert np.isnan(whole).tolist() == [reason != "" for reason in undefined_reasons(*batch, metric.__name__)]


@OF_MAPS
@pytest.mark.parametrize(
    ("maps", "error", "message"),
    [
        (np.ones(9), ValueError, r"maps must have the shape \[N, H, W\] or \[H, W\], or .* got \[9\]"),
        (np.ones((2, 3, 4, 4)), ValueError, r"are \[2, 3, 4, 4\]: .*Reduce the channels"),
        (np.ones((2, 3, 0)), ValueError, r"got \[2, 3, 0\]"),
        (np.full((2, 3, 3), np.inf), ValueError, "NaN or infinity in 2 of 2 samples"),
        ([[1.0]], TypeError, "maps must be a numpy array or a torch tensor, got list"),
        (np.ones((1, 1), dtype=complex), TypeError, "maps must hold real numbers, got complex128"),
    ],
)
def test_bad_maps_are_refused(metric, maps, error, message):
    with pytest.raises(error, match=message):
        metric(maps)
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'none', got 'max'"):
        metric(np.ones((2, 2)), reduction="max")
