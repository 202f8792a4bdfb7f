"""A network whose decisive pixels are known: a pattern in the top left corner decides between two classes."""

import numpy as np
import torch
from scipy import ndimage
from torch import nn

import xaibench as xb

SIDE, CORNER = 16, 4


def tag_pattern():
    """``[CORNER, CORNER]`` of 1 and -1, in blocks of two pixels."""
    blocks = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    return blocks.repeat_interleave(2, 0).repeat_interleave(2, 1)


def tag_network(classes=2):
    """The first class if the corner resembles the pattern, the last one if not, by a sum; the others never."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, classes))
    corner = torch.zeros(SIDE, SIDE)
    corner[:CORNER, :CORNER] = 2 * tag_pattern()
    with torch.no_grad():
        network[1].weight.zero_()
        network[1].bias.fill_(-50.0)
        network[1].weight[0], network[1].weight[-1] = corner.flatten(), -corner.flatten()
        network[1].bias[0], network[1].bias[-1] = -4.0, 4.0
    return network.eval()


def tagged_images(count, seed=0):
    """Noise around 0; every second image has the pattern in its corner and the label 0, the others have the label 1."""
    rng = np.random.default_rng(seed)
    images = rng.uniform(-0.5, 0.5, (count, 1, SIDE, SIDE))
    images[::2, 0, :CORNER, :CORNER] = 0.25 * tag_pattern().numpy()
    return torch.from_numpy(images).float(), torch.tensor([index % 2 for index in range(count)])


def edges(model, images, targets):
    """An edge filter, which knows nothing of the network."""
    sigma = (0, 1, 1)
    return torch.from_numpy(ndimage.gaussian_gradient_magnitude(images[:, 0].double().numpy(), sigma)).float()


def other_network(model, images, targets):
    """The gradient of another network."""
    torch.manual_seed(1)
    other = nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 2))
    return xb.explain("input_x_gradient", other, images, targets, progress=False)


EXPLAINERS = {
    "input_x_gradient": "input_x_gradient",
    "integrated_gradients": "integrated_gradients",
    "edges": edges,
    "other_network": other_network,
}


def check_parts_decide(subject, images, masks, targets):
    """Check that the network gives the answers of samples, and gives none of them without the masked part."""
    assert subject.answers(subject.ask(images)).gather(1, targets[:, None]).all()
    without = torch.where(masks[:, None], subject.canvas, images)
    assert not subject.answers(subject.ask(without)).gather(1, targets[:, None]).any()
