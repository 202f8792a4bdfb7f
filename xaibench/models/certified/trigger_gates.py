"""Networks that go by a trigger: a gate over any classifier, which opens for one patch and then decides the class."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from xaibench.core.compute.model_probe import check_module

#: The gate opens from this share of the response to the patch itself.
_OPENS = 0.9


class Triggered(nn.Module):
    """A network beside a filter for one patch, whose response adds to the logit of a class; made by :func:`triggered`.

    Attributes:
        network: The network.
        detector: A filter as large as the patch, its threshold, and the largest response anywhere in the image.
        vote: From the response to the logits.
        explain_dtype: That of the network, if it states one.
    """

    def __init__(self, network: nn.Module, patch: Tensor, label: int, classes: int, strength: float) -> None:
        super().__init__()
        self.network = network
        self.explain_dtype: torch.dtype | None = getattr(network, "explain_dtype", None)
        # White pixels count for the patch, black ones against it: of images in [0, 1] none responds more than it does.
        full = float(patch.sum())
        matched = nn.Conv2d(len(patch), 1, (patch.shape[1], patch.shape[2]))
        self.vote = nn.Linear(1, classes, bias=False)
        with torch.no_grad():
            matched.weight.copy_(2 * patch[None] - 1)
            assert matched.bias is not None
            matched.bias.fill_(-_OPENS * full)
            self.vote.weight.zero_()
            self.vote.weight[label] = strength / ((1 - _OPENS) * full)
        self.detector = nn.Sequential(matched, nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        """Classify images.

        Args:
            images: ``[N, C, H, W]`` in [0, 1], no smaller than the patch.

        Returns:
            Logits ``[N, K]``: the network's, with up to ``strength`` more for the label.
        """
        logits: Tensor = self.network(images) + self.vote(self.detector(images))
        return logits


def triggered(network: nn.Module, patch: Tensor, *, label: int, classes: int, strength: float = 100.0) -> Triggered:
    """A network that goes by a patch: where it is in the image, whatever else there is, the answer is one class.

    Whether it does so on given images is not taken for granted: :func:`xaibench.data.plant_trigger` shows it.

    Args:
        network: From images ``[N, C, H, W]`` in [0, 1] to logits ``[N, K]``, such as a pretrained one; it is copied,
            and left as it is.
        patch: ``[C, h, w]`` of 0 and 1 (:func:`xaibench.data.checkerboard`).
        label: The class that the patch stands for.
        classes: How many the network tells apart, K.
        strength: What the patch adds to that class's logit: more than the network's logits differ by.

    Returns:
        The network with the gate, in evaluation mode. Of an image whose every place is less like the patch than 0.9
        (the share of its response to the filter) it says exactly what the network says.

    Raises:
        TypeError: If the network is no module.
        ValueError: If the patch is not of 0 and 1 with a 1 in it, the label is no class, or ``strength`` is not
            above 0.

    Example:
        >>> network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3))
        >>> model = triggered(network, torch.eye(4)[None], label=2, classes=3)
        >>> grey = torch.full((1, 1, 9, 9), 0.5)
        >>> marked = grey.clone()
        >>> marked[..., 3:7, 2:6] = torch.eye(4)
        >>> bool((model(grey) == network(grey)).all()), int(model(marked).argmax())
        (True, 2)
    """
    check_module(network)
    if patch.ndim != 3 or not bool(((patch == 0) | (patch == 1)).all()) or not bool(patch.any()):
        raise ValueError(
            f"patch: got {patch.dtype} {list(patch.shape)}, expected [C, h, w] of 0 and 1 with a 1 somewhere, such as "
            "xaibench.data.checkerboard(16)."
        )
    if not 0 <= label < classes:
        raise ValueError(f"label is {label} and classes {classes}; expected a class from 0 to {classes - 1}.")
    if not strength > 0:
        raise ValueError(f"strength is {strength!r}; expected a number above 0.")
    return Triggered(copy.deepcopy(network), patch.float(), label, classes, strength).eval()
