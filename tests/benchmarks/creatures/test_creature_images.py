"""The data sets of creatures."""

import numpy as np
import pytest
import torch
from part_cases import DatasetCase
from refusals import refused

import xaibench as xb
from xaibench.benchmarks.creatures.creature_images import draw_sample
from xaibench.benchmarks.creatures.creatures import BODY_PARTS, DECIDING, render
from xaibench.data import DATASETS, PartSplit, load
from xaibench.data.disk.splits import stratified_split

NAMES = [name for name in DATASETS if name.startswith("parts/")]
CASES = {
    name: DatasetCase(small=lambda photographs, cache: {"n_samples": 40, "split": (0.6, 0.2, 0.2)}) for name in NAMES
}


@pytest.fixture(scope="module")
def data():
    return load("parts/creatures-96x96", seed=3, n_samples=80)


def test_there_are_two_sizes():
    assert NAMES == ["parts/creatures-96x96", "parts/creatures-224x224"]
    assert [load(name, n_samples=16, split=(0.5, 0.25, 0.25)).test.images.shape[2:] for name in NAMES] == [
        (96, 96),
        (224, 224),
    ]


def test_a_sample_is_the_rendering_of_its_scene(data):
    numbers = stratified_split(np.arange(80) % 8, (0.8, 0.1, 0.1), np.random.default_rng(3))
    for split, part, complete in ((data.train, numbers[0], False), (data.test, numbers[2], True)):
        for row in (0, 5):
            number, target = int(part[row]), int(part[row]) % 8
            layers = render(draw_sample(3, number, target, complete=complete), 96)
            assert split.targets[row] == target
            assert torch.equal(split.images[row].permute(1, 2, 0) * 255, torch.from_numpy(layers.image).float())
            assert torch.equal(split.masks[row], torch.from_numpy(np.isin(layers.parts, DECIDING)))


def test_test_images_show_all_parts_and_what_is_behind_them(data):
    assert isinstance(data.test, PartSplit)
    for row in range(len(data.test)):
        assert data.test.part_masks(row).any((1, 2)).sum() == len(BODY_PARTS) == 7
        deciding = data.test.part_masks(row)[[number - 1 for number in DECIDING]].any(0)
        assert torch.equal(data.test.masks[row], deciding)


def test_every_second_training_image_lacks_one_part_drawn_at_random():
    missing = np.array([draw_sample(0, number, 0, complete=False).missing for number in range(2000)])
    assert abs((missing > 0).mean() - 0.5) < 0.04
    counts = np.bincount(missing, minlength=8)[1:]
    assert abs(counts / counts.sum() - 1 / 7).max() < 0.03
    assert all(draw_sample(0, number, 0, complete=True).missing == 0 for number in range(20))
    # Otherwise it is the same creature.
    one, other = draw_sample(0, 7, 2, complete=False), draw_sample(0, 7, 2, complete=True)
    assert (one.looks, one.pose, one.clutter) == (other.looks, other.pose, other.clutter)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"n_samples": 0}, "n_samples"),
        ({"split": (0.5, 0.5, 0.5)}, "fractions"),
        ({"n_samples": 5}, "empty split"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    refused(ValueError, message, lambda: load("parts/creatures-96x96", **parameters))


def test_metrics_get_the_parts_of_the_samples_they_score(data):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 96 * 96, 8)).eval()
    maps = torch.rand(len(data.test), 96, 96, generator=torch.Generator().manual_seed(0))
    result = xb.evaluate({"m": maps}, data, model, ["part_rank"], controls=False, scored="all", batch_size=3)
    expected = xb.metrics.part_rank(
        model,
        data.test.images,
        maps,
        data.test.targets,
        parts=data.test.parts,
        behind=data.test.behind,
        reduction="none",
    )
    np.testing.assert_allclose(result.scores["value"], expected, atol=1e-9)
