# %% [markdown]
# # Score your own maps
#
# You have saliency maps already: from another library, another language, a colleague's hard disk. Nothing here asks
# how they were made. What is needed is an array `[N, H, W]`, one map a sample in the order of a data set's split.
#
# We do it in three ways: with a function on two arrays, beside controls in a table, and from a file on the command
# line; first on a set that is generated here, at the end on images and masks of your own.

# %%
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from scipy import ndimage

import xaibench as xb

data = xb.load("xai-tris/rigid-white-64x64", seed=0, n_samples=2000, alpha=0.3)
images, masks, targets = data.test[:50]
print(f"{len(images)} images {tuple(images.shape[1:])}, masks {tuple(masks.shape[1:])}")

# %% [markdown]
# For this notebook's maps we take two that need no network. *Blob* blurs the image to the size of a shape's limbs, and
# takes off its mean. *Edges* is the magnitude of the image's gradient. Put yours in their place.

# %%
pixels = images[:, 0].numpy()
blob = ndimage.gaussian_filter(pixels, (0, 2.5, 2.5)) - pixels.mean((1, 2), keepdims=True)
edges = np.hypot(*np.gradient(pixels, axis=(1, 2)))
print("blob:", blob.shape, blob.dtype, f"{blob.min():.2f} to {blob.max():.2f}")

# %% [markdown]
# ## One number, or one for each map
#
# Every metric with a ground truth is called as `metric(maps, masks)`. Arrays of NumPy and tensors of torch both do.

# %%
for metric in (xb.topk_precision, xb.mass_accuracy, xb.roc_auc):
    print(f"{metric.__name__:<16} blob {metric(blob, masks):.3f}   edges {metric(edges, masks):.3f}")

each, of_edges = (xb.topk_precision(maps, masks, reduction="none") for maps in (blob, edges))
worst, best = int(np.nanargmin(each)), int(np.nanargmax(each))


def show(axis, picture, mask, title):
    """Bright is large in magnitude; the line runs around the ground truth."""
    axis.imshow(np.abs(picture), cmap="gray")
    axis.contour(np.asarray(mask), [0.5], colors="tab:orange", linewidths=1.5)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)


figure, axes = plt.subplots(2, 3, figsize=(8, 5.6), layout="constrained")
for row, index, word in ((axes[0], best, "best"), (axes[1], worst, "worst")):
    show(row[0], pixels[index] - pixels.min(), masks[index], f"{word} for blob: image {index}")
    show(row[1], blob[index], masks[index], f"|blob|, precision {each[index]:.2f}")
    show(row[2], edges[index], masks[index], f"|edges|, precision {of_edges[index]:.2f}")
plt.show()

# %% [markdown]
# ## Three things that quietly change a score
#
# **The sign.** Maps are signed, and metrics of rank and mass take the magnitude: a strong minus is strong. If minus
# means *against the class* in yours and should not count, cut it off before: `maps.clip(0)`.
#
# **The threshold.** IoU, precision, recall and F1 cut the map in two at a value. Nothing scales the map for you, so a
# threshold of 0.5 means 0.5 of *your* units. `threshold="area"` marks as many pixels as the mask has, on any scale.
#
# **What is undefined.** A map that is zero everywhere points nowhere. It scores `nan`, not 0, and means leave it out:
# look at how many were scored.

# %%
positive = blob.clip(0)
print(f"sign       all {xb.mass_accuracy(blob, masks):.3f}, positive part only {xb.mass_accuracy(positive, masks):.3f}")
largest = np.abs(blob).max((1, 2), keepdims=True)
print(
    f"threshold  IoU at 0.5 of the values {xb.iou(blob, masks, threshold=0.5):.3f}, "
    f"at 0.5 of each map's largest {xb.iou(np.abs(blob) / largest, masks, threshold=0.5):.3f}, "
    f"at the mask's area {xb.iou(np.abs(blob), masks, threshold='area'):.3f}"
)
broken = blob.copy()
broken[:10] = 0
scores = xb.mass_accuracy(broken, masks, reduction="none")
print(
    f"undefined  {np.isnan(scores).sum()} of {len(scores)} maps are zero; mean of the others {np.nanmean(scores):.3f}"
)
assert np.isnan(scores).sum() == 10
assert xb.mass_accuracy(positive, masks) > xb.mass_accuracy(blob, masks)

