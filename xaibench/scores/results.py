"""The contents of a run folder."""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from xaibench.benchmarks.facets import answering_controls, facet_label, subset_order, variant_order
from xaibench.core.truth_kinds import TRUTHS
from xaibench.runfolder import schema as tables
from xaibench.runfolder.descriptions import (
    Environment,
    PartDescription,
    RunParts,
    order_parts,
    read_environment,
    read_parts,
    read_suite,
    without_names,
)
from xaibench.runfolder.locations import resolve_location
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.schema import CELL, KEYS, RunFolderError
from xaibench.scores.metric_verdicts import known_verdicts


def place(name: str) -> str:
    """Return the label of a subset or variant: that of its benchmark, ``"-"`` (none) as empty.

    Example:
        >>> place("lin"), place("oxford-pet"), place("-")
        ('LIN', 'oxford-pet', '')
    """
    return "" if name == "-" else facet_label(name)


@dataclass(frozen=True)
class RunResults:
    """The contents of a run folder.

    Attributes:
        path: The folder.
        title: Heading of the page.
        suite: Name of the suite.
        citation: Publication of the suite, or empty.
        explainers: Descriptions by name, in display order, controls last.
        models: Descriptions by name, in display order.
        metrics: Descriptions by name, in display order.
        subsets: Names in display order.
        variants: Names in display order.
        references: Descriptions of the reference explainers by name; they are not among ``explainers``.
        scores: :data:`~xaibench.runfolder.schema.SCORES` without the references, one row per sample and metric. The
            columns of ``KEYS`` are categories in the orders above.
        accuracy: :data:`~xaibench.runfolder.schema.ACCURACY`, one row per cell.
        trainings: :data:`~xaibench.runfolder.schema.TRAININGS`, one row per training.
        samples: :data:`~xaibench.runfolder.schema.SAMPLES` of data sets on disk and of data sets with groups.
        failures: :data:`~xaibench.runfolder.schema.FAILURES`, one row per failed job.
        environment: Versions, machine, times.
        suite_toml: The suite's configuration as it was run.
        reference_scores: The scores of the references.
    """

    path: Path
    title: str
    suite: str
    citation: str
    explainers: Mapping[str, PartDescription]
    models: Mapping[str, PartDescription]
    metrics: Mapping[str, PartDescription]
    subsets: tuple[str, ...]
    variants: tuple[str, ...]
    scores: pd.DataFrame
    accuracy: pd.DataFrame
    trainings: pd.DataFrame
    samples: pd.DataFrame
    failures: pd.DataFrame
    environment: Environment
    suite_toml: str
    references: Mapping[str, PartDescription] = field(default_factory=dict)
    reference_scores: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Tables of the suite's configuration, as in ``settings["explaining"]["protocol"]``; empty if unreadable."""
        try:
            return {key: table for key, table in tomllib.loads(self.suite_toml).items() if isinstance(table, dict)}
        except tomllib.TOMLDecodeError:
            return {}

    @cached_property
    def accuracy_keys(self) -> tuple[str, ...]:
        """Columns that identify a row of ``accuracy``: the cell, and the ratio of a run over signal-to-noise ratios."""
        is_over_ratios = not self.accuracy.empty and (self.accuracy.groupby(list(CELL))["alpha"].nunique() > 1).any()
        return (*CELL, "alpha") if is_over_ratios else CELL

    @cached_property
    def truths(self) -> dict[str, tuple[str, ...]]:
        """Metrics by their kind of truth; nothing is averaged over two kinds.

        The kind of the suite's first metric comes first, which is the one that the suite is about.

        ``"none"`` holds metrics that describe the map alone. In run folders without kinds of truth, all metrics are
        under ``""``.
        """
        of = {name: part.truth for name, part in self.metrics.items()}
        # Names other than the known kinds come last.
        order = dict.fromkeys((*list(of.values())[:1], *TRUTHS, *sorted(set(of.values()) - set(TRUTHS), reverse=True)))
        by_truth = {truth: tuple(name for name in of if of[name] == truth) for truth in order}
        return {truth: names for truth, names in by_truth.items() if names}

    @cached_property
    def cautions(self) -> dict[str, str]:
        """Warnings about metrics that did not pass their trials with the kind of truth of their scores."""
        warnings = {}
        for name, part in self.metrics.items():
            tried = known_verdicts().get(name.removesuffix(f" ({part.truth})"), {}).get(part.truth)
            if tried is not None and not part.own and tried.verdict != "passes":
                warnings[name] = tried.caution(part.truth)
        return warnings

    @cached_property
    def leading(self) -> tuple[str, ...]:
        """Metrics by which methods are ranked, in display order: of a score and its skill, the skill.

        If some explainer has the score but not the skill (as in published results), the score is used.
        """
        pairs = self.scores[["explainer", "metric"]].drop_duplicates()
        scored = {name: set(pairs["explainer"][pairs["metric"] == name]) for name in self.metrics}
        skills = {part.skill_of: name for name, part in self.metrics.items() if part.skill_of in self.metrics}
        behind = {skill if scored[raw] - scored[skill] else raw for raw, skill in skills.items()}
        return tuple(name for name in self.metrics if name not in behind)

    @cached_property
    def raw(self) -> dict[str, str]:
        """The score that each leading skill is derived from."""
        return {
            name: part.skill_of
            for name, part in self.metrics.items()
            if name in self.leading and part.skill_of in self.metrics
        }

    @cached_property
    def answers(self) -> dict[tuple[str, str], frozenset[str]]:
        """Controls that are the answer by construction of the data, by subset and variant."""
        controls = {name for name, part in self.explainers.items() if part.control}
        by_cell = {cell: answering_controls(*cell) & controls for cell in self._places}
        return {cell: names for cell, names in by_cell.items() if names}

    @cached_property
    def _places(self) -> list[tuple[str, str]]:
        """Subsets and variants that occur together."""
        rows = self.scores[["subset", "variant"]].drop_duplicates().astype(str)
        return [(subset, variant) for subset, variant in rows.itertuples(index=False, name=None)]

    def is_answer(self, cell: Sequence[str], explainer: str) -> bool:
        """Return whether a control is the answer by construction in a cell, given by subset, variant and model."""
        return explainer in self.answers.get((cell[0], cell[1]), ())

    @cached_property
    def scored_cells(self) -> tuple[tuple[str, str, str], ...]:
        """Subset, variant and model of each cell with a score, in display order."""
        there = set(self.scores[list(CELL)].drop_duplicates().astype(str).itertuples(index=False, name=None))
        return tuple(cell for cell in itertools.product(self.subsets, self.variants, self.models) if cell in there)

    @property
    def answers_text(self) -> str:
        """One sentence on the controls that are not ranked because they are the answer by construction; or empty."""
        variants: dict[str, set[str]] = {}
        for subset, variant in self._places:
            variants.setdefault(subset, set()).add(variant)
        where: dict[str, dict[str, None]] = {}
        for (subset, variant), names in self.answers.items():
            for name in sorted(names):
                everywhere = all(self.is_answer((subset, each), name) for each in variants[subset])
                words = [place(subset), "" if everywhere else place(variant)]
                where.setdefault(name, {})[" ".join(filter(None, words))] = None
        said = "; ".join(f"{self.explainers[name].label} in {', '.join(cells)}" for name, cells in where.items())
        return (
            f"Controls that are the answer by construction of the data and are not ranked there: {said}."
            if said
            else ""
        )

    @property
    def has_variants(self) -> bool:
        """Whether the data sets have variants. If not, the subsets are data sets."""
        return any(name != "-" for name in self.variants)

    def words_of(self, cell: tuple[str, str, str]) -> str:
        """Return the label of a cell, such as ``LIN · WHITE · MLP``."""
        label = self.models[cell[2]].label if cell[2] in self.models else cell[2]
        return " · ".join(word for word in (place(cell[0]), place(cell[1]), label) if word)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """:data:`~xaibench.runfolder.schema.CURVES`."""
        return tables.CURVES.read(self.path).astype(dict.fromkeys(tables.CURVES.text, object))

    @cached_property
    def shares(self) -> pd.DataFrame:
        """:data:`~xaibench.runfolder.schema.SHARES` of the maps of suites with a reference."""
        return tables.SHARES.read(self.path)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """:data:`~xaibench.runfolder.schema.JOBS`, the cost of each job that was run for this folder."""
        return tables.JOBS.read(self.path)

    @cached_property
    def pictures(self) -> dict[tuple[str, str, str], SampleCell]:
        """Samples with images and maps by subset, variant and model, in display order."""
        by_cell = {cell.cell: cell for cell in read_samples(self.path)}
        order = itertools.product(self.subsets, self.variants, self.models)
        return {cell: by_cell[cell] for cell in order if cell in by_cell}


