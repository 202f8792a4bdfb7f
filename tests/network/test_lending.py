import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest
import torch
from refusals import refused
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import xaibench as xb
from xaibench.network.lending import (
    copy_network,
    evaluation_mode,
    lock_network,
    place_network,
    plain_checkpoints,
    restore_model_state,
)

EXPLAINERS = ("saliency", "gradcam", "deeplift", "lrp_epsilon", "occlusion")


def small_cnn(wrap=lambda layer: layer):
    torch.manual_seed(0)
    body = (wrap(nn.Conv2d(3, 4, 3)), nn.SiLU(), wrap(nn.Conv2d(4, 4, 3)), nn.BatchNorm2d(4), nn.SiLU())
    network = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    network[-1].weight.data.abs_()  # so that no Grad-CAM map is zero
    return network


@pytest.fixture(scope="module")
def images():
    return torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))


def maps_of(network, images, name, **settings):
    return xb.explain(name, network, images, 1, output="logit", progress=False, **settings)


def modes(model):
    return [module.training for module in model.modules()]


@pytest.fixture
def model():
    """With what a model in use has: mixed modes, buffers, a hook, a frozen parameter, a gradient, an attribute."""
    built = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)).train()
    built[1].eval()
    built[3].register_forward_hook(lambda *_: None)
    built[0].bias.requires_grad_(False)
    built[0].weight.grad = torch.ones_like(built[0].weight)
    built[2].note = "mine"
    return built


@pytest.mark.parametrize("guard", [evaluation_mode, restore_model_state])
def test_every_module_is_evaluating_and_comes_back_in_its_own_mode(guard, model):
    before = modes(model)
    assert len(set(before)) == 2
    with guard(model):
        assert not any(modes(model))
        model.train()
    assert modes(model) == before


@pytest.mark.parametrize("guard", [evaluation_mode, restore_model_state])
def test_also_when_the_block_fails(guard, model):
    before = modes(model)
    with pytest.raises(RuntimeError, match="halfway"), guard(model):
        raise RuntimeError("halfway")
    assert modes(model) == before


def test_also_when_a_module_refuses_the_mode(model):
    class Stubborn(nn.Identity):
        def train(self, mode=True):
            raise RuntimeError("never")

    before = modes(model)
    model.append(Stubborn())
    with pytest.raises(RuntimeError, match="never"), evaluation_mode(model):
        pass
    assert modes(model)[:-1] == before


def test_a_function_has_no_mode():
    with evaluation_mode(torch.tanh):
        pass


def test_inside_gradients_are_on_and_parameters_are_frozen(model):
    asked = [p.requires_grad for p in model.parameters()]
    with torch.no_grad(), restore_model_state(model) as lent:
        assert lent is model
        assert torch.is_grad_enabled()
        assert not any(p.requires_grad for p in lent.parameters())
    with torch.inference_mode(), restore_model_state(model):
        assert not torch.is_inference_mode_enabled()
    assert [p.requires_grad for p in model.parameters()] == asked


def test_all_that_is_done_to_a_lent_model_is_undone(model):
    state, weight = copy.deepcopy(model.state_dict()), model[0].weight
    gradient, hooks, layers = weight.grad, dict(model[3]._forward_hooks), list(model)
    with restore_model_state(model) as lent:
        lent[1].train()
        lent(torch.rand(4, 1, 4, 4))  # moves the statistics of the batch normalization
        lent[0].weight.grad = None
        lent[0].weight.requires_grad_(True)
        lent[2].note, lent[2].extra = "yours", 1
        lent[3].register_forward_hook(lambda *_: None)
        lent[2] = nn.Identity()
        assert not torch.equal(lent[1].running_mean, state["1.running_mean"])
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model[0].weight is weight
    assert weight.grad is gradient
    assert not model[0].bias.requires_grad
    assert list(model) == layers
    assert model[2].note == "mine"
    assert not hasattr(model[2], "extra")
    assert dict(model[3]._forward_hooks) == hooks


def test_hooks_come_back_in_their_order(model):
    def first(*_): ...

    def second(*_): ...

    handle = model[3].register_forward_hook(first)
    model[3].register_forward_hook(second)
    before = list(model[3]._forward_hooks.items())
    with restore_model_state(model):
        handle.remove()
        model[3].register_forward_hook(first)
    assert list(model[3]._forward_hooks.items()) == before


