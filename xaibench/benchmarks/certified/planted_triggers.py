"""Networks and images with a planted trigger as ground truth, verified by interventions on the network.

Adebayo et al. (2022) and Zhou et al. (2022) plant a patch that predicts the label, and train on it. A correlation
between patch and label does not prove that the network uses the patch. Here, an image is only kept if adding the patch
makes the network predict the label and removing it makes the network predict another class. Adebayo, Muelly, Abelson,
Kim: Post hoc Explanations may be Ineffective for Detecting Unknown Spurious Correlation, ICLR 2022 (arXiv 2212.04629);
Zhou, Booth, Ribeiro, Shah: Do Feature Attribution Methods Correctly Attribute Features?, AAAI 2022 (arXiv 2104.14403).

The networks (:func:`triggered`) have a gate over any classifier that detects one patch and then decides the class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.data.base import Split
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


#: Batch size of the forward passes.
_BATCH_SIZE = 32


class PlantedSplit(Split):
    """Images with a trigger that determines the network's prediction. The mask is the trigger, the target its label.

    Attributes:
        originals: ``[N, C, H, W]`` the images without the trigger.
        sources: ``[N]`` their indices among the images that the trigger was planted in.
        share: Fraction of the images that passed all interventions and are in this split, in [0, 1].
        found: Number of images that passed each intervention: ``{"planted": ..., "removed": ..., "moved": ...}``.
    """

    def __init__(
        self,
        images: Tensor,
        masks: Tensor,
        targets: Tensor,
        originals: Tensor,
        sources: Tensor,
        share: float,
        found: dict[str, int],
    ) -> None:
        super().__init__(images, masks, targets)
        self.originals = originals
        self.sources = sources
        self.share = share
        self.found = found


def checkerboard(side: int, channels: int = 3, axes: int = 2) -> Tensor:
    """Return a checkerboard patch of black and white pixels, which does not occur in photographs.

    Args:
        side: Height and width in pixels.
        channels: Number of channels of the images.
        axes: Number of spatial axes: 3 for volumes.

    Returns:
        ``[channels, side, side]``, or with three axes ``[channels, side, side, side]``, float32 of 0 and 1; the first
        pixel is white.

    Raises:
        ValueError: If a number is below 1.

    Example:
        >>> checkerboard(2, channels=1).tolist()
        [[[1.0, 0.0], [0.0, 1.0]]]
    """
    check_count("side", side)
    check_count("channels", channels)
    check_count("axes", axes)
    board = (torch.stack(torch.meshgrid([torch.arange(side)] * axes, indexing="ij")).sum(0) + 1) % 2
    return board.float().expand(channels, *board.shape).clone()


def plant_trigger(
    network: Callable[[Tensor], Tensor],
    images: Tensor,
    targets: Tensor,
    *,
    patch: Tensor,
    label: int,
    least: float = 0.5,
    seed: int = 0,
) -> PlantedSplit:
    """Put a patch on images, and keep the images for which interventions show that the patch determines the prediction.

    Images of class ``label`` are not used. Every other image is kept if it passes three interventions:

    - *planted*: with the patch at a random position, the network predicts ``label``;
    - *removed*: without the patch, the network predicts another class;
    - *moved*: with the patch at the same position, the network predicts ``label`` for another image too, one for which
      it predicts another class without the patch.

    Args:
        network: Maps images ``[n, C, H, W]`` to logits ``[n, K]``, in evaluation mode: a network whose head was trained
            on planted images (:func:`xaibench.models.fit_head`), or :func:`xaibench.benchmarks.triggered`.
        images: ``[N, C, H, W]`` float32.
        targets: ``[N]`` class indices.
        patch: ``[C, h, w]`` in the units of the images, such as :func:`checkerboard`.
        label: The class that the patch indicates.
        least: Minimum fraction of the images that must be kept, in (0, 1].
        seed: Seed of the positions and of the choice of the other image.

    Returns:
        The images that are kept, with the patch. The network may also use the rest of the image, so ``mass_outside`` of
        a faithful map need not be 0.

    Raises:
        ValueError: If the patch does not fit, ``least`` is not in (0, 1], there are fewer than two images of other
            classes, or a smaller fraction than ``least`` is kept, that is, the network does not use the patch.

    Example:
        >>> brightest = lambda images: torch.stack([torch.full((len(images),), 0.5), images.amax((1, 2, 3))], 1)
        >>> dark = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)) / 4
        >>> split = plant_trigger(brightest, dark, torch.zeros(10).long(), patch=torch.ones(1, 2, 2), label=1)
        >>> len(split), split.share, int(split.masks[0].sum())
        (10, 1.0, 4)
    """
    if not 0 < least <= 1:
        raise ValueError(f"least={least!r}: expected a fraction in (0, 1].")
    if (
        patch.ndim != images.ndim - 1
        or len(patch) != images.shape[1]
        or any(np.less(images.shape[2:], patch.shape[1:]))
    ):
        raise ValueError(
            f"patch has shape {list(patch.shape)}, which does not fit images {list(images.shape)}; expected [C, h, w] "
            "with the same number of channels, and not larger than the images."
        )
    sources = (targets.cpu() != label).nonzero().flatten()
    originals = images[sources]
    if len(originals) < 2:
        raise ValueError(
            f"images: got {len(originals)} of another class than label {label}, expected at least 2; the effect of a "
            "trigger can only be shown on images of other classes."
        )
    rng = np.random.default_rng(seed)
    corners = [
        rng.integers(0, whole - side + 1, len(originals))
        for whole, side in zip(images.shape[2:], patch.shape[1:], strict=True)
    ]
    others = _draw_partners(len(originals), rng)
    planted, masks = add_patch(originals, patch, corners)
    moved, _ = add_patch(originals[others], patch, corners)
    removed = _predict(network, originals) != label
    passed = {
        "planted": _predict(network, planted) == label,
        "removed": removed,
        "moved": (_predict(network, moved) == label) & removed[others],
    }
    accepted = torch.stack(list(passed.values())).all(0)
    share, found = float(accepted.double().mean()), {name: int(one.sum()) for name, one in passed.items()}
    if share < least:
        counts = ", ".join(f"{name} {count}" for name, count in found.items())
        raise ValueError(
            f"The network does not use the patch: {int(accepted.sum())} of {len(originals)} images pass all "
            f"interventions ({counts}), expected a fraction of at least {least:g}. Train its head on images with the "
            "patch, use xaibench.benchmarks.triggered, or a larger patch."
        )
    samples = (planted, masks, torch.full((len(planted),), label), originals, sources)
    kept, marked, labels, unplanted, numbers = (tensor[accepted] for tensor in samples)
    return PlantedSplit(kept, marked, labels, unplanted, numbers, share, found)


def _draw_partners(count: int, rng: np.random.Generator) -> Tensor:
    """Pair every image with a different one, its successor in a random cyclic permutation."""
    circle = rng.permutation(count)
    others = np.empty(count, dtype=np.int64)
    others[circle] = np.roll(circle, -1)
    return torch.from_numpy(others)


def add_patch(images: Tensor, patch: Tensor, corners: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Return the images with the patch, and the pixels of the patch ``[N, H, W]`` bool.

    Args:
        images: ``[N, C, H, W]``.
        patch: ``[C, h, w]``.
        corners: First index of the patch along each spatial axis, ``[N]``.
    """
    stamped, masks = images.clone(), torch.zeros(len(images), *images.shape[2:], dtype=torch.bool)
    for number, corner in enumerate(np.stack(corners, axis=1).tolist()):
        window = tuple(slice(start, start + side) for start, side in zip(corner, patch.shape[1:], strict=True))
        stamped[number][:, *window] = patch
        masks[number][window] = True
    return stamped, masks


def _predict(network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([network(batch).argmax(1).cpu() for batch in torch.split(images, _BATCH_SIZE)])
