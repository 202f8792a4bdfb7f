"""``load`` and ``loading``: data sets and data loaders by name."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils import data as torch_data
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from xaibench.core.checks import UnknownParameterError, check_count, check_names
from xaibench.data.base import Dataset, Sample, Split
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.registered import DATASETS

_LOGGER = logging.getLogger("xaibench")


def load(name: str, *, seed: int = 0, **parameters: Any) -> Dataset:
    """Load or generate a data set.

    Args:
        name: A name of :data:`DATASETS`; ``"folder:DIR"`` for your own images and masks, ``"volumes:DIR"`` for volumes;
            ``"published:DIR"`` for the processed Saliency-Bench release; ``"hf://owner/name"`` (or
            ``"hf://owner/name@revision"``) and ``"parquet:DIR"`` for a data set that xaibench wrote to the Hugging Face
            Hub or a folder; or ``"package.module:attribute"`` for your own class or function.
        seed: Determines the samples and their split.
        **parameters: Parameters of the data set, such as ``alpha`` and ``n_samples`` of XAI-TRIS
            (:meth:`xaibench.benchmarks.xai_tris.tetrominoes.Tetromino.__call__`), or ``root``, ``classes`` and ``size``
            of the annotated data sets (:meth:`xaibench.data.disk.annotated_set.AnnotatedSet.__call__`).

    Returns:
        The data set with its splits ``train``, ``val`` and ``test`` of samples ``(image [C,H,W], mask [H,W], target)``.

    Raises:
        UnknownNameError: If no data set has this name.
        TypeError: If the data set has no such parameter; the message lists its parameters.
        ValueError: If a parameter is out of range.
        MissingDataError: If an annotated data set is not on disk; the message says how to get it.
        ConnectionError: If it cannot be downloaded (``download=True``); the next call continues.

    Example:
        >>> data = load("xai-tris/lin-white-8x8", seed=3, n_samples=100)
        >>> len(data.train), data.info.classes
        (80, ('T', 'L'))
    """
    return _load("load", name, None, seed, parameters)


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
    """Load a data set and create a data loader per split.

    Every batch is indexed from the tensors of the split at once, without collating single samples.

    Args:
        name: As for :func:`load`.
        classes: Classes to load, for data sets with this parameter: ``"aeroplane,bicycle"`` or a list.
        seed: Determines the samples, their split, and the order of the training batches in every epoch.
        batch_size: None = the size that the data set was published with (512 for XAI-TRIS).
        num_workers: Number of batches read in parallel, for data sets on disk: by threads, or by processes if there is
            a ``transform``. The batches do not depend on it, except for the random numbers of a ``transform``.
        verbose: Log the progress to the logger ``"xaibench"``, or to the terminal if logging is not configured.
        shuffle: Shuffle the training samples in every epoch.
        drop_last: Drop the last training batch of an epoch if it is incomplete.
        pin_memory: Put batches into pinned memory if there is a GPU.
        prefetch_factor: Number of batches that each worker reads ahead; None = two. Requires ``num_workers``.
        **parameters: Parameters of the data set, as for :func:`load`.

    Returns:
        Loaders of train (shuffled in every epoch), validation and test (in order). A batch is
        ``(images [N,C,H,W], masks [N,H,W], targets [N])``. For other options of ``DataLoader``, create one from a split
        of :func:`load`: ``DataLoader(data.train, batch_size=32, ...)``.

    Raises:
        UnknownNameError: If no data set has this name.
        TypeError: If the data set has no such parameter (``classes`` included). For options of ``DataLoader``, the
            message says how to use them.
        ValueError: If a parameter is out of range.

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
    with _progress_log(verbose) as log:
        log("Loading data...")
        dataset = _load("loading", name, classes, seed, parameters)
        log("Splitting dataset...")  # this and the other lines are those of the paper's Figure 4
        splits = (dataset.train, dataset.val, dataset.test)
        log("Creating dataloaders...")
        train = _make_loader(dataset.train, dataset.batch_size, options, shuffle=shuffle)
        rest = dataclasses.replace(options, drop_last=False)  # every validation and test sample is used
        val, test = (_make_loader(split, dataset.batch_size, rest, shuffle=False) for split in splits[1:])
        log("Data loading complete.")
    return train, val, test


