"""Robustness of the rankings by a metric to the metric's own parameters, as stored in a run folder.

``benchmarks/robust_rankings.py`` writes the file; the report reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.core.files import atomic_file
from xaibench.core.markup import html_table
from xaibench.runfolder.tables import damaged_file

ROBUSTNESS = "robust_rankings.json"
#: Kendall's tau of two settings below which the rankings by a metric disagree.
AGREED = 0.8

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class RobustRanking:
    """The rankings of the methods by a metric under several settings of its parameters.

    Attributes:
        metric: Name of the metric.
        settings: Parameters of the S settings.
        methods: The M ranked methods.
        means: ``[S, M]`` mean score over the cells.
        ranks: ``[S, M]`` rank of the mean score among the methods; 1 is best.
        tau: ``[S, S]`` Kendall's tau-b between the rankings, in [-1, 1].
        low: ``[S, S]`` lower end of the 95 % interval of tau over data sets, trainings and samples.
        high: ``[S, S]`` upper end of the interval.
        cells: Number of cells.
        left_out: Methods that lack a score in a cell.
    """

    metric: str
    settings: tuple[dict[str, Any], ...]
    methods: tuple[str, ...]
    means: _Floats
    ranks: _Floats
    tau: _Floats
    low: _Floats
    high: _Floats
    cells: int
    left_out: tuple[str, ...] = ()

    @property
    def least_similar(self) -> tuple[int, int]:
        """The two settings with the smallest tau."""
        found = np.unravel_index(int(np.nanargmin(self.tau)), self.tau.shape)
        return int(found[0]), int(found[1])

    @property
    def has_single_order(self) -> bool:
        """Whether every two settings have a tau of at least 0.8."""
        return self.agree(self.least_similar)

    def agree(self, pair: tuple[int, int]) -> bool:
        """Return whether the rankings under two settings agree.

        Args:
            pair: Indices of the settings.

        Returns:
            True if their tau is at least 0.8.
        """
        return bool(self.tau[pair] >= AGREED)

    @property
    def by_parameter(self) -> dict[str, tuple[int, int]]:
        """Parameter to the two settings with the smallest tau among those that only differ in this parameter.

        A parameter that only one of two settings has (such as the number of segments of a segmentation) is ignored if
        the settings also differ in a common parameter.
        """
        found = {}
        for name in dict.fromkeys(name for setting in self.settings for name in setting):
            pairs = [
                (i, j)
                for i, one in enumerate(self.settings)
                for j, other in enumerate(self.settings[:i])
                if _differing_parameters(one, other) == {name}
            ]
            if pairs:
                found[name] = min(pairs, key=lambda pair: np.nan_to_num(self.tau[pair], nan=np.inf))
        return found

    def describe_setting(self, setting: int, beside: int | None = None) -> str:
        """Describe a setting.

        Args:
            setting: Index of the setting.
            beside: Index of another setting; only the parameters that differ from it are named.

        Returns:
            Text such as ``baseline=blur, steps=28``.
        """
        own = self.settings[setting]
        differs = own.keys() if beside is None else _differing_parameters(own, self.settings[beside])
        shown = {name: value for name, value in own.items() if name in differs}
        return ", ".join(f"{name}={value}" for name, value in shown.items()) or "default"

    def summary(self) -> str:
        """Summarize the robustness of the rankings.

        Returns:
            One sentence with the smallest tau.
        """
        i, j = self.least_similar
        tau = f"Kendall's tau {self.tau[i, j]:.2f} ({self.low[i, j]:.2f} to {self.high[i, j]:.2f})"
        pair = f"{self.describe_setting(j, i)} and {self.describe_setting(i, j)}"
        if self.has_single_order:
            return f"its {len(self.settings)} settings agree on the ranking; smallest agreement, of {pair}: {tau}"
        return f"its ranking depends on its parameters: {pair} agree with {tau}, below {AGREED}"

    def __repr__(self) -> str:
        return f"RobustRanking({self.metric}, {len(self.methods)} methods, {self.cells} cells: {self.summary()})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{self.tau[pair]:.2f}") for name, pair in self.by_parameter.items()]
        title = f"{self.metric}: smallest Kendall's tau between the rankings, by parameter"
        return html_table(rows, title=title, notes=[self.summary()])


def _differing_parameters(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    return {key for key in one.keys() & other.keys() if one[key] != other[key]} or set(one.keys() ^ other.keys())


def write_robust(folder: Path, ranking: RobustRanking) -> None:
    """Write the result for a metric to the run folder, replacing an earlier one.

    Args:
        folder: The run folder.
        ranking: The result.
    """
    kept = {**read_robust(folder), ranking.metric: ranking}
    content = {name: _to_json(one) for name, one in sorted(kept.items())}
    with atomic_file(folder / ROBUSTNESS) as file:
        file.write(json.dumps(content, indent=1).encode())


def read_robust(folder: Path) -> dict[str, RobustRanking]:
    """Read the results from a run folder.

    Args:
        folder: The run folder.

    Returns:
        Metric name to result; empty if there are none.

    Raises:
        RunFolderError: If the file is damaged.
    """
    file = folder / ROBUSTNESS
    if not file.is_file():
        return {}
    try:
        return {name: _from_json(one) for name, one in json.loads(file.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged_file(file, error) from error


def _to_json(ranking: RobustRanking) -> dict[str, Any]:
    values = dict(vars(ranking))
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _from_json(content: Mapping[str, Any]) -> RobustRanking:
    arrays = {name: np.array(content[name], dtype=np.float64) for name in ("means", "ranks", "tau", "low", "high")}
    size, methods = len(content["settings"]), len(content["methods"])
    if arrays["tau"].shape != (size, size) or {arrays[name].shape for name in ("means", "ranks")} != {(size, methods)}:
        raise ValueError(f"{content['metric']}: its arrays do not match its {size} settings.")
    return RobustRanking(
        metric=content["metric"],
        settings=tuple(content["settings"]),
        methods=tuple(content["methods"]),
        cells=content["cells"],
        left_out=tuple(content["left_out"]),
        **arrays,
    )