# %% [markdown]
# ## In a table, beside controls
#
# `evaluate` takes maps as they are and sets them beside controls that know no network. IoU and its kin see each map
# stretched to [0, 1] and cut in the middle: stated once, the same for every row. † marks what is not better than every
# control. *Edges* get it, and no wonder: the control Sobel is much the same thing.

# %%
metrics = ["iou", "topk_precision", "hit", "roc_auc"]
result = xb.evaluate({"blob": blob, "edges": edges}, data, metrics=metrics, samples=len(images))
print(result)

# %% [markdown]
# Which differences are more than chance? `compare` tests every pair on the same samples.

# %%
tests = result.compare("topk_precision")
pair = tests[(tests["first"] == "blob") & (tests["second"] == "edges")].iloc[0]
print(
    f"blob minus edges: {pair.difference:+.3f} [{pair.low:+.3f}, {pair.high:+.3f}], p = {pair.p_holm:.2g} after Holm, "
    f"{pair.n_valid} images"
)

# %% [markdown]
# ## Your own images and masks, from the command line
#
# A folder of images with a mask for each is a data set too, `folder:DIR`:
#
#     mine/image/<class>/<name>.png
#     mine/mask/<class>/<name>.png      every pixel but black is important
#
# We write a dozen of ours into such a folder, and ask `xaibench score` for a template: it holds the ids of the samples
# in their order, their files, and a place for each map. Sets of photographs are read at 224×224 pixels, and the maps
# must have that size; resizing them is yours to do, because it is a choice.

# %%
folder = Path(tempfile.mkdtemp())
for index in range(12):
    gray = 255 * (pixels[index] - pixels.min()) / (pixels.max() - pixels.min())
    for kind, picture in (("image", gray), ("mask", 255 * masks[index].numpy())):
        place = folder / "mine" / kind / data.classes[targets[index]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(picture)).save(place / f"{index:03}.png")


def xaibench(*arguments):
    """What you would type in a terminal: xaibench score maps.npz --dataset folder:mine ..."""
    command = [sys.executable, "-m", "xaibench", *arguments]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


xaibench("score", "maps.npz", "--dataset", "folder:mine", "--split", "all", "--template")
template = dict(np.load(folder / "maps.npz"))
print({name: array.shape for name, array in template.items()})
print("first sample:", template["ids"][0])

# %%
for index, name in enumerate(template["ids"]):
    number = int(Path(str(name)).stem)
    small = Image.fromarray(blob[number].astype(np.float32))
    template["maps"][index] = np.asarray(small.resize((224, 224), Image.Resampling.BILINEAR))
np.savez_compressed(folder / "maps.npz", **template)

command = ["score", "maps.npz", "--dataset", "folder:mine", "--split", "all", "--metrics", "iou,topk_precision,hit"]
printed = xaibench(*command, "--out", "scores.csv")
print(printed)

# %% [markdown]
# ## Conclusion
#
# Maps from anywhere are scored by a function on two arrays; whether a score means something is told by the controls
# beside it. Here a blur that has never seen a network finds the shapes better than any of them. It is right about
# *where the shape is*, and explains nothing about any classifier: the benchmark says whether a map marks what carries
# the class, not how it came to do so.

# %%
summary = result.summary().set_index(["metric", "method"])
blob_row, edge_row = (summary.loc[("topk_precision", name)] for name in ("blob", "edges"))
print(f"precision: blob {blob_row['mean']:.2f}, edges {edge_row['mean']:.2f}")
assert blob_row["beats_controls"]
assert not edge_row["beats_controls"]
assert pair.difference > 0.1
assert pair.p_holm < 0.01
with open(folder / "scores.csv") as file:
    assert sum(1 for _ in file) > 12
shutil.rmtree(folder)
