"""Every explainer on drawn networks, images, targets and parameters: maps as documented, or an error of ours.

The networks are in tests/generators/drawn.py. For longer: python tests/fuzz.py explainers --minutes 60
"""

import dataclasses
import traceback
import types
import typing
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from explainer_trials import CASE
from generators.drawn import (
    BROKEN_IMAGES,
    BROKEN_TARGETS,
    IMAGES,
    JUNK,
    TARGETS,
    DrawnNetwork,
    networks,
    state_of_the_process,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refusals import is_refusal
from torch import nn
from zoo.verdicts import portrait

from xaibench.explainers import EXPLAINERS, build, explain
from xaibench.registry.parameters import annotations_of

pytestmark = pytest.mark.filterwarnings("ignore")
INFOS = {name: EXPLAINERS.resolve(name).info for name in EXPLAINERS}
FAMILIES = sorted({info.family for info in INFOS.values()})
#: Explainers of any network with a gradient, and of any image.
GENERAL = [
    name
    for name, info in INFOS.items()
    if info.family in ("Gradients", "Perturbations", "Controls") and not info.needs_convolution and name != "pfi"
]


def values(annotation, default):
    """Values of a parameter of an annotated type."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return st.one_of(*(values(one, default) for one in typing.get_args(annotation)))
    if typing.get_origin(annotation) is typing.Literal:
        return st.sampled_from(typing.get_args(annotation))
    if annotation is int:
        return st.integers(1, 4)
    if annotation is float:
        return st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0]), st.floats(0, 3))
    if annotation is bool:
        return st.booleans()
    if annotation is str and isinstance(default, str):
        return st.just(default)
    if annotation in (str, nn.Module):
        return st.sampled_from(["body", "body.0", "body.1", "body.2"])
    return st.just(default)


@st.composite
def parameters(draw, name):
    """Draw parameters of an explainer: few, small, and rarely of any kind."""
    part = build(name)
    drawn = dict(CASE[name].quick)
    annotations = annotations_of(type(part))
    fields = [field.name for field in dataclasses.fields(part)]
    for field in draw(st.lists(st.sampled_from(fields), max_size=3, unique=True)):
        if draw(st.integers(0, 5)) == 0:
            drawn[field] = draw(st.sampled_from(JUNK))
        else:
            drawn[field] = draw(values(annotations.get(field), getattr(part, field)))
    return drawn


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an explainer; ``faults`` are the arguments that are not what it takes."""

    name: str
    drawn: DrawnNetwork
    shape: tuple
    images: str
    targets: str
    count: int
    seed: int
    output: object
    context: object
    parameters: dict

    def faults(self):
        wrong = {"images": self.images in BROKEN_IMAGES, "targets": self.targets in BROKEN_TARGETS}
        return [argument for argument, is_wrong in wrong.items() if is_wrong]

    def make_images(self):
        x = torch.randn(self.count, *self.shape, generator=torch.Generator().manual_seed(self.seed))
        return (IMAGES | BROKEN_IMAGES)[self.images](x)

    def explain(self, images):
        network, own = self.drawn.network, self.parameters
        targets = (TARGETS | BROKEN_TARGETS)[self.targets](torch.arange(self.count) % 2, self.drawn.classes)
        with self.context():
            explainer = self.name
            if hasattr(EXPLAINERS.resolve(self.name), "fit"):
                training = torch.randn(6, *self.shape, generator=torch.Generator().manual_seed(7))
                batch = training, training[:, 0] > 0, torch.arange(6) % 2
                explainer, own = build(self.name, **own).fit(network, [batch]), {}
            return explain(explainer, network, images, targets, output=self.output, device="cpu", progress=False, **own)


def first_output(outputs):
    return outputs[:, 0]


@st.composite
def calls(draw, name):
    sides = st.integers(1, 8)
    space = draw(st.one_of(*[st.tuples(sides, sides)] * 5, st.tuples(sides, sides, sides)))
    shape = draw(st.integers(1, 3)), *space
    output = draw(st.sampled_from([None, None, "logit", "probability", "margin", "sigmoid", first_output]))
    kinds_of_targets = [*TARGETS] * 2 + [*BROKEN_TARGETS] if output != first_output else []
    # A single volume has the shape of several images.
    broken = [kind for kind in BROKEN_IMAGES if kind != "a single one" or len(shape) == 3]
    return Call(
        name,
        draw(networks(shape)),
        shape,
        draw(st.sampled_from(["plain"] * 20 + [*IMAGES] * 2 + broken)),
        draw(st.sampled_from(["plain"] * 30 + kinds_of_targets)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 9)),
        output,
        draw(st.sampled_from([nullcontext, nullcontext, torch.no_grad, torch.inference_mode])),
        draw(parameters(name)),
    )


