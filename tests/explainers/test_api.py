import dataclasses
import functools
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from fresh_process import run_fresh
from part_cases import ExplainerCase, case
from refusals import refused
from torch import nn
from zoo.verdicts import portrait

import xaibench
import xaibench as xb
from xaibench.data import Split
from xaibench.explainers import EXPLAINERS, NotFittedError, build, explain
from xaibench.explainers.controls import Uniform
from xaibench.explainers.perturbation.surrogate import LIME
from xaibench.registry.table import UnknownNameError
from xaibench.tensors.device import precision_context

#: Those that must be fitted first, or explain other networks, are tested with these in files of their own.
EVERY = [
    name
    for name in EXPLAINERS
    if case(EXPLAINERS, name, ExplainerCase()).network == "cnn" and not hasattr(EXPLAINERS.resolve(name), "fit")
]
WITH_CHANNELS = [name for name in EVERY if "channels" in {field.name for field in dataclasses.fields(build(name))}]
WITH_CHANNELS.remove("xrai")  # its regions follow from the channels, and not the other way round

#: Small numbers.
PARAMETERS = {
    "lime": {"n_samples": 70},
    "kernel_shap": {"n_samples": 70},
    "rise": {"n_masks": 64},
    "sobol": {"n_designs": 2},
    "hsic": {"n_samples": 40},
    "xrai": {"n_steps": 3, "segmentation_size": 16, "min_segment_size": 8, "dilation": 1},
    "guided_ig": {"n_steps": 4},
    "blur_ig": {"n_steps": 4},
    "random_baseline_ig": {"n_steps": 4},
}


def parameters(name):
    return PARAMETERS.get(name, {})


@pytest.mark.parametrize("name", WITH_CHANNELS)
def test_several_channels_become_one_map(name, rgb_cnn, targets):
    images = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    maps = {
        how: explain(name, rgb_cnn, images, targets, channels=how, **parameters(name))
        for how in ("sum", "abs_sum", "max_abs")
    }
    for one in maps.values():
        assert one.shape == (7, 8, 8)
    assert (maps["abs_sum"] >= maps["sum"].abs() - 1e-12).all()
    assert (maps["abs_sum"] >= maps["max_abs"].abs() - 1e-12).all()
    default = explain(name, rgb_cnn, images, targets, **parameters(name))
    assert default.equal(maps[build(name).channels])


@pytest.mark.parametrize("name", ["saliency", "rise", "lrp_gamma"])
def test_bfloat16_is_close_and_comes_back_in_float32(name, rgb_cnn, targets):
    images = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    exact, half = (
        explain(name, rgb_cnn, images, targets, device="cpu", precision=precision, **parameters(name))
        for precision in ("float32", "bfloat16")
    )
    assert half.dtype == exact.dtype == torch.float32
    assert not half.equal(exact)
    assert torch.corrcoef(torch.stack([exact.flatten(), half.flatten()]))[0, 1] > 0.95


def test_precision_is_stated_by_the_call_or_around_it(cnn, images, targets):
    own = explain("saliency", cnn, images, targets, device="cpu")
    double, single = (
        explain("saliency", cnn, images, targets, device="cpu", precision=precision)
        for precision in ("float64", "float32")
    )
    assert own.equal(double)
    assert single.dtype == torch.float32
    with precision_context("float32"):
        assert explain("saliency", cnn, images, targets, device="cpu").equal(single)
        assert explain("saliency", cnn, images, targets, device="cpu", precision="float64").equal(double)


def test_convolutions_are_not_rounded_to_tf32(cnn, images, targets):
    seen = []

    def look(model, images, targets):
        seen.append(torch.backends.cudnn.allow_tf32)
        return images[:, 0]

    for precision in (None, "float32", "tf32"):
        explain(look, cnn, images, targets, device="cpu", precision=precision)
    assert seen == [False, False, True]
    assert torch.backends.cudnn.allow_tf32


def test_a_macs_gpu_is_told_that_it_has_no_float64(cnn, images, targets, monkeypatch):
    monkeypatch.setattr("xaibench.explainers.api.resolve_device", torch.device)
    with pytest.raises(ValueError, match=r"'mps' has no float64.*precision='float32'"):
        explain("saliency", cnn, images, targets, device="mps")


