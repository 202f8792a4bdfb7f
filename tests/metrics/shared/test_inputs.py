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
def test_scores_do_not_depend_on_the_block(metric, monkeypatch):
    rng = np.random.default_rng(0)
    maps, masks = rng.standard_normal((7, 5, 6)), rng.random((7, 5, 6)) < 0.3
    whole = metric(maps, masks, reduction="none")
    monkeypatch.setattr(inputs, "_BLOCK_PIXELS", 2 * 5 * 6)
    assert [block.stop - block.start for block in inputs._blocks(maps)] == [2, 2, 2, 2]
    assert same_bits(metric(maps, masks, reduction="none"), whole)


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


@every_metric
def test_torch_gives_what_numpy_gives_in_its_own_kind(metric):
    generator = torch.Generator().manual_seed(1)
    values = 8 * torch.randn(4, 5, 6, generator=generator)
    masks = torch.rand(4, 5, 6, generator=generator) < 0.3
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32):
        maps = values.to(dtype)
        scores = metric(maps, masks, reduction="none")
        assert isinstance(scores, torch.Tensor)
        assert (scores.dtype, scores.device) == (torch.float64, maps.device)
        ours = metric(maps.double().numpy(), masks.numpy(), reduction="none")
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == np.float64
        assert same_bits(scores.numpy(), ours), dtype
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
def test_binary_masks_of_any_type_are_taken(metric):
    rng = np.random.default_rng(0)
    maps, masks = rng.random((2, 4, 4)), rng.integers(0, 2, (2, 4, 4))
    assert len({metric(maps, masks.astype(dtype)) for dtype in (np.bool_, np.uint8, np.int64, np.float32)}) == 1


@every_metric
def test_no_samples_have_no_mean(metric):
    maps, masks = np.empty((0, 3, 3)), np.empty((0, 3, 3), dtype=bool)
    assert metric(maps, masks, reduction="none").shape == (0,)
    assert math.isnan(metric(maps, masks))
    assert undefined_reasons(maps, masks) == []


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
