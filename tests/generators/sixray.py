"""SIXray: lists, boxes, and the traps of its download."""

import numpy as np
from generators.common import Expected, photograph
from PIL import Image

HEADER = "name,Gun,Knife,Wrench,Pliers,Scissors"
HEIGHT, WIDTH = 60, 80
#: image: the items that the lists name, boxes ``(name, xmin, ymin, xmax, ymax)`` or None for no annotation file.
POSITIVES = {
    "P00001": ("Gun", [("Gun", 11, 6, 30, 25)]),
    "P00002": ("Knife", [("knife", 1, 1, 10, 10), ("KNIFE", 5, 5, 20, 20)]),
    "P00003": ("Gun Knife", [("Gun", 11, 6, 30, 25), ("Knife", 41, 31, 50, 40)]),
    "P00004": ("", [("Hammer", 21, 11, 40, 30)]),  # no column
    "P00005": ("Wrench", None),
    "P00006": ("Pliers", []),  # a file without objects
    "P00007": ("Scissors", [("Scissors", 60, 40, 99, 99)]),  # over the edge
    "P00008": ("Gun", [("Gun ", 11.0, 6, 30, 25)]),
} | {f"P{n:05d}": ("Gun", [("Gun", n, 5, n + 20, 30)]) for n in range(9, 21)}
NEGATIVES = [f"N{n:07d}" for n in range(1, 25)]


def annotation(name, boxes, *, size=(WIDTH, HEIGHT)):
    objects = "".join(
        f"<object><name>{item}</name><pose>Unspecified</pose><bndbox><xmin>{left}</xmin><ymin>{top}</ymin>"
        f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
        for item, left, top, right, bottom in boxes
    )
    said = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>" if size else ""
    return f"<annotation><folder>ALL</folder><filename>{name}.jpg</filename>{said}{objects}</annotation>"


def union(boxes):
    """``[h, w]`` bool: a pixel is inside if its number, counted from 1, is between the corners."""
    rows, columns = np.mgrid[1 : HEIGHT + 1, 1 : WIDTH + 1]
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    for _, left, top, right, bottom in boxes:
        mask |= (columns >= left) & (columns <= right) & (rows >= top) & (rows <= bottom)
    return mask


def row(name):
    items = POSITIVES[name][0].split() if name in POSITIVES else []
    return ",".join([name, *("1" if item in items else "-1" for item in HEADER.split(",")[1:])])


def write_list(file, names):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([HEADER, *map(row, names)]) + "\n")


def write(root):
    rng = np.random.default_rng(7)
    folder = root / "SIXray"
    for place in ("JPEGImage", "Annotation"):
        (folder / place).mkdir(parents=True)
    for name in [*POSITIVES, *NEGATIVES]:
        Image.fromarray(photograph(rng, HEIGHT, WIDTH)).save(folder / "JPEGImage" / f"{name}.jpg", quality=90)
    for name, (_, boxes) in POSITIVES.items():
        if boxes is not None:
            (folder / "Annotation" / f"{name}.xml").write_text(annotation(name, boxes))
    (folder / "Annotation" / "._P00005.xml").write_bytes(b"\0junk")
    positives = list(POSITIVES)
    write_list(folder / "ImageSet" / "10" / "train.csv", [*positives[:10], *NEGATIVES[:8]])
    write_list(folder / "ImageSet" / "10" / "test.csv", [*positives[10:], *NEGATIVES[8:12]])
    write_list(folder / "ImageSet" / "1000" / "train.csv", [*positives[:3], *NEGATIVES[:16]])
    write_list(folder / "ImageSet" / "1000" / "test.csv", [*positives[3:5], *NEGATIVES[16:]])
    found = [Expected(name, "positive", union(boxes)) for name, (_, boxes) in POSITIVES.items() if boxes]
    return [*found, *(Expected(name, "negative", None) for name in NEGATIVES)]
