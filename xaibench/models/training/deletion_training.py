"""Fine-tuning on images with deleted parts, so that such images are in the network's domain.

Metrics that delete parts of images need it: the in-domain single deletion score (Hesse et al., NeurIPS 2024, arXiv
2407.11910) for patches, F-Fidelity (Zheng et al., ICLR 2025, arXiv 2410.02970) for single pixels. Deleted parts are
chosen at random and independently of any map, so that no explanation influences the network that evaluates it.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from xaibench.core.checks import check_amount, check_choice, check_count
from xaibench.models.training.batches import TrainingData, batch_size_of, check_data, check_ranges, loader_of
from xaibench.models.training.fitting import TrainingDivergedError
from xaibench.network.lending import copy_network
from xaibench.tensors.device import precision_context, resolve_device
from xaibench.tensors.random_numbers import isolated_rng

#: Deleted parts: a patch of half of the images, or single pixels of all.
Deleted: TypeAlias = Literal["patches", "pixels"]

#: As by the authors of IDSDS: SGD as for ImageNet; the learning rate is divided by 10 after each third of the epochs.
_MOMENTUM, _DECAY, _STAGES = 0.9, 1e-4, 3
#: Share of the images with a deleted patch, as by the same authors.
_PATCHED = 0.5


def fine_tune_for_deletion(
    model: nn.Module,
    data: TrainingData,
    *,
    delete: Deleted = "patches",
    grid: int = 4,
    beta: float = 0.1,
    baseline: float = 0.0,
    epochs: int = 30,
    lr: float = 0.001,
    batch_size: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: bool = True,
) -> nn.Module:
    """Fine-tune a copy of a network on images with deleted parts, for metrics that delete parts.

    For ``xaibench.idsds``, delete ``"patches"``: one random patch of a 4×4 grid, in half of the images; the returned
    network is both explained and evaluated. For ``xaibench.f_fidelity``, delete ``"pixels"``: the share ``beta`` of
    each image, at random; the returned network evaluates maps of the original one. Training is SGD with momentum 0.9
    and weight decay 0.0001. The learning rate is divided by 10 after each third of the epochs, as by the authors of
    IDSDS, who train for 30 epochs on ImageNet.

    Departures: the authors of F-Fidelity train from scratch, and also crop and mirror their images.

    Args:
        model: Maps images ``[N, C, H, W]`` to logits ``[N, K]``; it is not changed.
        data: Training data: a data set of ``(image, ..., target)`` or a loader of batches of them, such as
            ``data.train``.
        delete: ``"patches"`` or ``"pixels"``.
        grid: Patches along each side.
        beta: Share of deleted pixels, above 0 and below 1.
        baseline: Value of deleted pixels; use the metric's.
        epochs: Passes over the data.
        lr: Learning rate of the first third.
        batch_size: Images per step; None: the loader's own, or 512.
        seed: Seed of the order of the images and of the deleted parts. Global random state is neither used nor changed.
        device: Where to train; ``"auto"``: the GPU if there is one.
        progress: Show a progress bar.

    Returns:
        The copy, in evaluation mode, on the device of the model.

    Raises:
        ValueError: If the data hold no sample or do not fit the model, or a number is out of its range.
        TrainingDivergedError: If the loss becomes infinite or nan.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-white-8x8", n_samples=200)
        >>> model = xb.models.build("mlp", (1, 8, 8), 2)
        >>> tuned = fine_tune_for_deletion(model, data.train, epochs=2, progress=False)
        >>> images, maps = data.test.images, xb.explain("input_x_gradient", tuned, data.test.images, data.test.targets)
        >>> -1 <= xb.idsds(tuned, images, maps, data.test.targets) <= 1
        True
    """
    check_choice("delete", delete, ("patches", "pixels"))
    check_count("grid", grid, least=2)
    check_amount("beta", beta)
    if beta >= 1:
        raise ValueError(f"beta={beta!r}: expected a share of the pixels below 1, or nothing is left to learn from.")
    check_ranges(epochs=epochs, batch_size=batch_size, stack=1, lr=lr)
    check_data(model, data, data)
    tuned, home = copy_network(model), next(model.parameters()).device
    where = resolve_device(device)
    with isolated_rng(seed, where), precision_context(device=where):
        tuned.to(where).train()
        optimizer = torch.optim.SGD(
            [weight for weight in tuned.parameters() if weight.requires_grad], lr, _MOMENTUM, weight_decay=_DECAY
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, math.ceil(epochs / _STAGES), 0.1)
        loader = loader_of(data, batch_size or batch_size_of(data), seed)
        generator = torch.Generator().manual_seed(seed)
        for epoch in tqdm(range(epochs), unit="epoch", desc="Fine-tuning", disable=not progress):
            lost: list[Tensor] = []
            for batch in loader:
                images, targets = batch[0].to(next(tuned.parameters())), batch[-1].to(where)
                deleted = (
                    _draw_patches(images, grid, generator)
                    if delete == "patches"
                    else _draw_pixels(images, beta, generator)
                )
                loss = F.cross_entropy(tuned(images.masked_fill(deleted.to(where), baseline)), targets)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                lost.append(loss.detach())
            if not torch.stack(lost).isfinite().all():
                raise TrainingDivergedError(
                    f"The loss is not finite in epoch {epoch}. Lower the learning rate, or look for NaN in the images."
                )
            schedule.step()
    return tuned.to(home).eval()


def _draw_patches(images: Tensor, grid: int, generator: torch.Generator) -> Tensor:
    """Return ``[N, 1, H, W]`` bool: a random patch of half of the images, on the grid of :func:`xaibench.idsds`."""
    count, (height, width) = len(images), images.shape[-2:]
    rows, columns = min(grid, height), min(grid, width)
    row = torch.randint(rows, (count, 1, 1, 1), generator=generator)
    column = torch.randint(columns, (count, 1, 1, 1), generator=generator)
    down = (torch.arange(height) * rows // height)[:, None]
    across = torch.arange(width) * columns // width
    return (down == row) & (across == column) & (torch.rand(count, 1, 1, 1, generator=generator) < _PATCHED)


def _draw_pixels(images: Tensor, beta: float, generator: torch.Generator) -> Tensor:
    """Return ``[N, 1, H, W]`` bool: a random share of the pixels of each image, rounded to whole pixels."""
    count, pixels = len(images), images.shape[-2] * images.shape[-1]
    drawn = torch.rand(count, pixels, generator=generator)
    return (drawn.argsort(1).argsort(1) < round(beta * pixels)).reshape(count, 1, *images.shape[-2:])
