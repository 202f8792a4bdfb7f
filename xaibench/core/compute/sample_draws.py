"""Random numbers of a sample: they belong to its image and the seed, not to its place in a batch.

Equal draws for all samples would not depend on the place either, but they leave every map with the same error: a mean
over samples would not average it out, and its interval would not know of it. So each image draws for itself.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from torch import Tensor

from xaibench.core.compute.host_work import beside

#: Blocks that are drawn ahead of the device.
_AHEAD = 4

#: Numbers that are drawn at a time: they stay in the processor's cache, and torch copies as many without threads of its
#: own, of which there would be sixteen for each that draws.
_DRAWN = 1 << 15

#: The images whose random numbers are drawn inside the outermost block of :func:`drawing_as`.
_ORIGINALS: ContextVar[Tensor | None] = ContextVar("originals", default=None)


def sample_generators(seed: int, images: Tensor) -> list[np.random.Generator]:
    """A random generator for each image, which depends on the seed and the image alone.

    Philox with the digest of both as its key: what is drawn is the same on every machine, and any part of it could be
    made without the rest. The image counts as float32, so that it draws the same in double precision, and zero has no
    sign. Equal images draw equal numbers.

    Args:
        seed: Any integer >= 0.
        images: ``[N, C, H, W]``. Inside of :func:`drawing_as` those of that block count, if they are as many.

    Returns:
        N generators. They draw number by number: n numbers and then m are the same as n + m.

    Example:
        >>> import torch
        >>> images = torch.arange(8.0).reshape(2, 1, 2, 2)
        >>> together, alone = sample_generators(0, images)[1], sample_generators(0, images[1:])[0]
        >>> together.random() == alone.random()
        True
    """
    originals = _ORIGINALS.get()
    counted = originals if originals is not None and len(originals) == len(images) else images
    # Adding zero makes -0.0 and 0.0, which are equal, the same bytes.
    pixels = (counted.detach().cpu().float() + 0.0).flatten(1).numpy()
    digests = (hashlib.blake2b(b"%d %s" % (seed, row.tobytes()), digest_size=16).digest() for row in pixels)
    return [np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype="<u8"))) for digest in digests]


def normal_numbers(
    generators: list[np.random.Generator], like: Tensor, cut: Iterable[tuple[slice, slice]]
) -> Iterator[Tensor]:
    """Standard normal numbers for the blocks of samples and steps that an explainer goes through.

    A GPU is done with a block sooner than one thread has drawn the next. So, for a device other than the CPU, several
    threads draw, and some blocks ahead, while the device computes; what they draw is the same.

    Args:
        generators: One for each sample. They draw number by number, so that the blocks do not change what is drawn.
        like: ``[N, C, H, W]``, whose shape, type and device count.
        cut: Samples and steps of each block; the steps of a sample in their order.

    Yields:
        ``[n, s, C, H, W]`` for n samples and s steps.
    """
    device, blocks, drawn = like.device, iter(cut), deque[tuple[Tensor, list[Callable[[], Tensor]]]]()
    last: dict[int, Callable[[], Tensor]] = {}

    def draw(number: int, row: Tensor, before: Callable[[], Tensor] | None) -> Tensor:
        if before is not None:  # another block of the same sample, from the same generator
            before()
        places, drawn = row.view(-1), np.empty(min(_DRAWN, row.numel()))
        for start in range(0, len(places), _DRAWN):
            part = drawn[: len(places) - start]
            generators[number].standard_normal(out=part)
            places[start : start + _DRAWN].copy_(torch.from_numpy(part))
        return row

    with beside(device) as submit:
        while True:
            for samples, steps in itertools.islice(blocks, 1 if device.type == "cpu" else _AHEAD - len(drawn)):
                numbers = range(len(generators))[samples]
                shape = (len(numbers), steps.stop - steps.start, *like.shape[1:])
                # From pinned memory a copy goes to the GPU while it computes.
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
def drawing_as(images: Tensor) -> Iterator[None]:
    """Draw inside the block for these images, whatever becomes of them there; of nested blocks the outermost counts.

    So a change of precision does not change what is drawn, and a metric that changes the images a little sees what
    that changes of the map, not other random numbers.

    Args:
        images: ``[N, C, H, W]``.

    Example:
        >>> import torch
        >>> images = torch.ones(1, 1, 2, 2)
        >>> plain = sample_generators(0, images)[0].random()
        >>> with drawing_as(images):
        ...     sample_generators(0, images + 0.1)[0].random() == plain
        True
    """
    token = None if _ORIGINALS.get() is not None else _ORIGINALS.set(images)
    try:
        yield
    finally:
        if token is not None:
            _ORIGINALS.reset(token)
