"""Export results as evaluation records of the Hugging Face Hub (Community Evals).

A benchmark is a data set repository with ``eval.yaml``, which lists its tasks; here a task is one metric of a suite. A
record is ``.eval_results/*.yaml`` in the repository of what was evaluated; here that is a method. The format is
described at https://huggingface.co/docs/hub/eval-results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xaibench.core.files import atomic_file
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.repository import open_repository
from xaibench.leaderboard.site.read import ExcludedResult, Result, SuiteKey, by_suite, read_results
from xaibench.leaderboard.site.suite_leaderboard import SuiteLeaderboards, build_leaderboards
from xaibench.report.page.content import board_rows

#: Name of this evaluation framework in the records.
_FRAMEWORK = "xaibench"
_DATASET = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def export_hub_records(
    repository: str | Path, out: str | Path, dataset: str
) -> tuple[list[Path], list[ExcludedResult]]:
    """Write the results of a repository as evaluation records of the Hub.

    Args:
        repository: A results repository, or ``"hf://owner/name"``.
        out: Folder to write to: ``eval.yaml`` for the data set repository, and ``METHOD/.eval_results/`` for the
            repository of each method.
        dataset: The data set repository of the results on the Hub, ``"owner/name"``.

    Returns:
        The written files, and the results that were left out.

    Raises:
        ResultError: If ``dataset`` is not such a name, or there is no result.
    """
    if not _DATASET.fullmatch(dataset):
        raise ResultError(f"dataset is {dataset!r}; expected OWNER/NAME, a data set repository on the Hub.")
    tasks: list[dict[str, str]] = []
    records: dict[str, list[dict[str, Any]]] = {}
    with open_repository(repository) as place:
        results, left_out = read_results(place)
        for key, mine in by_suite(results).items():
            boards, more = build_leaderboards(key, mine)
            left_out += more
            if boards is not None:
                metrics = [name for own in boards.boards.values() for name in own.standings.leading]
                tasks += [{"id": _task(key, name), "config": key.name, "split": "test"} for name in metrics]
                for method, record in _records(boards, dataset):
                    records.setdefault(f"{method}/.eval_results/{key.words}.yaml", []).append(record)
    if not records:
        raise ResultError(f"{repository} has no result that can be exported.")
    benchmark = {
        "name": "xaibench",
        "description": "Visual explanations of image classifiers, scored against known ground truth.",
        "evaluation_framework": _FRAMEWORK,
        "tasks": tasks,
    }
    files = {"eval.yaml": benchmark, **records}
    return [_write_yaml(Path(out) / name, content) for name, content in files.items()], left_out


def _records(boards: SuiteLeaderboards, dataset: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield method and record, one per metric."""
    for own in boards.boards.values():
        for row in board_rows(own):
            result = boards.results[row["explainer"]]
            for metric in own.standings.leading:
                value = row[f"mean:{metric}"]
                if value is not None and math.isfinite(value):
                    yield result.manifest.method.name, _record(boards, result, metric, row, dataset)


def _record(
    boards: SuiteLeaderboards, result: Result, metric: str, row: Mapping[str, Any], dataset: str
) -> dict[str, Any]:
    part, folder = boards.run.metrics[metric], result.manifest.folder
    notes = [
        f"{part.label}, {'higher' if part.higher_is_better else 'lower'} is better",
        f"mean of {row[f'n:{metric}']} scores in {row[f'cells:{metric}']} of {row[f'of:{metric}']} cells",
        f"95 % interval {row[f'low:{metric}']:.4f} to {row[f'high:{metric}']:.4f}"
        if row[f"low:{metric}"] is not None
        else "no interval",
        f"verified: {result.verdict}" if result.is_verified else "not verified",
        *(["control"] if result.is_control else []),
    ]
    return {
        "dataset": {"id": dataset, "task_id": _task(boards.key, metric)},
        "value": round(float(row[f"mean:{metric}"]), 6),
        "date": result.received,
        "source": {"url": f"https://huggingface.co/datasets/{dataset}/tree/main/{folder}", "name": "xaibench results"},
        "evaluation_framework": _FRAMEWORK,
        "notes": "; ".join(notes),
    }


def _task(key: SuiteKey, metric: str) -> str:
    """Return the identifier of a task, such as ``xai-tris-8x8.31298eb7.emd_skill``."""
    return ".".join(filter(None, (key.name, key.version[:8], key.round, metric)))


def _write_yaml(file: Path, content: Any) -> Path:
    import yaml

    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as stream:
        stream.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    return file
