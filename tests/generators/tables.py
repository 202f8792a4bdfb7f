"""Tables of masks that people drew: ``attention_label/*.csv``."""

import csv
import json

import numpy as np

SIDE = 224


def blob(rng):
    """``[224, 224]`` bool: a rectangle."""
    mask = np.zeros((SIDE, SIDE), dtype=bool)
    top, left = rng.integers(0, 120, 2)
    mask[top : top + rng.integers(30, 100), left : left + rng.integers(30, 100)] = True
    return mask


def write_table(file, rows, *, check=True):
    """``rows`` are ``(img_idx, mask)`` or ``(img_idx, mask, img_check)``; with ``check=False`` as in the release."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["img_idx", "attention", *(["img_check", "matrix_resize"] if check else [])])
        for name, mask, *checked in rows:
            text = mask if isinstance(mask, str) else json.dumps(np.asarray(mask).astype(int).tolist())
            table.writerow([name, text, *([*(checked or ["good"]), "[7, 7]"] if check else [])])
