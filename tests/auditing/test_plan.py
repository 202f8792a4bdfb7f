"""How thorough an audit is follows from the network, the same on every machine."""

import numpy as np
import pytest
from oracles.tag_network import SIDE, tag_network, tagged_images
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from xaibench.auditing.images import make_subject
from xaibench.auditing.plan import BUDGET, EFFORTS, Candidates, choose_explainers, count_seconds, make_plan
from xaibench.cli import app

NAMES = ("saliency", "integrated_gradients", "rise", "lime")


def planned(network=None, explainers=NAMES, *, images=None, budget=None, minutes=15.0):
    images = tagged_images(8)[0] if images is None else images
    subject = make_subject(network or tag_network(), images)
    return make_plan(subject, Candidates(choose_explainers(explainers)), budget=budget, minutes=minutes, train=False)


class Slow(nn.Module):
    """The tag network with a layer of many operations."""

    def __init__(self):
        super().__init__()
        self.network, self.layer = tag_network(), nn.Linear(SIDE, 40_000)

    def forward(self, images):
        return self.network(images) + 0 * self.layer(images).sum((1, 2, 3))[:, None]


def test_random_explainers_get_what_their_papers_use():
    plan = planned()
    assert plan.candidates.passes == {"saliency": 2, "integrated_gradients": BUDGET, "rise": 4000, "lime": 2120}
    assert not plan.candidates.inapplicable


def test_a_slow_network_gets_fewer_passes_and_drops_what_would_not_be_stable():
    plan, fast = planned(Slow(), minutes=0.1), planned(minutes=0.1)
    assert EFFORTS.index(plan.effort) > EFFORTS.index(fast.effort)
    assert set(plan.candidates.inapplicable) == {"rise", "lime"}
    assert "4,000 passes" in plan.candidates.inapplicable["rise"]
    assert plan.candidates.passes["integrated_gradients"] <= BUDGET
    assert sum(plan.stages.values()) < sum(fast.stages.values())


def test_the_plan_does_not_depend_on_the_time_of_a_pass(monkeypatch):
    plans = []
    for seconds in (1e-3, 10.0):
        monkeypatch.setattr("xaibench.auditing.plan._measure", lambda subject, seconds=seconds: seconds)
        plans.append(planned(Slow(), minutes=1.0))
    assert plans[0].effort == plans[1].effort
    assert plans[0].stages == plans[1].stages
    assert plans[1].seconds == pytest.approx(1e4 * plans[0].seconds)


def test_operations_and_values_are_counted():
    subject = make_subject(nn.Sequential(nn.Flatten(), nn.Linear(256, 4)), tagged_images(8)[0])
    assert count_seconds(subject) == pytest.approx(5.2e-12 * 2 * 256 * 4, rel=2)


def test_a_given_budget_is_that_of_all():
    plan = planned(Slow(), budget=50, minutes=1.0)
    assert plan.candidates.passes == {"saliency": 2, "integrated_gradients": 50, "rise": 50, "lime": 50}


def test_functions_are_never_left_out_for_want_of_time():
    plan = planned(Slow(), {"mine": lambda model, images, targets: images[:, 0]}, minutes=0.01)
    assert plan.effort == EFFORTS[-1]
    assert plan.candidates.passes == {"mine": None}


def test_the_command_prints_the_plan_and_does_nothing_else(tmp_path):
    (tmp_path / "mine.py").write_text("from oracles.tag_network import tag_network\n\nnetwork = tag_network()\n")
    (tmp_path / "images").mkdir()
    for index, image in enumerate(tagged_images(8)[0]):
        pixels = (255 * (image[0].numpy() + 0.5)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    arguments = ["audit", f"{tmp_path / 'mine.py'}:network", "--images", str(tmp_path / "images"), "--size", "16"]
    result = CliRunner().invoke(app, [*arguments, "--plan", "--no-labels", "--out", str(tmp_path / "out")])
    assert "passes" in result.output, result.output
    assert not (tmp_path / "out").exists()
