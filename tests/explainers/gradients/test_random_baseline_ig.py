import captum.attr
import torch
from generators.gradient_networks import batch, bending, outputs
from part_cases import ExplainerCase

from xaibench.explainers.gradients.integrated_gradients import IntegratedGradients
from xaibench.explainers.gradients.random_baseline_ig import RandomBaselineIG
from xaibench.tensors.random_numbers import sample_generators

CASES = {"random_baseline_ig": ExplainerCase(parameters={"n_baselines": 2, "n_steps": 3})}


def baselines(images, seed, count):
    """``[count, N, C, H, W]``, drawn once more."""
    drawn = [[rng.random(image.shape) for _ in range(count)]
             for image, rng in zip(images, sample_generators(seed, images), strict=True)]  # fmt: skip
    low, high = (end.reshape(-1, 1, 1, 1) for end in images.flatten(1).aminmax(dim=1))
    return torch.stack([low + (high - low) * torch.stack([torch.from_numpy(each[k]) for each in drawn])
                        for k in range(count)])  # fmt: skip


def test_it_is_the_mean_of_captums_integrated_gradients_and_complete():
    model, (images, targets) = bending(), batch()
    maps = RandomBaselineIG(n_baselines=3, n_steps=20, seed=4)(model, images, targets)
    starts = baselines(images, 4, 3)
    theirs = [captum.attr.IntegratedGradients(model).attribute(images, start, target=targets, n_steps=20).sum(1)
              for start in starts]  # fmt: skip
    torch.testing.assert_close(maps, torch.stack(theirs).mean(0).double(), rtol=1e-5, atol=1e-7)
    gone = torch.stack([outputs(model, start, targets) for start in starts]).mean(0)
    torch.testing.assert_close(maps.sum((1, 2)), outputs(model, images, targets) - gone)


def test_a_black_pixel_gets_its_share():
    model, (images, targets) = bending(), batch()
    images[:, :, 2, 3] = 0
    assert IntegratedGradients()(model, images, targets)[:, 2, 3].abs().max() == 0
    assert RandomBaselineIG()(model, images, targets)[:, 2, 3].abs().min() > 0