@pytest.mark.parametrize(
    ("alias", "name"),
    [("ig", "integrated_gradients"), ("DeepLiftShap", "deep_shap"), ("feature-permutation", "pfi"), ("x", "input")],
)
def test_paper_names_are_understood(alias, name):
    assert EXPLAINERS.resolve(alias) is EXPLAINERS.resolve(name)


def test_the_suites_of_the_paper_state_what_the_released_runs_took():
    published = {
        "pfi": {"group_size": 50},
        "shapley_sampling": {"n_samples": 25},
        "kernel_shap": {"n_samples": 25},
        "lime": {"n_samples": 50, "alpha": 0.01},
        "deeplift": {"max_pool": "gradient"},
        "deep_shap": {"max_pool": "gradient"},
    }
    for name in ("xai-tris-8x8", "xai-tris-8x8-paper", "xai-tris-64x64-paper"):  # xai-tris-64x64 is for a laptop
        suite = Path(xaibench.__file__).parent / "benchmarks" / "xai_tris" / "suites" / f"{name}.toml"
        stated = tomllib.loads(suite.read_text())["explainers"]
        values = [stated[part].pop("feature_mask", "values") for part in ("lime", "kernel_shap")]
        assert {part: stated[part] for part in published} == published
        assert values == ["values", "values"]


def blend(model, images, targets, strength=1.0):
    """A user's own explainer, as a function."""
    return strength * images[:, 0]


class Own:
    """A user's own explainer, as a class."""

    def __init__(self, strength=1.0):
        self.strength = strength

    def __call__(self, model, images, targets):
        return self.strength * images[:, 0]


@pytest.mark.parametrize(
    "own",
    [blend, Own, "explainer_of_a_user:blend", "explainer_of_a_user:Own", lambda model, x, y, strength: strength * x],
)
def test_an_explainer_of_the_user(own, cnn, images, targets, monkeypatch):
    monkeypatch.setitem(sys.modules, "explainer_of_a_user", sys.modules[__name__])
    maps = explain(own, cnn, images, targets, strength=2.0, dtype=torch.float32)
    assert maps.equal(2 * images[:, 0])


def test_other_ways_to_give_an_explainer(cnn, images, targets):
    expected = explain("lime", cnn, images, targets, n_samples=20, alpha=1e-4)
    assert expected.abs().max() > 0
    assert explain(LIME(n_samples=20, alpha=1e-4), cnn, images, targets).equal(expected)
    assert explain(LIME(n_samples=9), cnn, images, targets, n_samples=20, alpha=1e-4).equal(expected)
    assert explain(functools.partial(LIME(n_samples=20, alpha=1e-4)), cnn, images, targets).equal(expected)
    assert explain(LIME, cnn, images, targets, n_samples=20, alpha=1e-4).equal(expected)
    assert explain(Own(3.0), cnn, images, targets, dtype=torch.float32).equal(3 * images[:, 0])
    assert explain(Uniform(5), cnn, images, targets).equal(explain("uniform", cnn, images, targets, seed=5))


def test_numpy_in_numpy_out(cnn, images, targets):
    expected = explain("saliency", cnn, images, targets)
    reversed_views = images.numpy()[::-1], targets.numpy().astype(np.int32)[::-1]
    maps = explain("saliency", cnn, *reversed_views)
    assert isinstance(maps, np.ndarray)
    np.testing.assert_allclose(maps[::-1], expected.numpy(), rtol=1e-12, atol=1e-15)


def test_arrays_of_a_network_in_bfloat16_are_float32(mlp, images, targets):
    maps = explain("saliency", mlp, images.numpy(), targets, dtype=torch.bfloat16)
    assert maps.dtype == np.float32
    assert np.array_equal(maps, explain("saliency", mlp, images, targets, dtype=torch.bfloat16).float())


