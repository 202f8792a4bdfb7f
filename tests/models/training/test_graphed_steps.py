"""Captured training steps learn what plain ones learn, to the bit; on a device that is pretended, as its graphs are."""

import contextlib
import logging
from typing import ClassVar

import pretend_device
import pytest
import torch
from pretend_device import pretended
from pretend_graphs import PretendGraphs
from refusals import refused
from torch import nn

from xaibench.models import build, fit_many
from xaibench.models.networks.base import Network
from xaibench.models.training import graphed_steps, network_stack
from xaibench.models.training.fitting import _LOSSES
from xaibench.models.training.graphed_steps import WARM_UP, CudaGraphs, LearningStep
from xaibench.models.training.network_stack import Adam, Stack

pretends = pytest.mark.skipif(not pretend_device.available(), reason="this torch has no devices written in Python")

#: Samples and batch size: four batches and a smaller one an epoch.
COUNT, BATCH = 67, 16


@pytest.fixture
def graphs(monkeypatch):
    """Give the simulated device graphs, and return the list of those that are made."""
    monkeypatch.setattr(PretendGraphs, "made", [])
    monkeypatch.setitem(graphed_steps.GRAPHS, pretend_device.NAME, PretendGraphs)
    return PretendGraphs.made


class Samples(torch.utils.data.Dataset):
    """Noise, of which one pixel decides."""

    def __init__(self, seed):
        self.images = torch.randn(COUNT, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        self.targets = (self.images[:, 0, 2, 2] > 0).long()

    def __len__(self):
        return COUNT


def network(name, seed):
    if name != "dropout":
        return build(name, (1, 8, 8), 2, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(nn.Linear(64, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2))


def trained(name, epochs=3, patience=None, vals=None):
    """What became of three networks on the pretended device: courses, weights, how often the host waited."""
    with pretended() as seen:
        networks = [network(name, seed) for seed in range(3)]
        vals = vals or [Samples(9)] * 3
        courses = fit_many(
            networks, [Samples(0)] * 3, vals, epochs=epochs, batch_size=BATCH, lr=0.01, patience=patience,
            device="pretend", progress=False,
        )  # fmt: skip
        waits = seen.synchronizations
    return courses, [nn.utils.parameters_to_vector(one.parameters()).detach() for one in networks], waits


def the_same(one, other):
    return one[0] == other[0] and all(map(torch.equal, one[1], other[1]))


@pretends
@pytest.mark.parametrize("name", ["mlp", "cnn", "dropout"])
def test_replayed_steps_are_the_plain_steps(name, graphs, monkeypatch):
    found = trained(name)
    (seen,) = graphs
    # The first ones are taken as they come, and so is the smaller one at the end of each epoch.
    assert (seen.warmed, seen.replays) == (WARM_UP, [3 * 4 - WARM_UP])
    monkeypatch.delitem(graphed_steps.GRAPHS, pretend_device.NAME)
    assert the_same(found, trained(name))


@pretends
def test_who_stays_is_captured_anew(graphs, monkeypatch):
    worse = Samples(0)
    worse.targets = 1 - worse.targets  # every step makes it worse: this member leaves first
    given = {"epochs": 6, "patience": 2, "vals": [Samples(0), worse, Samples(0)]}
    found = trained("dropout", **given)
    assert len(found[0][1].val_loss) == 3
    (seen,) = graphs
    assert (seen.warmed, seen.replays) == (2 * WARM_UP, [3 * 4 - WARM_UP] * 2)
    monkeypatch.delitem(graphed_steps.GRAPHS, pretend_device.NAME)
    assert the_same(found, trained("dropout", **given))


@pretends
def test_no_replayed_step_waits(graphs):
    few, many = (trained("mlp", epochs=epochs)[2] for epochs in (1, 3))
    assert graphs[1].replays == [3 * 4 - WARM_UP]
    assert many - few <= 2 * 5  # an epoch: both losses, the accuracy, and who got better


@pretends
def test_what_cannot_be_captured_goes_on_step_by_step_after_one_warning(graphs, monkeypatch, caplog):
    step = Adam.step

    def waiting(self, gradient):
        float(gradient.sum())
        step(self, gradient)

    monkeypatch.setattr(network_stack.Adam, "step", waiting)
    with caplog.at_level(logging.WARNING, "xaibench"):
        found = trained("dropout", patience=2)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == (
        "A training step cannot be captured as a CUDA graph (operation not permitted when stream is capturing); "
        "training continues without graphs."
    )
    assert (graphs[0].warmed, graphs[0].replays) == (WARM_UP, [])
    monkeypatch.undo()
    assert the_same(found, trained("dropout", patience=2))


@pretends
def test_larger_steps_are_not_captured(graphs, monkeypatch):
    monkeypatch.setattr(graphed_steps, "LAUNCH_BOUND", 3 * BATCH * 64 - 1)
    trained("mlp", epochs=1)
    assert (graphs[0].warmed, graphs[0].captured) == (0, 0)


@pretends
def test_a_replay_reads_the_present_learning_rate_and_batch(graphs):
    weights = []
    for captures in (True, False):
        with pretended():
            stack = Stack([network("mlp", seed) for seed in range(2)], (1, 8, 8), [0.01, 0.02], [0, 1], DEVICE)
            step = LearningStep(stack, _LOSSES["logits"])
            for batch in range(8):
                stack._adam.lr.fill_(0.001 * batch)
                images = torch.randn(2, 5, 1, 8, 8, generator=torch.Generator().manual_seed(batch)).to(DEVICE)
                targets = (torch.arange(10).view(2, 5) % 2).to(DEVICE)
                lost = (step if captures else step.plain)(images, targets).cpu()
            weights.append((stack.weights.cpu(), lost))
    assert graphs[0].replays == [8 - WARM_UP]
    assert all(map(torch.equal, *weights))


DEVICE = torch.device("pretend", 0) if pretend_device.available() else None


def told(events, name):
    """A block that says when it is entered and left."""

    @contextlib.contextmanager
    def block(*given, **named):
        events.append(f"{name}({', '.join(map(str, [*given, *named.values()]))})")
        try:
            yield
        finally:
            events.append(f"end of {name}")

    return block


class Named(str):
    """A stream or a graph that writes down what is asked of it."""

    events: ClassVar = []

    def wait_stream(self, other):
        self.events.append(f"{self} waits for {other}")

    def register_generator_state(self, generator):
        self.events.append(f"{self} knows {generator}")

    def replay(self):
        self.events.append(f"replay {self}")


@pytest.fixture
def cuda(monkeypatch):
    """What is asked of ``torch.cuda``, in order."""
    monkeypatch.setattr(Named, "events", events := [])
    for name, made in {"Stream": "side", "current_stream": "present"}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, made=made: Named(made))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Named("graph"))
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, told(events, name))
    return events


def test_on_cuda_a_step_is_warmed_up_and_captured_on_one_stream(cuda):
    made = CudaGraphs(torch.device("cuda", 0))
    assert made.warm_up(lambda: cuda.append("step") or 1) == 1
    assert cuda == ["side waits for present", "stream(side)", "step", "end of stream", "present waits for side"]
    cuda.clear()
    replay, found = made.capture(lambda: cuda.append("step") or 2, ["first", "second"])
    captured = ["stream(present)", "graph(graph, side)", "step", "end of graph", "end of stream"]
    assert (found, cuda) == (2, ["graph knows first", "graph knows second", *captured])
    replay()
    assert cuda[-1] == "replay graph"


def test_a_capture_that_breaks_off_leaves_the_present_stream(cuda):
    def broken():
        raise RuntimeError("operation not permitted when stream is capturing")

    refused(RuntimeError, "not permitted", lambda: CudaGraphs(torch.device("cuda", 0)).capture(broken, []))
    assert cuda[-1] == "end of stream"
