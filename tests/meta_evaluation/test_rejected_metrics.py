"""Metrics that docs/generate tests on known maps and that are not part of the library."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from xaibench.metrics.shared.model_inputs import random_generator

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def rejected():
    spec = importlib.util.spec_from_file_location("rejected_metrics", DOCS / "generate" / "rejected_metrics.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def linear(*weights):
    """A network of two classes; the logit of class 0 is the weighted sum of the pixels."""
    weight = torch.tensor(weights)
    return lambda images: torch.stack([images.flatten(1) @ weight, torch.zeros(len(images))], 1)


IMAGE, TARGET = torch.ones(1, 1, 2, 2), torch.tensor([0])


def pixels(*values):
    return torch.tensor(values).reshape(1, 2, 2)


def test_monotonicity_is_whether_all_steps_rise(rejected):
    def score(model, *values):
        return float(rejected.monotonicity(model, IMAGE, pixels(*values), TARGET, reduction="none"))

    assert score(linear(1.0, 2.0, 0.0, 4.0), 1.0, 2.0, 3.0, 4.0) == 1
    assert score(linear(1.0, 2.0, -0.1, 4.0), 1.0, 2.0, 3.0, 4.0) == 0


def test_effective_complexity_counts_the_pixels_that_are_needed(rejected):
    model = linear(0.0, 6.0, 0.0, 3.0)  # p = 0.9999 with both, 0.9975 with pixel 1 alone, 0.95 with pixel 3 alone
    values = pixels(4.0, 3.0, 2.0, 1.0), pixels(1.0, 2.0, 3.0, -4.0), pixels(4.0, 2.0, 3.0, 1.0)
    found = [float(rejected.effective_complexity(model, IMAGE, map, TARGET, reduction="none")) for map in values]
    assert found == [0.5, 0.25, 0.75]


def test_non_sensitivity_counts_disagreements_on_zero(rejected):
    model, image = linear(0.0, 0.3, 0.0, 0.2), torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    for values, share in (((0.0, 1.0, 0.0, -1.0), 0), ((1.0, 1.0, 0.0, -1.0), 0.25), ((1.0, 0.0, 0.0, 0.0), 0.75)):
        assert float(rejected.non_sensitivity(model, image, pixels(*values), TARGET, reduction="none")) == share


def test_mst_c_of_a_square_and_of_a_line(rejected):
    square, line = np.zeros((2, 5, 4))
    square[1:3, 1:3] = 1
    line[1, :] = -1
    found = rejected.mst_c(np.stack([square, line]), np.ones((2, 5, 4), bool), reduction="none")
    diagonal = math.sqrt(41)
    np.testing.assert_allclose(found, [100 * diagonal / 1 * 4 / 3, 100 * diagonal / diagonal * 4 / 3])


def test_stability_compares_the_change_of_the_map(rejected):
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    metrics = {metric.__name__: metric for metric in rejected.REJECTED}
    itself, network = lambda model, images, targets: 2 * images[:, 0], torch.nn.Flatten()

    def score(name):
        return float(metrics[name](itself, network, image, torch.tensor([3]), reduction="none"))

    assert score("local_lipschitz") == pytest.approx(2, rel=1e-5)
    assert score("relative_input_stability") == pytest.approx(1, rel=1e-4)
    assert score("relative_representation_stability") == pytest.approx(1, rel=1e-4)
    x, ratios = image.numpy().ravel(), []
    for index in range(10):
        noise = random_generator(0, index).uniform(-0.02, 0.02, (1, 2, 2)).ravel()
        ratios.append(np.linalg.norm(noise / x) / np.linalg.norm(noise))
    assert score("relative_output_stability") == pytest.approx(max(ratios), rel=1e-4)


def test_adcc_is_the_harmonic_mean(rejected):
    image = torch.tensor([[[[1.0, 2.0], [3.0, 5.0]]]])
    found = float(rejected.adcc(lambda m, x, y: x[:, 0], linear(0.1, 0.2, 0.3, 0.4), image, TARGET, reduction="none"))
    x = image.numpy().ravel()
    scaled = (x - 1) / 4
    coherency = (1 + np.corrcoef(scaled, scaled * x)[0, 1]) / 2
    before, after = (1 / (1 + math.exp(-float(one @ [0.1, 0.2, 0.3, 0.4]))) for one in (x, x * scaled))
    parts = [coherency, 1 - scaled.mean(), 1 - (before - after) / before]
    assert found == pytest.approx(3 / sum(1 / part for part in parts), rel=1e-5)


def test_the_page_has_the_verdict_of_each(rejected):
    page = (DOCS / "metrics-tested.md").read_text(encoding="utf-8")
    table = page.partition("<!-- rejected -->")[2].partition("<!-- until here -->")[0]
    for metric in rejected.REJECTED:
        rows = [line for line in table.splitlines() if line.startswith(f"| {metric.info.label} (")]
        assert rows, "run python docs/generate/rejected_trials.py"
        assert any("**fails**" in row or "**coarse**" in row for row in rows)  # otherwise it belongs in the library
