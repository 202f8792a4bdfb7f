"""PASCAL VOC 2012: palette masks with void rims, lists, and files that are not segmented."""

import functools

import numpy as np
from generators.common import Expected, photograph
from PIL import Image

from xaibench.data.photographs.pascal_voc import CLASSES

HEIGHT, WIDTH = 60, 80
#: Three images of each class, every other of which shows a second class; then more of the first two classes.
SHOWN = [(n % 20, *([(n + 7) % 20] if n % 2 else [])) for n in range(60)] + [(n % 2,) for n in range(16)]


@functools.cache
def palette():
    """VOC's colors: the bits of the index, spread over red, green and blue."""
    colors = []
    for index in range(256):
        bits = [(index >> bit) & 1 for bit in range(8)]
        colors += [
            sum(bits[channel + 3 * k] << (7 - k) for k in range(3) if channel + 3 * k < 8) for channel in range(3)
        ]
    return colors


def save_labels(labels, file):
    image = Image.fromarray(labels.astype(np.uint8)).convert("P")
    image.putpalette(palette())
    image.save(file)


def draw(rng, classes):
    """``[h, w]`` labels: the first class in the left half, the second in the right, each with a void rim."""
    labels = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    for place, index in enumerate(classes):
        top, left = rng.integers(2, 20), 2 + place * WIDTH // 2 + rng.integers(0, 6)
        bottom, right = top + rng.integers(15, 35), left + rng.integers(15, 28)
        labels[top - 2 : bottom + 2, left - 2 : right + 2] = 255
        labels[top:bottom, left:right] = index + 1
    return labels


def write(root):
    rng = np.random.default_rng(11)
    folder = root / "VOCdevkit" / "VOC2012"
    for place in ("JPEGImages", "SegmentationClass", "SegmentationObject", "Annotations", "ImageSets/Segmentation"):
        (folder / place).mkdir(parents=True)
    names = [f"{2007 + n % 5}_{n:06d}" for n in range(len(SHOWN))]
    expected = []
    for name, classes in zip(names, SHOWN, strict=True):
        labels = draw(rng, classes)
        Image.fromarray(photograph(rng, HEIGHT, WIDTH)).save(folder / "JPEGImages" / f"{name}.jpg", quality=90)
        save_labels(labels, folder / "SegmentationClass" / f"{name}.png")
        save_labels(labels % 255, folder / "SegmentationObject" / f"{name}.png")
        expected += [Expected(f"{name}/{CLASSES[c]}", CLASSES[c], labels == c + 1) for c in classes]
    # An image that is not segmented, one that is but stands in no list, and junk.
    Image.fromarray(photograph(rng, HEIGHT, WIDTH)).save(folder / "JPEGImages" / "2012_000001.jpg")
    Image.fromarray(photograph(rng, HEIGHT, WIDTH)).save(folder / "JPEGImages" / "2012_000002.jpg")
    save_labels(draw(rng, (0,)), folder / "SegmentationClass" / "2012_000002.png")
    for place in ("JPEGImages", "SegmentationClass"):
        (folder / place / ".DS_Store").write_bytes(b"\0junk")
        (folder / place / f"._{names[0]}.png").write_bytes(b"\0junk")
    for part, chosen in (("train", names[::2]), ("val", names[1::2]), ("trainval", names)):
        (folder / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("".join(f"{name} \r\n" for name in chosen))
    return expected