@pytest.mark.parametrize("name", ["saliency", "lrp", "crp", "gradcam"])
def test_maps_do_not_depend_on_whether_gradients_are_off_where_it_is_called(cnn, images, targets, name):
    expected = explain(name, cnn, images, targets)
    with torch.no_grad():
        assert explain(name, cnn, images, targets).equal(expected)


def test_what_is_explained(cnn, images, targets):
    probability, logit, margin = (
        explain("ig", cnn, images, targets, output=output, n_steps=300) for output in ("probability", "logit", "margin")
    )
    model = cnn.double().eval()
    with torch.no_grad():
        rise = model(images.double()) - model(torch.zeros(1, 1, 8, 8, dtype=torch.float64))
    torch.testing.assert_close(logit.sum((1, 2)), rise[range(7), targets], rtol=1e-2, atol=1e-3)
    other = rise[range(7), 1 - targets]
    torch.testing.assert_close(margin.sum((1, 2)), rise[range(7), targets] - other, rtol=1e-2, atol=1e-3)
    assert not probability.allclose(logit, atol=1e-3)


def test_the_precision_is_that_of_the_model_unless_it_says_otherwise(cnn, mlp, images, targets):
    assert explain("saliency", cnn, images, targets).dtype is torch.float64  # its explain_dtype
    cnn.explain_dtype = None
    assert explain("saliency", cnn, images, targets).dtype is torch.float32
    assert explain("saliency", cnn.double(), images, targets).dtype is torch.float64
    assert explain("saliency", cnn, images, targets, dtype=torch.float32).dtype is torch.float32


def test_unknown_names_and_parameters(cnn, images, targets):
    with pytest.raises(UnknownNameError, match="Unknown explainer 'salliency'; did you mean 'saliency'"):
        explain("salliency", cnn, images, targets)
    with pytest.raises(
        TypeError, match=r"LIME has no parameter 'n_sampls'; did you mean 'n_samples'. Known: alpha, base"
    ):
        explain("lime", cnn, images, targets, n_sampls=10)
    with pytest.raises(TypeError, match=r"blend has no parameter 'depth'. Known: strength"):
        explain(blend, cnn, images, targets, depth=1)
    refused(TypeError, "explainer: got int, expected a name", explain, 3, cnn, images, targets)


BAD = {"output": "odds", "channels": "mean", "batch_size": 0, "precision": "half", "seed": -1}


def replace(tensor, index, value):
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"images": torch.zeros(7, 8, 8)}, ValueError),
        ({"images": torch.zeros(0, 1, 8, 8)}, ValueError),
        ({"images": torch.zeros(7, 1, 8, 8, dtype=torch.uint8)}, TypeError),
        ({"images": "cat.png"}, TypeError),
        ({"images": np.full((7, 1, 8, 8), None)}, TypeError),
        ({"images": np.full((7, 1, 8, 8), "cat")}, TypeError),
        ({"images": torch.zeros(7, 1, 9, 9)}, ValueError),
        ({"targets": torch.zeros(6, dtype=torch.long)}, ValueError),
        ({"targets": torch.zeros(7)}, TypeError),
        ({"targets": torch.zeros(7, dtype=torch.bool)}, TypeError),
        ({"targets": torch.tensor([0, 1, 2, 0, 0, 0, -1])}, ValueError),
        ({"targets": None}, TypeError),
        ({"targets": torch.ones(7, 4), "output": "sigmoid"}, ValueError),
        *(({name: bad}, ValueError) for name, bad in BAD.items()),
        ({"model": torch.tanh}, TypeError),
        ({"model": nn.Sequential(nn.Flatten(0))}, ValueError),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(64, 1))}, ValueError),
        ({"model": nn.Linear}, TypeError),
        ({"device": "abacus"}, ValueError),
        ({"device": "cpu:x"}, ValueError),
        ({"device": 0}, TypeError),
        ({"precision": "float64", "dtype": torch.float32}, ValueError),
        ({"seed": "a"}, ValueError),
    ],
)
def test_bad_input_is_refused(change, error, mlp, images, targets):
    arguments = {"model": mlp, "images": images, "targets": targets} | change
    given = [arguments.pop(name) for name in ("model", "images", "targets")]
    refused(error, next(iter(change)), lambda: explain("saliency", *given, **arguments))


