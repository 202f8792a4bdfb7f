# %% [markdown]
# # Add an explainer
#
# You have an idea for a saliency method. An explainer here is any callable `(model, images, targets) -> maps`: images
# `[N, C, H, W]` in, maps `[N, H, W]` out, signed, larger magnitude = more important. Device, precision, evaluation
# mode and softmax are taken care of.
#
# We take one from a function of four lines to a row in a benchmark's leaderboard.

# %%
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import xaibench as xb

data = xb.load("xai-tris/xor-white-8x8", seed=0)
model = xb.published_network("xai-tris/xor-white-8x8", "mlp")
images, masks, targets = data.test[:200]
print(f"test accuracy {xb.models.accuracy(model, data.test):.1%}")

# %% [markdown]
# ## A function
#
# The idea: the gradient says what the network would react to, whether or not the image has it. Take it not at the
# image alone but averaged over *shrunken* copies of it, and keep only its magnitude. (Times the image, this would be
# Integrated Gradients.)
#
# `model(images)` is already the probability of each class; `targets` says which one to explain.


# %%
def path_gradient(model, images, targets, steps=10):
    total = torch.zeros_like(images)
    for scale in torch.linspace(0.1, 1, steps):
        inputs = (scale * images).requires_grad_()
        chosen = model(inputs).gather(1, targets[:, None]).sum()
        total += torch.autograd.grad(chosen, inputs)[0]
    return (total / steps).abs().sum(1)


maps = xb.explain(path_gradient, model, images, targets)
print(f"maps {tuple(maps.shape)}, {maps.dtype}: EMD performance {xb.emd_perf(maps, masks):.3f}")

# %% [markdown]
# What you get for nothing: your parameters are checked by name, wrong shapes and NaN are errors that say which sample,
# and another output can be explained than the probability.

# %%
for output in ("probability", "margin"):
    maps = xb.explain(path_gradient, model, images, targets, output=output, steps=20)
    print(f"of the {output:<12} EMD performance {xb.emd_perf(maps, masks):.3f}")
try:
    xb.explain(path_gradient, model, images, targets, step=20)
except TypeError as error:
    print(error)
try:
    xb.explain(lambda model, images, targets: images.flatten(1), model, images, targets)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Is it any good?
#
# Beside relatives and controls, on the same samples, with 95 % intervals. † marks what is not better than every
# control.

# %%
methods = {name: name for name in ("saliency", "integrated_gradients", "smoothgrad")}
result = xb.evaluate(
    {"path_gradient": path_gradient} | methods,
    data,
    model,
    metrics=["emd_perf", "topk_precision"],
    controls=["uniform", "input", "laplace", "sobel"],
    samples=200,
)
print(result)

# %% [markdown]
# ## Does it explain the network?
#
# A map can be right without looking at the network at all. Two checks ask for that. *Parameter randomization* compares
# the maps with those of the same network with random weights (rank correlation; 1 means that the weights do not
# matter). *Sensitivity* is how much a map changes when the image hardly does. Both take the explainer itself.

# %%
few = slice(0, 50)
checks = {}
for name, explainer in ({"path_gradient": path_gradient} | methods | {"laplace": "laplace"}).items():

    def method(model, images, targets, explainer=explainer):
        return xb.explain(explainer, model, images, targets)

    checks[name] = (
        xb.parameter_randomization(method, model, images[few], targets[few]),
        xb.sensitivity_max(method, model, images[few], targets[few], n_samples=5),
    )
    print(f"{name:<22} randomized weights {checks[name][0]:5.2f}   sensitivity {checks[name][1]:5.2f}")

# %% [markdown]
# ## To look at


# %%
def outlined(axis, picture, mask, title):
    """Red is positive, blue negative, white zero; the line runs around the ground truth."""
    picture, mask = np.asarray(picture), np.asarray(mask)
    limit = np.abs(picture).max()
    axis.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.contour(np.kron(mask, np.ones((32, 32))), [0.5], extent=(-0.5, 7.5, -0.5, 7.5), colors="black", linewidths=1.5)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)


