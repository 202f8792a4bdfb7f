"""What every registered metric promises for volumes: the code for images, with one more axis."""

import functools
import inspect
import itertools

import numpy as np
import pytest
import torch
from part_cases import MetricCase, case
from refusals import refused
from torch import nn

from xaibench.metrics import (
    METRICS,
    chance_level,
    part_shares,
    shapley_error,
    shares,
    sign_agreement,
    undefined_reasons,
)

INFO = {name: METRICS.resolve(name).info for name in METRICS}
KEYWORDS = {name: set(inspect.signature(METRICS.resolve(name)).parameters) for name in METRICS}
QUICK = {name: case(METRICS, name, MetricCase()).quick for name in METRICS}
OF_MAPS = [name for name in METRICS if INFO[name].kind in ("ground-truth", "map")]
OF_NETWORKS = [name for name in METRICS if INFO[name].kind in ("model", "explainer")]
#: Scores of these do not depend on the order of the axes; draws do, and the noise of a chance level is drawn.
WITHOUT_DRAWS = [name for name in METRICS if INFO[name].kind != "explainer" and "seed" not in KEYWORDS[name]]
WITHOUT_DRAWS.remove("fni_emd_skill")
OF_DISTANCE = [name for name in METRICS if "spacing" in KEYWORDS[name]]
WITH_CHANCE = [name for name in METRICS if INFO[name].chance_level is not None]
#: Parameters that choose other code, and one value of each.
CHOICES = [
    {"baseline": "blur"},
    {"baseline": "mean"},
    {"baseline": (0.1,)},
    {"segmentation": "grid", "n_segments": 9},
    {"segmentation": "slic", "n_segments": 9},
    {"perturbation": "gaussian"},
    {"similarity": "spearman"},
    {"importance": "mean"},
    {"pixels": "random"},
    {"relative": False},
]
SHAPE = (6, 7, 8)


def choices(name):
    return [QUICK[name]] + [QUICK[name] | choice for choice in CHOICES if choice.keys() <= KEYWORDS[name]]


def volumes(count=6, shape=SHAPE):
    rng = np.random.default_rng(0)
    maps, masks = rng.standard_normal((count, *shape)), rng.random((count, *shape)) < rng.random((count, 1, 1, 1)) / 2
    masks[:, 0, 0, 0], masks[:, -1, -1, -1] = True, False
    masks[0] = False
    masks[0, :1, :2, :3] = True
    maps[1] *= rng.random(shape) < 0.1
    return maps, masks


def networks(shape):
    """A network for volumes of this shape, and the one with the same weights for their slices."""
    torch.manual_seed(0)
    over = nn.Sequential(nn.Conv3d(1, 3, (1, 3, 3), padding=(0, 1, 1)), nn.Tanh(), nn.Flatten())
    over.append(nn.Linear(3 * shape[0] * shape[1] * shape[2], 3))
    flat = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(*over[3].weight.shape[::-1]))
    weights = over.state_dict()
    flat.load_state_dict(weights | {"0.weight": weights["0.weight"][:, :, 0]})
    return over.double().eval(), flat.double().eval()


def explainer(model, images, targets):
    x = images.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).gather(1, targets[:, None]).sum(), x)
    return (gradient * images).sum(1).detach()


def inputs(name, network, images, maps):
    targets = torch.arange(len(images)) % 3
    if INFO[name].kind == "explainer":
        return explainer, network, images, targets
    return network, images, maps, targets


def score(name, *given, **parameters):
    return np.asarray(METRICS.resolve(name)(*given, **parameters, reduction="none"))


