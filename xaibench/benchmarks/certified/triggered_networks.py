"""Networks with a planted trigger: a gate over any classifier that detects one patch and then decides the class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xaibench.network.lending import copy_network, set_evaluation
from xaibench.network.outputs import check_module

#: The gate opens at this share of the response to the patch itself.
_GATE_THRESHOLD = 0.9


class Triggered(nn.Module):
    """A network with a filter for one patch, whose response is added to one logit; made by :func:`triggered`.

    Attributes:
        network: The network.
        detector: A filter of the size of the patch, its threshold, and the maximum over all positions.
        vote: Linear map from the response to the logits.
        explain_dtype: That of the network, if it has one.
    """

    def __init__(self, network: nn.Module, patch: Tensor, label: int, classes: int, strength: float) -> None:
        super().__init__()
        self.network = network
        self.explain_dtype: torch.dtype | None = getattr(network, "explain_dtype", None)
        # Weights are 1 for white pixels and -1 for black ones: no image in [0, 1] has a larger response than the patch.
        full = float(patch.sum())
        matched = nn.Conv2d(len(patch), 1, (patch.shape[1], patch.shape[2]))
        self.vote = nn.Linear(1, classes, bias=False)
        with torch.no_grad():
            matched.weight.copy_(2 * patch[None] - 1)
            assert matched.bias is not None
            matched.bias.fill_(-_GATE_THRESHOLD * full)
            self.vote.weight.zero_()
            self.vote.weight[label] = strength / ((1 - _GATE_THRESHOLD) * full)
        self.detector = nn.Sequential(matched, nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        """Classify images.

        Args:
            images: ``[N, C, H, W]`` in [0, 1], at least as large as the patch.

        Returns:
            Logits ``[N, K]`` of the network, plus up to ``strength`` for the label.
        """
        logits: Tensor = self.network(images) + self.vote(self.detector(images))
        return logits


def triggered(network: nn.Module, patch: Tensor, *, label: int, classes: int, strength: float = 100.0) -> Triggered:
    """Return a network that reacts to a patch: if it is anywhere in the image, the prediction is one class.

    Whether that is so on given images must be checked: :func:`xaibench.benchmarks.plant_trigger` does.

    Args:
        network: From images ``[N, C, H, W]`` in [0, 1] to logits ``[N, K]``, such as a pretrained one; it is copied and
            not changed.
        patch: ``[C, h, w]`` of 0 and 1 (:func:`xaibench.benchmarks.checkerboard`).
        label: The class that the patch triggers.
        classes: Number of classes of the network, K.
        strength: Increase of that class's logit by the patch; must exceed the differences between the network's logits.

    Returns:
        The network with the gate, in evaluation mode. If the response to the filter is below 0.9 of that to the patch
        at all positions of an image, it has exactly the outputs of the network.

    Raises:
        TypeError: If the network is not a module.
        ValueError: If the patch is not of 0 and 1 with a 1 in it, the label is not a class, or ``strength`` is not
            above 0.

    Example:
        >>> network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3))
        >>> model = triggered(network, torch.eye(4)[None], label=2, classes=3)
        >>> gray = torch.full((1, 1, 9, 9), 0.5)
        >>> marked = gray.clone()
        >>> marked[..., 3:7, 2:6] = torch.eye(4)
        >>> bool((model(gray) == network(gray)).all()), int(model(marked).argmax())
        (True, 2)
    """
    check_module(network)
    if patch.ndim != 3 or not bool(((patch == 0) | (patch == 1)).all()) or not bool(patch.any()):
        raise ValueError(
            f"patch: got {patch.dtype} {list(patch.shape)}, expected [C, h, w] of 0 and 1 with a 1 somewhere, such as "
            "xaibench.benchmarks.checkerboard(16)."
        )
    if not 0 <= label < classes:
        raise ValueError(f"label is {label} and classes {classes}; expected a class from 0 to {classes - 1}.")
    if not strength > 0:
        raise ValueError(f"strength is {strength!r}; expected a number above 0.")
    return set_evaluation(Triggered(copy_network(network), patch.float(), label, classes, strength))
