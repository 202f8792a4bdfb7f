# %% [markdown]
# # I have a network
#
# Which explanation can be trusted for this network, on these images? An audit compares explainers with controls that do
# not use the network, and gives each a verdict.
#
# The network of this notebook is known by construction: it looks at a pattern in the top left corner and nothing else.
# So you can see whether the verdicts are right. Put your network and your images in their place.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import xaibench as xb

pattern = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]])
images = torch.rand(24, 1, 16, 16, generator=torch.Generator().manual_seed(0)) - 0.5
images[::2, 0, :4, :4] = 0.25 * pattern
labels = torch.tensor([0, 1] * 12)

network = nn.Sequential(nn.Flatten(), nn.Linear(256, 2))
corner = torch.zeros(16, 16)
corner[:4, :4] = 2 * pattern
network[1].weight.data = torch.stack([corner.flatten(), -corner.flatten()])
network[1].bias.data = torch.tensor([-4.0, 4.0])
print(f"accuracy {(network(images).argmax(1) == labels).float().mean():.2f}")

# %% [markdown]
# ## Two explanations
#
# Integrated Gradients uses the network. The second method is an edge filter, which looks like an explanation but
# ignores the network.


# %%
def edges(model, images, targets):
    return (images[:, 0] - images[:, 0].roll(1, 2)).abs()


methods = {"integrated gradients": "integrated_gradients", "edges": edges}
figure, axes = plt.subplots(2, 3, figsize=(8, 5), layout="constrained")
for row, image in zip(axes, images[:2], strict=True):
    row[0].imshow(image[0], cmap="gray")
    row[0].set_title("image", fontsize=10)
    for axis, (name, method) in zip(row[1:], methods.items(), strict=True):
        values = xb.explain(method, network, image[None], network(image[None]).argmax(1))[0]
        limit = float(abs(values).max()) or 1.0
        axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title(name, fontsize=10)
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## The audit
#
# It asks whether the output changes when marked pixels change (*intervention*), whether the map marks what decides
# the answer on images that are made from yours (*use*), and whether the map depends on the network and the class
# (*sanity*).

# %%
audit = xb.audit(network, images, labels, explainers=methods, classes=["tagged", "plain"], progress=False)
print(audit)

# %% [markdown]
# `audit.write("audit")` writes the evidence sheet, `audit.table()` returns the numbers as a data frame. On the command
# line: `xaibench audit net.py:network --images DIR`.

# %% [markdown]
# ## Conclusion
#
# Integrated Gradients is supported, the edge filter is refuted, and the audit finds the decisive region in the corner.

# %%
outcomes = {verdict.explainer: verdict.outcome for verdict in audit.verdicts}
assert outcomes == {"integrated gradients": "supported", "edges": "refuted"}
assert any("top left" in finding.text for finding in audit.findings)
print(outcomes)
