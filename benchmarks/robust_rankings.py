"""Does the ranking of the methods by a metric depend on the metric's own parameters?

    python benchmarks/robust_rankings.py RUN deletion '{"baseline": [0.0, "blur"], "steps": [28, 224]}'

Scores the maps of a finished run again under every setting of a metric and compares the rankings by Kendall's tau. No
model is trained and no map is computed again. The result is written to ``robust_rankings.json`` in the run folder; the
report of the run (``xaibench report RUN``) then shows it, and ranks no method by a metric of which two settings agree
with a tau below 0.8. ``docs/generate/robust.py`` writes ``docs/robust-rankings.md`` from such run folders.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from xaibench.core.messages import unknown
from xaibench.report.numbers.inference import cell_matrices, resampled_means
from xaibench.report.read.results import RunResults, read_run
from xaibench.runfolder.descriptions import SUITE, read_suite
from xaibench.runfolder.robust_rankings import RobustRanking, write_robust
from xaibench.runfolder.tables import RunFolderError
from xaibench.runner.parts import registry
from xaibench.runner.request import RunRequest
from xaibench.runner.run import RunProgress
from xaibench.runner.run import run as run_suite
from xaibench.runner.store.store_files import write_atomic
from xaibench.runner.suites.toml_writing import to_toml
from xaibench.statistics.multiple_tests import ALPHA
from xaibench.statistics.rank_agreement import kendall_tau

#: Subfolder of the run folder for the scores of the settings.
FOLDER = "robustness"
#: Number of resamples for the confidence intervals.
RESAMPLES = 400

#: Values of each parameter, all of which are combined; or a list of settings.
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def robust_ranking(
    run: str | os.PathLike[str],
    metric: str,
    grid: Grid,
    *,
    store: str | Path | None = None,
    workers: int | None = None,
    device: str = "auto",
    root: str | Path | None = None,
    images: str | Path | None = None,
    progress: RunProgress | None = None,
) -> RobustRanking:
    """Compare the rankings of the methods under several settings of a metric, and write the result to the run folder.

    The order in which pixels are removed is a parameter too: ``insertion`` on the baseline of ``deletion`` is deletion
    in the opposite order, the least important pixels first. ``"metric"`` in a setting names a metric other than
    ``metric``.

    Args:
        run: A run folder.
        metric: Name of the metric whose parameters vary.
        grid: The values of each parameter, ``{"baseline": [0.0, "blur"], "steps": [28, 224]}``, which are all
            combined; or a list of settings, ``[{}, {"baseline": "blur"}, {"metric": "insertion", "baseline": 0.0}]``.
            At least two settings.
        store: Folder of the run's results; None = in the run folder.
        workers: Maximum number of parallel jobs; None = one per CPU.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        root: The folder of the annotated data sets, as for the run.
        images: The folder of photographs for IMAGENET sets, as for the run.
        progress: Called as jobs end.

    Returns:
        The rankings and their agreement.

    Raises:
        RunFolderError: If the folder is not a run folder, or has no suite.
        UnknownNameError: If a metric is unknown.
        ValueError: If the grid has fewer than two settings, jobs failed, or fewer than two methods can be ranked.
    """
    folder = Path(run)
    names = {_setting_name(setting, metric): setting for setting in _list_settings(grid)}
    if len(names) < 2:
        raise ValueError(
            f"grid: got {len(names)} setting{'s' * (len(names) != 1)} of {metric}, expected two or more, such as "
            '{"baseline": [0.0, "blur"]}.'
        )
    called, text = _make_suite(folder, metric, names)
    out = folder / FOLDER / called
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / SUITE, text.encode())
    request = RunRequest(
        out / SUITE,
        out=out,
        store=store if store is not None else folder / "store",
        workers=workers,
        device=device,
        root=root,
        images=images,
    )
    done = run_suite(request, progress=progress)
    if done.failures:
        job, error = next(iter(done.failures.items()))
        raise ValueError(f"{len(done.failures)} jobs failed, the first of them {job}: {error}")
    if any("metric" in setting for setting in names.values()):  # then the metric is a parameter like the others
        names = {name: {"metric": metric} | setting for name, setting in names.items()}
    found = rank_robustness(read_run(out), called, names)
    write_robust(folder, found)
    return found


def rank_robustness(run: RunResults, metric: str, settings: Mapping[str, Mapping[str, Any]]) -> RobustRanking:
    """Compare the rankings of the methods under the settings of a metric.

    Under each setting, the methods are ranked by the mean over the cells of their mean scores. Rankings are compared by
    Kendall's tau-b. The intervals account for the random choice of data
    sets, trainings and samples; all settings have the same resamples.

    Args:
        run: A run whose metrics are the settings.
        metric: Name of the metric.
        settings: Name of each setting in the run to its parameters.

    Returns:
        The rankings and their agreement, without controls and without methods that lack a score in a cell.

    Raises:
        ValueError: If fewer than two methods have a score in every cell under every setting.
    """
    names = list(settings)
    matrices = [cell for cell in cell_matrices(run) if set(names) <= set(cell.metrics)]
    means = resampled_means(matrices, RESAMPLES)
    known = {name for cell in matrices for name in cell.methods}
    methods = [name for name, part in run.explainers.items() if name in known and not part.control]
    ranked = [name for name in methods if all(_has_scores(cell, means[cell.cell], names, name) for cell in matrices)]
    if len(ranked) < 2:
        raise ValueError(
            f"{metric}: got {len(ranked)} methods with a score in each of {len(matrices)} cells under every setting, "
            "expected two or more; run the suite with more explainers, or look at its failures."
        )
    directions = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    signs = np.array([-1.0 if directions[name] else 1.0 for name in names])[:, None]
    over_cells = np.mean([_select_means(cell, means[cell.cell], names, ranked) for cell in matrices], axis=0)
    ranks = rankdata(signs * over_cells, axis=-1)  # [1 + R, S, M]
    tau = kendall_tau(ranks)  # [1 + R, S, S]
    low, high = np.nanquantile(tau[1:], [ALPHA / 2, 1 - ALPHA / 2], axis=0)
    return RobustRanking(
        metric=metric,
        settings=tuple(dict(settings[name]) for name in names),
        methods=tuple(ranked),
        means=over_cells[0],
        ranks=ranks[0],
        tau=tau[0],
        low=np.fmin(low, tau[0]),
        high=np.fmax(high, tau[0]),
        cells=len(matrices),
        left_out=tuple(name for name in methods if name not in ranked),
    )


def _select_means(
    cell: Any, means: NDArray[np.float64], names: Sequence[str], methods: Sequence[str]
) -> NDArray[np.float64]:
    """Return the mean scores of a cell, ``[1 + R, S, M]``."""
    return means[:, [cell.metrics.index(name) for name in names]][:, :, [cell.methods.index(name) for name in methods]]


def _has_scores(cell: Any, means: NDArray[np.float64], names: Sequence[str], method: str) -> bool:
    return method in cell.methods and not np.isnan(_select_means(cell, means[:1], names, [method])).any()


def _list_settings(grid: Grid) -> list[dict[str, Any]]:
    """Return the given settings, or every combination of the values."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise ValueError(f"grid: got {name}={values!r}, expected a list of the values that {name} takes.")
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [dict(setting) for setting in grid]


