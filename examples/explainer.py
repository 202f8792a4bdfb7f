# %% [markdown]
# # I have an explainer
#
# Is my saliency method better than the known ones and the controls? An explainer is any callable
# `(model, images, targets) -> maps` with images `[N, C, H, W]` and signed maps `[N, H, W]`; a larger magnitude is more
# important. The library handles device, precision, evaluation mode and softmax.
#
# This notebook goes from a function of a few lines to a row in the table of a benchmark.

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
# The example averages the gradient over scaled copies of the image and takes its magnitude. (Times the image, this is
# Integrated Gradients.) `model(images)` returns the probability of each class; `targets` are the classes to explain.


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
# ## Compare it
#
# Similar methods and controls are scored on the same samples, with 95 % intervals. † marks methods that are not better
# than every control.

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
# ## Check that it depends on the network
#
# A map can be correct without using the network. *Parameter randomization* compares the maps with the maps of the
# same network with random weights (rank correlation; 1: the weights do not matter). *Sensitivity* is the change of a
# map when a little noise is added to the image.

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
# ## Look at maps


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
# `"module:name"` selects your own part wherever a name is accepted. Put the function into a file that Python can
# import, name it in a suite, and it becomes a row in the report. The fields of a frozen dataclass with `__call__` are
# parameters; the built-in explainers are written in this way.

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
title = "My explainer and similar ones"

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
# The run folder has the scores and figures; `write_report` adds the report page, as `xaibench run` does.

# %%
page = xb.report.write_report(folder / "run")
scores = pd.read_csv(folder / "run" / "summary.csv")
emd = scores[scores["metric"] == "emd_perf"]
print(emd.pivot_table(index="explainer", columns="variant", values="mean").round(3).to_string())
print(f"report: {page.name}, {page.stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# ## Conclusion
#
# In white noise this explainer is better than every control, and it depends on the weights, unlike Laplace's map. In
# correlated noise it is behind Laplace, an edge filter that does not use the network: there, the shapes are the only
# sharp edges. One data set is not enough for a conclusion.

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
