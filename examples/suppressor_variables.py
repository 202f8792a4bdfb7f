# %% [markdown]
# # Suppressor variables: a right classifier looks where there is no signal
#
# A saliency map is often read as "these pixels tell the class". For the simplest classifier of all, a linear one that
# is as good as can be, this reading is wrong: it puts weight on pixels that have nothing to do with the class, in
# order to cancel noise. Such pixels are called *suppressor variables*. Haufe et al. (2014, [*On the interpretation of
# weight vectors of linear models in multivariate neuroimaging*](https://doi.org/10.1016/j.neuroimage.2013.10.067))
# showed how to tell the *weights* of a linear classifier from the *pattern* of its signal; the CORR backgrounds of
# XAI-TRIS bring the effect into a benchmark.
#
# We look at it with two pixels, then with the 64 pixels of LIN-CORR, and ask what it does to explanations.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import xaibench as xb
from xaibench.explainers import PatternNet

# %% [markdown]
# ## Two pixels
#
# Pixel 1 holds the signal ±1 of the class, and noise. Pixel 2 holds the same noise, and no signal at all:
#
# $$x_1 = y + d, \qquad x_2 = d, \qquad y = \pm 1.$$
#
# The best classifier is $x_1 - x_2$: it takes the noise away, and what is left is the class. Its weights are $(1,-1)$,
# of equal size, though only the first pixel knows anything about the class.

# %%
rng = np.random.default_rng(0)
y = rng.choice([-1, 1], size=4000)
noise = 2 * rng.normal(size=y.size)
x = np.stack([y + noise, noise], axis=1)
weights = np.array([1.0, -1.0])
outputs = x @ weights


def accuracy(outputs, y):
    return (np.sign(outputs) == y).mean()


alone = accuracy(x[:, 0], y)
together = accuracy(outputs, y)
print(f"correlation of pixel 2 with the class   {np.corrcoef(x[:, 1], y)[0, 1]:6.3f}")
print(f"accuracy of pixel 1 alone               {alone:6.3f}")
print(f"accuracy of pixel 1 minus pixel 2       {together:6.3f}")

# %% [markdown]
# The *pattern* asks the question the other way round: how does each pixel change with what the classifier puts out?
# For a linear classifier it is the covariance of the pixels with the output,
#
# $$a \propto \mathrm{Cov}(x, w^\top x) = \Sigma w.$$
#
# It is $(1,0)$: the signal is in the first pixel.

# %%
pattern = np.array([np.cov(x[:, pixel], outputs)[0, 1] for pixel in (0, 1)])
pattern /= np.abs(pattern).max()
print("weights", weights, " pattern", pattern.round(2))

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for sign, color in ((-1, "tab:blue"), (1, "tab:orange")):
    shown = x[y == sign][:400]
    left.scatter(*shown.T, s=6, color=color, alpha=0.6, label=f"class {sign:+d}")
    middle.hist(x[y == sign, 0], bins=40, color=color, alpha=0.6)
    right.hist(outputs[y == sign], bins=np.linspace(-2.05, 2.05, 42), color=color, alpha=0.6)
for vector, name, place in ((weights, "weights", (3.2, -4.6)), (pattern, "pattern", (3.0, 0.7))):
    left.annotate("", xy=4 * vector, xytext=(0, 0), arrowprops={"width": 2, "headwidth": 8, "color": "black"})
    left.annotate(name, xy=place, weight="bold")
left.set(xlabel="pixel 1: signal + noise", ylabel="pixel 2: noise", title="Samples", xlim=(-7, 7), ylim=(-7, 7))
left.legend(loc="upper left", fontsize=8)
middle.set(xlabel="pixel 1", title=f"Pixel 1 alone: {alone:.0%} right")
right.set(xlabel="pixel 1 − pixel 2", title=f"With the suppressor: {together:.0%} right")
plt.show()

assert abs(np.corrcoef(x[:, 1], y)[0, 1]) < 0.05
assert alone < 0.75
assert together == 1.0
assert abs(pattern[1]) < 0.1

# %% [markdown]
# ## Sixty-four pixels
#
# LIN puts a T (class 0) or an L (class 1) on noise, always at the same two places: eight pixels carry the class, and
# they are the ground truth. In LIN-WHITE the noise of every pixel is its own. In LIN-CORR it is smoothed, so a pixel
# tells something about the noise of its neighbors: every background pixel beside a shape is a pixel 2.
#
# We train the one-layer network of the benchmark (`llr`) on both, with a signal of `alpha = 0.06` for CORR, some five
# times the paper's, so that the signal can be seen in a mean; the paper's own comes below.


# %%
def trained(data, epochs=300):
    model = xb.models.build("llr", in_shape=(1, 8, 8), num_classes=2)
    torch.nn.init.zeros_(model[0].weight)  # what both logits would start with in common, training leaves in them
    xb.models.fit(model, data.train, data.val, epochs=epochs, lr=0.004, seed=0, progress=False)
    return model


