"""Card of an uploaded run: scores as ``model-index``, leaderboards, settings and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from xaibench._version import __version__
from xaibench.core.truth_kinds import question_of
from xaibench.hub.card_text import code_block, escape_markdown, markdown_table, readme, strip_folders
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import leaderboards_by_truth, place_text
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.page.content import CLASSIFIERS, scored_rule
from xaibench.report.read.results import RunResults, place
from xaibench.runfolder.tables import CELL, TABLES

#: Table name to description.
_TABLE_CONTENTS = {table.stem: table.what for table in TABLES}


def render_run_card(run: RunResults, rows: Mapping[str, int], license: str | None, repo: str) -> str:
    """Render the card of a run.

    Args:
        run: The run.
        rows: Number of rows per uploaded table.
        license: License as an identifier of the Hub; None = not stated.
        repo: ``"owner/name"``.
    """
    summary, pairs = infer(run, summarize(run))
    first = next(iter(rows), None)
    head: dict[str, Any] = {"license": license} if license else {}
    head |= {
        "pretty_name": run.title,
        "tags": ["xaibench", "explainable-ai", "saliency-maps", "benchmark-results"],
        "configs": [
            {"config_name": name, "data_files": f"{name}.parquet", **({"default": True} if name == first else {})}
            for name in rows
        ],
        "model-index": model_index(run, summary),
    }
    return strip_folders(readme(head, _body(run, summary, pairs, rows, repo)))


def model_index(run: RunResults, summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the ``model-index`` of the Hub, with one entry per explainer.

    Each result is a pair of data set and network. Values are means over the samples that the report counts; metrics
    without a defined score are omitted.
    """
    suite = run.suite
    named = run.scores.groupby(["subset", "variant"], observed=True)["dataset"].first()
    datasets = {key: str(name) for key, name in named.items()}
    entries = []
    for name, part in run.explainers.items():
        mine = summary[(summary["explainer"] == name) & summary["mean"].notna()]
        results = []
        for (subset, variant, model), rows in mine.groupby(list(CELL), observed=True, sort=True):
            shown = " ".join(filter(None, (place(str(subset)), place(str(variant)))))
            results.append(
                {
                    "task": {"type": "saliency-maps", "name": f"Explaining {run.models[str(model)].label}"},
                    "dataset": {
                        "type": datasets[subset, variant],
                        "name": shown,
                        "config": suite,
                        "split": "test",
                        "args": {"model": str(model)},
                    },
                    "metrics": [_metric_entry(run, row) for _, row in rows.iterrows()],
                }
            )
        if results:
            entries.append({"name": part.label, "results": results})
    return entries


def _metric_entry(run: RunResults, row: pd.Series) -> dict[str, Any]:
    metric = str(row["metric"])
    value = round(float(row["mean"]), 6)
    counted = {"n": int(row["n"]), "n_valid": int(row["n_valid"]), "median": round(float(row["median"]), 6)}
    return {"type": metric, "name": f"{run.metrics[metric].label} (mean)", "value": value, "args": counted}


def _body(run: RunResults, summary: pd.DataFrame, pairs: pd.DataFrame, rows: Mapping[str, int], repo: str) -> str:
    cells = int(summary.groupby(list(CELL), observed=True).ngroups)
    about = (
        f"Scores of {sum(not part.control for part in run.explainers.values())} explainers and "
        f"{sum(part.control for part in run.explainers.values())} controls (which do not use the network) in "
        f"{cells:,} pairs "
        f"of data set and network, by [xaibench](https://pypi.org/project/xaibench/) {__version__}; "
        f"{len(run.failures):,} jobs failed."
    )
    counted = f"the samples that {CLASSIFIERS[scored_rule(run)]}"
    held = [(name, count, _TABLE_CONTENTS[name]) for name, count in rows.items()]
    parts = [
        "\n\n".join(
            filter(
                None,
                [
                    f"# {escape_markdown(run.title)}",
                    about,
                    escape_markdown(run.citation),
                    _render_notes(run.environment),
                ],
            )
        ),
        f"## Leaderboard\n\n{_render_leaderboards(run, summary, pairs)}\n\nMeans are over {counted}. "
        "Place: the ranks that a method may have, given which differences of the means over all pairs are significant. "
        "Beats controls: in how many pairs the mean is significantly better than that of every control. A method "
        "without a place was not scored in every pair, is not significantly better than the controls, or is a control.",
        f"## Tables\n\n{markdown_table(['table', 'rows', 'content'], held)}\n\n{_USE.format(repo=repo)}",
        f"## Settings\n\n{code_block(run.suite_toml, 'toml') if run.suite_toml else 'The suite was not stored.'}",
        f"## Versions\n\n{markdown_table(['what', 'version'], _versions(run.environment))}",
    ]
    return "\n\n".join(parts)


_USE = """```python
import xaibench as xb

results = xb.hub.load_results("hf://{repo}")  # results.scores, results.tables["summary"], ...
```

`load_dataset("{repo}", "scores")` of the library `datasets` reads a table as well."""


def _render_notes(environment: Mapping[str, Any]) -> str:
    """Return notes on the data sets that matter for reading the scores, as a list."""
    notes = environment.get("notes")
    found = notes.items() if isinstance(notes, Mapping) else ()
    return "\n".join(f"- {escape_markdown(name)}: {escape_markdown(str(said))}" for name, said in found)


def _render_leaderboards(run: RunResults, summary: pd.DataFrame, pairs: pd.DataFrame) -> str:
    """Return one leaderboard per kind of truth, or a single one if the run does not distinguish them."""
    found = {
        truth: _render_leaderboard(run, truth, board)
        for truth, board in leaderboards_by_truth(run, summary, pairs).items()
    }
    return "\n\n".join(f"### {question_of(truth)}\n\n{board}" if truth else board for truth, board in found.items())


def _render_leaderboard(run: RunResults, truth: str, board: pd.DataFrame) -> str:
    columns, metrics = ["place", "method"], run.truths[truth]
    for part in (run.metrics[name] for name in metrics):
        columns += [f"{part.label} {'↑' if part.higher_is_better else '↓'}", "beats controls"]
    return markdown_table(columns, [list(_leaderboard_row(run, metrics, row)) for _, row in board.iterrows()])


def _leaderboard_row(run: RunResults, metrics: Sequence[str], row: pd.Series) -> Iterator[object]:
    part = run.explainers[str(row["explainer"])]
    yield place_text(row["place"], row["last_place"])
    yield part.label + (" (control)" if part.control else "")
    for metric in metrics:
        yield float(row[f"mean:{metric}"])
        yield f"{row[f'beats:{metric}']}/{row[f'against:{metric}']}" if not part.control else ""


def _versions(environment: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    known = [(name, environment.get(name)) for name in ("xaibench", "commit", "python")]
    known += list((environment.get("versions") or {}).items())
    machine = environment.get("machine") or {}
    known += [("processor", machine.get("processor")), ("GPUs", ", ".join(machine.get("gpus") or []))]
    known += [("seeds", environment.get("seeds")), ("finished", environment.get("finished"))]
    return [(name, str(value)) for name, value in known if value]
