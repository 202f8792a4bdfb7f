import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import perturbation as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase
from torch import nn

from xaibench.metrics.faithfulness.adversarial import adversarial

CASES = {
    "adversarial": MetricCase(
        quick={"steps": 2},
        drawn={
            "fraction": st.floats(0, 1, exclude_min=True),
            "epsilon": st.floats(1e-6, 1e3),
            "steps": st.integers(1, 3),
            "pixels": st.sampled_from(["top", "random"]),
            "seed": st.integers(0, 5),
        },
    )
}


@pytest.fixture(scope="module")
def case():
    images, maps, targets = batch(n=4, size=(6, 5))
    return small_cnn().double(), images.double(), maps.double(), targets


def top(maps, k):
    return [maps_ >= maps_.flatten().sort(descending=True).values[k - 1] for maps_ in maps]


@pytest.mark.parametrize(("fraction", "k"), [(0.1, 3), (0.5, 15), (1.0, 30)])
def test_the_attack_step_by_step(case, fraction, k):
    model, images, maps, targets = case
    scores = adversarial(model, images, maps, targets, fraction=fraction, epsilon=0.2, steps=4, reduction="none")
    cases = zip(images, top(maps, k), targets, strict=True)
    expected = [oracle.adversarial(model, *one, epsilon=0.2, alpha=0.125, steps=4) for one in cases]
    assert min(expected) > 0.002
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_more_pixels_fool_more(case):
    drops = [adversarial(*case, fraction=fraction) for fraction in (0.05, 0.2, 1.0)]
    assert drops == sorted(drops)
    assert drops[0] < drops[2]


def test_the_pixels_that_count_fall_deeper_than_the_control():
    # Only the left half counts, and only a map that says so leads the attack there.
    weight = torch.zeros(1, 4, 6)
    weight[..., :3] = torch.tensor([1.0, -1.0, 1.0])
    model = lambda images: torch.stack([(images * weight).sum((1, 2, 3)), images.new_zeros(len(images))], 1)  # noqa: E731
    images, targets = torch.full((2, 1, 4, 6), 0.2), torch.zeros(2, dtype=torch.int64)
    right = weight.abs().expand(2, 4, 6)
    settings = {"fraction": 0.5, "epsilon": 0.1}
    best = adversarial(model, images, right, targets, **settings)
    # Twelve pixels by 0.1 each: the logit goes from 0.8 to -0.4.
    assert best == pytest.approx(1 / (1 + np.exp(-0.8)) - 1 / (1 + np.exp(0.4)), abs=1e-6)
    assert adversarial(model, images, 1 - right, targets, **settings) == pytest.approx(0, abs=1e-7)
    control = [adversarial(model, images, right, targets, pixels="random", seed=s, **settings) for s in range(5)]
    assert all(0 < drop < best for drop in control)
    assert len(set(control)) > 1


def test_the_control_does_not_look_at_the_map(case):
    model, images, maps, targets = case
    one = adversarial(model, images, maps, targets, pixels="random", reduction="none")
    assert torch.equal(one, adversarial(model, images, -maps, targets, pixels="random", reduction="none"))
    assert not torch.equal(one, adversarial(model, images, maps, targets, pixels="random", seed=1, reduction="none"))


def test_bounds_hold(case):
    model, images, maps, targets = case
    images = images.clamp(0, 1)
    seen = []
    hook = model[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    adversarial(model, images, maps, targets, fraction=0.5, epsilon=0.3, steps=3, bounds=(0.0, 1.0))
    hook.remove()
    attacked = torch.cat([rows for rows in seen if len(rows) == 4])
    assert 0 == attacked.min() < attacked.max() == 1
    changed = (attacked.reshape(-1, 4, 2, 6, 5) - images).abs().amax((0, 2))
    assert changed.max() <= 0.3 + 1e-12
    assert (changed > 0).flatten(1).sum(1).max() <= 15


def test_a_saturated_softmax_is_attacked_all_the_same():
    # In float32 the probability is 1 and its gradient 0 exactly: the attack must find its way by the logits.
    model = lambda images: torch.stack([100 * images.sum((1, 2, 3)), images.new_zeros(len(images))], 1)  # noqa: E731
    images, maps = torch.full((1, 1, 1, 3), 0.3), torch.tensor([[[3.0, 2.0, 1.0]]])
    drop = adversarial(model, images, maps, torch.tensor([0]), fraction=1.0, epsilon=0.6)
    assert drop == pytest.approx(1.0, abs=1e-6)


def test_parameters_without_gradient_and_no_grad_do_not_matter(case):
    model, images, maps, targets = case
    expected = adversarial(model, images, maps, targets)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.no_grad():
        assert adversarial(model, images, maps, targets) == expected
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def test_a_model_without_gradient_is_refused(case):
    _, images, maps, targets = case

    class Steps(nn.Module):
        def forward(self, images):
            return torch.stack([(images > 0).double().sum((1, 2, 3))] * 3, 1)

    with pytest.raises(ValueError, match=r"no gradient with respect to the images.*comprehensiveness"):
        adversarial(Steps(), images, maps, targets)