@pytest.mark.parametrize("name", OF_MAPS)
def test_a_volume_of_one_slice_is_an_image_to_metrics_of_maps(name):
    maps, masks = (values[:, 0] for values in volumes())
    given = (maps, masks) if INFO[name].kind == "ground-truth" else (maps,)
    expected = score(name, *given)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(score(name, *(values[:, None] for values in given)), expected)
    for axis in (2, 3):
        turned = (np.expand_dims(values, axis) for values in given)
        np.testing.assert_allclose(score(name, *turned), expected, rtol=1e-12)
    if INFO[name].kind == "ground-truth":
        np.testing.assert_array_equal(chance_level(name, masks[:2, None]), chance_level(name, masks[:2]))


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_a_volume_of_one_slice_is_an_image_to_metrics_of_networks(name):
    shape = (1, 9, 10)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 1, *shape, dtype=torch.float64, generator=generator)
    maps = torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    over, flat = networks(shape)
    for parameters in choices(name):
        expected = score(name, *inputs(name, flat, images[:, :, 0], maps[:, 0]), **parameters)
        found = score(name, *inputs(name, over, images, maps), **parameters)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=str(parameters))


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_volumes_have_scores_of_networks(name):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 1, *SHAPE, generator=generator)
    maps = torch.randn(2, *SHAPE, generator=generator)
    network = networks(SHAPE)[0].float()
    least, most = INFO[name].range
    for parameters in choices(name):
        found = score(name, *inputs(name, network, images, maps), **parameters)
        assert found.shape == (2,)
        assert ((found >= least) & (found <= most)).all(), parameters  # false for NaN


@pytest.mark.parametrize("name", WITHOUT_DRAWS)
def test_the_order_of_the_axes_does_not_matter(name):
    maps, masks = volumes(3)
    maps[1] = np.random.default_rng(2).standard_normal(SHAPE)  # ties are broken by pixel order
    images = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 1, *SHAPE)))
    network, orders = networks(SHAPE)[0], [(1, 2, 0), (2, 1, 0)]

    def found(order):
        def turned(values):
            first = values.ndim - 3
            return values.transpose(*range(first), *(first + axis for axis in order))

        if INFO[name].kind == "ground-truth":
            return score(name, turned(maps), turned(masks))
        if INFO[name].kind == "map":
            return score(name, turned(maps))
        back = [2 + order.index(axis) for axis in range(3)]
        turned_images = torch.from_numpy(turned(images.numpy()).copy())
        network_of_turned = lambda x: network(x.permute(0, 1, *back))  # noqa: E731
        given = inputs(name, network_of_turned, turned_images, torch.from_numpy(turned(maps).copy()))
        return score(name, *given, **QUICK[name])

    expected = found((0, 1, 2))
    for order in orders:
        np.testing.assert_allclose(found(order), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", WITH_CHANCE)
def test_the_chance_level_of_a_volume_is_the_mean_score_of_noise(name):
    masks = volumes(2, (3, 4, 5))[1]
    parameters = {"spacing": np.array([[2.5, 1.0, 0.5], [1.0, 1.0, 3.0]])} if name in OF_DISTANCE else {}
    parameters |= {"tolerance": 1.2} if name == "hit" else {}
    levels = chance_level(name, masks, parameters)
    noise = np.random.default_rng(1).uniform(-1, 1, (600, 3, 4, 5))
    for number, mask in enumerate(masks):
        own = parameters | ({"spacing": parameters["spacing"][number]} if "spacing" in parameters else {})
        scores = score(name, noise, np.broadcast_to(mask, noise.shape), **own)
        error = np.nanstd(scores) / np.sqrt(len(noise))
        assert abs(np.nanmean(scores) - levels[number]) <= 4 * error + 0.003 * abs(levels[number])


@pytest.mark.parametrize("name", OF_DISTANCE)
def test_every_metric_of_distance_takes_the_spacing_of_each_sample(name):
    assert "spacing" in INFO[name].sample_inputs
    maps, masks = volumes(4, (3, 4, 5))
    parameters = {"tolerance": 2.0} if name == "hit" else {}
    rows = np.array([[1.0, 1.0, 1.0], [3.0, 1.0, 0.5], [3.0, 1.0, 0.5], [0.5, 2.0, 1.0]])
    found = score(name, maps, masks, spacing=rows, **parameters)
    alone = [score(name, maps[[i]], masks[[i]], spacing=rows[i].tolist(), **parameters)[0] for i in range(4)]
    np.testing.assert_allclose(found, alone, rtol=1e-9)
    plain = score(name, maps, masks, **parameters)
    assert found[0] == plain[0]
    np.testing.assert_array_equal(score(name, maps, masks, spacing=(1, 1, 1), **parameters), plain)
    levels = chance_level(name, masks, {"spacing": rows} | parameters)
    alone = [chance_level(name, masks[[i]], {"spacing": rows[i]} | parameters)[0] for i in range(4)]
    np.testing.assert_allclose(levels, alone, rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in OF_DISTANCE if name in WITHOUT_DRAWS])
