# %% [markdown]
# # Quick start
#
# *Is this saliency map right?* To answer, one needs images whose important pixels are known. Here they are known by
# construction: XAI-TRIS hides tetrominoes in noise, and nothing but the tetrominoes tells the classes apart.
#
# In a minute: load a data set, train a network, explain it, score the maps beside controls that know no network.

# %%
import matplotlib.pyplot as plt
import numpy as np

import xaibench as xb

# %% [markdown]
# ## A data set
#
# `xor-white-8x8` shows a T and an L in every image, each added to the noise or taken away from it. The class says
# whether both have the same sign, so no pixel by itself tells the class: a linear classifier is at 50 %.
#
# A sample is an image `[1, 8, 8]`, a mask `[8, 8]` (true = important) and a target.

# %%
data = xb.load("xai-tris/xor-white-8x8", seed=0)
print(data)
print("classes:", ", ".join(data.classes))


def outlined(axis, picture, mask, title):
    """Red is positive, blue negative, white zero; the line runs around the ground truth."""
    picture, mask = np.asarray(picture), np.asarray(mask)
    limit = np.abs(picture).max()
    axis.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.contour(np.kron(mask, np.ones((32, 32))), [0.5], extent=(-0.5, 7.5, -0.5, 7.5), colors="black", linewidths=1.5)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)


figure, axes = plt.subplots(1, 5, figsize=(11, 2.5), layout="constrained")
for axis, (image, mask, target) in zip(axes, data.test, strict=False):
    outlined(axis, image[0], mask, data.classes[target])
plt.show()

# %% [markdown]
# ## A network
#
# Any `torch.nn.Module` from images to logits will do. This is the small one of the paper, trained, as it comes with the
# library.

# %%
model = xb.published_network("xai-tris/xor-white-8x8", "mlp")
accuracy = xb.models.accuracy(model, data.test)
print(f"test accuracy {accuracy:.1%}")

# %% [markdown]
# ## Maps, and their scores
#
# `explain` gives signed maps `[N, 8, 8]` of any method; every metric takes `(maps, masks)`. Two that the paper uses:
# *precision* is the share of ground-truth pixels among the eight (as many as the mask has) of largest magnitude; *EMD
# performance* is 1 when the map's mass lies where the mask is, and falls with the distance that it would have to move.

# %%
images, masks, targets = data.test[:200]
maps = xb.explain("integrated_gradients", model, images, targets)
print(f"maps {tuple(maps.shape)}")
print(f"precision       {xb.topk_precision(maps, masks):.3f}")
print(f"EMD performance {xb.emd_perf(maps, masks):.3f}")
print("precision of the first five:", xb.topk_precision(maps, masks, reduction="none")[:5].tolist())

# %% [markdown]
# Are these numbers good? Alone they say little: the input itself has some mass on the shapes, and so has noise.
# `evaluate` scores several methods on the same samples beside such controls, with 95 % intervals, and marks with †
# what is not better than every control.

# %%
methods = ["integrated_gradients", "deeplift", "saliency", "lrp", "guided_backprop", "lime"]
controls = ["uniform", "input", "laplace", "sobel"]
result = xb.evaluate(
    {name: name for name in methods},
    data,
    model,
    metrics=["topk_precision", "emd_perf"],
    controls=controls,
    samples=200,
)
print(result)

# %% [markdown]
# And to look at: one image, and what each method makes of it.

# %%
shown = 3
few = slice(shown, shown + 1)
figure, axes = plt.subplots(2, 5, figsize=(11, 5), layout="constrained")
outlined(axes[0, 0], images[shown, 0], masks[shown], f"image: {data.classes[targets[shown]]}")
for axis, name in zip(axes.flat[1:], [*methods, "laplace", "uniform", "input"], strict=True):
    one = xb.explain(name, model, images[few], targets[few])
    outlined(axis, one[0], masks[shown], f"{name}\nprecision {xb.topk_precision(one, masks[few]):.2f}")
plt.show()

# %% [markdown]
# ## Conclusion
#
# On this network most gradient methods find the shapes, and more of them than any control does. The table says it with
# intervals, over 200 images, and that is what the picture of a single one cannot do.
#
# From here: [score your own maps](score_your_own_maps.py), [add an explainer](add_an_explainer.py), or run the whole
# benchmark: `xaibench run xai-tris-8x8`.

# %%
summary = result.summary().set_index(["metric", "method"])
precision = summary.loc["topk_precision", "mean"]
best_control = max(precision[name] for name in controls)
beaten = [name for name in methods if summary.loc[("topk_precision", name), "beats_controls"]]
print(f"best control: precision {best_control:.2f}; better than all controls: {', '.join(beaten)}")
assert accuracy > 0.97
assert precision["integrated_gradients"] > best_control + 0.2
assert len(beaten) >= 3
