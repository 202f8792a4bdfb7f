"""Figures of a run over signal-to-noise ratios: test accuracies, and samples at some of the ratios."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from xaibench.plots.curves import make_panels
from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.maps import sheet
from xaibench.runfolder.sample_file import read_samples
from xaibench.scores.results import RunResults, place
from xaibench.scores.signal_to_noise import chosen_ratios
from xaibench.scores.summary import min_accuracy


def accuracy_figure(run: RunResults) -> Figure:
    """Draw the mean test accuracy of each network over the ratios, one panel per data set.

    The band is the 95 % interval of the mean. Vertical lines mark the ratio of the paper (dotted) and the one that its
    rule chooses here (solid).
    """
    chosen = chosen_ratios(run)
    rows = run.accuracy
    titles = [f"{place(one.subset)} {place(one.variant)}".strip() for one in chosen]
    columns = next((each for each in (4, 3, 2) if len(titles) % each == 0), 4)
    with house_style():
        figure, panels = make_panels(titles, "signal-to-noise ratio α", "test accuracy in percent", most=columns)
        for axes, one in zip(panels, chosen, strict=True):
            axes.axhline(min_accuracy(run), color=THEME["soft"], lw=0.8, ls=(0, (4, 2)))
            for ratio, dash in ((one.paper, ":"), (one.ours, "-")):
                if ratio is not None:
                    axes.axvline(ratio, color=THEME["soft"], lw=0.9, ls=dash)
            of_set = rows[(rows["subset"] == one.subset) & (rows["variant"] == one.variant)]
            for number, (name, info) in enumerate(run.models.items(), 1):
                line = of_set[of_set["model"] == name].sort_values("alpha")
                color = THEME[f"series-{number}"]
                axes.fill_between(line["alpha"], line["low"], line["high"], color=color, alpha=0.18, lw=0)
                axes.plot(line["alpha"], line["mean"], ".-", color=color, lw=1.4, ms=4, label=info.label)
            axes.set_xscale("log")
            ticks = [each for each in (0.01, 0.03, 0.1, 0.3, 1) if each >= rows["alpha"].min() / 1.5]
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set(ylim=(45, 102), xlim=(rows["alpha"].min() / 1.2, rows["alpha"].max() * 1.2))
        panels[0].legend(frameon=False, loc="lower right", fontsize=7, handlelength=1.2, borderaxespad=0.1)
    return figure


def ratio_sheet(run: RunResults) -> Figure | None:
    """Draw a sample of each data set at some of the ratios, with its mask; None if the run folder has none."""
    cells = [cell for cell in read_samples(run.path) if not cell.model]
    if not cells:
        return None
    images = np.concatenate([np.moveaxis(cell.images[..., :1] / 255.0, -1, 1) for cell in cells])
    labels = [f"{place(cell.subset)} {place(cell.variant)}, α = {ratio}" for cell in cells for ratio in cell.labels]
    masks = np.concatenate([cell.masks for cell in cells]).astype(bool)
    return sheet(images, masks, labels, columns=len(cells[0].labels))
