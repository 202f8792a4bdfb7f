"""A data loader with threads as workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset

from xaibench.data.base import Sample


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
        self, dataset: Dataset[Sample], batches: BatchSampler, workers: int, *, ahead: int = 2, **options: Any
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