def _load(function: str, name: str, classes: object, seed: int, parameters: dict[str, Any]) -> Dataset:
    """Load a data set. If it is missing and can be downloaded, the error begins with the call that does so.

    Args:
        function: ``"load"`` or ``"loading"``, which was called.
        name: Its first argument.
        classes: Its second argument; None = none was given.
        seed: Seed of the set.
        parameters: The parameters of the set that were given by name.
    """
    target = DATASETS.resolve(name)
    if not callable(target):
        raise TypeError(f"{name}: got {type(target).__name__}, expected a class or function of a data set.")
    by_position = [] if classes is None else [classes]
    chosen = parameters if classes is None else parameters | {"classes": classes}
    _check_parameters(DATASETS.canonical(name), target, chosen)
    try:
        dataset: Dataset = target(seed=seed, **chosen)
    except MissingDataError as error:
        if not error.download:
            raise
        by_name = parameters | {"download": True}
        shown = [*map(_literal, [name, *by_position]), *(f"{key}={_literal(value)}" for key, value in by_name.items())]
        raise MissingDataError(f"xb.{function}({', '.join(shown)})  # {error.download}\n{error}") from None
    return dataset


def _literal(value: object) -> str:
    """Return a value as it is written in Python, with double quotes; ``...`` for objects."""
    if isinstance(value, str | os.PathLike):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    return repr(value) if isinstance(value, int | float | list | tuple | None) else "..."


@dataclasses.dataclass(frozen=True)
class _LoaderOptions:
    batch_size: int | None
    seed: int
    workers: int
    drop_last: bool
    pin_memory: bool
    prefetch: int | None


def _make_loader(split: Split, batch_size: int, options: _LoaderOptions, *, shuffle: bool) -> DataLoader[Sample]:
    # Every loader has its own generator: without one, even an unshuffled loader draws from torch's global state.
    generator = torch.Generator().manual_seed(options.seed)
    order = RandomSampler(split, generator=generator) if shuffle and len(split) else SequentialSampler(split)
    # The sampler yields whole batches of indices, and batch_size=None disables collating.
    batches = BatchSampler(order, options.batch_size or batch_size, drop_last=options.drop_last)
    if options.workers > 0 and getattr(split, "transform", None) is None:
        return ThreadedLoader(
            split,
            batches,
            options.workers,
            ahead=options.prefetch or 2,
            generator=generator,
            pin_memory=options.pin_memory,
        )
    # A transform may draw from torch's global generator, which threads share, so it runs in processes.
    return DataLoader(
        split,
        sampler=batches,
        batch_size=None,
        generator=generator,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=options.pin_memory,
        prefetch_factor=options.prefetch,
    )


def _check_parameters(name: str, target: Callable[..., Dataset], parameters: dict[str, Any]) -> None:
    taken = inspect.signature(target).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        return
    for parameter in parameters:
        if parameter not in taken and parameter in inspect.signature(DataLoader).parameters:
            raise UnknownParameterError(
                f"{name} has no parameter {parameter!r}, which is an option of torch's DataLoader. Create one from the "
                f"split: DataLoader(xaibench.load({name!r}).train, {parameter}=...).",
                parameter=parameter,
            )
    check_names(name, parameters, taken)


@contextlib.contextmanager
def _progress_log(verbose: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that logs a line. If logging is not configured, lines are shown on the terminal."""
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


class ThreadedLoader(DataLoader[Sample]):
    """Reads batches ahead in threads and yields them in order.

    Decoding and resizing release the interpreter lock, so threads use all cores. Batches are not sent between
    processes, which takes worker processes a third of their time.

    Args:
        dataset: Returns a batch for a list of indices; must be thread-safe.
        batches: The indices of each batch.
        workers: Number of threads.
        ahead: Maximum number of batches that each thread reads ahead.
        options: Further options of ``DataLoader``.
    """

    def __init__(
        self,
        dataset: torch_data.Dataset[Sample],
        batches: BatchSampler,
        workers: int,
        *,
        ahead: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(dataset, sampler=batches, batch_size=None, **options)
        self.threads, self.ahead = workers, ahead

    def __iter__(self) -> Iterator[Sample]:  # type: ignore[override]  # DataLoader returns an iterator class of torch
        pending: deque[Future[Sample]] = deque()
        # DataLoader draws a seed for its workers at the start of every epoch. Draw one here too, so that the order of
        # the samples, drawn next, is the same with threads and processes.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="xaibench-loading")
        try:
            for indices in self.sampler:
                pending.append(pool.submit(self._read_batch, indices))
                if len(pending) > self.ahead * self.threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also if the consumer stops early or a batch cannot be read
            pool.shutdown(wait=False, cancel_futures=True)

    def _read_batch(self, indices: list[int]) -> Sample:
        batch = self.dataset.__getitem__(indices)
        if not self.pin_memory:
            return batch
        images, masks, targets = batch
        return images.pin_memory(), masks.pin_memory(), targets.pin_memory()
