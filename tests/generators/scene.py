"""Scene with human masks; and the part of Places365 that its images come from."""

import numpy as np
from generators.common import photograph
from generators.marked import write_marked
from PIL import Image


def write(root):
    return write_marked(root / "places", ("nature", "urban"), seed=6)


#: Some of the categories, as Places365 spells and numbers them; the third to sixth must not be taken.
CATEGORIES = {
    "/m/mountain": (232, "nature"),
    "/f/field/wild": (141, "nature"),
    "/m/mountain_path": (233, None),
    "/f/field/cultivated": (140, None),
    "/b/bridge": (66, "urban"),
    "/s/street": (319, "urban"),
}
_OTHERS = {
    "/p/pond": 271, "/w/waterfall": 355, "/f/forest/broadleaf": 150, "/r/rainforest": 280, "/h/house": 183,
    "/c/campus": 77, "/t/tower": 334, "/d/driveway": 127,
}  # fmt: skip


def write_places(root, seed=0):
    """Places365 below ``root/places365``; ``{file: class}`` of the images that should be found."""
    rng = np.random.default_rng(seed)
    folder = root / "places365"
    found, val = {}, []
    for category, (number, label) in CATEGORIES.items():
        place = folder / "data_256_standard" / category[1:]
        place.mkdir(parents=True)
        for count in (1, 2):
            Image.fromarray(photograph(rng, 60, 60)).save(place / f"{count:08d}.jpg")  # names begin anew in each
            if label is not None:
                found[f"data_256_standard{category}/{count:08d}.jpg"] = label
        name = f"Places365_val_{number:08d}.jpg"
        val.append(f"{name} {number}")
        (folder / "val_256").mkdir(exist_ok=True)
        Image.fromarray(photograph(rng, 60, 60)).save(folder / "val_256" / name)
        if label is not None:
            found[f"val_256/{name}"] = label
    numbers = {category: number for category, (number, _) in CATEGORIES.items()} | _OTHERS
    lines = [f"{category} {number}" for category, number in sorted(numbers.items())]
    (folder / "categories_places365.txt").write_text("\n".join(lines) + "\n")
    (folder / "places365_val.txt").write_text("\n".join([*val, "Places365_val_99999999.jpg 232"]) + "\n")
    return found
