"""Speed of reading the images of an annotated data set: ``python speed/loading.py [--root DIR]``.

Compares ``xb.loading("pascal", ...)`` with a plain ``torchvision.datasets.VOCSegmentation`` (images: ``Resize`` to
224×224 and ``ToTensor``; label maps: ``Resize`` nearest and ``PILToTensor``) in a plain ``DataLoader``; both with two
persistent workers and batches of 32, shuffled, on the same files. Epochs alternate, each pair gives a ratio of samples
per second, and the median of the ratios is reported. An image with two classes is two samples in xaibench, each of
which is read separately.

``--root`` is the folder that contains ``VOCdevkit/VOC2012``. Without it, a synthetic tree of 400 images is written to a
temporary folder: 500×375 pixels, noise with the spectrum of photographs, JPEG files of about 115 kB and label maps with
void rims, similar to PASCAL VOC 2012 (2,913 images, longer side 500 px, files of about 110 kB).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measuring import command_line
from PIL import Image
from torch.utils.data import DataLoader

import xaibench as xb

IMAGES, HEIGHT, WIDTH, QUALITY = 400, 375, 500, 90
BATCH, WORKERS, SIZE, WARM_UP = 32, 2, 224, 1


def write_voc(root: Path) -> None:
    """A made-up VOC 2012, segmented images only."""
    rng = np.random.default_rng(0)
    base = root / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (base / folder).mkdir(parents=True)
    names = [f"2007_{number:06d}" for number in range(IMAGES)]
    for number, name in enumerate(names):
        Image.fromarray(photograph(rng)).save(base / "JPEGImages" / f"{name}.jpg", quality=QUALITY)
        labels = Image.fromarray(drawing(rng, number)).convert("P")
        labels.putpalette(np.arange(768, dtype=np.uint32).astype(np.uint8).tobytes())
        labels.save(base / "SegmentationClass" / f"{name}.png")
    for part, chosen in (("train", names[::2]), ("val", names[1::2]), ("trainval", names)):
        (base / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("\n".join(chosen) + "\n")


def photograph(rng: np.random.Generator) -> np.ndarray:
    """Return ``[h, w, 3]`` noise whose amplitude falls with the frequency; channels differ by a tenth."""
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :])
    frequency[0, 0] = np.inf
    planes = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((4, HEIGHT, WIDTH))) / frequency, s=(HEIGHT, WIDTH))
    planes /= planes.std(axis=(1, 2), keepdims=True)
    colors = 128 + 50 * planes[0] + 15 * planes[1:]
    return np.moveaxis(colors, 0, -1).clip(0, 255).astype(np.uint8)


def drawing(rng: np.random.Generator, number: int) -> np.ndarray:
    """``[h, w]`` labels: one or two ragged ellipses of one or two classes with void rims."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    labels = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    for shape in range(1 + number % 2):
        center, radii = rng.uniform(0.25, 0.75, 2) * (HEIGHT, WIDTH), rng.uniform(0.1, 0.35, 2) * (HEIGHT, WIDTH)
        y, x = (rows - center[0]) / radii[0], (columns - center[1]) / radii[1]
        angle = np.arctan2(y, x)
        distance = np.hypot(y, x) * (1 + 0.1 * np.sin(9 * angle + rng.uniform(0, 6)))
        labels[distance < 1.06] = 255
        labels[distance < 1] = 1 + (number + 7 * shape) % 20
    return labels


def ours(root: Path) -> DataLoader:
    return xb.loading(
        "pascal", root=root, splits=(1.0, 0.0, 0.0), batch_size=BATCH, num_workers=WORKERS, size=SIZE, verbose=False
    )[0]


def plain(root: Path) -> DataLoader:
    from torchvision import datasets, transforms

    square = (SIZE, SIZE)
    nearest = transforms.Resize(square, interpolation=transforms.InterpolationMode.NEAREST)
    voc = datasets.VOCSegmentation(
        root,
        image_set="trainval",
        transform=transforms.Compose([transforms.Resize(square), transforms.ToTensor()]),
        target_transform=transforms.Compose([nearest, transforms.PILToTensor()]),
    )
    return DataLoader(voc, batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)


LOADERS: dict[str, Callable[[Path], DataLoader]] = {"xaibench": ours, "torchvision": plain}


def epoch(loader: DataLoader) -> float:
    """Return the samples per second of one epoch."""
    start, count = time.perf_counter(), 0
    for images, *_ in loader:
        count += len(images)
    return count / (time.perf_counter() - start)


def compare(root: Path, epochs: int) -> None:
    loaders = {name: make(root) for name, make in LOADERS.items()}
    for loader in loaders.values():
        for _ in range(WARM_UP):
            epoch(loader)
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(epochs):
        for name in sorted(loaders, reverse=turn % 2 == 1):
            speeds[name].append(epoch(loaders[name]))
    for name, found in speeds.items():
        print(f"{name:12}{statistics.median(found):6.0f} samples a second ({min(found):.0f} to {max(found):.0f})")
    ratios = [ours / plain for ours, plain in zip(speeds["xaibench"], speeds["torchvision"], strict=True)]
    print(f"  ratio: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}, {epochs} pairs")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--root", type=Path, help="folder that contains VOCdevkit/VOC2012; default: synthetic images")
    parser.add_argument("--epochs", type=int, default=9, help="pairs of epochs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.root:
        compare(arguments.root, arguments.epochs)
    else:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XAIBENCH_CACHE"] = str(Path(folder, "cache"))
            write_voc(Path(folder))
            compare(Path(folder), arguments.epochs)


if __name__ == "__main__":
    main()