@pytest.mark.parametrize("name", ["lrp_gamma", "pattern_net"])
def test_what_begins_at_the_logit_refuses_probabilities(name, mlp, images, targets):
    refused(ValueError, "for the logit only", lambda: explain(build(name), mlp, images, targets, output="probability"))


def test_numbers_that_are_not_finite_are_named(mlp, images, targets):
    with pytest.raises(ValueError, match="images must be finite, got NaN or infinity in samples 2"):
        explain("saliency", mlp, replace(images, 2, float("nan")), targets)
    with pytest.raises(ValueError, match="maps of <lambda> must be finite, got NaN or infinity in samples 1"):
        explain(lambda model, x, y: replace(x[:, 0], 1, float("inf")), mlp, images, targets)
    mlp.layers[0].weight.data.fill_(float("nan"))
    refused(ValueError, "The model returns NaN or infinite logits", explain, "saliency", mlp, images, targets)


def test_maps_of_the_wrong_form_are_refused(mlp, images, targets):
    with pytest.raises(ValueError, match=re.escape("maps of <lambda> must be [N, H, W], here [7, 8, 8], got [7, 64]")):
        explain(lambda model, x, y: x.flatten(1), mlp, images, targets)


def test_captum_is_not_loaded_before_it_is_needed():
    code = "import sys, xaibench.explainers as e; e.EXPLAINERS.resolve('lrp'); print('captum' in sys.modules)"
    assert run_fresh(code).stdout.strip() == "False"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", EVERY)
def test_maps_on_the_gpu_are_those_on_the_cpu(name, cnn, images, targets):
    on_cpu, on_gpu = (explain(name, cnn, images, targets, device=d, **parameters(name)) for d in ("cpu", "cuda"))
    torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-6, atol=1e-6 * on_cpu.abs().max().item())
    assert next(cnn.parameters()).device.type == "cpu"


@pytest.mark.parametrize("name", ["smoothgrad", "uniform"])
def test_what_is_drawn_does_not_depend_on_the_precision(mlp, images, targets, name):
    exact = explain(name, mlp, images, targets, dtype=torch.float64)
    half = explain(name, mlp, images, targets, dtype=torch.bfloat16).double()
    torch.testing.assert_close(half, exact, rtol=0, atol=0.03 * exact.abs().max().item())


class OwnFitted:
    """An explainer of a user, which must be fitted."""

    def __init__(self):
        self.fitted = False

    def fit(self, model, loader):
        found = OwnFitted()
        found.fitted = True
        return found

    def __call__(self, model, images, targets):
        return images.mean(1)


@pytest.mark.parametrize("unfitted", [OwnFitted, OwnFitted()])
def test_an_unfitted_object_of_a_users_class_is_refused(unfitted):
    model, images = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)), torch.rand(1, 1, 2, 2)
    targets = torch.tensor([0])
    with pytest.raises(NotFittedError, match=r"OwnFitted has a method fit and is not fitted. Fit it first"):
        explain(unfitted, model, images, targets)
    assert explain(OwnFitted().fit(model, []), model, images, targets).shape == (1, 2, 2)


def test_the_defaults_are_those_of_the_released_runs():
    assert (build("ig").n_steps, build("shapley").n_samples, build("pfi").group_size) == (50, 25, 50)


def test_big_endian_arrays_are_explained_as_others(cnn):
    images = np.random.default_rng(0).random((2, 1, 8, 8))
    for dtype in (np.float32, np.float64):
        plain = images.astype(dtype)
        maps = explain("saliency", cnn, plain.astype(plain.dtype.newbyteorder(">")), [0, 1])
        np.testing.assert_array_equal(maps, explain("saliency", cnn, plain, [0, 1]))


IMAGES, TARGETS = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )


