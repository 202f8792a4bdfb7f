"""Random numbers per sample, and temporary seeding of the global generators.

The numbers of a sample depend on the seed and the image, not on the position in a batch. Using the same numbers for all
samples would not depend on the position either, but the error would be the same in every map: a mean over samples would
not reduce it and confidence intervals would miss it. So each image has its own generator.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xaibench.tensors.workers import background_threads

#: Number of blocks that are drawn ahead of the device.
_AHEAD = 4

#: Numbers that are drawn at a time. They fit into the processor's cache. Between draws, a thread needs the interpreter,
#: for which the drawing threads compete.
_DRAWN = 1 << 17

#: Held while the global generators are seeded.
_GENERATORS = threading.RLock()

#: Images that seed the generators, set by the outermost :func:`seeded_by` block.
_ORIGINALS: ContextVar[Tensor | None] = ContextVar("originals", default=None)


def sample_generators(seed: int, images: Tensor) -> list[np.random.Generator]:
    """Return one random generator per image, seeded by ``seed`` and the image alone.

    The generators are Philox, keyed by a hash of seed and pixels, so that the numbers are the same on every machine.
    The image is hashed as float32, so that the dtype does not matter, and -0.0 counts as 0.0. Equal images get equal
    numbers.

    Args:
        seed: Any integer >= 0.
        images: ``[N, C, H, W]``. Inside of a :func:`seeded_by` block with as many images, those are hashed instead.

    Returns:
        N generators. Numbers are drawn one by one: drawing n and then m gives the same as drawing n + m.

    Example:
        >>> import torch
        >>> images = torch.arange(8.0).reshape(2, 1, 2, 2)
        >>> together, alone = sample_generators(0, images)[1], sample_generators(0, images[1:])[0]
        >>> together.random() == alone.random()
        True
    """
    originals = _ORIGINALS.get()
    counted = originals if originals is not None and len(originals) == len(images) else images
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    pixels = (counted.detach().cpu().float() + 0.0).flatten(1).numpy()
    digests = (hashlib.blake2b(b"%d %s" % (seed, row.tobytes()), digest_size=16).digest() for row in pixels)
    return [np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype="<u8"))) for digest in digests]


def normal_numbers(
    generators: list[np.random.Generator], like: Tensor, cut: Iterable[tuple[slice, slice]]
) -> Iterator[Tensor]:
    """Yield standard normal numbers for the blocks of samples and steps that an explainer processes.

    A GPU processes a block faster than one thread draws the next. For devices other than the CPU, several threads
    therefore draw some blocks ahead. The numbers are the same.

    Args:
        generators: One per sample. They draw number by number, so the partition into blocks does not change the
            numbers.
        like: ``[N, C, H, W]``; its shape, dtype and device are used.
        cut: Samples and steps of each block; the steps of a sample must be in order.

    Yields:
        ``[n, s, C, H, W]`` for n samples and s steps.
    """
    device, blocks, drawn = like.device, iter(cut), deque[tuple[Tensor, list[Callable[[], Tensor]]]]()
    last: dict[int, Callable[[], Tensor]] = {}

    def draw(number: int, row: Tensor, before: Callable[[], Tensor] | None) -> Tensor:
        if before is not None:  # an earlier block of the same sample uses the same generator
            before()
        places, drawn = row.view(-1), np.empty(min(_DRAWN, row.numel()))
        for start in range(0, len(places), _DRAWN):
            part, to = drawn[: len(places) - start], places[start : start + _DRAWN]
            generators[number].standard_normal(out=part)
            if to.dtype in (torch.float32, torch.float64):  # torch starts threads for copies of this size
                np.copyto(to.numpy(), part, casting="same_kind")
            else:
                to.copy_(torch.from_numpy(part))
        return row

    with background_threads(device) as submit:
        while True:
            for samples, steps in itertools.islice(blocks, 1 if device.type == "cpu" else _AHEAD - len(drawn)):
                numbers = range(len(generators))[samples]
                shape = (len(numbers), steps.stop - steps.start, *like.shape[1:])
                # From pinned memory, the copy to the GPU overlaps with its computation.
                block = torch.empty(shape, dtype=like.dtype, pin_memory=device.type == "cuda")
                for number, row in zip(numbers, block, strict=True):
                    last[number] = submit(draw, number, row, last.get(number))
                drawn.append((block, [last[number] for number in numbers]))
            if not drawn:
                return
            block, rows = drawn.popleft()
            for row in rows:
                row()
            yield block.to(device, non_blocking=True)


@contextmanager
def seeded_by(images: Tensor) -> Iterator[None]:
    """Seed the generators of :func:`sample_generators` by these images inside the block; the outermost block counts.

    A change of precision then does not change the random numbers, and a metric that perturbs the images slightly
    measures the effect of that perturbation rather than of other random numbers.

    Args:
        images: ``[N, C, H, W]``.

    Example:
        >>> import torch
        >>> images = torch.ones(1, 1, 2, 2)
        >>> plain = sample_generators(0, images)[0].random()
        >>> with seeded_by(images):
        ...     sample_generators(0, images + 0.1)[0].random() == plain
        True
    """
    token = None if _ORIGINALS.get() is not None else _ORIGINALS.set(images)
    try:
        yield
    finally:
        if token is not None:
            _ORIGINALS.reset(token)


@contextmanager
def isolated_rng(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators inside the block and restore their state after it.

    The generators belong to the process: other threads wait that enter such a block.

    Args:
        seed: Any integer >= 0.
        device: Where the block computes, if not on the CPU; its generator is seeded, too.

    Example:
        >>> with isolated_rng(1):
        ...     first = torch.rand(2)
        >>> with isolated_rng(1):
        ...     bool((torch.rand(2) == first).all())
        True
    """
    with _GENERATORS, torch.random.fork_rng(devices=[]), _seeded_accelerator(seed, device):
        # Not torch.manual_seed, which would also seed all accelerators and not restore them.
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _seeded_accelerator(seed: int, device: torch.device | None) -> Iterator[None]:
    if device is None or device.type == "cpu":
        yield
        return
    module: Any = torch.get_device_module(device)
    where = () if device.type == "mps" else (device,)  # there is only one
    state = module.get_rng_state(*where)
    try:
        with module.device(device) if where else nullcontext():
            module.manual_seed(seed)
        yield
    finally:
        module.set_rng_state(state, *where)


@contextmanager
def seeded_globals(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators of torch and NumPy inside the block and restore their state after it.

    Args:
        seed: Seed of both.
        device: As in :func:`isolated_rng`.

    Example:
        >>> import numpy as np
        >>> with seeded_globals(1):
        ...     first = np.random.random()
        >>> with seeded_globals(1):
        ...     np.random.random() == first
        True
    """
    with isolated_rng(seed, device):
        state = np.random.get_state()
        np.random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)
