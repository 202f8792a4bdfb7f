import numpy as np
import pytest
import torch
from generators.gradient_networks import batch, bending, outputs
from oracles import gradients as oracle
from part_cases import ExplainerCase

from xaibench.explainers.gradients.ig2 import IG2
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.tensors.random_numbers import sample_generators

CASES = {"ig2": ExplainerCase(parameters={"n_steps": 4})}


def fitted(model, images, **parameters):
    return IG2(**parameters).fit(model, [images])


def references(model, images, x, target, seed=0):
    """Those of another class, in the order that is drawn for x."""
    [rng] = sample_generators(seed, x[None])
    drawn = images[rng.permutation(len(images))]
    return [image for image in drawn if model(image[None]).argmax().item() != target]


def boxed(image, kept):
    return torch.minimum(kept.min(), image), torch.maximum(kept.max(), image)


@pytest.mark.parametrize("n_references", [1, 2])
def test_it_is_the_papers_path_step_by_step(n_references):
    model, (images, targets), (kept, _) = bending(), batch(3), batch(8)
    explainer = fitted(model, kept, n_steps=7, step_size=0.03, n_references=n_references)
    maps, kept = explainer(model, images, targets), explainer.training_images
    length = 0.03 * float(kept.max() - kept.min()) * images[0].numel() ** 0.5
    for image, target, found in zip(images, targets, maps, strict=True):
        others = references(model, kept, image, target)[:n_references]
        assert len(others) == n_references
        paths = [
            oracle.ig2(model, model[:-1], image, target, other, 7, length, *boxed(image, kept))[0] for other in others
        ]
        torch.testing.assert_close(found, torch.stack(paths).mean(0).sum(0), rtol=1e-9, atol=1e-12)


def test_short_steps_sum_to_what_the_output_changes_along_the_path():
    model, (images, targets), (kept, _) = bending(), batch(2), batch(8)
    errors = []
    for steps in (20, 200):
        explainer = fitted(model, kept, n_steps=steps, step_size=0.2 / steps)
        maps, kept = explainer(model, images, targets), explainer.training_images
        length = 0.2 / steps * float(kept.max() - kept.min()) * images[0].numel() ** 0.5
        ends = [
            oracle.ig2(model, model[:-1], x, y, references(model, kept, x, y)[0], steps, length, *boxed(x, kept))[1]
            for x, y in zip(images, targets, strict=True)
        ]
        gone = outputs(model, images, targets) - outputs(model, torch.stack(ends), targets)
        errors.append((maps.sum((1, 2)) - gone).abs().max().item())
    assert errors[1] < errors[0] / 4
    assert errors[1] < 0.02 * gone.abs().max()


def test_what_tells_the_classes_apart_is_marked():
    # The class is the sign of one pixel; all others are the same for the network.
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2, bias=False)).double()
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].weight[0, 5], model[1].weight[1, 5] = 1.0, -1.0
    images = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images[:, 0, 1, 1] = torch.tensor([1.0, -1, 1, -1, 1, -1])
    targets = torch.tensor([0, 1, 0, 1, 0, 1])
    maps = fitted(model, images, n_steps=50)(model, images, targets)
    assert (maps.flatten(1).abs().argmax(1) == 5).all()
    assert maps.flatten(1).abs().sum(1).sub(maps.flatten(1)[:, 5].abs()).max() == 0


def test_where_the_image_is_the_reference_the_path_ends():
    model, (kept, _) = bending(), batch(8)
    image = kept[model(kept).argmax(1) == 1][:1]
    maps = fitted(model, image, n_steps=3)(model, image, torch.tensor([0]))
    assert maps.abs().max() == 0


def test_a_network_without_a_linear_layer_is_represented_by_what_it_returns():
    with torch.random.fork_rng():
        torch.manual_seed(0)  # some weights assign all images to one class, which leaves no reference
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, (6, 7)), torch.nn.Flatten()).double()
    (images, targets), kept = batch(2), batch(8)[0][2:]
    explainer = fitted(model, kept, n_steps=3, step_size=0.03)
    maps, kept = explainer(model, images, targets), explainer.training_images
    length = 0.03 * float(kept.max() - kept.min()) * images[0].numel() ** 0.5
    other = references(model, kept, images[0], targets[0])[0]
    expected, _ = oracle.ig2(model, model, images[0], targets[0], other, 3, length, *boxed(images[0], kept))
    np.testing.assert_allclose(maps[0].detach(), expected.sum(0), rtol=1e-9)


def test_where_all_are_of_the_explained_class_any_is_a_reference():
    model, (images, targets) = bending(), batch(8)
    alike = images[model(images).argmax(1) == 0]
    assert len(alike) > 1
    maps = fitted(model, alike[:1], n_steps=3, step_size=0.03)(model, alike[1:2], targets[:1])
    length = 0.03 * float(alike[0].max() - alike[0].min()) * images[0].numel() ** 0.5
    expected, _ = oracle.ig2(model, model[:-1], alike[1], 0, alike[0], 3, length, *boxed(alike[1], alike[0]))
    torch.testing.assert_close(maps[0], expected.sum(0))


def test_a_scripted_network_is_refused_since_its_last_linear_layer_is_hidden():
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)))
    fitted = IG2().fit(model, [torch.rand(4, 1, 2, 2)])
    with pytest.raises(UnsupportedModelError, match="scripted"):
        fitted(model, torch.rand(1, 1, 2, 2), torch.tensor([0]))
