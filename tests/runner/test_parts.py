import pytest

from xaibench.registry.parameters import Frozen
from xaibench.runner.parts import DatasetPart, ExplainerPart


def build(model, images, targets, *, alpha=0.5, sizes=(1, 2), limit=float("inf")):
    """An explainer of a user's own."""


def all_parameters(name, **stated):
    return ExplainerPart.of(name, Frozen(stated)).all_parameters


def test_all_parameters_are_the_defaults_and_those_of_the_suite():
    assert all_parameters("occlusion", window=4) == {
        **{"window": 4, "stride": None, "baseline": 0.0, "batch_size": None}
    }
    assert all_parameters("lrp_epsilon")["rules"] == {}
    own = f"{__name__}:build"
    assert all_parameters(own, beta=1) == {"alpha": 0.5, "sizes": [1, 2], "limit": "inf", "beta": 1}


@pytest.mark.parametrize(
    ("name", "own"),
    [(f"{__name__}:build", True), ("lime", False), ("LIME", False), ("xaibench.explainers:LIME", False)],
)
def test_a_users_own_part_is_recognized(name, own):
    assert ExplainerPart.of(name).is_users_own is own


@pytest.mark.parametrize(
    ("parameters", "shape"),
    [
        ({}, (3, 224, 224)),
        ({"size": 96}, (3, 96, 96)),
        ({"channels": 1}, (1, 224, 224)),
        ({"size": 8, "channels": 1}, (1, 8, 8)),
    ],
)
def test_size_and_channels_decide_the_shape_of_images_on_disk(parameters, shape):
    assert DatasetPart.of("pet", Frozen(parameters)).image_shape == shape
