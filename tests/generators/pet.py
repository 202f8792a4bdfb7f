"""Oxford-IIIT Pet: trimaps, junk beside them, and files whose suffix is not the truth."""

import numpy as np
from generators.common import Expected, photograph
from PIL import Image

from xaibench.data.photographs.oxford_pet import BREEDS

HEIGHT, WIDTH = 60, 80
#: Images of a breed; its number is drawn with gaps, as in the set.
CHOSEN = {"Abyssinian": 8, "Maine_Coon": 6, "american_bulldog": 6, "beagle": 8}
FOREGROUND, BACKGROUND, BORDER = 1, 2, 3
#: How the file of an image is really written; a JPEG in RGB where nothing is said.
KINDS = {"Abyssinian_2": "png", "Abyssinian_5": "cmyk", "beagle_2": "gray", "beagle_5": "gif"}


def trimap(rng):
    labels = np.full((HEIGHT, WIDTH), BACKGROUND, dtype=np.uint8)
    top, left = rng.integers(5, 20), rng.integers(5, 30)
    bottom, right = top + rng.integers(15, 30), left + rng.integers(20, 40)
    labels[top - 3 : bottom + 3, left - 3 : right + 3] = BORDER
    labels[top:bottom, left:right] = FOREGROUND
    return labels


def save(image, file, kind):
    if kind == "png":
        image.convert("RGBA").save(file, format="PNG")
    elif kind == "gif":
        image.save(file, format="GIF")
    else:
        image.convert({"cmyk": "CMYK", "gray": "L"}.get(kind, "RGB")).save(file, format="JPEG", quality=95)


def line(name):
    breed = name.rpartition("_")[0]
    return f"{name} {BREEDS.index(breed) + 1} {1 if breed[0].isupper() else 2} 1"


def write(root):
    rng = np.random.default_rng(12)
    folder = root / "oxford-iiit-pet"
    trimaps = folder / "annotations" / "trimaps"
    (folder / "images").mkdir(parents=True)
    trimaps.mkdir(parents=True)
    names = [f"{breed}_{2 + 3 * n}" for breed, count in CHOSEN.items() for n in range(count)]
    expected = []
    for name in names:
        labels = trimap(rng)
        save(Image.fromarray(photograph(rng, HEIGHT, WIDTH)), folder / "images" / f"{name}.jpg", KINDS.get(name, "rgb"))
        Image.fromarray(labels).save(trimaps / f"{name}.png")
        (trimaps / f"._{name}.png").write_bytes(b"\0junk")
        expected.append(Expected(name, "cat" if name[0].isupper() else "dog", labels == FOREGROUND))
    # In the folder but not in the list.
    Image.fromarray(photograph(rng, HEIGHT, WIDTH)).save(folder / "images" / "beagle_116.jpg")
    (folder / "images" / "Abyssinian_101.mat").write_bytes(b"\0junk")
    head = ["#Image CLASS-ID SPECIES BREED ID", "#ID: 1:37 Class ids", "#BREED ID: 1-25:Cat 1:12:Dog"]
    (folder / "annotations" / "list.txt").write_text("\n".join([*head, *map(line, names)]) + "\n")
    for part, chosen in (("trainval", names[::2]), ("test", names[1::2])):
        (folder / "annotations" / f"{part}.txt").write_text("\n".join(map(line, chosen)) + "\n")
    return expected
