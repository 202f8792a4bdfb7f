"""A dataloader whose workers are threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset

from xaibench.data.dataset import Sample


class ThreadedLoader(DataLoader[Sample]):
    """Reads batches ahead in threads, and hands them out in order.

    Decoding and scaling do not hold the interpreter's lock, so threads keep the cores busy; batches need not be sent
    from one process to another, which costs processes a third of their time.

    Args:
        dataset: Takes a list of indices and returns a batch; safe to be asked by several threads.
        batches: The indices of each batch.
        workers: Threads.
        ahead: Batches that are read ahead for each of them, at most.
        options: Those of ``DataLoader``.
    """

    def __init__(
        self, dataset: Dataset[Sample], batches: BatchSampler, workers: int, *, ahead: int = 2, **options: Any
    ) -> None:
        super().__init__(dataset, sampler=batches, batch_size=None, **options)
        self.threads, self.ahead = workers, ahead

    def __iter__(self) -> Iterator[Sample]:  # type: ignore[override]  # DataLoader's own is a class of torch's
        pending: deque[Future[Sample]] = deque()
        # DataLoader draws a seed for its workers at the start of every epoch; the order of the samples, drawn next,
        # must not depend on what the workers are.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="xaibench-loading")
        try:
            for indices in self.sampler:
                pending.append(pool.submit(self._read, indices))
                if len(pending) > self.ahead * self.threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also when the consumer stops early, or a batch cannot be read
            pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, indices: list[int]) -> Sample:
        batch = self.dataset.__getitem__(indices)
        if not self.pin_memory:
            return batch
        images, masks, targets = batch
        return images.pin_memory(), masks.pin_memory(), targets.pin_memory()
