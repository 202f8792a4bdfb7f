"""Training a pretrained network on a new data set: only its last layer, on precomputed features, or the whole network.

Source: Zhang et al. (2023), "XAI Benchmark for Visual Explanation" (arXiv 2310.08537): the last layer is replaced and
trained for 30 epochs with Adam at a learning rate of 0.0001; the weights of the best epoch on the validation samples
are kept. "Best" here is the lowest validation loss, the first if tied, as everywhere in this library.

Departure, for ``finetune="head"``: the trunk is frozen and in evaluation mode, so that its output for an image is
constant and computed only once. Batch normalization uses ImageNet's statistics, and dropout before the last layer (VGG,
EfficientNet) is off. A training loop that calls ``model.train()`` would update the former and apply the latter.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from xaibench.core.checks import check_choice
from xaibench.core.files import atomic_path
from xaibench.core.types import Precision
from xaibench.models.networks.pretrained_weights import update_digest
from xaibench.models.training.batches import IndexedSplit, check_precision_of, check_ranges, check_splits, read_batches
from xaibench.models.training.fitting import Training, TrainingDivergedError, fit
from xaibench.network.calls import observe_calls, record_layer_runs
from xaibench.network.lending import evaluation_mode
from xaibench.tensors.batching import BatchSize
from xaibench.tensors.device import current_precision, precision_context, resolve_device
from xaibench.tensors.random_numbers import isolated_rng

#: Trained layers: the last layer, or the whole network.
Finetune: TypeAlias = Literal["head", "all"]

#: Images per pass through the trunk.
_ROWS = 64


@dataclass(frozen=True)
class LinearHead:
    """The final linear layer of a network.

    Attributes:
        name: As in ``model.named_modules()``, such as ``"network.fc"``.
        layer: The layer; its inputs ``[N, D]`` are the features, its outputs the logits.
    """

    name: str
    layer: nn.Linear


def find_head(model: nn.Module, images: Tensor) -> LinearHead:
    """Find the final linear layer of a model and check that it returns the logits.

    Args:
        model: Maps images to logits ``[N, K]``.
        images: ``[N, C, H, W]``; the first one is used.

    Returns:
        Its name, as in ``model.named_modules()``, and the layer.

    Raises:
        ValueError: If the model does not end in an ``nn.Linear`` with one row of features per image.

    Example:
        >>> find_head(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.ones(1, 1, 2, 2))
        LinearHead(name='3', layer=Linear(in_features=3, out_features=2, bias=True))
    """
    linear = [named for named in model.named_modules() if isinstance(named[1], nn.Linear)]
    with record_layer_runs(linear) as runs, torch.no_grad(), evaluation_mode(model):
        logits = model(images[:1])
    advice = "Train the whole network (finetune='all')."
    if not runs:
        raise ValueError(f"No nn.Linear runs in {type(model).__name__}, so it has no last layer to train. {advice}")
    name, layer = runs[-1].name, cast(nn.Linear, runs[-1].module)
    features, output = cast(Tensor, runs[-1].inputs[0]), cast(Tensor, runs[-1].output)
    if not isinstance(logits, Tensor) or output.shape != logits.shape or not output.equal(logits):
        raise ValueError(
            f"The last nn.Linear of the model, {name!r}, does not return the logits: other layers follow. {advice}"
        )
    if features.ndim != 2:
        raise ValueError(
            f"{name!r} has inputs {list(features.shape)}, expected one row of features per image. {advice}"
        )
    return LinearHead(name, layer)


class _TrunkFinished(Exception):  # noqa: N818 - not an error: the trunk has finished
    pass


@contextlib.contextmanager
def _run_trunk(model: nn.Module, head: LinearHead) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yield a function that runs the network up to its head, and returns the input of the head."""
    held: list[Tensor] = []

    def stop(name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        held[:] = [inputs[0]]
        raise _TrunkFinished

    def trunk(images: Tensor) -> Tensor:
        with contextlib.suppress(_TrunkFinished):
            model(images.clone())  # a network may modify its input
        return held.pop()

    with observe_calls([(head.name, head.layer)], before=stop), evaluation_mode(model):
        yield trunk


def extract_features(
    model: nn.Module,
    head: LinearHead,
    split: IndexedSplit,
    *,
    batch_size: int = _ROWS,
    workers: int = 0,
    progress: bool = True,
) -> Tensor:
    """Compute the inputs of the head for all images of a split, in evaluation mode, on the model's device.

    Args:
        model: A network whose head was found by :func:`find_head`.
        head: The head.
        split: The images.
        batch_size: Images per pass; halved, with a log message, if the GPU runs out of memory.
        workers: Number of processes that read the images; 0 = read in this process.
        progress: Show a progress bar.

    Returns:
        ``[N, D]`` on the CPU.

    Raises:
        ValueError: If features are NaN or infinite; names the samples.
    """
    like = next(model.parameters())
    rows, found_parts = BatchSize(batch_size), []
    order = list(range(len(split)))
    batches = [order[chunk] for chunk in rows.slices(len(split))]
    bar = tqdm(total=len(split), unit="image", desc="Features", disable=not progress)
    with torch.no_grad(), precision_context(device=like.device), _run_trunk(model, head) as trunk, bar:
        for images, _ in read_batches(split, batches, workers=workers):

            def work(chunk: slice, images: Tensor = images) -> Tensor:
                return trunk(images[chunk].to(like)).cpu()

            found_parts.append(rows.each(len(images), work))
            bar.update(len(images))
    found = torch.cat(found_parts)
    finite = found.isfinite().all(1)
    if not finite.all():
        where = (~finite).nonzero().flatten().tolist()
        raise ValueError(
            f"The model computes NaN or infinite features for {len(where)} of {len(found)} samples (the first: "
            f"{where[0]}). Check its weights, and that the images are in [0, 1]."
        )
    return found


def fit_head(
    model: nn.Module,
    train: IndexedSplit,
    val: IndexedSplit,
    *,
    epochs: int = 30,
    lr: float = 1e-4,
    finetune: Finetune = "head",
    batch_size: int = 32,
    seed: int = 0,
    device: str | torch.device = "auto",
    precision: Precision | None = None,
    workers: int = 0,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Training:
    """Train a pretrained network on a new data set, in place, and keep the weights of the lowest validation loss.

    Args:
        model: Returns logits ``[N, K]``, one per class; for ``finetune="head"`` it must end in an ``nn.Linear``.
        train: Training samples: ``split.targets`` ``[N]`` and ``split[[i, j, ...]]``, a batch whose first element is
            the images ``[n, C, H, W]`` and whose last is the targets ``[n]``.
        val: Validation samples, which select the best epoch; of the same kind.
        epochs: Passes over ``train``.
        lr: Learning rate of Adam.
        finetune: ``"head"``: only the last layer, on features that are computed once; takes seconds after one pass over
            the images. ``"all"``: the whole network, with batch normalization and dropout in training mode.
        batch_size: Images per step. If the GPU runs out of memory, a step is computed in halves, with a log message;
            the gradient is that of the whole batch, but batch normalization sees the halves.
        seed: Seed of the order of the samples and of dropout. On the CPU, the same seed and initial weights give the
            same weights. Global random state is neither used nor changed.
        device: Where to train; ``"auto"`` is CUDA if available, otherwise the CPU.
        precision: As in :func:`xaibench.models.fit`.
        workers: Number of processes that read the images; 0 = read in this process.
        cache: File for the features (``finetune="head"``). It is reused if the frozen weights, the targets and a sample
            of the images are the same as when it was written. Otherwise it is replaced, atomically.
        progress: Show progress bars.

    Returns:
        The history of the training. The model is in evaluation mode, on its original device.

    Raises:
        TrainingDivergedError: If the loss becomes infinite or NaN.
        ValueError: If a split is empty, a target is not a class, a class has no training sample, the model does not
            accept the images or returns NaN, or an argument is out of its range.

    Example:
        >>> class Split:
        ...     targets = torch.arange(20) % 2
        ...     def __len__(self): return 20
        ...     def __getitem__(self, i):
        ...         return self.targets[i].float()[:, None, None, None].expand(-1, 3, 4, 4), None, self.targets[i]
        >>> model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        >>> fit_head(model, Split(), Split(), lr=0.1, device="cpu", progress=False).val_accuracy
        1.0
    """
    check_ranges(epochs=epochs, batch_size=batch_size, stack=1, lr=lr)
    check_choice("finetune", finetune, get_args(Finetune))
    if cache is not None and finetune == "all":
        raise ValueError("cache: there are no features to keep with finetune='all'; leave it out.")
    check_splits(model, train, val)
    where = resolve_device(device)
    check_precision_of([model], precision)
    with precision_context(precision, where):
        if finetune == "all":
            return fine_tune(
                model,
                train,
                val,
                epochs=epochs,
                lr=lr,
                batch_size=batch_size,
                seed=seed,
                device=where,
                workers=workers,
                progress=progress,
            )
        home = next(model.parameters()).device
        splits = {"train": train, "val": val}
        try:
            model.to(where)
            head = find_head(model, train[[0]][0].to(next(model.parameters())))
            found = cached(
                cache,
                lambda: hash_feature_inputs(model, head.name, splits) + (current_precision() or ""),
                lambda: {
                    n: extract_features(model, head, split, workers=workers, progress=progress)
                    for n, split in splits.items()
                },
            )
            known = [_Features(found[name], split.targets) for name, split in splits.items()]
            return fit(
                head.layer,
                *known,
                epochs=epochs,
                lr=lr,
                batch_size=batch_size,
                seed=seed,
                device=where,
                progress=progress,
            )
        finally:
            model.to(home).eval()


class _Features(Dataset[tuple[Tensor, Tensor]]):
    """Features and targets in memory, from which :func:`xaibench.models.fit` cuts batches."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.targets[index]


_LOGGER = logging.getLogger("xaibench")

#: Format name in the file's metadata.
_FORMAT = "xaibench features 1"

#: Number of images of each split that are hashed.
_HASHED_IMAGES = 8


def cached(
    path: str | os.PathLike[str] | None, key: Callable[[], str], compute: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return tensors from the file at ``path`` if it was written with this key; otherwise compute and write them.

    The file is written atomically.

    Args:
        path: The file; None = no cache.
        key: Returns a text that changes whenever the tensors do.
        compute: Returns the tensors.

    Raises:
        ValueError: If ``path`` is another kind of file, which is not changed.
    """
    if path is None:
        return compute()
    file, present = Path(path).expanduser(), key()
    stored = _read_cache(file, present) if file.exists() else None
    if stored is not None:
        return stored
    tensors = compute()
    file.parent.mkdir(parents=True, exist_ok=True)
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    try:
        with atomic_path(file) as beside:
            save_file(contiguous, beside, {"format": _FORMAT, "key": present})
    except SafetensorError as error:  # also raised if the disk is full
        raise OSError(f"cache={str(file)!r} cannot be written: {error}. Free space, or name another file.") from error
    return tensors


def _read_cache(file: Path, key: str) -> dict[str, Tensor] | None:
    try:
        with safe_open(str(file), "pt") as opened:
            notes = opened.metadata() or {}
            if notes.get("format") == _FORMAT:
                if notes.get("key") == key:
                    return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
                _LOGGER.warning("%s holds the features of another network or data set; they are computed again.", file)
                return None
    except (SafetensorError, OSError):
        pass
    raise ValueError(f"cache={str(file)!r} is not a file of features and is not changed. Name another file.")


def hash_feature_inputs(model: nn.Module, left_out: str, splits: Mapping[str, IndexedSplit]) -> str:
    """Hash everything that features depend on: weights, buffers and structure of the trunk, and the samples.

    Of each split, the number of samples, all targets and 8 images are hashed. Reading all images would take longer than
    computing the features of many networks.

    Args:
        model: The network.
        left_out: Name of the head, which features do not depend on.
        splits: The samples.
    """
    digest = hashlib.sha256(str(model).encode())
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if not name.startswith(f"{left_out}."):
            update_digest(digest, name, value)
    for name, split in splits.items():
        update_digest(digest, name, split.targets)
        places = torch.linspace(0, len(split) - 1, min(_HASHED_IMAGES, len(split))).long().tolist()
        update_digest(digest, f"{name} images", split[places][0])
    return digest.hexdigest()


def fine_tune(
    model: nn.Module,
    train: IndexedSplit,
    val: IndexedSplit,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
    device: torch.device,
    workers: int,
    progress: bool,
) -> Training:
    """Train all weights that require a gradient. Arguments and result are as in :func:`xaibench.models.fit_head`."""
    home = next(model.parameters()).device
    with isolated_rng(seed, device):
        model.to(device)
        learner = _Learner(model, lr, batch_size)
        order = torch.Generator().manual_seed(seed)
        lost: list[float] = []
        val_lost: list[float] = []
        best, best_weights, accurate = math.inf, _copy(model), 0.0
        try:
            for epoch in tqdm(range(epochs), unit="epoch", desc="Fine-tuning", disable=not progress):
                shuffled = torch.randperm(len(train), generator=order).tolist()
                batches = [shuffled[rows] for rows in BatchSize(batch_size).slices(len(train))]
                lost.append(learner.learn(train, batches, workers, seed=epoch))
                loss, accuracy = learner.test(val, workers)
                val_lost.append(loss)
                if not math.isfinite(lost[-1] + loss):
                    raise TrainingDivergedError(
                        f"The loss is {lost[-1]} (validation: {loss}) in epoch {epoch}. Lower the learning rate, or "
                        "look for NaN in the images. The model has the best weights of the epochs before."
                    )
                if loss < best:
                    best, best_weights, accurate = loss, _copy(model), accuracy
        finally:  # also when interrupted: the best weights so far
            model.load_state_dict(best_weights)
            model.zero_grad()
            model.to(home).eval()
    return Training(tuple(lost), tuple(val_lost), val_lost.index(best), accurate)


class _Learner:
    """A network with its optimizer and its current batch sizes."""

    def __init__(self, model: nn.Module, lr: float, batch_size: int) -> None:
        self.model = model
        self._adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
        self._batch_size = batch_size
        self._rows, self._test_rows = BatchSize(batch_size), BatchSize(2 * batch_size)  # a test needs no gradients
        self._like = next(model.parameters())

    def learn(self, split: IndexedSplit, batches: list[list[int]], workers: int, seed: int) -> float:
        """Train for one epoch and return the mean loss, measured while the weights change."""
        self.model.train()
        lost: list[Tensor] = []  # per step, on the device: reading one would wait for the step
        for images, targets in read_batches(split, batches, workers=workers, seed=seed):
            x, y = images.to(self._like), targets.to(self._like.device)

            def backward(rows: slice, x: Tensor = x, y: Tensor = y) -> Tensor:
                losses = F.cross_entropy(self.model(x[rows]), y[rows], reduction="none")
                (losses.sum() / len(y)).backward()  # type: ignore[no-untyped-call]
                return losses.detach()

            lost.append(self._rows.each(len(y), backward, again=self._adam.zero_grad).sum())
            self._adam.step()
        return _sum_parts(lost) / len(split)

    def test(self, split: IndexedSplit, workers: int) -> tuple[float, float]:
        """Return mean loss and accuracy."""
        self.model.eval()
        lost: list[Tensor] = []
        correct: list[Tensor] = []
        in_order = list(range(len(split)))
        batches = [in_order[rows] for rows in BatchSize(2 * self._batch_size).slices(len(split))]
        with torch.no_grad():
            for images, targets in read_batches(split, batches, workers=workers):
                x, y = images.to(self._like), targets.to(self._like.device)
                logits = self._test_rows.each(len(y), lambda rows, x=x: self.model(x[rows]))  # type: ignore[misc]
                lost.append(F.cross_entropy(logits, y, reduction="sum"))
                correct.append((logits.argmax(1) == y).sum())
        return _sum_parts(lost) / len(split), _sum_parts(correct) / len(split)


def _sum_parts(parts: list[Tensor]) -> float:
    """Sum the parts in float64, one after another."""
    return float(sum(torch.stack(parts).tolist()))


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
