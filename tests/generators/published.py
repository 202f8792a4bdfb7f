"""A set of the processed Saliency-Bench release."""

import numpy as np
from generators.common import Expected, photograph
from generators.tables import blob, write_table
from PIL import Image

#: Where the set lies below ``root``, as ``published:<root>/Benchmarks/animals``.
PLACE = "Benchmarks/animals"
CLASSES = ("cat", "cattle", "wild_cat")
EACH = 11


def write(root, *, per_class=True):
    """One table for each class, or one for all; then names are unique over all classes."""
    rng = np.random.default_rng(8)
    folder = root / PLACE
    expected, rows = [], {label: [] for label in CLASSES}
    for label in CLASSES:
        (folder / "image" / label).mkdir(parents=True)
        for number in range(EACH):
            name = f"{number:05d}" if per_class else f"{label}_{number:05d}"
            name += ".png" if number % 3 == 0 else ".jpg"
            Image.fromarray(photograph(rng, 60, 80)).save(folder / "image" / label / name)
            mask = blob(rng)
            rows[label].append((name, mask))
            expected.append(Expected(f"image/{label}/{name}", label, mask))
        Image.fromarray(photograph(rng, 60, 80)).save(folder / "image" / label / f"{label}_unmarked.jpg")
        (folder / "image" / label / ".hidden.jpg").write_bytes(b"junk")
    (folder / "image" / ".ipynb_checkpoints").mkdir()
    if per_class:
        for label in CLASSES:
            write_table(folder / "attention_label" / f"{label}_attention.csv", rows[label], check=False)
    else:
        table = [row for label in CLASSES for row in rows[label]]
        write_table(folder / "attention_label" / "attention.csv", table, check=False)
    return expected
