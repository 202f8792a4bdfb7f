"""Every explainer on volumes [N, C, D, H, W]: one slice is an image, no axis is special, real networks have maps."""

import dataclasses
import importlib

import captum.attr
import pytest
import torch
from explainer_trials import CASE, NAMES, network
from generators.volumes import Residual, SliceDistribution, Transformer, of_single_slices, transposed
from torch import nn
from torchvision.models.video import SwinTransformer3d

import xaibench as xb
from xaibench.explainers import EXPLAINERS, UnsupportedModelError, build
from xaibench.explainers.base import append_axes
from xaibench.tensors.segments import grid_cells

INFOS = {name: EXPLAINERS.resolve(name).info for name in NAMES}
every_explainer = pytest.mark.parametrize("name", NAMES)

#: Parameters under which an explainer of many passes is fast on a small volume.
FAST = {
    **{name: {"feature_mask": "grid", "cell_size": 3} for name in ("pfi", "shapley_sampling", "lime", "kernel_shap")},
    **{name: {"n_steps": 3} for name in ("integrated_gradients", "guided_ig", "blur_ig", "ig2")},
    "xrai": {"n_steps": 3, "segmentation_size": 40},
    "random_baseline_ig": {"n_steps": 2, "n_baselines": 2},
    **{name: {"n_samples": 3} for name in ("smoothgrad", "smoothgrad_squared", "vargrad", "gradient_pattern")},
    "expected_gradients": {"n_samples": 3},
    "pattern_local": {"n_samples": 20},
    "occlusion": {"window": 3, "stride": 2},
    "rise": {"n_masks": 10, "grid_size": 3},
    "sobol": {"n_designs": 2, "grid_size": 2},
    "hsic": {"n_samples": 20, "grid_size": 2},
}
#: They draw random numbers per voxel or cell; supervoxels (XRAI) begin at places that depend on the order of the axes.
DRAWN = [name for name in NAMES if "seed" in {field.name for field in dataclasses.fields(build(name))}]
UNORDERED = [*DRAWN, "xrai"]


def batch(n, *size):
    """Images, masks and targets."""
    rng = torch.Generator().manual_seed(sum(size))
    images = torch.randn(n, 1, *size, generator=rng, dtype=torch.float64).clamp(-1, 1)
    return images, torch.rand(n, *size, generator=rng) < 0.3, torch.arange(n) % 2


def maps_of(name, model, images, targets, training, **parameters):
    part = build(name, **parameters)
    if hasattr(part, "fit"):
        part = part.fit(model, [training])
    return xb.explain(part, model, images, targets, device="cpu", progress=False)


def small_network(name):
    module, _, attribute = CASE[name].network.partition(":")
    torch.manual_seed(0)
    made = network(module) if not attribute else getattr(importlib.import_module(module), attribute)((1, 8, 8), 2)
    return made.double().eval()


def of_slices(parameters):
    distribution = parameters.get("distribution")
    return parameters | ({"distribution": SliceDistribution(distribution)} if distribution else {})


@every_explainer
def test_a_volume_of_one_slice_is_explained_as_that_image(name):
    model, parameters = small_network(name), CASE[name].parameters
    (images, _, targets), training = batch(4, 8, 8), batch(40, 8, 8)
    expected = maps_of(name, model, images, targets, training, **parameters)
    slices = training[0][:, :, None], training[1][:, None], training[2]
    maps = maps_of(name, of_single_slices(model), images[:, :, None], targets, slices, **of_slices(parameters))
    assert maps.shape == (4, 1, 8, 8)
    assert (expected.abs() > 0).any()
    torch.testing.assert_close(maps[:, 0], expected, rtol=1e-9, atol=1e-10 * expected.abs().max().item())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNORDERED])
def test_no_axis_of_a_volume_is_special(name):
    model = network_of_volumes(name, places=False)
    (images, _, targets), (others, masks, classes) = batch(2, 4, 6, 8), batch(20, 4, 6, 8)
    parameters = FAST.get(name, {})
    expected = maps_of(name, model, images, targets, (others, masks, classes), **parameters)
    assert (expected.abs() > 0).any()
    for order in ((1, 0, 2), (2, 1, 0)):  # all others are some of these one after the other
        permute = lambda x, first: x.permute(*range(first), *(first + axis for axis in order))  # noqa: B023, E731
        training = permute(others, 2), permute(masks, 1), classes
        maps = maps_of(name, transposed(model, order), permute(images, 2), targets, training, **parameters)
        torch.testing.assert_close(maps, permute(expected, 1), rtol=1e-8, atol=1e-9 * expected.abs().max().item())