def weights_of(model):
    """What a pixel adds to the evidence for L and against T, [8, 8]."""
    (matrix,) = (parameter.detach().double().numpy() for parameter in model.parameters())
    return (matrix[1] - matrix[0]).reshape(8, 8)


def pattern_of(weights, split):
    """Cov(x, wᵀx), [8, 8]."""
    pixels = split.images.flatten(1).double().numpy()
    pixels -= pixels.mean(0)
    return (pixels.T @ (pixels @ weights.ravel()) / len(pixels)).reshape(8, 8)


def class_difference(split):
    """Mean of the L minus mean of the T, [8, 8]: the signal itself, as far as the samples show it."""
    images, targets = split.images[:, 0].double(), split.targets
    return (images[targets == 1].mean(0) - images[targets == 0].mean(0)).numpy()


sets = {
    "LIN-WHITE": xb.load("xai-tris/lin-white-8x8", seed=0),
    "LIN-CORR": xb.load("xai-tris/lin-corr-8x8", seed=0, alpha=0.06),
}
models = {name: trained(data) for name, data in sets.items()}
mask = sets["LIN-CORR"].test.masks[0].numpy()  # the same in every sample of LIN


def outlined(axis, picture, title):
    """Red is positive, blue negative, white zero; the line runs around the ground truth."""
    limit = np.abs(picture).max()
    axis.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.contour(np.kron(mask, np.ones((32, 32))), [0.5], extent=(-0.5, 7.5, -0.5, 7.5), colors="black", linewidths=1.5)
    axis.set(title=title, xticks=[], yticks=[])


def inside(picture):
    """Share of the magnitude that lies on the ground truth."""
    return np.abs(picture)[mask].sum() / np.abs(picture).sum()


figure, axes = plt.subplots(2, 5, figsize=(11, 4.9), layout="constrained")
shares = {}
for row, (name, data) in zip(axes, sets.items(), strict=True):
    weights = weights_of(models[name])
    pictures = {
        "class difference": class_difference(data.train),
        "weights": weights,
        "pattern": pattern_of(weights, data.train),
    }
    row[0].set_ylabel(f"{name}\n{xb.models.accuracy(models[name], data.test):.1%} right", fontsize=11)
    for axis, target in zip(row, (0, 1), strict=False):
        outlined(axis, data.test.images[data.test.targets == target][0, 0].numpy(), f"an image of {'TL'[target]}")
    for axis, (what, picture) in zip(row[2:], pictures.items(), strict=True):
        shares[name, what] = inside(picture)
        outlined(axis, picture, f"{what}\n{shares[name, what]:.0%} on the shapes")
plt.show()

# %% [markdown]
# In white noise weights and pattern agree: both are the two shapes. In correlated noise they part. Around every pixel
# of a shape the weights turn to the opposite sign: *take the neighborhood away from the pixel*, which is what $x_1 -
# x_2$ did. More than half of the weight lies off the shapes, and this classifier is right on every image. It is no
# worse for looking there; it is better.
#
# The pattern $\Sigma w$ undoes the filter and gives the shapes back.

# %%
assert shares["LIN-WHITE", "weights"] > 0.7
assert shares["LIN-CORR", "weights"] < 0.5
assert shares["LIN-CORR", "pattern"] > shares["LIN-CORR", "weights"] + 0.1
assert xb.models.accuracy(models["LIN-CORR"], sets["LIN-CORR"].test) > 0.99

# %% [markdown]
# ## One suppressor caught
#
# Take the pixel off the shapes that has the largest weight. Does it know the class? And what is it for? We compare it
# with the neighbors that do carry the signal.

# %%
data, weights = sets["LIN-CORR"], weights_of(models["LIN-CORR"])
row, column = np.unravel_index(np.argmax(np.abs(weights) * ~mask), mask.shape)
images, targets = data.train.images[:, 0].double().numpy(), data.train.targets.numpy()
with_class = np.array([np.corrcoef(pixel, targets)[0, 1] for pixel in images.reshape(len(images), -1).T]).reshape(8, 8)
neighbors = [(r, c) for r in range(row - 1, row + 2) for c in range(column - 1, column + 2)]
on_shape = next(place for place in neighbors if min(place) >= 0 and max(place) < 8 and mask[place])
with_neighbor = np.corrcoef(images[:, row, column], images[(slice(None), *on_shape)])[0, 1]
largest = np.abs(weights).max()
print(f"pixel ({row}, {column}): weight {weights[row, column] / largest:+.2f} of the largest")
print(f"its correlation with the class                    {with_class[row, column]:+.3f}")
print(f"its correlation with pixel {tuple(map(int, on_shape))} of a shape        {with_neighbor:+.3f}")
print(f"the weakest correlation of a shape pixel with it  {np.abs(with_class[mask]).min():.3f}")

assert abs(weights[row, column]) > 0.25 * largest
assert abs(with_class[row, column]) < 0.03 < np.abs(with_class[mask]).min()
assert with_neighbor > 0.9

