"""An ImageFolder ``{train,val,test}/<class>/`` with human masks, as gender and scene have them."""

import numpy as np
from generators.common import Expected, photograph
from generators.tables import blob, write_table
from PIL import Image

#: Images of each class in train, val and test.
COUNTS = {"train": 8, "val": 3, "test": 3}


def write_marked(folder, classes, seed):
    """The set below ``folder``; what it holds with its default parameters."""
    rng = np.random.default_rng(seed)
    expected, factual, counterfactual = [], [], []
    for part, count in COUNTS.items():
        for label in classes:
            place = folder / part / label
            place.mkdir(parents=True)
            for number in range(count):
                name = f"{label}_{part}_{number:012d}"
                Image.fromarray(photograph(rng, 60, 80)).save(place / f"{name}.jpg", quality=90)
                mask = blob(rng)
                factual.append((name, mask))
                counterfactual.append((name, ~mask))
                expected.append(Expected(f"{part}/{label}/{name}.jpg", label, mask))
            # One that nobody marked, one whose mask was found bad, and no image at all.
            Image.fromarray(photograph(rng, 60, 80)).save(place / f"{label}_{part}_unmarked.jpg")
            Image.fromarray(photograph(rng, 60, 80)).save(place / f"{label}_{part}_bad.jpg")
            factual.append((f"{label}_{part}_bad", blob(rng), "bad"))
            (place / ".DS_Store").write_bytes(b"\0junk")
            (place / "Thumbs.db").write_bytes(b"\0junk")
            (place / f"._{label}.jpg").write_bytes(b"\0junk")
    write_table(folder / "attention_label" / "factual_1.csv", factual[::2])
    write_table(folder / "attention_label" / "factual_2.csv", factual[1::2])
    write_table(folder / "attention_label" / "Counterfactual.csv", counterfactual)
    (folder / "attention_label" / "._factual_1.csv").write_bytes(b"\0junk")
    return expected