def network_of_volumes(name, places=True):
    """A network that the explainer treats."""
    made = Residual() if INFOS[name].family != "Attention" else Transformer()
    if name == "lrp":  # Captum has no rule for the addition of branches
        made = nn.Sequential(*made.stem, made.pool, *made.branch, nn.ReLU(), made.mean, nn.Flatten(), made.head)
    if not places and isinstance(made, Transformer):
        made.places.data.zero_()
    return made.double()


@every_explainer
@pytest.mark.parametrize("kind", [Residual, Transformer])
def test_networks_of_volumes_have_maps(name, kind):
    if name == "reliance":
        pytest.skip("it needs the distribution of the volumes")
    (images, _, targets), training = batch(3, 4, 6, 8), batch(20, 4, 6, 8)
    model = kind().double()
    try:
        maps = maps_of(name, model, images, targets, training, **FAST.get(name, {}))
    except UnsupportedModelError:
        # What a network of images of the same kind is refused for too.
        refused = {Residual: INFOS[name].family == "Attention" or name == "lrp", Transformer: name in NOT_ATTENTION}
        assert refused[kind]
        return
    assert maps.shape == (3, 4, 6, 8)
    assert maps.isfinite().all()
    assert (maps.abs() > 0).any()


NOT_ATTENTION = ("lrp", "cam", "fullgrad", "pattern_net", "pattern_attribution")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("integrated_gradients", {"n_steps": 300}),
        ("deeplift", {}),
        ("deep_shap", {}),
        ("xrai", {"n_steps": 300, "segmentation_size": 40}),
        ("shapley_sampling", {"feature_mask": "grid", "cell_size": 3, "n_samples": 2}),
    ],
)
def test_maps_of_volumes_sum_to_the_difference_from_the_baseline(name, parameters):
    model = Residual().double()
    images, _, targets = batch(3, 4, 6, 8)
    maps = xb.explain(name, model, images, targets, output="logit", device="cpu", progress=False, **parameters)
    if name == "shapley_sampling":  # every voxel has the value of its whole cell
        cells = grid_cells((4, 6, 8), 3)
        sums = torch.stack([maps[:, cells == cell][:, 0] for cell in range(int(cells.max()) + 1)]).sum(0)
    else:
        sums = maps.flatten(1).sum(1)
    ends = images.flatten(1).aminmax(dim=1) if name == "xrai" else [torch.zeros_like(images[:, 0, 0, 0, 0])]
    baselines = [append_axes(end, images).expand_as(images) for end in ends]
    with torch.no_grad():
        logits, *starts = (model(x)[range(3), targets] for x in (images, *baselines))
    torch.testing.assert_close(sums, logits - sum(starts) / len(starts), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["gradcam", "gradcam++", "layercam", "attention_rollout", "attention_x_gradient"])
def test_windows_of_volumes_are_found_in_the_volume(name):
    torch.manual_seed(0)
    model = SwinTransformer3d([2, 2, 2], 8, [2, 2], [2, 2], [2, 2, 2], num_classes=3).eval()
    image = torch.randn(1, 3, 8, 16, 16, generator=torch.Generator().manual_seed(0))
    coarse = xb.explain(name, model, image, 0, resize=None, device="cpu", progress=False)
    assert coarse.shape[1:] == ((4, 8, 8) if name == "attention_rollout" else (4, 4, 4))
    maps = xb.explain(name, model, image, 0, device="cpu", progress=False)
    expected = nn.functional.interpolate(coarse[None], (8, 16, 16), mode="trilinear")
    torch.testing.assert_close(maps, expected[0])


def test_one_slice_of_a_video_network_may_stand_for_more_than_its_rows_and_columns():
    model = nn.Sequential(
        nn.Conv3d(1, 3, 3, (1, 4, 4), 1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(3, 2)
    ).eval()
    images = torch.randn(2, 1, 6, 16, 16, generator=torch.Generator().manual_seed(0))
    for name in ("gradcam", "cam"):
        maps = xb.explain(name, model, images, [0, 1], resize=None, device="cpu", progress=False)
        assert maps.shape == (2, 6, 4, 4)


def test_captums_methods_take_volumes():
    model, (images, _, targets) = Residual().double(), batch(2, 4, 6, 8)
    found = xb.explain(captum.attr.Saliency, model, images, targets, abs=False, output="logit", progress=False)
    expected = xb.explain("saliency", model, images, targets, output="logit", progress=False)
    torch.testing.assert_close(found, expected.to(found))