# %% [markdown]
# ## How much the suppressors are worth
#
# The paper's LIN-CORR has `alpha = 0.0125`. There a shape cannot be seen by eye, and the best linear classifier of the
# eight pixels of the ground truth, the very pixels that a perfect explanation marks, can do little (for Gaussian
# pixels it has a closed form: $w = \Sigma^{-1} (\mu_1 - \mu_0)$). The network with the other 56 pixels, none of which
# knows the class, is right every time.


# %%
def accuracy_of_shapes_only(data):
    """Test accuracy of the best linear classifier of the ground truth's pixels."""
    shapes = {split: getattr(data, split).images[:, 0].double().numpy()[:, mask] for split in ("train", "test")}
    means = [shapes["train"][data.train.targets == target].mean(0) for target in (0, 1)]
    centered = shapes["train"] - np.stack(means)[data.train.targets]
    best = np.linalg.solve(centered.T @ centered / len(centered), means[1] - means[0])
    return accuracy((shapes["test"] - np.mean(means, 0)) @ best, 2 * data.test.targets.numpy() - 1)


rows = []
for alpha in (0.0125, 0.025, 0.05, 0.1):
    data = xb.load("xai-tris/lin-corr-8x8", seed=0, alpha=alpha)
    model = trained(data, epochs=150)
    weights = weights_of(model)
    rows.append(
        (
            alpha,
            accuracy_of_shapes_only(data),
            xb.models.accuracy(model, data.test),
            inside(weights),
            inside(pattern_of(weights, data.train)),
        )
    )

print("        accuracy from                share on the shapes of")
print(" alpha  shapes only   all pixels     weights   pattern")
for alpha, part, whole, of_weights, of_pattern in rows:
    print(f"{alpha:6.4f}  {part:11.3f}  {whole:11.3f}  {of_weights:10.2f}  {of_pattern:8.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
alphas = [row[0] for row in rows]
for axis, names, first in ((left, ("shapes only", "all pixels"), 1), (right, ("weights", "pattern"), 3)):
    for index, name in enumerate(names):
        axis.plot(alphas, [row[first + index] for row in rows], "o-", label=name)
    axis.set(xscale="log", xlabel="alpha (strength of the signal)", ylim=(0, 1.05))
    axis.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas], minor=False)
    axis.minorticks_off()
    axis.legend()
left.set_ylabel("test accuracy")
right.set_ylabel("share on the shapes")
plt.show()

assert rows[0][1] < 0.75
assert rows[0][2] > 0.98
assert all(of_weights < 0.5 for *_, of_weights, _ in rows)
assert rows[-1][4] > 0.7 > 0.3 > rows[0][4]

# %% [markdown]
# Two things to take from the table.
#
# - The weights' share on the shapes does not depend on the signal: the filter is a property of the *noise*.
# - The pattern is no magic. $\Sigma w$ is the signal plus whatever noise the output still holds, and at the paper's
#   alpha the signal in a pixel is a hundredth of its noise: what training left uncanceled drowns it. Patterns are as
#   good as the classifier is close to the best one, and as the samples are many.
#
# ## What this does to explanations
#
# An explanation that follows the weights is faithful to the network, and marks suppressors. The benchmark asks another
# question, *where is the information about the class?*, and counts them as false positives. So the same method, on
# classifiers that both are as good as they can be, scores lower in correlated noise.

# %%
methods = ("saliency", "integrated_gradients", "pattern_net")
scores = {}
figure, axes = plt.subplots(2, len(methods), figsize=(7, 5.2), layout="constrained")
print(f"{'mass on the shapes':<24}" + "".join(f"{name:>12}" for name in sets))
for index, method in enumerate(methods):
    for row, (name, data) in zip(axes, sets.items(), strict=True):
        images, masks, targets = data.test[:200]
        # signal="linear": the covariance formula above, for each class's logit.
        explainer = PatternNet(signal="linear").fit(models[name], [data.train.images]) if "net" in method else method
        maps = xb.explain(explainer, models[name], images, targets)
        scores[method, name] = xb.mass_accuracy(maps, masks)
        outlined(row[index], maps.abs().mean(0).numpy(), f"{method}\n{scores[method, name]:.2f}")
        row[0].set_ylabel(f"{name}\nmean |map| of 200", fontsize=10)
    print(f"{method:<24}" + "".join(f"{scores[method, name]:12.3f}" for name in sets))
plt.show()

# %% [markdown]
# ## Conclusion
#
# Off the shapes there is no information about the class, and yet the best classifier has to look there. Whoever reads
# a saliency map of it as "where the class is" is misled by a map that is true to the network. Methods that use the
# data's covariance, as PatternNet does, can tell signal from suppressor, where the signal is strong enough to be seen.

# %%
for method in ("saliency", "integrated_gradients"):
    assert scores[method, "LIN-CORR"] < scores[method, "LIN-WHITE"] - 0.2
assert scores["pattern_net", "LIN-CORR"] > scores["saliency", "LIN-CORR"] + 0.1
print("In correlated noise, saliency puts", f"{1 - scores['saliency', 'LIN-CORR']:.0%} of its mass on suppressors.")
