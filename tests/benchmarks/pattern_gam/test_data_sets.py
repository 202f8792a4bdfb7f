import numpy as np
import pytest
import torch
from part_cases import DatasetCase
from refusals import refused

import xaibench as xb
from xaibench.benchmarks.pattern_gam.data_sets import PatternGAMSet, distractor_shapes
from xaibench.benchmarks.xai_tris.noise import distractor_rng, fill_noise, layout_rng
from xaibench.benchmarks.xai_tris.patterns import Patterns
from xaibench.data import DATASETS
from xaibench.data.disk.splits import stratified_split

CASES = {
    name: DatasetCase(small=lambda photographs, cache: {"n_samples": 40, "split": (0.6, 0.2, 0.2)})
    for name in DATASETS
    if name.startswith("pattern-gam/")
}


def literal(scenario, noise, seed, alpha, distractor, count):
    """The definition, sample by sample in float64: images before the division by the largest value, and targets."""
    patterns = Patterns(scenario, 8)
    rng = layout_rng(seed)
    cases = np.arange(count) % patterns.cases
    cases = cases[np.concatenate(stratified_split(cases, (0.8, 0.1, 0.1), rng))]
    background = np.empty((count, 8, 8), np.float32)
    fill_noise(noise, seed, 0, background)
    background = background.astype(float)
    signal = np.stack([patterns.render(np.array([case]))[0][0] for case in cases])
    disturbance = np.zeros((count, 8, 8))
    for image, number in zip(disturbance, distractor_rng(seed).integers(4, size=count), strict=True):
        left, right = [(-1, -1), (-1, 1), (1, -1), (1, 1)][number]
        # Two 3×2 rectangles on top of each other for each sign.
        for row, column, sign in [(1, 1, left), (4, 1, left), (1, 5, right), (4, 5, right)]:
            image[row : row + 3, column : column + 2] = sign
    if scenario == "mult":
        images = (1 - alpha * signal) * (1 - distractor * disturbance) * background
    else:
        images = (
            alpha * signal / np.linalg.norm(signal)
            + distractor * disturbance / np.linalg.norm(disturbance)
            + (1 - alpha - distractor) * background / np.linalg.norm(background)
        )
    return images / np.abs(images).max(), patterns.targets(cases)


@pytest.mark.parametrize(
    ("scenario", "noise", "alpha", "distractor"),
    [("lin", "white", 0.2, 0.4), ("xor", "corr", 0.2, 0.4), ("mult", "corr", 0.4, 0.3)],
)
def test_distractors_are_as_defined(scenario, noise, alpha, distractor):
    data = xb.load(f"pattern-gam/{scenario}-dist-{noise}", seed=3, n_samples=80)
    images, targets = literal(scenario, noise, 3, alpha, distractor, 80)
    made = torch.cat([split.images for split in (data.train, data.val, data.test)])[:, 0]
    np.testing.assert_allclose(made.numpy(), images, atol=1e-6)
    assert torch.cat([split.targets for split in (data.train, data.val, data.test)]).tolist() == targets.tolist()
    assert made.abs().max() == 1


def test_the_distractors_cover_the_ground_truth_and_tell_no_class():
    data = xb.load("pattern-gam/lin-dist-white", n_samples=4000)
    covered = (distractor_shapes() != 0).all(0)
    assert covered.sum() == 24
    assert covered[data.test.masks[0].numpy()].all()
    images, targets = data.train.images[:, 0].double(), data.train.targets
    beside = torch.as_tensor(covered) & ~data.test.masks[0]
    difference = images[targets == 0].mean(0) - images[targets == 1].mean(0)
    assert difference[beside].abs().max() < 0.3 * difference[data.test.masks[0]].abs().min()


@pytest.mark.parametrize("scenario", ["lin", "mult", "xor"])
def test_without_distractors_it_is_xai_tris_with_other_weights(scenario):
    data = xb.load(f"pattern-gam/{scenario}-white", seed=1, n_samples=40)
    other = xb.load(f"xai-tris/{scenario}-white-8x8", seed=1, n_samples=40, alpha=data.parameters["alpha"])
    assert torch.equal(data.test.images, other.test.images)
    assert torch.equal(data.test.masks, other.test.masks)
    assert data.info.variant == "plain-white"


@pytest.mark.parametrize(
    ("given", "message"), [({"distractor": 0.9}, "distractor=0.9"), ({"alpha": -1}, "alpha=-1"), ({"seed": -1}, "seed")]
)
def test_weights_out_of_range_are_refused(given, message):
    refused(ValueError, message, lambda: xb.load("pattern-gam/lin-dist-white", n_samples=40, **given))
    refused(ValueError, "distractor=", lambda: PatternGAMSet("mult", "corr", distractors=False)(distractor=0.1))
