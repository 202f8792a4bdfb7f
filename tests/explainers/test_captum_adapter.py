import captum.attr
import numpy as np
import pytest
import torch

from xaibench.explainers import ExplainedOutput, build, explain


def test_a_class_is_built_on_the_explained_model(cnn, images, targets):
    maps = explain(captum.attr.IntegratedGradients, cnn, images, targets, n_steps=20)
    torch.testing.assert_close(maps, explain("ig", cnn, images, targets, n_steps=20), rtol=1e-5, atol=1e-8)
    assert explain("captum.attr:IntegratedGradients", cnn, images, targets, n_steps=20).equal(maps)
    logit = explain(captum.attr.IntegratedGradients, cnn, images, targets, output="logit", multiply_by_inputs=False)
    assert not torch.allclose(logit * images[:, 0], maps)


def test_an_object_explains_its_own_function(cnn, mlp, images, targets):
    method = captum.attr.InputXGradient(cnn.eval())
    cnn.train()
    maps = explain(method, mlp, images, targets)
    theirs = explain("input_x_gradient", cnn, images, targets, output="logit", dtype=torch.float32)
    torch.testing.assert_close(maps.float(), theirs, rtol=1e-5, atol=1e-7)
    assert cnn.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in cnn.parameters())
    with pytest.raises(ValueError, match="InputXGradient is defined for the logit only, got output='margin'"):
        explain(method, mlp, images, targets, output="margin")


def test_an_object_on_a_function_that_is_no_module(cnn, images, targets):
    explained = ExplainedOutput(cnn.eval())
    method = captum.attr.Saliency(lambda x: explained(x))
    maps = explain(method, cnn, images, targets, abs=False)
    plain = explain("saliency", cnn, images, targets, dtype=torch.float32)
    torch.testing.assert_close(maps.float(), plain, rtol=1e-5, atol=1e-7)


def test_tensors_among_the_arguments_follow_the_images(cnn, images, targets):
    maps = explain(captum.attr.DeepLift, cnn, images, targets, baselines=torch.full((7, 1, 8, 8), 0.1))
    ours = explain("deeplift", cnn, images, targets, baseline=0.1, max_pool="gradient")
    torch.testing.assert_close(maps, ours, rtol=1e-5, atol=1e-7)


def test_random_numbers_come_from_the_seed_alone(cnn, images, targets):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()

    def maps(seed):
        baselines = torch.zeros(2, 1, 8, 8)
        return explain(captum.attr.GradientShap, cnn, images, targets, baselines=baselines, stdevs=0.1, seed=seed)

    first = maps(0)
    torch.rand(3), np.random.rand(3)
    assert maps(0).equal(first)
    assert not maps(1).equal(first)
    torch.set_rng_state(torch_state)
    np.random.set_state(("MT19937", numpy_state, 624))
    maps(2)
    assert torch.get_rng_state().equal(torch_state)


@pytest.mark.parametrize(
    ("method", "parameters", "named"),
    [
        (captum.attr.LayerGradCam, {}, "layer"),
        (captum.attr.NeuronGradient, {}, "neuron"),
        (captum.attr.GuidedGradCam, {}, "layer"),
        (captum.attr.Occlusion, {}, "sliding_window_shapes"),
        (captum.attr.TokenReferenceBase, {}, "TokenReferenceBase"),
        (captum.attr.Saliency, {"n_steps": 3}, "n_steps"),
    ],
)
def test_what_is_missing_or_unknown_is_named(method, parameters, named):
    with pytest.raises(TypeError, match=named):
        build(method, **parameters)


def test_a_list_of_numbers_is_the_tuple_that_captum_asks_for(cnn, images, targets):
    ours = explain("captum.attr:Occlusion", cnn, images, targets, sliding_window_shapes=[1, 3, 3], strides=[1, 2, 2])
    theirs = explain("captum.attr:Occlusion", cnn, images, targets, sliding_window_shapes=(1, 3, 3), strides=(1, 2, 2))
    assert ours.equal(theirs)


def test_channels_by_the_rule_that_is_asked_for(rgb_cnn, targets):
    images = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    ours = explain("saliency", rgb_cnn, images, targets, channels="abs_sum")
    theirs = explain("captum.attr:Saliency", rgb_cnn, images, targets, channels="abs_sum")
    torch.testing.assert_close(ours, theirs)


class Cropped(captum.attr.Saliency):
    def attribute(self, inputs, target):
        return super().attribute(inputs, target)[..., 1:]


def test_attributions_of_another_shape_are_refused(cnn, images, targets):
    with pytest.raises(ValueError, match=r"Cropped: attribute returned \[7, 1, 8, 7\], expected \[7, 1, 8, 8\]"):
        explain(Cropped, cnn, images, targets)
