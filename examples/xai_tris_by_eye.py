# %% [markdown]
# # XAI-TRIS by eye
#
# XAI-TRIS (Clark, Wilming and Haufe, [arXiv 2306.12816](https://arxiv.org/abs/2306.12816)) is a benchmark for saliency
# maps whose ground truth is known by construction. Before believing any score on it, look at it: what is in the
# images, what makes a scenario hard, and how far the eye can be trusted with the maps.

# %%
import matplotlib.pyplot as plt
import numpy as np

import xaibench as xb

SCENARIOS = ("lin", "mult", "rigid", "xor")


def outlined(axis, picture, mask, title=""):
    """Red is positive, blue negative, white zero; the line runs around the ground truth."""
    picture, mask = np.asarray(picture), np.asarray(mask)
    limit = np.abs(picture).max() or 1
    side = len(mask)
    axis.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    if mask.any():
        fine = np.kron(mask, np.ones((256 // side, 256 // side)))
        axis.contour(fine, [0.5], extent=(-0.5, side - 0.5, -0.5, side - 0.5), colors="black", linewidths=1)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=9)


# %% [markdown]
# ## Four scenarios, two backgrounds
#
# A T and an L, laid on white noise (every pixel by itself) or on correlated noise (smoothed). The line is the ground
# truth: the only pixels that carry the class. Where both places are fixed, both belong to it in every image: that the
# L is absent tells as much as that the T is there.
#
# | | class 0 | class 1 | what it takes |
# |---|---|---|---|
# | LIN | T | L | a weighted sum of pixels |
# | MULT | T | L, which dims the noise instead of adding to it | the size of a pixel, not its sign |
# | RIGID | T | L, turned and moved | a detector for shapes anywhere |
# | XOR | both shapes of the same sign | of opposite signs | a product of two places |
#
# At 64×64 pixels, with the paper's signal strength: can you see the shapes?

# %%
figure, axes = plt.subplots(2, 8, figsize=(13, 3.9), layout="constrained")
for row, background in zip(axes, ("white", "corr"), strict=True):
    row[0].set_ylabel(background.upper())
    for index, scenario in enumerate(SCENARIOS):
        data = xb.load(f"xai-tris/{scenario}-{background}-64x64", seed=0, n_samples=100)
        for target in (0, 1):
            image, mask, _ = data.test[int((data.test.targets == target).nonzero()[0])]
            title = f"{scenario.upper()}: {data.classes[target]}"
            outlined(row[2 * index + target], image[0], mask, title)
plt.show()

# %% [markdown]
# In LIN, MULT and XOR hardly; a network can, from thousands. In RIGID the shape stands out: what is hard there is to
# tell which of the two it is, wherever it lies. `alpha` sets how strong the signal is, from noise alone (0) to the
# shapes alone (1).

# %%
alphas = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
figure, axes = plt.subplots(1, len(alphas), figsize=(11, 2.2), layout="constrained")
for axis, alpha in zip(axes, alphas, strict=True):
    image, mask, _ = xb.load("xai-tris/lin-corr-64x64", seed=0, n_samples=100, alpha=alpha).test[0]
    outlined(axis, image[0], mask, f"LIN-CORR, alpha {alpha:g}")
plt.show()

# %% [markdown]
# ## What a mean can see, and what it cannot
#
# Take the mean image of class 1 minus that of class 0, at 8×8 pixels (each picture is scaled to its own maximum). In
# LIN it *is* the answer. In MULT, RIGID and XOR it shows nothing but what is left of the noise: these need more than a
# weighted sum of pixels. A linear classifier is as blind as the mean is, and a network with hidden layers is not.

# %%
sets = {scenario: xb.load(f"xai-tris/{scenario}-white-8x8", seed=0) for scenario in SCENARIOS}
networks, accuracies = {}, {}
for scenario, data in sets.items():
    for name, epochs in (("llr", 30), ("mlp", 150)):
        model = xb.models.build(name, in_shape=(1, 8, 8), num_classes=2, seed=0)
        rate = 0.004 if scenario != "rigid" else 0.002
        xb.models.fit(model, data.train, data.val, epochs=epochs, lr=rate, seed=0, progress=False)
        networks[scenario, name] = model
        accuracies[scenario, name] = xb.models.accuracy(model, data.test)

figure, axes = plt.subplots(1, 4, figsize=(11, 3.3), layout="constrained")
for axis, (scenario, data) in zip(axes, sets.items(), strict=True):
    images, targets = data.train.images[:, 0], data.train.targets
    difference = images[targets == 1].mean(0) - images[targets == 0].mean(0)
    mask = data.test.masks.all(0)  # RIGID's moves, so there is none for all images
    linear, layered = accuracies[scenario, "llr"], accuracies[scenario, "mlp"]
    outlined(axis, difference, mask, f"{scenario.upper()}\nlinear {linear:.0%}, network {layered:.0%}")
plt.show()

# %%
assert accuracies["lin", "llr"] > 0.85
assert all(accuracies[scenario, "llr"] < 0.6 for scenario in ("mult", "xor"))
assert all(accuracies[scenario, "mlp"] > 0.8 for scenario in SCENARIOS)

# %% [markdown]
# ## Maps by eye, and by number
#
# One test image of each scenario, the maps of four methods and of two controls that know no network: Laplace (an edge
# filter) and the input itself. Above each map its precision: the share of true pixels among the strongest.
#
# First look, then read. Which rows would you have called good explanations?

# %%
methods = ("integrated_gradients", "saliency", "lrp", "shapley_sampling", "laplace", "input")
figure, axes = plt.subplots(4, 7, figsize=(11, 7), layout="constrained")
seen, mean = {}, {}
for row, (scenario, data) in zip(axes, sets.items(), strict=True):
    model = networks[scenario, "mlp"]
    images, masks, targets = data.test[:100]
    outlined(row[0], images[0, 0], masks[0], f"image: {data.classes[targets[0]]}")
    row[0].set_ylabel(scenario.upper())
    for axis, name in zip(row[1:], methods, strict=True):
        maps = xb.explain(name, model, images, targets)
        scores = xb.topk_precision(maps, masks, reduction="none")
        seen[scenario, name], mean[scenario, name] = float(scores[0]), float(scores.nanmean())
        outlined(axis, maps[0], masks[0], f"{name.replace('_', ' ')}\n{seen[scenario, name]:.2f}")
plt.show()

# %% [markdown]
# The mean over 100 images beside the one you saw:

# %%
print(f"{'':<22}" + "".join(f"{scenario.upper():>18}" for scenario in SCENARIOS))
print(f"{'':<22}" + f"{'seen':>12}{'mean':>6}" * len(SCENARIOS))
for name in methods:
    cells = "".join(f"{seen[scenario, name]:12.2f}{mean[scenario, name]:6.2f}" for scenario in SCENARIOS)
    print(f"{name:<22}{cells}")

gaps = [abs(seen[key] - mean[key]) for key in seen]
print(f"\nlargest difference between the image you saw and the mean: {max(gaps):.2f}")

# %% [markdown]
# ## Conclusion
#
# - The signal is too weak to be seen (or, in RIGID, is plain, and the class is not), and all but one scenario are out
#   of a linear classifier's reach.
# - One image misjudges a method by as much as the methods differ among each other, so maps are scored over many.
# - In RIGID the *input itself* reaches a precision of 1: the shape is the strongest thing in the image, and whatever
#   copies the image is right. A method that scores 0.9 there has not shown that it explains anything. This is why
#   every table here has controls in it.

# %%
for scenario in SCENARIOS:
    best = max(mean[scenario, name] for name in methods[:4])
    control = max(mean[scenario, name] for name in methods[4:])
    print(f"{scenario.upper():<6} best method {best:.2f}, best control {control:.2f}")
assert max(gaps) > 0.2
assert mean["xor", "integrated_gradients"] > mean["xor", "laplace"] + 0.2
assert mean["rigid", "input"] > 0.98 > mean["lin", "input"] + 0.5