def test_contents_of_lists_sets_and_nested_dictionaries_come_back(model):
    model[2].seen, model[2].cache, model[2].names = [1], {"a": {"b": [2]}}, {"x"}
    seen, nested = model[2].seen, model[2].cache["a"]
    with restore_model_state(model):
        model[2].seen.append(3)
        model[2].cache["a"]["b"].append(4)
        model[2].cache["a"]["c"] = 5
        model[2].names.add("y")
    assert (model[2].seen, model[2].cache, model[2].names) == ([1], {"a": {"b": [2]}}, {"x"})
    assert model[2].seen is seen
    assert model[2].cache["a"] is nested


# Threads: the test decides where a thread stops, so nothing depends on time.


class Gate(nn.Module):
    """A layer in whose forward pass the thread that ``closed_for`` names stops until ``opened``.

    With ``traced``, it only stops when the network is traced. Copies share the state.
    """

    def __init__(self):
        super().__init__()
        events = {"reached": threading.Event(), "opened": threading.Event()}
        self.state = {"closed_for": None, "traced": False, **events}

    def __deepcopy__(self, memo):
        copied = Gate()
        copied.state = self.state
        return copied

    def forward(self, x):
        if self.state["traced"] and not isinstance(x, torch.fx.Proxy):
            return x
        if threading.current_thread().name == self.state["closed_for"]:
            self.state["reached"].set()
            assert self.state["opened"].wait(20)
        return x


def gated_cnn():
    network, gate = small_cnn(), Gate()
    network.insert(4, gate)
    return network, gate.state


@contextmanager
def stopped_inside(state, work):
    """Run ``work`` in a thread that stops inside of the gate; yield the function that opens it and returns the result.

    With or without an error, the thread has ended after the block.
    """
    result = []

    def run():
        result.append(work())

    thread = threading.Thread(target=run, name="stopped")
    state["closed_for"] = "stopped"
    thread.start()
    assert state["reached"].wait(20)

    def finish():
        state["opened"].set()
        thread.join()
        return result[0]

    try:
        yield finish
    finally:
        state["opened"].set()
        thread.join()


@pytest.mark.parametrize("second", ["saliency", "lrp_epsilon", "guided_backprop"])
@pytest.mark.parametrize("first", ["gradcam", "deeplift", "lrp_epsilon"])
def test_explaining_a_network_that_is_lent_in_another_thread(first, second, images):
    network, state = gated_cnn()
    expected = [maps_of(small_cnn(), images, name) for name in (first, second)]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules()]
    with stopped_inside(state, lambda: maps_of(network, images, first)) as finish, ThreadPoolExecutor(1) as pool:
        other = pool.submit(maps_of, network, images, second)
        # Without a lock the second thread would explain the half-lent network now; with it, it waits.
        refused(TimeoutError, "", other.result, 0.05)
        torch.testing.assert_close(finish(), expected[0])
        torch.testing.assert_close(other.result(20), expected[1])
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules()] == hooks


@pytest.mark.parametrize("work", ["copy", "wrapped", "deletion", "randomization"])
def test_other_uses_of_a_lent_network_wait(work, images):
    network, state = gated_cnn()
    uses = {
        "copy": lambda: [p.requires_grad for p in copy_network(network).parameters()],
        "wrapped": lambda: maps_of(xb.models.Wrapped(network, lambda net, x: net(x)), images, "saliency").tolist(),
        "deletion": lambda: xb.deletion(network, images, images[:, 0], torch.tensor([0, 1]), steps=4),
        "randomization": lambda: xb.parameter_randomization(
            lambda net, x, y: maps_of(net, x, "saliency"), network, images, torch.tensor([1, 1])
        ),
    }
    expected = uses[work]()
    with (
        stopped_inside(state, lambda: maps_of(network, images, "lrp_epsilon")) as finish,
        ThreadPoolExecutor(1) as pool,
    ):
        other = pool.submit(uses[work])
        refused(TimeoutError, "", other.result, 0.05)
        finish()
        assert other.result(20) == expected


def test_different_networks_do_not_wait_for_each_other(images):
    network, state = gated_cnn()
    with stopped_inside(state, lambda: maps_of(network, images, "lrp_epsilon")) as finish:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(maps_of, small_cnn(), images, "deeplift").result(20)
        torch.testing.assert_close(other, maps_of(small_cnn(), images, "deeplift"))
        torch.testing.assert_close(finish(), maps_of(small_cnn(), images, "lrp_epsilon"))


