"""``load`` and ``loading``: from a name to a data set, and on to dataloaders."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from xaibench.core.checks import check_count
from xaibench.core.messages import unknown
from xaibench.data.dataset import Dataset, Sample, Split
from xaibench.data.dataset_table import DATASETS
from xaibench.data.threaded_loader import ThreadedLoader

_LOGGER = logging.getLogger("xaibench")


def load(name: str, *, seed: int = 0, **parameters: Any) -> Dataset:
    """Load or generate a data set.

    Args:
        name: A name of :data:`DATASETS`; ``"folder:DIR"`` for your own images and masks, ``"published:DIR"`` for the
            processed Saliency-Bench release, ``"hf://owner/name"`` (or ``"hf://owner/name@revision"``) and
            ``"parquet:DIR"`` for a set that xaibench wrote to the Hugging Face Hub or a folder; or
            ``"package.module:attribute"`` of your own.
        seed: Fixes the samples and their split.
        **parameters: The set's own, such as ``alpha`` and ``n_samples`` of the XAI-TRIS sets
            (:meth:`xaibench.data.xai_tris.tetrominoes.Tetromino.__call__`), or ``root``, ``classes`` and ``size`` of
            the annotated ones (:meth:`xaibench.data.disk.annotated_set.AnnotatedSet.__call__`).

    Returns:
        The set with its ``train``, ``val`` and ``test``, each of ``(image [C,H,W], mask [H,W], target)``.

    Raises:
        UnknownNameError: If no data set has this name.
        TypeError: If the set takes no such parameter; names those it takes.
        ValueError: If a parameter is out of its range.
        MissingDataError: If an annotated set is not there; says how to get it.

    Example:
        >>> data = load("xai-tris/lin-white-8x8", seed=3, n_samples=100)
        >>> len(data.train), data.info.classes
        (80, ('T', 'L'))
    """
    sys.audit("xaibench.load", name)  # who runs the code of others can refuse it
    target = DATASETS.resolve(name)
    _check_parameters(DATASETS.canonical(name), target, parameters)
    dataset: Dataset = target(seed=seed, **parameters)
    return dataset


def loading(
    name: str,
    classes: str | Sequence[str] | None = None,
    *,
    seed: int = 0,
    batch_size: int | None = None,
    num_workers: int = 0,
    verbose: bool = True,
    shuffle: bool = True,
    drop_last: bool = False,
    pin_memory: bool = False,
    prefetch_factor: int | None = None,
    **parameters: Any,
) -> tuple[DataLoader[Sample], DataLoader[Sample], DataLoader[Sample]]:
    """Load a data set and make a dataloader of each split.

    Every batch is cut out of the split's tensors in one indexing, which spares the collating of single samples.

    Args:
        name: As for :func:`load`.
        classes: Classes to take, of the sets that let you choose: ``"aeroplane,bicycle"`` or a list.
        seed: Fixes the samples, their split, and the order of the training batches in every epoch.
        batch_size: None = the size that the set was published with (512 for XAI-TRIS).
        num_workers: How many batches are read at a time, for sets that lie on disk: by threads, or by processes where
            there is a ``transform``. They change no batch (of a ``transform`` that draws random numbers, the draws).
        verbose: Log the progress to the logger ``"xaibench"``; where no logging is configured, to the terminal.
        shuffle: Shuffle the training samples, anew in each epoch.
        drop_last: Leave out the training batch at the end of an epoch that is not full.
        pin_memory: Put batches into memory from which a GPU copies them faster, where there is a GPU.
        prefetch_factor: How many batches each worker reads ahead; None = two. Needs ``num_workers``.
        **parameters: The set's own, as for :func:`load`.

    Returns:
        Loaders of train (shuffled anew in each epoch), validation and test (in order); each batch is
        ``(images [N,C,H,W], masks [N,H,W], targets [N])``. For any other option of ``DataLoader`` make one of a split
        of :func:`load`: ``DataLoader(data.train, batch_size=32, ...)``.

    Raises:
        UnknownNameError: If no data set has this name.
        TypeError: If the set takes no such parameter, ``classes`` included; of other options of ``DataLoader`` it says
            how to give them.
        ValueError: If a parameter is out of its range.

    Example:
        >>> train, val, test = loading("xai-tris/xor-corr-8x8", n_samples=1000, verbose=False)
        >>> images, masks, targets = next(iter(train))
        >>> images.shape, masks.shape, targets.shape
        (torch.Size([512, 1, 8, 8]), torch.Size([512, 8, 8]), torch.Size([512]))
    """
    check_count("batch_size", batch_size, none="for the set's own")
    check_count("num_workers", num_workers, least=0)
    check_count("prefetch_factor", prefetch_factor, none="for two")
    if prefetch_factor is not None and num_workers == 0:
        raise ValueError(
            f"prefetch_factor={prefetch_factor}: got num_workers=0, expected at least 1 with it, to read ahead."
        )
    options = _LoaderOptions(
        batch_size, seed, num_workers, drop_last, pin_memory and torch.cuda.is_available(), prefetch_factor
    )
    if classes is not None:
        parameters["classes"] = classes
    with _progress(verbose) as say:
        say("Loading data...")
        dataset = load(name, seed=seed, **parameters)
        say("Splitting dataset...")
        splits = (dataset.train, dataset.val, dataset.test)
        say("Creating dataloaders...")
        train = _loader(dataset.train, dataset.batch_size, options, shuffle=shuffle)
        rest = dataclasses.replace(options, drop_last=False)  # of what is scored, nothing is left out
        val, test = (_loader(split, dataset.batch_size, rest, shuffle=False) for split in splits[1:])
        say("Data loading complete.")
    return train, val, test


@dataclasses.dataclass(frozen=True)
class _LoaderOptions:
    """How the batches of a split are made."""

    batch_size: int | None
    seed: int
    workers: int
    drop_last: bool
    pin_memory: bool
    prefetch: int | None


def _loader(split: Split, batch_size: int, how: _LoaderOptions, *, shuffle: bool) -> DataLoader[Sample]:
    # A generator of its own for every loader: without one, even an unshuffled loader draws from torch's global state.
    generator = torch.Generator().manual_seed(how.seed)
    order = RandomSampler(split, generator=generator) if shuffle and len(split) else SequentialSampler(split)
    # The sampler hands out whole batches of indices, and batch_size=None keeps the loader from collating.
    batches = BatchSampler(order, how.batch_size or batch_size, drop_last=how.drop_last)
    if how.workers > 0 and getattr(split, "transform", None) is None:
        return ThreadedLoader(
            split, batches, how.workers, ahead=how.prefetch or 2, generator=generator, pin_memory=how.pin_memory
        )
    # A transform may draw from torch's global generator, of which every process has its own.
    return DataLoader(
        split,
        sampler=batches,
        batch_size=None,
        generator=generator,
        num_workers=how.workers,
        persistent_workers=how.workers > 0,
        pin_memory=how.pin_memory,
        prefetch_factor=how.prefetch,
    )


def _check_parameters(name: str, target: Callable[..., Dataset], parameters: dict[str, Any]) -> None:
    taken = inspect.signature(target).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        return
    for parameter in parameters:
        if parameter not in taken:
            if parameter in inspect.signature(DataLoader).parameters:
                raise TypeError(
                    f"{name} takes no {parameter!r}, which is an option of torch's DataLoader. Make one of the split: "
                    f"DataLoader(xaibench.load({name!r}).train, {parameter}=...)."
                )
            raise TypeError(unknown(f"{name} takes no", parameter, taken))


@contextlib.contextmanager
def _progress(verbose: bool) -> Iterator[Callable[[str], None]]:
    """A function that logs a line: shown where nobody configured logging; where somebody did, that decides."""
    if not verbose:
        yield lambda line: None
        return
    if _LOGGER.hasHandlers():
        yield _LOGGER.info
        return
    handler, level = logging.StreamHandler(), _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield _LOGGER.info
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level)