def read_run(run_dir: str | os.PathLike[str]) -> RunResults:
    """Read a run folder.

    Args:
        run_dir: Folder that ``xaibench run`` wrote, or its address
            (:func:`~xaibench.runfolder.locations.resolve_location`).
            Only ``scores.parquet`` is required; other missing files count as empty.

    Raises:
        RunFolderError: If the folder or its scores are missing, or a file is damaged.
    """
    run_dir = resolve_location(run_dir)
    if not (run_dir / tables.SCORES.name).is_file():
        what = f"has no {tables.SCORES.name}" if run_dir.is_dir() else "is not a folder"
        raise RunFolderError(f"{run_dir} {what}; expected a folder that `xaibench run` wrote. Run the suite first.")
    return assemble_results(
        run_dir,
        read_parts(run_dir),
        tables.SCORES.read(run_dir),
        accuracy=tables.ACCURACY.read(run_dir),
        trainings=tables.TRAININGS.read(run_dir),
        samples=tables.SAMPLES.read(run_dir),
        failures=tables.FAILURES.read(run_dir),
        environment=without_names(read_environment(run_dir)),
        suite_toml=read_suite(run_dir),
    )


def assemble_results(
    folder: Path,
    parts: RunParts,
    scores: pd.DataFrame,
    *,
    accuracy: pd.DataFrame,
    trainings: pd.DataFrame,
    samples: pd.DataFrame,
    failures: pd.DataFrame,
    environment: Environment,
    suite_toml: str,
) -> RunResults:
    """Combine the tables of one or several run folders, with all names in display order.

    Args:
        folder: Folder of the tables that are read on first access.
        parts: Descriptions of the suite's parts.
        scores: :data:`~xaibench.runfolder.schema.SCORES`, with text columns as categories.
        accuracy: :data:`~xaibench.runfolder.schema.ACCURACY`.
        trainings: :data:`~xaibench.runfolder.schema.TRAININGS`.
        samples: :data:`~xaibench.runfolder.schema.SAMPLES`.
        failures: :data:`~xaibench.runfolder.schema.FAILURES`.
        environment: Versions, machine, times.
        suite_toml: The suite's configuration as it was run.
    """
    references = {name: part for name, part in parts.explainers.items() if part.reference}
    apart = scores["explainer"].isin(list(references))
    reference_scores, scores = scores[apart], scores[~apart].reset_index(drop=True) if apart.any() else scores
    # A cell whose explanations all failed has an accuracy but no score; its names are still part of the order.
    seen = {key: [*scores[key].cat.categories, *accuracy.get(key, [])] for key in KEYS}
    explainers = order_parts(parts.explainers, [name for name in seen["explainer"] if name not in references])
    explainers = dict(sorted(explainers.items(), key=lambda item: item[1].control))
    models, metrics = order_parts(parts.models, seen["model"]), _split_by_truth(scores, parts.metrics)
    # The direction in the scores takes precedence over the one in descriptions.json, which may be missing.
    upwards = scores.groupby("metric", observed=True)["higher_is_better"].first().to_dict()
    metrics = {
        name: replace(part, higher_is_better=bool(upwards.get(name, part.higher_is_better)))
        for name, part in metrics.items()
    }
    subsets, variants = _known_first(subset_order(), seen["subset"]), _known_first(variant_order(), seen["variant"])
    for key, order in zip(KEYS, (subsets, variants, models, explainers, metrics), strict=True):
        scores[key] = scores[key].cat.set_categories(list(order), ordered=True)
    suite = parts.suite or folder.resolve().name
    return RunResults(
        path=folder,
        title=parts.title or suite,
        suite=suite,
        citation=parts.citation,
        explainers=explainers,
        models=models,
        metrics=metrics,
        subsets=subsets,
        variants=variants,
        scores=scores,
        accuracy=accuracy,
        trainings=trainings,
        samples=samples,
        failures=failures,
        environment=environment,
        suite_toml=suite_toml,
        references=references,
        reference_scores=reference_scores,
    )


