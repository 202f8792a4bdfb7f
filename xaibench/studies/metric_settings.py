"""Do hyper-parameters decide? A metric asked again, under other settings, about the maps that a run has."""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xaibench.core.messages import unknown
from xaibench.report.numbers.setting_ranks import rank_robustness
from xaibench.report.read.run_results import read_run
from xaibench.runfolder.descriptions import SUITE, read_suite
from xaibench.runfolder.robust_rankings import RobustRanking, write_robust
from xaibench.runfolder.tables import RunFolderError
from xaibench.runner.parts import registry
from xaibench.runner.request import RunRequest
from xaibench.runner.running import Progress, Run
from xaibench.runner.running import run as run_suite
from xaibench.runner.store.store_files import write_atomic
from xaibench.runner.suites.toml_writing import to_toml

#: The folder of the settings' scores, in the run's own.
FOLDER = "robustness"

#: Values of each parameter, all of which are combined; or the settings themselves, one after the other.
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def robust_ranking(
    run: str | os.PathLike[str] | Run,
    metric: str,
    grid: Grid,
    *,
    store: str | Path | None = None,
    workers: int | None = None,
    device: str = "auto",
    root: str | Path | None = None,
    images: str | Path | None = None,
    progress: Progress | None = None,
) -> RobustRanking:
    """Ask how far a metric's order of the methods depends on the metric's own parameters.

    The maps of the run are scored again under every setting, and the orders compared by Kendall's tau. Nothing is
    trained or explained anew: the jobs are those of the run, with the settings in the place of its metrics, and what
    was asked once is there the next time. The result is kept in the run folder, whose page then prints no single rank
    for a metric of which two settings agree with a tau below 0.8, and says so.

    Which pixels go first is a parameter, too: ``insertion`` on the baseline that ``deletion`` removes to is deletion in
    the opposite order, the least important pixels first. ``"metric"`` in a setting names another metric than the one
    asked about.

    Args:
        run: A run folder, or what :func:`xaibench.runner.run` returned.
        metric: Whose parameters vary.
        grid: The values of each parameter, ``{"baseline": [0.0, "blur"], "steps": [28, 224]}``, which are all
            combined; or a list of settings, ``[{}, {"baseline": "blur"}, {"metric": "insertion", "baseline": 0.0}]``.
            Two settings or more.
        store: Where the run's results lie, if not in its folder.
        workers: The most jobs to run at a time; default one a CPU.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        root: The folder below which annotated sets lie, as for the run.
        images: The folder of photographs of IMAGENET sets, as for the run.
        progress: Called as jobs end.

    Returns:
        The orders, the tau of every two of them with its interval, and by each parameter the least;
        ``.single`` says whether the metric has one order.

    Raises:
        RunFolderError: If there is no such run, or it does not say what was run.
        UnknownNameError: If a metric is not known.
        ValueError: If the grid has fewer than two settings, or jobs failed, or fewer than two methods are left.
    """
    folder = Path(run.folder if isinstance(run, Run) else run)
    settings = _settings(grid)
    names = {_name(setting, metric): setting for setting in settings}
    if len(names) < 2:
        raise ValueError(
            f"grid: got {len(names)} setting{'s' * (len(names) != 1)} of {metric}, expected two or more, such as "
            '{"baseline": [0.0, "blur"]}.'
        )
    called, text = _suite(folder, metric, names)
    asked = folder / FOLDER / called
    asked.mkdir(parents=True, exist_ok=True)
    write_atomic(asked / SUITE, text.encode())
    request = RunRequest(
        asked / SUITE,
        out=asked,
        store=store if store is not None else folder / "store",
        workers=workers,
        device=device,
        root=root,
        images=images,
    )
    done = run_suite(request, progress=progress)
    if done.failures:
        job, error = next(iter(done.failures.items()))
        raise ValueError(f"{len(done.failures)} jobs failed, of which the first is {job}: {error}")
    if any("metric" in setting for setting in settings):  # then it is a parameter like the others
        names = {name: {"metric": metric} | setting for name, setting in names.items()}
    found = rank_robustness(read_run(asked), called, names)
    write_robust(folder, found)
    return found


def _settings(grid: Grid) -> list[dict[str, Any]]:
    """The settings that are given, or every combination of the values, one of each parameter."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise ValueError(f"grid: got {name}={values!r}, expected a list of the values that {name} takes.")
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [dict(setting) for setting in grid]


def _name(setting: Mapping[str, Any], metric: str) -> str:
    """What a setting is called among the metrics of its suite."""
    words = [f"{key}={value}" for key, value in setting.items() if key != "metric"]
    return f"{setting.get('metric', metric)}({', '.join(words)})"


def _suite(folder: Path, metric: str, names: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """What the run calls the metric, and its suite with the settings in the place of its metrics, where that scored."""
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
        known.resolve(use)  # what is no metric at all is an error of its own
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