figure, axes = plt.subplots(3, 6, figsize=(11, 6), layout="constrained")
for index, row in enumerate(axes):
    outlined(row[0], images[index, 0], masks[index], f"image: {data.classes[targets[index]]}")
    one = slice(index, index + 1)
    for axis, (name, explainer) in zip(row[1:], ({"path_gradient": path_gradient} | methods).items(), strict=False):
        outlined(axis, xb.explain(explainer, model, images[one], targets[one])[0], masks[index], name)
    outlined(row[5], xb.explain("laplace", model, images[one], targets[one])[0], masks[index], "laplace (control)")
plt.show()

# %% [markdown]
# ## In a suite
#
# A part of your own is named `"module:name"` wherever a name is. So put the function into a file that Python can
# import, name it in a suite, and it is a row in the report, in worker processes and on a cluster as well. A frozen
# dataclass with `__call__` does the same, and its fields are the parameters; that is how the built-in explainers are
# written.

# %%
folder = Path(tempfile.mkdtemp())
(folder / "my_explainers.py").write_text('''
from dataclasses import dataclass
import torch

@dataclass(frozen=True)
class PathGradient:
    """Mean gradient over shrunken copies of the image, in magnitude."""

    steps: int = 10

    def __call__(self, model, images, targets):
        total = torch.zeros_like(images)
        for scale in torch.linspace(0.1, 1, self.steps):
            inputs = (scale * images).requires_grad_()
            chosen = model(inputs).gather(1, targets[:, None]).sum()
            total += torch.autograd.grad(chosen, inputs)[0]
        return (total / self.steps).abs().sum(1)
''')
(folder / "mine.toml").write_text("""
name = "mine"
title = "My explainer beside its relatives"

[data]
parameters = { n_samples = 4000 }

[training]
seeds = [0]
epochs = 60

[explaining]
samples = 100

[[cells]]
datasets = ["xai-tris/xor-white-8x8", "xai-tris/xor-corr-8x8"]
models = ["mlp"]

[explainers]
saliency = {}
integrated_gradients = {}
mine = { use = "my_explainers:PathGradient", steps = 20 }
laplace = {}
uniform = {}

[metrics]
emd_perf = {}
topk_precision = {}
""")
sys.path.insert(0, str(folder))
run = xb.runner.run(folder / "mine.toml", folder / "run", engine="serial")
print("failed jobs:", len(run.failures))

# %% [markdown]
# The run folder holds the scores, figures and a page to open (`xaibench report` makes it; `xaibench run` does both).

# %%
page = xb.report.write_report(folder / "run")
scores = pd.read_csv(folder / "run" / "summary.csv")
emd = scores[scores["metric"] == "emd_perf"]
print(emd.pivot_table(index="explainer", columns="variant", values="mean").round(3).to_string())
print(f"report: {page.name}, {page.stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# ## Conclusion
#
# Four lines are an explainer, and tables say what they are worth. In white noise ours is better than every control,
# and it depends on the weights, which Laplace's map does not. In correlated noise the same method is behind Laplace,
# an edge filter that has never seen the network: there the shapes are the only sharp thing in a smooth image. One data
# set would have told half of it.
#
# If yours is to stay, `CONTRIBUTING.md` says how a part joins the library: one file, one line in a table, and the
# conformance tests that every explainer passes.

# %%
summary = result.summary().set_index(["metric", "method"])
means = emd.set_index(["variant", "explainer"])["mean"]
for metric in ("emd_perf", "topk_precision"):
    assert summary.loc[(metric, "path_gradient"), "beats_controls"]
assert checks["laplace"][0] > 0.99 > checks["path_gradient"][0]
assert not run.failures
assert means["white", "mine"] > means["white", "laplace"]
assert means["corr", "mine"] < means["corr", "laplace"]
print(f"white: {means['white', 'mine']:.3f} against Laplace's {means['white', 'laplace']:.3f}")
print(f"corr:  {means['corr', 'mine']:.3f} against Laplace's {means['corr', 'laplace']:.3f}")
