"""Gender with human masks; and the part of MS COCO that its images come from."""

import json

import numpy as np
from generators.common import photograph
from generators.marked import write_marked
from PIL import Image


def write(root):
    return write_marked(root / "gender_data", ("men", "women"), seed=5)


#: number: captions, people in the image (a crowd as "crowd"), class. The rest of the sentence is the rule it tests.
PEOPLE = {
    1: (["A man on a horse.", "Someone rides."], 1, "men"),
    2: (["Woman with an umbrella"], 1, "women"),
    3: (["A man and a woman."], 1, None),  # both, though only one is outlined
    4: (["A man.", "A girl with a kite."], 1, None),  # another word for the other gender
    5: (["Two men talking."], 2, None),  # two people
    6: (["Men at work."], 1, "men"),  # the paper's own term
    7: (["A dog."], 0, None),
    8: (["A woman in a crowd."], "crowd", None),
    9: (["The human and the mannequin."], 1, None),  # 'man' inside of words
    10: (["A man at a desk."], 0, None),  # nobody is outlined: not recognizable
    11: (["A woman."], 1, "women"),  # not on disk
}
NOT_ON_DISK = 11


def write_coco(root, part="val2017", *, persons=True, seed=0):
    """One part of COCO below ``root/coco``; ``{file: class}`` of the images that should be found."""
    rng = np.random.default_rng(seed)
    folder = root / "coco"
    (folder / part).mkdir(parents=True)
    (folder / "annotations").mkdir(exist_ok=True)
    images, captions, outlines, found = [], [], [], {}
    for number, (texts, people, label) in PEOPLE.items():
        name = f"COCO_{part}_{number:012d}.jpg" if part.endswith("2014") else f"{number:012d}.jpg"
        images.append({"id": number, "file_name": name})
        captions += [{"image_id": number, "id": len(captions) + n, "caption": text} for n, text in enumerate(texts)]
        crowd = people == "crowd"
        outlines += [{"image_id": number, "category_id": 1, "iscrowd": int(crowd)}] * (1 if crowd else people)
        outlines.append({"image_id": number, "category_id": 18, "iscrowd": 0})
        if number != NOT_ON_DISK:
            Image.fromarray(photograph(rng, 60, 80)).save(folder / part / name)
            if label is not None:
                found[f"{part}/{name}"] = label
    lists = {"captions": captions, "instances": outlines} if persons else {"captions": captions}
    for kind, annotations in lists.items():
        text = json.dumps({"images": images, "annotations": annotations})
        (folder / "annotations" / f"{kind}_{part}.json").write_text(text)
    return found