def _split_by_truth(scores: pd.DataFrame, parts: Mapping[str, PartDescription]) -> dict[str, PartDescription]:
    """Return the metrics with the kind of truth of their scores.

    A metric with scores of several kinds (from different data sets) is split into one metric per kind, named ``"iou
    (data)"``; its scores are renamed accordingly.
    """
    known = order_parts(parts, scores["metric"].cat.categories)
    pairs = scores.groupby(["metric", "truth"], observed=True).size().index
    of = {name: [truth for metric, truth in pairs if metric == name] for name in known}
    split = {}
    for name, part in known.items():
        if len(of[name]) < 2:
            split[name] = replace(part, truth="".join(of[name]))
            continue
        for truth in of[name]:
            words = {"name": f"{name} ({truth})", "label": f"{part.label} ({truth})", "truth": truth}
            if len(of.get(part.skill_of, ())) > 1:
                words["skill_of"] = f"{part.skill_of} ({truth})"
            split[words["name"]] = replace(part, **words)
            rows = (scores["metric"] == name) & (scores["truth"] == truth)
            scores["metric"] = scores["metric"].cat.add_categories(words["name"])
            scores.loc[rows, "metric"] = words["name"]
    return split


def _known_first(known: tuple[str, ...], seen: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that occur, in their own order, followed by the others as they occur."""
    seen = list(dict.fromkeys(seen))
    return (*(name for name in known if name in seen), *(name for name in seen if name not in known))
