"""An annotated set of the tests' own, whose pixels are computed, not read."""

import numpy as np
from PIL import Image

from xaibench.data.annotated import AnnotatedSet, Source
from xaibench.registry.info import DatasetInfo


class Painted(Source):
    """Sample ``i`` is an image whose every pixel has the gray ``i``, marked in its left half."""

    def __init__(self, targets, classes=("a", "b"), groups=None, annotated=None, official=None):
        self.classes = tuple(classes)
        self.targets = np.asarray(targets, dtype=np.int64)
        self.annotated = np.ones(len(self.targets), bool) if annotated is None else np.asarray(annotated)
        self.groups = None if groups is None else np.asarray(groups, dtype=np.int64)
        self.official = official
        self.read = []

    def image(self, index, size):
        self.read.append(index)
        return Image.new("RGB", (8, 6), (index, index, index))

    def mask(self, index):
        if not self.annotated[index]:
            return None
        mask = np.zeros((6, 8), bool)
        mask[:, :4] = True
        return mask

    def meta(self, index):
        return {"id": str(index), "file": f"{index}.png", "annotated": bool(self.annotated[index])}


class PaintedSet(AnnotatedSet):
    info = DatasetInfo(
        "painted", classes=("a", "b"), image_shape=(3, 224, 224), license="none", how_to_get="Paint it yourself."
    )
    folders = ("painted/v2", "painted")
    marker = "list.txt"

    def __init__(self, source=None):
        self.source = source

    def open(self, folder, *, classes, seed, shade=1.0):
        return self.source or Painted([0, 1] * 20)
