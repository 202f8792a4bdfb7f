"""The traced network is the network: overwritten tensors, hidden operations, activations known by their values."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

from xaibench.explainers import UnsupportedModelError, build, explain
from xaibench.explainers.propagation.layer_walk import visit_operations

TRACED = ("deeplift", "lrp_epsilon", "lrp_alpha_beta", "deep_taylor", "crp", "guided_backprop", "deconvolution")


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return upstream * x.sigmoid() * (1 + x * (1 - x.sigmoid()))


class Odd(torch.autograd.Function):
    """No activation that torch has."""

    @staticmethod
    def forward(ctx, x):
        return torch.where(x > 1, 3 * x, x)

    @staticmethod
    def backward(ctx, upstream):
        return upstream


held_swish = Swish.apply


@torch.jit.script
def scripted_swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@torch.library.custom_op("xaibench_tests::swish", mutates_args=())
def swish_operator(x: torch.Tensor) -> torch.Tensor:
    return x * x.sigmoid()


swish_operator.register_autograd(
    lambda ctx, upstream: Swish.backward(ctx, upstream),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Net(nn.Module):
    """Two convolutions; the activation is called twice, and its argument is used again afterwards."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.norm = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.last, self.act = nn.Linear(4, 3), act
        self.double().eval()

    def forward(self, x):
        x = self.act(self.first(x))
        return self.last((self.act(self.norm(self.second(x))) + x[:, :, 1:-1, 1:-1]).mean((2, 3)))


def overwrite(function):
    """Let a function overwrite its argument, and return the argument."""

    def act(x):
        function(x)
        return x

    return act


def write_parts(x):
    x[:, :2] = x[:, :2].relu()
    x[:, 2:].relu_()
    return x


def accumulate(x):
    total = torch.zeros_like(x)
    total += x.relu()
    return total


FORMS = {
    "relu_": overwrite(lambda x: x.relu_()),
    "functional, in place": overwrite(lambda x: functional.relu(x, inplace=True)),
    "module, in place": overwrite(nn.ReLU(inplace=True)),
    "view": overwrite(lambda x: x.flatten(1).relu_()),
    "parts": write_parts,
    "accumulated": accumulate,
    "twice": lambda x: x.mul_(2).relu_().div_(2),
    "clamp": lambda x: x.clamp(min=0),
    "clamp_": overwrite(lambda x: x.clamp_(0)),
    "clamp_min": lambda x: torch.clamp_min(x, 0.0),
    "maximum": lambda x: torch.maximum(torch.zeros_like(x), x),
    "max": lambda x: torch.max(x, torch.zeros((), dtype=x.dtype)),
    "threshold": lambda x: functional.threshold(x, 0, 0),
    "hardtanh": lambda x: functional.hardtanh(x, 0, 1e9),
}
SWISHES = {
    "silu": overwrite(lambda x: functional.silu(x, inplace=True)),
    "own function": lambda x: Swish.apply(x),
    "operator": swish_operator,
}


