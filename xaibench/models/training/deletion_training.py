"""Teaching a network what an image looks like of which a part was deleted, so that deletions are in its domain.

Metrics that delete need it: the in-domain single deletion score (Hesse et al., NeurIPS 2024, arXiv 2407.11910) patches,
F-Fidelity (Zheng et al., ICLR 2025, arXiv 2410.02970) single pixels. What is deleted is drawn at random and knows no
map, so nothing of an explanation leaks into the network that is to judge it.
"""

from __future__ import annotations

import copy
import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from xaibench.core.checks import check_amount, check_choice, check_count
from xaibench.core.compute.device import resolve_device
from xaibench.core.compute.precision import computing
from xaibench.core.compute.random_state import isolated_rng
from xaibench.models.training.batches import Data, batch_size_of, loader_of
from xaibench.models.training.epochs import TrainingDivergedError
from xaibench.models.training.training_checks import check_data, check_ranges

#: What is deleted: a patch of half of the images, or single pixels of all.
Deleted: TypeAlias = Literal["patches", "pixels"]

#: Of the authors of the in-domain single deletion score: SGD as of ImageNet, a tenth of the rate from each third on.
_MOMENTUM, _DECAY, _STAGES = 0.9, 1e-4, 3
#: Their share of the images that lack a patch.
_PATCHED = 0.5


def fine_tune_for_deletion(
    model: nn.Module,
    data: Data,
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
    """A copy of a network that has learned on with parts of the images deleted, for metrics that delete parts.

    For ``xaibench.idsds`` delete ``"patches"``: of each image, with probability one half, a random patch of a grid of
    4×4; explain and ask the network that comes back. For ``xaibench.f_fidelity`` delete ``"pixels"``: of each image the
    share ``beta``, at random; ask the network that comes back about maps of the one that was given. Stochastic gradient
    descent with momentum 0.9 and weight decay 0.0001, the learning rate a tenth after each third of the epochs, as the
    authors of IDSDS do with 30 epochs of ImageNet.

    Departures: the authors of F-Fidelity train from the beginning, and crop and mirror their images besides.

    Args:
        model: Maps images ``[N, C, H, W]`` to logits ``[N, K]``; left as it is.
        data: The training data: a data set of ``(image, ..., target)`` or a loader of batches of them, such as
            ``data.train``.
        delete: ``"patches"`` or ``"pixels"``.
        grid: Patches along each side.
        beta: Share of the pixels, above 0 and below 1.
        baseline: What stands in place of what is deleted; the metric's.
        epochs: Passes through the data.
        lr: Learning rate of the first third.
        batch_size: Images of a step; None: the loader's own, or 512.
        seed: Of the order of the images and of what is deleted. Global random state is not touched.
        device: Where it trains; ``"auto"``: the GPU when there is one.
        progress: Show a bar.

    Returns:
        The copy, in evaluation mode, where the model is.

    Raises:
        ValueError: If the data hold no sample or do not fit the model, or a number is out of its range.
        TrainingDivergedError: If the loss is no number any more.

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
    tuned, home = copy.deepcopy(model), next(model.parameters()).device
    where = resolve_device(device)
    with isolated_rng(seed, where), computing(device=where):
        tuned.to(where).train()
        optimiser = torch.optim.SGD(
            [weight for weight in tuned.parameters() if weight.requires_grad], lr, _MOMENTUM, weight_decay=_DECAY
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, math.ceil(epochs / _STAGES), 0.1)
        loader = loader_of(data, batch_size or batch_size_of(data), seed)
        chance = torch.Generator().manual_seed(seed)
        for epoch in tqdm(range(epochs), unit="epoch", desc="Fine-tuning", disable=not progress):
            lost: list[Tensor] = []
            for batch in loader:
                images, targets = batch[0].to(next(tuned.parameters())), batch[-1].to(where)
                gone = _patches(images, grid, chance) if delete == "patches" else _pixels(images, beta, chance)
                loss = F.cross_entropy(tuned(images.masked_fill(gone.to(where), baseline)), targets)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                lost.append(loss.detach())
            if not torch.stack(lost).isfinite().all():
                raise TrainingDivergedError(
                    f"The loss is not finite in epoch {epoch}. Lower the learning rate, or look for NaN in the images."
                )
            schedule.step()
    return tuned.to(home).eval()


def _patches(images: Tensor, grid: int, chance: torch.Generator) -> Tensor:
    """``[N, 1, H, W]`` bool: a random patch of half of the images, cut as :func:`xaibench.idsds` cuts them."""
    count, (height, width) = len(images), images.shape[-2:]
    rows, columns = min(grid, height), min(grid, width)
    row = torch.randint(rows, (count, 1, 1, 1), generator=chance)
    column = torch.randint(columns, (count, 1, 1, 1), generator=chance)
    down = (torch.arange(height) * rows // height)[:, None]
    across = torch.arange(width) * columns // width
    return (down == row) & (across == column) & (torch.rand(count, 1, 1, 1, generator=chance) < _PATCHED)


def _pixels(images: Tensor, beta: float, chance: torch.Generator) -> Tensor:
    """``[N, 1, H, W]`` bool: a share of the pixels of each image, rounded to whole ones."""
    count, pixels = len(images), images.shape[-2] * images.shape[-1]
    drawn = torch.rand(count, pixels, generator=chance)
    return (drawn.argsort(1).argsort(1) < round(beta * pixels)).reshape(count, 1, *images.shape[-2:])
