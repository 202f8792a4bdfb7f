import pytest
import torch
from torch import nn

from xaibench.network.calls import CallObserver, observe_calls, record_layer_runs


def hooks(network):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())


def test_calls_are_recorded_as_they_finish_and_hooks_are_removed_after_an_error():
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    with pytest.raises(RuntimeError, match="shapes"), record_layer_runs(network.named_modules()) as runs:
        network(network(torch.ones(1, 2)).repeat(1, 2))
    assert [run.name for run in runs] == ["0", "1.0", "1", ""]
    assert runs[1].inputs[0] is runs[0].output
    assert hooks(network) == 0


def test_an_output_can_be_replaced_and_the_current_layer_is_known():
    network, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []

    class Observer(CallObserver):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ in ("linear", "relu"):
                seen.append((func.__name__, self.where()))
            return func(*args, **(kwargs or {}))

    changed = observe_calls([("1", network[1])], after=lambda name, module, inputs, output: output - 5)
    with changed, Observer().observing(network):
        outputs = network(torch.ones(1, 2))
    assert (outputs == network(torch.ones(1, 2)) - 5).all()
    assert seen == [("linear", "layer '0' (Linear)"), ("relu", "layer '1' (ReLU)")]