def test_the_spacing_turns_with_the_axes(name):
    maps, masks = volumes(4, (3, 4, 5))
    parameters = {"tolerance": 2.0} if name == "hit" else {}
    expected = score(name, maps, masks, spacing=(3.0, 1.0, 0.5), **parameters)
    turned = (values.transpose(0, 3, 1, 2) for values in (maps, masks))
    np.testing.assert_allclose(score(name, *turned, spacing=(0.5, 3.0, 1.0), **parameters), expected, rtol=1e-9)


@pytest.mark.parametrize("name", OF_DISTANCE)
def test_a_bad_spacing_is_an_error(name):
    three = ["spacing must hold 3 numbers, one per spatial axis, or a row ", "[4, 3], got ", "[2]"]
    for spacing, error, message in (
        ((1.0, 1.0), ValueError, three),
        (np.ones((3, 3)), ValueError, "got the shape [3, 3]"),
        ((1.0, 0.0, 1.0), ValueError, "spacing must be positive and finite, got values from 0.0"),
        ((1.0, np.nan, 1.0), ValueError, "spacing must be positive and finite"),
        (("a", "b", "c"), TypeError, "spacing must hold real numbers"),
    ):
        scored = functools.partial(METRICS.resolve(name), spacing=spacing)
        refused(error, message, scored, *volumes(4, (3, 4, 5)))


def test_reasons_of_volumes():
    maps, masks = volumes(4)
    maps[0], masks[1], masks[2] = 0, False, True
    expected = ["map is all zero", "mask is empty", "mask covers the whole image", ""]
    assert undefined_reasons(maps, masks, "average_precision") == [*expected[:2], "", ""]
    assert undefined_reasons(maps, masks, "roc_auc") == [
        *undefined_reasons(maps[:1, 0], masks[:1, 0], "roc_auc"),
        *expected[1:],
    ]


def test_all_permutations_and_flips_of_a_mask_have_one_chance_level():
    masks = volumes(2, (3, 4, 5))[1][1:]
    rows = np.array([[2.0, 1.0, 0.5]])
    expected = chance_level("emd", masks, {"spacing": rows})
    for order in itertools.permutations(range(3)):
        turned = masks.transpose(0, *(1 + axis for axis in order))[:, ::-1]
        np.testing.assert_array_equal(chance_level("emd", turned, {"spacing": rows[:, list(order)]}), expected)


@pytest.mark.parametrize("name", METRICS)
def test_the_classes_for_training_loops_take_volumes(name):
    means = pytest.importorskip("xaibench.metrics.torchmetrics")
    generator = torch.Generator().manual_seed(1)
    maps, masks = (torch.from_numpy(values) for values in volumes(4))
    if INFO[name].kind in ("ground-truth", "map"):
        given = (maps, masks) if INFO[name].kind == "ground-truth" else (maps,)
    else:
        images = torch.randn(4, 1, *SHAPE, dtype=torch.float64, generator=generator)
        given = inputs(name, networks(SHAPE)[0], images, maps)
    mean = means.MeanScore(name, QUICK[name])
    mean.update(*given)
    np.testing.assert_array_equal(mean.scores.numpy(), score(name, *given, **QUICK[name]))


def test_functions_that_are_no_metrics_take_volumes():
    maps, masks = (values[2:] for values in volumes())
    other, parts = np.abs(maps[::-1]), np.random.default_rng(0).integers(0, 4, maps.shape)
    flat = lambda values: values.reshape(len(values), 1, -1)  # noqa: E731
    for function, given in (
        (shares, (maps, masks, other)),
        (part_shares, (maps, parts)),
        (shapley_error, (maps, other)),
        (sign_agreement, (maps, other)),
    ):
        found = function(*given, reduction="none")
        np.testing.assert_array_equal(found, function(*map(flat, given), reduction="none"))