@pytest.mark.parametrize(
    "name", ["gradcam", "gradcam++", "layercam", "eigencam", "scorecam", "ablationcam", "guided_gradcam"]
)
@pytest.mark.parametrize("dtype", ["auto", torch.float64])  # the latter explains a copy
def test_the_module_is_the_layer_of_its_name(model, name, dtype):
    by_name, by_module = (
        xb.explain(name, model, IMAGES, TARGETS, layer=layer, dtype=dtype) for layer in ("0", model[0])
    )
    assert torch.equal(by_name, by_module)
    assert not torch.equal(by_module, xb.explain(name, model, IMAGES, TARGETS, dtype=dtype))


def test_an_explainer_called_by_itself_takes_it(model):
    part = xb.explainers.build("gradcam", layer=model[0])
    assert torch.equal(part(model, IMAGES, TARGETS), xb.explainers.build("gradcam", layer="0")(model, IMAGES, TARGETS))


def test_evaluate_takes_it_where_the_network_is_copied(model):
    split = Split(IMAGES, IMAGES[:, 0] > 0.5, TARGETS)
    methods = {
        "module": xb.explainers.build("gradcam", layer=model[0]),
        "name": xb.explainers.build("gradcam", layer="0"),
    }
    how = {"metrics": ["roc_auc"], "controls": False, "scored": "all", "precision": "float64"}
    scores = xb.evaluate(methods, split, model, **how).matrix("roc_auc")
    assert scores["module"].tolist() == scores["name"].tolist()


def test_a_module_that_runs_again_on_vectors_keeps_its_maps():
    act, last = nn.ReLU(), nn.Linear(4, 2)
    layers = nn.Conv2d(1, 3, 3, padding=1), act, nn.Flatten(), nn.Linear(192, 4)
    shared, plain = nn.Sequential(*layers, act, last), nn.Sequential(*layers, nn.ReLU(), last)
    for name in ("gradcam", "hirescam", "ablationcam"):
        assert torch.equal(*(xb.explain(name, network, IMAGES, TARGETS, layer="1") for network in (shared, plain)))


def test_lrp_gives_back_the_model_and_its_rules(cnn, images, targets):
    from captum.attr._utils.lrp_rules import GammaRule

    cnn.layers[0].rule = GammaRule()
    cnn.double()
    before = portrait(cnn)
    with_rule = explain("lrp", cnn, images, targets)
    with_rule_in_chunks = explain("lrp", cnn, images, targets, batch_size=2)
    assert portrait(cnn) == before
    torch.testing.assert_close(with_rule, with_rule_in_chunks)
    del cnn.layers[0].rule
    assert not torch.allclose(with_rule, explain("lrp", cnn, images, targets))


@pytest.mark.parametrize("name", ["guided_backprop", "deeplift", "lrp"])
def test_the_model_comes_back_when_an_explainer_raises_midway(name, images, targets):
    class Twice(nn.Module):
        """Fails in the last pass, the one with the hooks in place."""

        def __init__(self):
            super().__init__()
            self.first, self.relu, self.last = nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 2)
            self.passes = 0

        def forward(self, x):
            self.passes += 1
            hidden = self.relu(self.first(x.flatten(1)))
            if self.passes > (2 if name == "lrp" else 1):
                raise RuntimeError("worn out")
            return self.last(hidden)

    model = Twice()
    before = portrait(model)
    refused(RuntimeError, "worn out", lambda: explain(name, model, images, targets, device="cpu"))
    assert portrait(model) == before


def test_hook_handles_still_work_afterwards(cnn, images, targets):
    calls = []
    handle = cnn.layers[0].register_forward_hook(lambda *_: calls.append(1))
    explain("saliency", cnn.double(), images, targets, device="cpu")
    seen = len(calls)
    assert seen > 0
    handle.remove()
    cnn(images.double())
    assert len(calls) == seen


def test_a_model_that_fits_is_not_copied_and_one_that_does_not_is(cnn, images, targets):
    seen = []

    def spy(model, images, targets):
        seen.append(model.network)
        return images[:, 0]

    explain(spy, cnn, images, targets, dtype=torch.float32, device="cpu")
    explain(spy, cnn, images, targets, dtype=torch.float64, device="cpu")
    assert seen[0] is cnn
    assert seen[1] is not cnn
    assert next(cnn.parameters()).dtype is torch.float32