@pytest.fixture(scope="module")
def images():
    return torch.rand(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_relu_are_explained_as_relu(form, images):
    for explainer in TRACED:
        expected = explain(explainer, Net(torch.relu), images, [0, 1])
        torch.testing.assert_close(explain(explainer, Net(FORMS[form]), images, [0, 1]), expected)


@pytest.mark.parametrize("form", SWISHES)
def test_forms_of_swish_are_explained_as_silu(form, images):
    for explainer in TRACED:
        expected = explain(explainer, Net(functional.silu), images, [0, 1])
        torch.testing.assert_close(explain(explainer, Net(SWISHES[form]), images, [0, 1]), expected)


@pytest.mark.parametrize("act", [held_swish, scripted_swish, lambda x: Odd.apply(x)])
def test_hidden_operations_are_refused(act, images):
    for explainer in (*TRACED, "lrp"):
        with pytest.raises(UnsupportedModelError):
            explain(explainer, Net(act), images, [0, 1])


def test_a_hidden_operation_is_reported_with_its_layer(images):
    class Layer(nn.Module):
        def forward(self, x):
            return scripted_swish(x)

    with pytest.raises(UnsupportedModelError, match=r"layer 'act' \(Layer\) computes"):
        explain("guided_backprop", Net(Layer()), images, [0, 1])


def clear_negative(x):
    x[x < 0] = 0
    return x


@pytest.mark.parametrize("gate", [lambda x: x * (x > 0), lambda x: x * (x.detach() > 0), clear_negative])
def test_gates_made_of_constants_are_refused_where_they_have_no_rule(gate, images):
    for explainer in ("deeplift", "guided_backprop", "deconvolution"):
        with pytest.raises(UnsupportedModelError):
            explain(explainer, Net(gate), images, [0, 1])
    torch.testing.assert_close(
        explain("lrp_epsilon", Net(gate), images, [0, 1]), explain("lrp_epsilon", Net(torch.relu), images, [0, 1])
    )


def test_the_skip_of_a_unit_that_begins_with_an_in_place_relu_carries_the_rectified_value():
    class Skip(nn.Module):  # relu(-x) + relu(-x), since the ReLU overwrites -x
        def __init__(self):
            super().__init__()
            self.conv, self.relu = nn.Conv2d(1, 1, 1, bias=False), nn.ReLU(inplace=True)
            self.conv.weight.data.fill_(-1.0)

        def forward(self, x):
            x = self.conv(x)
            z = (self.relu(x) + x).flatten(1).sum(1)
            return torch.stack([z, -z], 1)

    image = torch.tensor([[[[1.0, 2.0], [3.0, -4.0]]]])
    for explainer in ("deeplift", "lrp_epsilon", "deep_taylor", "guided_backprop"):
        found = explain(explainer, Skip(), image, 0, output="logit")
        assert found.flatten().tolist() == pytest.approx(
            [0, 0, 0, -2 if explainer == "guided_backprop" else 8], abs=1e-4
        )


def test_patterns_are_fitted_to_the_network_that_overwrites(images):
    fitted = [
        build("pattern_net").fit(Net(act), [images]).patterns for act in (torch.relu, FORMS["functional, in place"])
    ]
    for name, pattern in fitted[0].items():
        torch.testing.assert_close(fitted[1][name], pattern)


def test_the_layer_of_crp_is_not_what_overwrites_its_output(images):
    class Sum(Net):
        def __init__(self, in_place):
            super().__init__(torch.relu)
            self.in_place = in_place

        def forward(self, x):
            x = self.first(x).relu()
            y = self.second(x)
            skip = x[:, :, 1:-1, 1:-1]
            y = y.add_(skip) if self.in_place else y + skip
            return self.last(y.mean((2, 3)))

    maps = [explain("crp", Sum(in_place), images, 1, layer="second", concepts=(0,)) for in_place in (False, True)]
    torch.testing.assert_close(*maps)


def test_an_overwritten_input_of_a_convolution_is_not_folded_into_the_normalization_that_follows(images):
    class Late(Net):
        def __init__(self, in_place):
            super().__init__(torch.relu)
            self.norm.running_mean.copy_(torch.arange(4.0))
            self.in_place = in_place

        def forward(self, x):
            x = self.first(x)
            y = self.second(x)
            x = x.relu_() if self.in_place else x.relu()
            return self.last((self.norm(y).relu() + x[:, :, 1:-1, 1:-1]).mean((2, 3)))

    for explainer in ("deeplift", "guided_backprop"):
        torch.testing.assert_close(*(explain(explainer, Late(in_place), images, 1) for in_place in (False, True)))
    assert explain("lrp_epsilon", Late(True), images, 1).isfinite().all()


def test_other_values_under_the_trace_are_an_error_that_names_the_operation(images):
    def treat(operation, inputs):
        return operation(*inputs) * (1.01 if operation.name.startswith("second") else 1)

    with pytest.raises(UnsupportedModelError, match=r"layer 'second' \(Conv2d\)"):
        visit_operations(Net(torch.relu), images.clone().requires_grad_(), treat)


@pytest.mark.parametrize("explainer", TRACED)
def test_an_argument_out_is_refused(explainer, images):
    with pytest.raises(UnsupportedModelError):
        explain(explainer, Net(lambda x: torch.clamp(x, min=0, out=torch.empty_like(x))), images, 1)


def test_deeplift_of_the_largest_value_sums_to_the_difference(images):
    class Largest(Net):
        def forward(self, x):
            return self.last(self.first(x).amax((2, 3)))

    net = Largest(None)
    maps = explain("deeplift", net, images, [0, 1], output="logit")
    torch.testing.assert_close(maps.sum((1, 2)), (net(images) - net(0 * images))[[0, 1], [0, 1]].detach())


def test_own_functions_of_other_threads_are_untouched():
    original = vars(torch.autograd.Function)["apply"]
    entered, done = threading.Event(), threading.Event()

    class Waiting(nn.Module):
        def forward(self, x):
            if not torch.is_grad_enabled():
                return Swish.apply(x).flatten(1)
            entered.set()
            done.wait(10)
            return Swish.apply(x).flatten(1)

    thread = threading.Thread(target=lambda: explain("guided_backprop", Waiting(), torch.rand(1, 1, 2, 2), 0))
    thread.start()
    entered.wait(10)
    x = torch.ones(1, requires_grad=True)
    assert Swish.apply(x).grad_fn.name() == "SwishBackward"
    done.set()
    thread.join()
    assert vars(torch.autograd.Function)["apply"] is original


@pytest.mark.parametrize("explainer", [*TRACED, "lrp", "deep_shap"])
def test_a_forward_pass_in_inference_mode_is_refused(explainer, images):
    class Inference(Net):
        forward = torch.inference_mode()(Net.forward)

    with pytest.raises(UnsupportedModelError):
        explain(explainer, Inference(torch.relu), images, 1)
