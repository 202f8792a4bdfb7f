"""A set of the user's own: images and mask images."""

import numpy as np
from generators.common import Expected, photograph, rectangle
from PIL import Image

CLASSES = ("healthy", "ill")
PATIENTS = 12


def write(root):
    """``folder:<root>``: two images of each of 12 patients a class; the masks of the healthy are all 0."""
    rng = np.random.default_rng(9)
    expected, groups = [], ["file,group"]
    for label in CLASSES:
        for place in ("image", "mask"):
            (root / place / label).mkdir(parents=True)
        for number in range(2 * PATIENTS):
            name = f"{label}.v{number}"  # a dot in the name
            suffix = ".JPG" if number % 2 else ".png"
            Image.fromarray(photograph(rng, 60, 80)).save(root / "image" / label / f"{name}{suffix}")
            mask = rectangle(rng, 60, 80) if label == "ill" else np.zeros((60, 80), dtype=bool)
            Image.fromarray(mask.astype(np.uint8) * (1 if number % 3 else 255)).save(
                root / "mask" / label / f"{name}.png"
            )
            expected.append(Expected(f"image/{label}/{name}{suffix}", label, mask))
            groups.append(f"{label}/{name}{suffix},{label}-{number // 2}")
        Image.fromarray(photograph(rng, 60, 80)).save(root / "image" / label / "unmarked.jpg")
    (root / "groups.csv").write_text("\n".join(groups) + "\n")
    return expected
