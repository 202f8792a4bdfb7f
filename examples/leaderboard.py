# %% [markdown]
# # I compare methods
#
# Which methods hold up, and how sure is that? The leaderboard of this library is a folder of results that anybody can
# check and run again. This notebook checks some of them, compares them with a control, and builds the site.

# %%
import shutil
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import xaibench as xb

published = Path("leaderboard/results")  # in a clone of the repository
if not published.exists():
    published = Path(__file__).parent / published
METHODS = ("saliency", "integrated_gradients", "shapley_sampling", "lime", "laplace", "uniform")

# %% [markdown]
# ## A repository with a few results
#
# A result is the folder `METHOD/SUITE@VERSION` with `result.json` and the score of every sample.

# %%
folder = Path(tempfile.mkdtemp())
for name in METHODS:
    (found,) = (published / name).glob("xai-tris-8x8@*")
    shutil.copytree(found, folder / "results" / name / found.name)
shutil.copytree(published / "suites" / found.name, folder / "results" / "suites" / found.name)
problems = {name: xb.leaderboard.check(folder / "results" / name / found.name) for name in METHODS}
print("problems:", problems)

# %% [markdown]
# `xaibench results verify` runs a method again and compares the scores.
#
# ## Compare with an edge filter
#
# Laplace is a control: it does not use the network. Mean EMD performance per network and background (in results of
# this version `correct` marks the samples that count; in later ones, that is `scored`):

# %%
files = (folder / "results" / name / found.name / "scores.parquet" for name in METHODS)
columns = ["subset", "variant", "model", "explainer", "metric", "value", "correct"]
scores = pd.concat([pd.read_parquet(file, columns=columns).astype({"explainer": str}) for file in files])
emd = scores[scores["correct"] & (scores["metric"] == "emd_perf")]
means = emd.groupby(["variant", "subset", "model", "explainer"], observed=True)["value"].mean().unstack()
print(means.round(2).to_string())

above = means.drop(columns=["laplace", "uniform"]).gt(means["laplace"], axis=0)
share = above.groupby(level="variant", observed=True).mean()
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
share.T.plot.barh(ax=axis, color=["#0072b2", "#d55e00"])
axis.set(xlabel="share of networks on which the method scores above the Laplace filter", ylabel="", xlim=(0, 1))
plt.show()

# %% [markdown]
# ## The site
#
# `write_site` writes leaderboards with intervals and tests, a page per method, and downloads. It needs no server.

# %%
site = xb.leaderboard.write_site(folder / "results", folder / "site")
pages = sorted(path.name for path in (folder / "site").glob("*.html"))
print(pages)

# %% [markdown]
# To add your method, run `xaibench run xai-tris-8x8 --explainers mine:squared` and `xaibench results add`.

# %% [markdown]
# ## Conclusion
#
# On white noise most networks are explained better than by the edge filter. On correlated noise the filter scores
# higher than each of these methods on most networks. A score without controls is not enough.

# %%
print(share.round(2).to_string())
assert not any(problems.values())
assert "index.html" in pages
assert share.loc["white"].mean() > share.loc["corr"].mean()
assert share.loc["corr"].max() < 0.5