def _setting_name(setting: Mapping[str, Any], metric: str) -> str:
    words = [f"{key}={value}" for key, value in setting.items() if key != "metric"]
    return f"{setting.get('metric', metric)}({', '.join(words)})"


def _make_suite(folder: Path, metric: str, names: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the name of the metric in the run, and a suite with its cells and the settings as metrics."""
    text = read_suite(folder)
    if not text:
        raise RunFolderError(f"{folder} has no {SUITE}; expected a folder that `xaibench run` wrote.")
    tables = tomllib.loads(text)
    own = tables.get("metrics", {})
    known = registry("metric")
    uses = {name: known.canonical(entry.get("use", name)) for name, entry in own.items()}
    use = uses.get(metric, known.canonical(metric))
    called = metric if metric in own else next((name for name in uses if uses[name] == use), None)
    if called is None:
        known.resolve(use)  # raises UnknownNameError if there is no such metric
        raise ValueError(unknown(f"{folder} was not scored by", metric, list(own)))
    for unused in ("quick", "optional"):
        tables.pop(unused, None)
    cells = [cell for cell in tables["cells"] if called in cell.get("metrics", [called])]
    tables["cells"] = [{key: value for key, value in cell.items() if key != "metrics"} for cell in cells]
    base = {key: value for key, value in own[called].items() if key != "use"}
    tables["metrics"] = {}
    for name, setting in names.items():
        stated = {key: value for key, value in setting.items() if key != "metric"}
        other = setting.get("metric", use)
        tables["metrics"][name] = {"use": other} | (base if other == use else {}) | stated
    return called, "# The run's maps, scored by one metric under several settings.\n" + to_toml(tables)


def main() -> None:
    """Run the study from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder")
    parser.add_argument("metric")
    parser.add_argument("grid", type=json.loads, help="JSON: values of each parameter, or a list of settings")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", help="folder of the annotated data sets")
    parser.add_argument("--images", help="folder of photographs for IMAGENET sets")
    print(robust_ranking(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
