"""What a run folder keeps of how far a metric's order of the methods depends on the metric's parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.core.atomic_files import whole_file
from xaibench.core.rich_results import html_table
from xaibench.runfolder.tables import damaged

ROBUSTNESS = "robust_rankings.json"
#: Kendall's tau of two orders below which a metric has no single order of the methods.
AGREED = 0.8

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class RobustRanking:
    """The order of the methods by one metric under several settings of it.

    Attributes:
        metric: Name.
        settings: The S settings, each its parameters.
        methods: The M methods that were ranked.
        mean_ranks: ``[S, M]`` mean rank over the cells; 1 is best.
        tau: ``[S, S]`` Kendall's tau-b between the orders, in [-1, 1].
        low: ``[S, S]`` lower end of its 95 % interval over data sets, trainings and samples.
        high: ``[S, S]`` upper end.
        cells: How many the ranks are over.
        left_out: Methods that lack a score in some cell.
    """

    metric: str
    settings: tuple[dict[str, Any], ...]
    methods: tuple[str, ...]
    mean_ranks: Floats
    tau: Floats
    low: Floats
    high: Floats
    cells: int
    left_out: tuple[str, ...] = ()

    @property
    def least(self) -> tuple[int, int]:
        """The two settings whose orders agree least."""
        found = np.unravel_index(int(np.nanargmin(self.tau)), self.tau.shape)
        return int(found[0]), int(found[1])

    @property
    def single(self) -> bool:
        """Whether the metric has one order: whether every two settings agree to a tau of 0.8 or more."""
        return self.agree(self.least)

    def agree(self, pair: tuple[int, int]) -> bool:
        """Whether two settings put the methods in one order.

        Args:
            pair: Their places among the settings.

        Returns:
            Whether their tau is 0.8 or more.
        """
        return bool(self.tau[pair] >= AGREED)

    @property
    def by_parameter(self) -> dict[str, tuple[int, int]]:
        """Of each parameter, the two settings that agree least of those that differ in it alone.

        What one of two states and the other does not goes with what they state differently, as the number of segments
        goes with the segmentation; by itself it counts where they differ in nothing else.
        """
        found = {}
        for name in dict.fromkeys(name for setting in self.settings for name in setting):
            pairs = [
                (i, j)
                for i, one in enumerate(self.settings)
                for j, other in enumerate(self.settings[:i])
                if _differing(one, other) == {name}
            ]
            if pairs:
                found[name] = min(pairs, key=lambda pair: np.nan_to_num(self.tau[pair], nan=np.inf))
        return found

    def words(self, setting: int, beside: int | None = None) -> str:
        """A setting in words.

        Args:
            setting: Its place among the settings.
            beside: That of another one, of which only what differs is said.

        Returns:
            As ``baseline=blur, steps=28``.
        """
        own = self.settings[setting]
        differs = own.keys() if beside is None else _differing(own, self.settings[beside])
        said = {name: value for name, value in own.items() if name in differs}
        return ", ".join(f"{name}={value}" for name, value in said.items()) or "as it is"

    def sentence(self) -> str:
        """What follows for the metric's order.

        Returns:
            In words, with the tau of the two settings that agree least.
        """
        i, j = self.least
        how = f"Kendall's tau {self.tau[i, j]:.2f} ({self.low[i, j]:.2f} to {self.high[i, j]:.2f})"
        pair = f"{self.words(j, i)} and {self.words(i, j)}"
        if self.single:
            return f"one order under {len(self.settings)} settings; least alike are those of {pair}: {how}"
        return f"its own parameters decide the order; those of {pair} agree with {how}, below {AGREED}"

    def __repr__(self) -> str:
        return f"RobustRanking({self.metric}, {len(self.methods)} methods, {self.cells} cells: {self.sentence()})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{self.tau[pair]:.2f}") for name, pair in self.by_parameter.items()]
        title = f"{self.metric}: least Kendall's tau of the methods' orders, parameter by parameter"
        return html_table(rows, title=title, notes=[self.sentence()])


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The parameters in which two settings differ."""
    return {key for key in one.keys() & other.keys() if one[key] != other[key]} or set(one.keys() ^ other.keys())


def write_robust(folder: Path, ranking: RobustRanking) -> None:
    """Keep it in the run folder, in place of what is known of that metric already.

    Args:
        folder: The run's.
        ranking: What was found.
    """
    kept = {**read_robust(folder), ranking.metric: ranking}
    content = {name: _plain(one) for name, one in sorted(kept.items())}
    with whole_file(folder / ROBUSTNESS) as file:
        file.write(json.dumps(content, indent=1).encode())


def read_robust(folder: Path) -> dict[str, RobustRanking]:
    """What is known, by metric; empty where nothing was asked.

    Args:
        folder: The run's.

    Returns:
        Metric to what was found of it.

    Raises:
        RunFolderError: If the file is damaged.
    """
    file = folder / ROBUSTNESS
    if not file.is_file():
        return {}
    try:
        return {name: _ranking(one) for name, one in json.loads(file.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(file, error) from error


def _plain(ranking: RobustRanking) -> dict[str, Any]:
    values = dict(vars(ranking))
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _ranking(content: Mapping[str, Any]) -> RobustRanking:
    arrays = {name: np.array(content[name], dtype=np.float64) for name in ("mean_ranks", "tau", "low", "high")}
    size = len(content["settings"])
    if arrays["tau"].shape != (size, size) or arrays["mean_ranks"].shape != (size, len(content["methods"])):
        raise ValueError(f"{content['metric']}: its arrays do not fit its {size} settings.")
    return RobustRanking(
        metric=content["metric"],
        settings=tuple(content["settings"]),
        methods=tuple(content["methods"]),
        cells=content["cells"],
        left_out=tuple(content["left_out"]),
        **arrays,
    )
