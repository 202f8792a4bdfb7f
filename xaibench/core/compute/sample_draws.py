"""Random numbers of a sample: they belong to its image and the seed, not to its place in a batch.

Equal draws for all samples would not depend on the place either, but they leave every map with the same error: a mean
over samples would not average it out, and its interval would not know of it. So each image draws for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

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