def as_doubles(images):
    return torch.as_tensor(images.astype(float) if isinstance(images, np.ndarray) else images).detach().double()


def require_maps(maps, images, parameters):
    assert isinstance(maps, np.ndarray if isinstance(images, np.ndarray) else torch.Tensor)
    maps = torch.as_tensor(maps)
    assert maps.is_floating_point()
    assert not maps.requires_grad
    assert maps.isfinite().all()
    size = images.shape[2:] if parameters.get("resize", "") is not None else maps.shape[1:]
    assert maps.shape == (len(images), *size)


def judge(call):
    network, images = call.drawn.network, call.make_images()
    before, state = portrait(network), state_of_the_process()
    values = call.make_images()
    try:
        maps = call.explain(images)
    except Exception as error:
        is_of_output = traceback.extract_tb(error.__traceback__)[-1].filename == __file__
        if not (is_refusal(error) or call.drawn.raised(error) or is_of_output):
            raise
        maps = error
    assert portrait(network) == before
    assert call.drawn.is_random or state_of_the_process() == state
    if call.images in IMAGES:
        assert all(map(torch.equal, as_doubles(images), as_doubles(values)))
    info, faults = INFOS[call.name], call.faults()
    if isinstance(maps, Exception):
        is_special = call.name not in GENERAL or call.parameters != CASE[call.name].quick or call.output == "margin"
        is_special |= call.output is first_output  # of what the network returned
        named = any(argument in str(maps) for argument in faults)
        assert named or call.drawn.fate != "sound" or is_special, maps
        return type(maps).__name__
    assert not faults
    if not info.control:
        assert call.drawn.fate != "refused"
        assert call.drawn.fate != "gradient" or not info.needs_gradient
    require_maps(maps, images, call.parameters)
    assert torch.equal(*(torch.as_tensor(each) for each in (maps, call.explain(call.make_images()))))
    return "maps"


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(deadline=None)
def test_any_call_gives_maps_or_an_error_of_ours(family, data):
    names = [name for name, info in INFOS.items() if info.family == family]
    judge(data.draw(st.sampled_from(names).flatmap(calls)))


def weights(w, x):
    return w.expand(x.shape)


def contributions(w, x):
    return w * x


#: Attributions of a linear network with weights w to the images x, where the baseline is zero.
LINEAR = {
    "saliency": (weights, {}),
    "guided_backprop": (weights, {}),
    "deconvolution": (weights, {}),
    "smoothgrad": (weights, {"n_samples": 2}),
    "smoothgrad_squared": (lambda w, x: weights(w, x).square(), {"n_samples": 2}),
    "vargrad": (lambda w, x: 0 * x, {"n_samples": 2}),
    "input_x_gradient": (contributions, {}),
    "integrated_gradients": (contributions, {"n_steps": 2}),
    "guided_ig": (contributions, {"n_steps": 2}),
    "gradient_shap": (contributions, {}),
    "deeplift": (contributions, {}),
    "deep_shap": (contributions, {}),
    "lrp": (contributions, {}),
    "lrp_epsilon": (contributions, {"epsilon": 0.0}),
    "shapley_sampling": (contributions, {"n_samples": 1}),
    "occlusion": (contributions, {"window": 1, "stride": 1}),
}


@pytest.mark.parametrize("name", LINEAR)
@given(data=st.data())
@settings(deadline=None)
def test_attributions_of_a_linear_network_follow_from_its_weights(name, data):
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)))
    numbers = hnp.arrays(np.float64, (4, *shape), elements=st.floats(0.1, 4) | st.floats(-4, -0.1))
    w, *x = torch.from_numpy(data.draw(numbers))
    x = torch.stack(x)
    network = nn.Sequential(nn.Flatten(), nn.Linear(w.numel(), 2)).double()
    network[1].weight.data = torch.stack([-w.flatten(), w.flatten()])
    expected, own = LINEAR[name]
    own = own | ({} if name == "occlusion" else {"channels": "sum"})
    maps = explain(name, network, x, 1, output="logit", device="cpu", **own)
    torch.testing.assert_close(maps, expected(w, x).sum(1), rtol=1e-6, atol=1e-6)
