"""CelebAMask-HQ: images twice the size of their masks, folders of 2,000 numbers, one attribute file."""

import numpy as np
from generators.common import Expected, photograph
from PIL import Image

SIDE, MASK_SIDE = 128, 64
#: More numbers than one folder holds.
WEARING = [*range(0, 24, 2), *range(1990, 2010, 2)]
WITHOUT = [number + 1 for number in WEARING]
#: Faces whose masks contradict the attribute, or show one eye.
NOT_DRAWN, DRAWN_BUT_WITHOUT, NO_EYES, ONE_EYE = 4, 5, 7, 9
NAMES = ["5_o_Clock_Shadow", "Eyeglasses", "Male", "Young"]


def part(rng, left, right):
    """``[h, w]`` uint8 0 or 255: a bar between two columns."""
    mask = np.zeros((MASK_SIDE, MASK_SIDE), dtype=np.uint8)
    top = rng.integers(20, 28)
    mask[top : top + rng.integers(6, 12), left:right] = 255
    return mask


def attributes(rows, names=NAMES):
    lines = [str(len(rows)), " ".join(names)]
    return "\n".join([*lines, *(f"{n}.jpg  -1 {'1' if wearing else '-1'} 1 -1" for n, wearing in rows)]) + "\n"


def write(root):
    rng = np.random.default_rng(13)
    folder = root / "CelebAMask-HQ"
    (folder / "CelebA-HQ-img").mkdir(parents=True)
    expected = []
    for number in sorted([*WEARING, *WITHOUT]):
        Image.fromarray(photograph(rng, SIDE, SIDE)).save(folder / "CelebA-HQ-img" / f"{number}.jpg", quality=90)
        wearing = number in WEARING
        drawn = {"eye_g": part(rng, 6, 58)} if wearing else {}
        if number == NOT_DRAWN:
            drawn = {}
        if number == DRAWN_BUT_WITHOUT:
            drawn["eye_g"] = part(rng, 6, 58)
        if number != NO_EYES:
            drawn["l_eye"] = part(rng, 10, 25)
            if number != ONE_EYE:
                drawn["r_eye"] = part(rng, 40, 55)
        place = folder / "CelebAMask-HQ-mask-anno" / str(number // 2000)
        place.mkdir(parents=True, exist_ok=True)
        for name, mask in {**drawn, "skin": part(rng, 0, 64)}.items():
            # Some files of the set have a palette or colors; what counts is what is not black.
            Image.fromarray(mask).convert("RGB" if number % 3 else "L").save(place / f"{number:05}_{name}.png")
        if number in (NOT_DRAWN, DRAWN_BUT_WITHOUT, NO_EYES):
            continue
        masks = [drawn["eye_g"]] if wearing else [drawn[name] for name in ("l_eye", "r_eye") if name in drawn]
        expected.append(Expected(str(number), "glasses" if wearing else "no_glasses", np.any(masks, axis=0)))
    (folder / "CelebAMask-HQ-mask-anno" / ".DS_Store").write_bytes(b"\0junk")
    (folder / "CelebAMask-HQ-mask-anno" / "0" / "._00001_eye_g.png").write_bytes(b"\0junk")
    rows = [(number, number in WEARING) for number in sorted([*WEARING, *WITHOUT])]
    (folder / "CelebAMask-HQ-attribute-anno.txt").write_text(attributes(rows))
    return expected