def test_a_network_is_explained_while_a_metric_traces_another(images):
    network, state = gated_cnn()  # the gate is closed during the trace that fuses the batch normalizations
    state["traced"] = True
    many = images.repeat(16, 1, 1, 1)

    def score():
        return xb.deletion(network, many, many[:, 0], torch.ones(32, dtype=torch.int64), steps=4)

    expected, other = score(), maps_of(small_cnn(), images, "lrp_epsilon")
    with stopped_inside(state, score) as finish:
        torch.testing.assert_close(maps_of(small_cnn(), images, "lrp_epsilon"), other)
        assert finish() == expected


def test_after_an_error_the_next_thread_gets_the_network(images):
    network, state = gated_cnn()

    def failing(model, x, y):
        model(x)
        raise RuntimeError("halfway")

    def work():
        refused(RuntimeError, "halfway", lambda: xb.explain(failing, network, images, 1, progress=False))

    with stopped_inside(state, work), ThreadPoolExecutor(1) as pool:
        other = pool.submit(maps_of, network, images, "saliency")
        state["opened"].set()
        torch.testing.assert_close(other.result(20), maps_of(small_cnn(), images, "saliency"))


def test_networks_that_were_lent_apart_have_both_locks_together():
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    for network in (one, other):
        with lock_network(network):
            pass
    both = nn.Sequential(one, other)

    def is_free(network):
        lock = threading.Event()

        def enter():
            with lock_network(network):
                lock.set()

        thread = threading.Thread(target=enter)
        thread.start()
        return lock.wait(0.05), thread

    with lock_network(both), lock_network(one):
        waiting = [is_free(network) for network in (one, other)]
    assert [free for free, _ in waiting] == [False, False]
    for _, thread in waiting:
        thread.join()


# Special networks, each compared with its plain twin.


def weight_normed(layer):
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(layer)


def trained(network):
    """After a training step, by which older reparametrizations have a weight with a graph."""
    network.train()(torch.rand(4, 3, 9, 9)).square().sum().backward()
    return network.eval()


def plain_twin(network):
    twin = small_cnn()
    for copied, layer in zip(twin, network, strict=True):
        for name in ("weight", "bias", "running_mean", "running_var"):
            if getattr(copied, name, None) is not None:
                getattr(copied, name).data.copy_(getattr(layer, name).detach())
    return twin


def made_in_inference_mode():
    with torch.inference_mode():
        return small_cnn()


class Checkpointed(nn.Module):
    """The layers of a network up to the pooling, called through gradient checkpoints in one of their forms."""

    def __init__(self, network, form):
        super().__init__()
        self.body, self.head, self.form = network[:5], network[5:], form

    def forward(self, x):
        if self.form == "sequential":
            x = checkpoint_sequential(self.body, 2, x, use_reentrant=False)
        else:
            x = checkpoint(self.body, x, use_reentrant=self.form == "reentrant")
        return self.head(x)


def data_parallel():
    """As it is without a GPU, whichever devices there are."""
    network = nn.DataParallel.__new__(nn.DataParallel)
    nn.Module.__init__(network)
    network.module, network.device_ids = small_cnn(), []
    return network


def exported():
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(small_cnn(), (torch.rand(2, 3, 9, 9),), dynamic_shapes=({0: batch},)).module()


SPECIAL = {
    "old weight_norm": lambda: trained(small_cnn(weight_normed)),
    "old spectral_norm": lambda: trained(small_cnn(nn.utils.spectral_norm)),
    "weight_norm": lambda: trained(small_cnn(parametrizations.weight_norm)),
    "spectral_norm": lambda: trained(small_cnn(parametrizations.spectral_norm)),
    "inference mode": made_in_inference_mode,
    "data parallel": data_parallel,
    "checkpoint": lambda: Checkpointed(small_cnn(), "plain"),
    "reentrant checkpoint": lambda: Checkpointed(small_cnn(), "reentrant"),
    "checkpoint of a sequence": lambda: Checkpointed(small_cnn(), "sequential"),
}


@pytest.fixture(params=SPECIAL)
def special(request):
    """A special network, and a plain one with the same weights."""
    network = SPECIAL[request.param]()
    return network, plain_twin(network) if "norm" in request.param else small_cnn()


