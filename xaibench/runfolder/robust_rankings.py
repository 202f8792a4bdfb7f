"""Robustness of a metric's ranking of the methods to the metric's parameters, as stored in a run folder."""

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
from xaibench.runfolder.tables import damaged_file

ROBUSTNESS = "robust_rankings.json"
#: Kendall's tau of two rankings from which they count as the same order.
AGREED = 0.8

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class RobustRanking:
    """Rankings of the methods by one metric under several settings of its parameters.

    Attributes:
        metric: Name of the metric.
        settings: The parameters of each of the S settings.
        methods: The M ranked methods.
        mean_ranks: Mean rank over the cells, ``[S, M]``; 1 is best.
        tau: Kendall's tau-b between the rankings, ``[S, S]``, in [-1, 1].
        low: Lower bound of its 95 % confidence interval over data sets, trainings and samples, ``[S, S]``.
        high: Upper bound, ``[S, S]``.
        cells: Number of cells.
        left_out: Methods that were not ranked because they lack a score in some cell.
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
        """The two settings whose rankings agree least."""
        found = np.unravel_index(int(np.nanargmin(self.tau)), self.tau.shape)
        return int(found[0]), int(found[1])

    @property
    def single(self) -> bool:
        """Whether all settings give the same order: every two rankings have a tau of at least 0.8."""
        return self.agree(self.least)

    def agree(self, pair: tuple[int, int]) -> bool:
        """Return whether two settings give the same order.

        Args:
            pair: Indices of the settings.

        Returns:
            Whether their tau is at least 0.8.
        """
        return bool(self.tau[pair] >= AGREED)

    @property
    def by_parameter(self) -> dict[str, tuple[int, int]]:
        """Per parameter, the two settings that agree least among all pairs that differ only in it.

        Parameters that only one of two settings has are ignored if a common parameter differs: the number of segments,
        for example, belongs to the segmentation.
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
        """Format a setting.

        Args:
            setting: Index of the setting.
            beside: Index of another setting; then only the parameters that differ from it are included.

        Returns:
            Text such as ``baseline=blur, steps=28``.
        """
        parameters = self.settings[setting]
        shown = parameters.keys() if beside is None else _differing(parameters, self.settings[beside])
        return ", ".join(f"{name}={value}" for name, value in parameters.items() if name in shown) or "as it is"

    def sentence(self) -> str:
        """Summarize the robustness of the metric's ranking.

        Returns:
            One sentence, with Kendall's tau of the two settings that agree least.
        """
        i, j = self.least
        tau = f"Kendall's tau {self.tau[i, j]:.2f} ({self.low[i, j]:.2f} to {self.high[i, j]:.2f})"
        pair = f"{self.words(j, i)} and {self.words(i, j)}"
        if self.single:
            return f"same order under {len(self.settings)} settings; the least similar are {pair}: {tau}"
        return f"the order depends on the metric's parameters; {pair} agree only to {tau}, below {AGREED}"

    def __repr__(self) -> str:
        return f"RobustRanking({self.metric}, {len(self.methods)} methods, {self.cells} cells: {self.sentence()})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{self.tau[pair]:.2f}") for name, pair in self.by_parameter.items()]
        title = f"{self.metric}: smallest Kendall's tau between rankings, per parameter"
        return html_table(rows, title=title, notes=[self.sentence()])


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """Return the parameters in which two settings differ; parameters of only one of them count if no other differs."""
    return {key for key in one.keys() & other.keys() if one[key] != other[key]} or set(one.keys() ^ other.keys())


def write_robust(folder: Path, ranking: RobustRanking) -> None:
    """Write a ranking to the run folder; an older one of the same metric is replaced.

    Args:
        folder: The run folder.
        ranking: The rankings of one metric.
    """
    kept = {**read_robust(folder), ranking.metric: ranking}
    content = {name: _to_json(one) for name, one in sorted(kept.items())}
    with whole_file(folder / ROBUSTNESS) as file:
        file.write(json.dumps(content, indent=1).encode())


def read_robust(folder: Path) -> dict[str, RobustRanking]:
    """Read the stored rankings; empty if there are none.

    Args:
        folder: The run folder.

    Returns:
        The rankings by metric.

    Raises:
        RunFolderError: If the file is damaged_file.
    """
    file = folder / ROBUSTNESS
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {name: _from_json(ranking) for name, ranking in content.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged_file(file, error) from error


def _to_json(ranking: RobustRanking) -> dict[str, Any]:
    values = dict(vars(ranking))
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _from_json(content: Mapping[str, Any]) -> RobustRanking:
    arrays = {name: np.array(content[name], dtype=np.float64) for name in ("mean_ranks", "tau", "low", "high")}
    size = len(content["settings"])
    if arrays["tau"].shape != (size, size) or arrays["mean_ranks"].shape != (size, len(content["methods"])):
        raise ValueError(f"{content['metric']}: the shapes of its arrays do not match its {size} settings.")
    return RobustRanking(
        metric=content["metric"],
        settings=tuple(content["settings"]),
        methods=tuple(content["methods"]),
        cells=content["cells"],
        left_out=tuple(content["left_out"]),
        **arrays,
    )