@pytest.mark.parametrize("precision", [None, "float64"])
def test_a_special_network_has_the_maps_of_its_plain_twin(special, precision, images):
    network, twin = special
    before = {name: value.clone() for name, value in network.state_dict().items()}
    asked = [parameter.requires_grad for parameter in network.parameters()]
    for name in EXPLAINERS:
        expected = maps_of(twin, images, name, precision=precision)
        torch.testing.assert_close(maps_of(network, images, name, precision=precision), expected)
        assert expected.any()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [parameter.requires_grad for parameter in network.parameters()] == asked


def test_a_special_network_is_copied(special, images):
    network, _ = special
    copied = copy_network(network, dtype=torch.float64)
    tensors = (*copied.parameters(), *copied.buffers())
    assert all(tensor.dtype == torch.float64 for tensor in tensors if tensor.is_floating_point())
    assert not any(tensor.is_inference() for tensor in tensors)
    with torch.no_grad():
        torch.testing.assert_close(copied(images.double()), network(images).double(), rtol=1e-4, atol=1e-5)


def test_a_special_network_is_randomized(special, images):
    def explain(network, images, targets):
        return maps_of(network, images, "saliency")

    scores = [
        metric(explain, special[0], images, torch.tensor([1, 1]), reduction="none")
        for metric in (xb.parameter_randomization, xb.metrics.efficient_mprt)
    ]
    assert (scores[0] < 0.9).all()
    assert all(score.isfinite().all() for score in scores)


@pytest.mark.parametrize("wrap", [weight_normed, nn.utils.spectral_norm], ids=["weight_norm", "spectral_norm"])
def test_randomization_reaches_the_parameters_behind_a_weight(wrap):
    from xaibench.metrics.shared.explainer_calls import reinitialize

    layer = wrap(nn.Linear(3, 3))
    before = {name: parameter.clone() for name, parameter in layer.named_parameters()}
    reinitialize(layer, 0, 0)
    assert not any(torch.equal(parameter, before[name]) for name, parameter in layer.named_parameters())


def test_an_exported_network_is_explained_scored_and_copied(images):
    network, twin, many = exported(), small_cnn(), images.repeat(4, 1, 1, 1)
    with pytest.raises(ValueError, match="batch_size"):  # more rows than it was exported for
        maps_of(network, images, "occlusion")
    for name in ("saliency", "integrated_gradients", "occlusion"):
        settings = {} if name == "saliency" else {"batch_size": 32}
        torch.testing.assert_close(maps_of(network, images, name, **settings), maps_of(twin, images, name, **settings))
    scores = [xb.deletion(each, images, images[:, 0], torch.tensor([0, 1]), steps=4) for each in (network, twin)]
    assert scores[0] == pytest.approx(scores[1])
    refused(ValueError, "batch_size", lambda: xb.idsds(network, many, many[:, 0], torch.zeros(8, dtype=torch.int64)))
    with torch.no_grad():
        torch.testing.assert_close(copy_network(network)(images), twin(images))
    refused(xb.explainers.UnsupportedModelError, "", maps_of, network, images, "gradcam")


def test_an_exported_network_inside_of_another_is_evaluated():
    model = nn.Sequential(nn.Dropout(), exported())
    with evaluation_mode(model):
        assert not model[0].training
    assert model[0].training


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
@pytest.mark.parametrize("make", [torch.jit.script, lambda network: torch.jit.trace(network, torch.rand(1, 3, 9, 9))])
def test_a_scripted_network_is_explained_without_its_layers(make, images):
    network, twin = make(small_cnn()), small_cnn()
    for settings in ({}, {"precision": "float64"}):
        for name in ("saliency", "occlusion"):
            expected = maps_of(twin, images, name, **settings)
            torch.testing.assert_close(maps_of(network, images, name, **settings), expected, rtol=1e-3, atol=1e-5)
        for name in ("gradcam", "deeplift", "lrp_epsilon"):
            with pytest.raises(xb.explainers.UnsupportedModelError):
                maps_of(network, images, name, **settings)


class ComplexFilter(nn.Module):
    """Multiplies the spectrum of the image by complex weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 9, 5, dtype=torch.complex64))
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        filtered = torch.fft.irfft2(torch.fft.rfft2(x) * self.weight, s=x.shape[2:])
        return self.fc(filtered.square().mean((2, 3)))


def test_complex_weights_are_converted_and_randomized(images):
    network = ComplexFilter()
    maps = maps_of(network, images, "saliency")
    in_double = maps_of(network, images, "saliency", precision="float64")
    torch.testing.assert_close(maps.double(), in_double, rtol=1e-3, atol=1e-5)
    score = xb.parameter_randomization(lambda net, x, y: maps_of(net, x, "saliency"), network, images, [1, 1])
    assert -1 <= score < 0.9


def test_a_network_that_computes_in_inference_mode_has_no_gradient(images):
    network = xb.models.Wrapped(small_cnn(), torch.inference_mode()(lambda network, x: network(x)))
    for name in ("saliency", "gradcam", "deeplift", "lrp_epsilon", "guided_backprop"):
        refused(xb.explainers.UnsupportedModelError, "", maps_of, network, images, name)
    torch.testing.assert_close(maps_of(network, images, "occlusion"), maps_of(small_cnn(), images, "occlusion"))


class Uncopyable(nn.Identity):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def test_the_layer_that_cannot_be_copied_is_named(images):
    network = nn.Sequential(nn.Flatten(), nn.Sequential(Uncopyable()), nn.Linear(243, 2))
    assert maps_of(network, images, "saliency").shape == (2, 9, 9)
    refused(TypeError, "'1.0' (Uncopyable)", lambda: maps_of(network, images, "saliency", precision="float64"))


def test_tied_weights_stay_tied_and_numbers_keep_their_kind():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    network.register_buffer("order", torch.arange(3))
    network.register_buffer("phase", torch.tensor([1 + 2j]))
    network.register_buffer("mask", torch.tensor([True]))
    network.mean = torch.tensor([0.5])  # neither a parameter nor a buffer
    copied = copy_network(network, dtype=torch.float64)
    assert copied[1].weight is copied[0].weight
    assert copied[0].weight is not network[0].weight
    assert (copied.order.dtype, copied.mask.dtype, copied.mean.dtype) == (torch.int64, torch.bool, torch.float64)
    assert copied.phase.item() == 1 + 2j
    assert copied.phase.dtype == torch.complex128
    assert network.phase.dtype == torch.complex64


def test_a_network_in_place_is_not_copied():
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert place_network(network, torch.device("cpu"), torch.float32) is network
    assert place_network(network, None) is network
    assert place_network(network, None, torch.float64) is not network


@pytest.mark.parametrize(
    ("layer", "why"), [(nn.LazyLinear(2), "not initialized"), (nn.Linear(64, 2, device="meta"), "on the device meta")]
)
def test_a_network_without_weights_is_refused(layer, why, images):
    network = nn.Sequential(nn.Flatten(), layer)
    uses = (
        lambda: maps_of(network, images, "occlusion"),
        lambda: xb.deletion(network, images, images[:, 0], torch.tensor([0, 1])),
        lambda: xb.parameter_randomization(lambda net, x, y: x[:, 0], network, images, torch.tensor([0, 1])),
    )
    for use in uses:
        with pytest.raises(ValueError, match=rf"'1'.*{why}"):
            use()
    assert network[1] is layer


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("guard", [nullcontext, plain_checkpoints])
def test_an_error_in_a_checkpoint_is_that_of_the_function(guard, reentrant):
    with guard(), pytest.raises(KeyError, match="mine"):
        checkpoint(lambda x: {}["mine"], torch.ones(1, requires_grad=True), use_reentrant=reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_plain_in_the_thread_that_lends_only(reentrant):
    calls = []

    def count(x):
        calls.append(threading.current_thread().name)
        return x.exp()

    def gradient():
        x = torch.ones(1, requires_grad=True)
        checkpoint(count, x, use_reentrant=reentrant).sum().backward()

    def number_of_calls(guard):
        calls.clear()
        with guard:
            gradient()
        return len(calls)

    names = ("CheckpointFunction", "_checkpoint_without_reentrant_generator_impl")
    before = [getattr(torch.utils.checkpoint, name, None) for name in names]
    assert number_of_calls(nullcontext()) == 2
    with plain_checkpoints(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(number_of_calls, nullcontext()).result() == 2
        assert number_of_calls(plain_checkpoints()) == 1
    assert number_of_calls(nullcontext()) == 2
    assert [getattr(torch.utils.checkpoint, name, None) for name in names] == before
