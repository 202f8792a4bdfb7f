"""Published scores that come with the library, to rank a new method without running the other methods again.

They are the scores of a run of a built-in suite, per sample, training and data set. A new run can therefore be merged
with them into one run folder, with one leaderboard and with paired tests over the same samples. Only scores of the same
images and metrics are merged; both are identified by job keys, which include everything that affects them. Scores that
can be computed from others are not stored: controls are run again in every run, and chance-corrected scores are
computed from the scores of the underlying metric.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.benchmarks import benchmark_files
from xaibench.core.files import atomic_file
from xaibench.core.messages import listed
from xaibench.evaluation.protocol import resolve_protocol
from xaibench.runfolder.descriptions import PARTS, PartDescription, read_environment, read_parts
from xaibench.runfolder.schema import ACCURACY, CELL, SCORES
from xaibench.runner.parts import ExplainerPart, MetricPart
from xaibench.runner.plan.plan import Plan, make_plan, underlying_metric
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import load_suite
from xaibench.runner.suites.schema import Suite, SuiteError

if TYPE_CHECKING:
    import pandas as pd

#: The published scores, suite -> file: all Parquet files in the folders ``xaibench/benchmarks/*/suites/published``.
PUBLISHED: Mapping[str, Path] = {file.stem: file for file in benchmark_files("suites/published/*.parquet")}

_KEYS = ["dataset", "model", "seed", "data_seed", "explainer", "metric", "sample"]
#: Columns that identify an image within a run, and a sample of a training.
_IMAGE = ["dataset", "data_seed", "sample"]
_ROW = ["dataset", "model", "data_seed", "seed", "sample"]
_ABOUT = b"xaibench"


@dataclass(frozen=True)
class Published:
    """Published scores of an earlier run.

    Attributes:
        name: Name of the suite.
        scores: ``dataset, model, seed, data_seed, explainer, metric, sample, value`` of the samples that count.
        about: Identity of the run's parts (``data``, ``trainings``, ``metrics``, ``explainers``), and its environment.
    """

    name: str
    scores: pd.DataFrame
    about: Mapping[str, Any]

    def differences(self, plan: Plan) -> list[str]:
        """Describe how a run differs from the published one, and which scores are left out because of that.

        Raises:
            SuiteError: If no scores can be compared.
        """
        mine, theirs = identity(plan), self.about
        origin = [f"xaibench {theirs['xaibench']}", str(theirs["commit"] or "")[:10], theirs["finished"][:10]]
        notes = [f"Compared with the published scores of {self.name}: {', '.join(filter(None, origin))}."]
        if plan.suite.name != self.name:
            notes.append(f"This run is of {plan.suite.name}, which is another suite.")
        for kind, effect in (("data", "different images; left out"), ("metrics", "measured differently; left out")):
            shared = mine[kind].keys() & theirs[kind].keys()
            other = sorted(name for name in shared if mine[kind][name] != theirs[kind][name])
            if not shared - set(other):
                raise SuiteError(
                    f"{plan.suite.name}: its {kind} and those of the published scores of {self.name} "
                    f"({listed(sorted(theirs[kind]), 3)}) have nothing in common. Run that suite without --quick and "
                    "with its own data and metrics, or omit --against."
                )
            if lacking := sorted(mine[kind].keys() - shared):
                notes.append(f"Not published: {listed(lacking, 5)}.")
            if other:
                notes.append(f"Different from the published {kind}: {listed(other, 5)} ({effect}).")
        for kind, verb in (("trainings", "Trained"), ("explaining", "Explained")):
            shared = mine[kind].keys() & theirs[kind].keys()
            if other := sorted(name for name in shared if mine[kind][name] != theirs[kind][name]):
                notes.append(f"{verb} differently than published: {listed(other, 5)}; compared nevertheless.")
        published = theirs["explainers"].items()
        if older := sorted(name for name, was in published if _revision(was["use"]) != was["revision"]):
            notes.append(f"Published with another revision: {listed(older, 5)}; run them to get their current scores.")
        return notes

    def shared(self, plan: Plan) -> pd.DataFrame:
        """Return the scores of the same images by the same metrics, of explainers that are not part of the run."""
        import pandas as pd

        mine, scores = identity(plan), self.scores
        same = {kind: [name for name, key in mine[kind].items() if self.about[kind].get(name) == key] for kind in _SAME}
        own = [part.name for part in plan.suite.explainers]
        models = list(dict.fromkeys(cell.model for cell in plan.cells))
        sets = pd.Series([_name_with_seed(*pair) for pair in zip(scores["dataset"], scores["data_seed"], strict=True)])
        kept = sets.isin(same["data"]).to_numpy() & scores["metric"].isin(same["metrics"])
        return scores[kept & scores["model"].isin(models) & ~scores["explainer"].isin(own)]


#: Parts that must be the same for scores to be merged.
_SAME = ("data", "metrics")


def find_published(against: str | Path, suite: Suite) -> Published:
    """Read published scores.

    Args:
        against: ``"published"`` for the scores of the same suite, the name of another suite, or a file written by
            :func:`write_published`.
        suite: The suite that is run.

    Raises:
        SuiteError: If the scores do not exist or cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = suite.name.removesuffix("-quick") if against == "published" else str(against)
    try:
        source = Path(name).expanduser() if name.endswith(".parquet") else PUBLISHED[name]
        with source.open("rb") as stream:
            table = pq.read_table(pa.BufferReader(stream.read()))
        about = json.loads(table.schema.metadata[_ABOUT])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise SuiteError(
            f"against is {str(against)!r}: there are no published scores of {name}. Expected one of "
            f"{listed(sorted(PUBLISHED), 9)}, or the path of a file that ends in .parquet."
        ) from error
    return Published(about["suite"], _restore_skills(table.to_pandas(), about), about)


def add_published(published: Published, plan: Plan, folder: Path) -> None:
    """Add published scores to the tables of a run folder, with labels that mark them as published.

    Samples count only if they count in both runs, for example if the network of both classifies them correctly.

    Args:
        published: The scores.
        plan: The plan of the run.
        folder: The run folder, with its tables.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = list(SCORES.text)
    mine = SCORES.read(folder).astype(dict.fromkeys(text, object))
    theirs = published.shared(plan)
    counted = mine.loc[mine["scored"], [*_ROW, "correct"]].drop_duplicates()
    theirs = theirs.merge(counted, on=_ROW)
    both = pd.MultiIndex.from_frame(theirs[_ROW].drop_duplicates())
    # In cells with published scores, only rows that both runs have count, so that all means are over the same samples.
    cells = [pd.MultiIndex.from_frame(rows[["dataset", "model"]]) for rows in (mine, theirs)]
    mine["scored"] &= ~cells[0].isin(cells[1]) | pd.MultiIndex.from_frame(mine[_ROW]).isin(both)
    places = mine[["dataset", "subset", "variant"]].drop_duplicates("dataset")
    directions = mine[["metric", "higher_is_better"]].drop_duplicates("metric")
    theirs = theirs.merge(places, on="dataset").merge(directions, on="metric").assign(scored=True, reason="")
    truths = {(cell.dataset_name, job.metric.name): cell.truth_of(job) for cell in plan.cells for _, job in cell.scores}
    theirs["truth"] = [truths[pair] for pair in zip(theirs["dataset"], theirs["metric"], strict=True)]
    rows = pd.concat([mine, theirs[mine.columns]], ignore_index=True)
    table = pa.Table.from_pandas(rows, SCORES.arrow_schema(), preserve_index=False)
    with atomic_file(folder / SCORES.name) as stream:
        pq.write_table(table, stream, write_page_checksum=True)
    counts = mine.loc[mine["scored"], list({*CELL, *_ROW})].drop_duplicates().groupby(list(CELL)).size()
    accuracy = ACCURACY.read(folder)
    rows_of = accuracy[list(CELL)].itertuples(index=False, name=None)
    accuracy["scored"] = [int(counts.get(cell, 0)) for cell in rows_of]
    with atomic_file(folder / ACCURACY.name) as stream:
        stream.write(ACCURACY.to_csv(accuracy))
    parts = read_parts(folder)
    words = {name: known["words"] for name, known in published.about["explainers"].items()}
    added = {name: PartDescription.of(name, words[name]) for name in dict.fromkeys(theirs["explainer"])}
    labeled = {name: replace(part, label=f"{part.label} (published)") for name, part in added.items()}
    with atomic_file(folder / PARTS) as stream:
        stream.write(replace(parts, explainers={**parts.explainers, **labeled}).to_json())


def write_published(folder: Path, file: Path) -> None:
    """Write the scores of a run folder as published scores.

    Args:
        folder: The folder of a complete run, made by this version of the library.
        file: The file to write; ends in ``.parquet``.

    Raises:
        SuiteError: If the folder lacks a score, for example because a part's revision has changed since.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    suite, _ = load_suite(folder / "suite.toml")
    plan, store = make_plan(suite), Store(folder / "store")
    done = store.keys("score")
    if lacking := [str(job) for job in plan.jobs if job.stage == "score" and job.key not in done]:
        raise SuiteError(
            f"{folder} lacks {len(lacking)} scores that its suite has in this version ({listed(lacking, 2)}). Complete "
            "the run with this version, and then publish it."
        )
    infos = {part.name: part.info for part in suite.explainers}
    unranked = [name for name, info in infos.items() if info.control or info.reference]
    rows = SCORES.read(folder, [*_KEYS, "value", "scored"])
    rows = rows.astype({key: object for key in _KEYS if key in SCORES.text})
    rows = rows[rows["scored"] & ~rows["explainer"].isin(unranked)].drop(columns="scored")
    skills = _find_skills(suite)
    rows = _replace_skills(rows, skills).sort_values(["metric", *_KEYS[:5], "sample"], kind="stable")
    # With fewer digits, a method would differ from its own copy: the chance level is the same for all images of a set,
    # so its error would not average out.
    rows["value"] = rows["value"].astype("float32")
    known, ran = read_parts(folder), read_environment(folder)
    where = {name: ran.get(name) for name in ("xaibench", "commit", "finished", "python", "versions", "machine")}
    about: dict[str, Any] = {"suite": suite.name, **where, **identity(plan)}
    about["explainers"] = {
        part.name: {
            "use": part.use,
            "revision": _revision(part.use),
            "words": known.explainers[part.name].plain(),
        }
        for part in suite.explainers
        if part.name not in unranked
    }
    about["skills"] = skills
    table = pa.Table.from_pandas(rows, preserve_index=False)
    table = table.replace_schema_metadata({_ABOUT: json.dumps(about).encode()})
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as stream:
        # A stream per byte of the scores compresses them to two thirds.
        names = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
        pq.write_table(
            table,
            stream,
            compression="zstd",
            compression_level=19,
            use_byte_stream_split=["value"],
            use_dictionary=names,
        )


def identity(plan: Plan) -> dict[str, dict[str, str]]:
    """Return what identifies the images, explanations, networks and metrics of a plan, each by name."""
    how = plan.suite.explaining
    return {
        # One entry per data set seed, because a run may have some of them only.
        "data": {_name_with_seed(cell.dataset_name, cell.data.seed): cell.data.key for cell in plan.cells},
        "explaining": {"output": how.output, "precision": how.precision, "trainings": how.trainings}
        | ({} if how.scored == "all" else {"scored": how.scored}),
        "trainings": {
            f"{cell.model} on {_name_with_seed(cell.dataset_name, cell.data.seed)}": " ".join(
                job.key for job in cell.trainings
            )
            for cell in plan.cells
        },
        "metrics": {part.name: _metric_identity(part, plan) for part in plan.suite.metrics},
    }


def _name_with_seed(name: str, seed: int) -> str:
    return f"{name} (seed {seed})"


def _revision(explainer: str) -> str:
    return ExplainerPart.of(explainer).revision


def _find_skills(suite: Suite) -> dict[str, str]:
    """Return the chance-corrected metrics of a suite whose underlying metric it has too, and that metric."""
    behind = {part.name: underlying_metric(suite, part) for part in suite.metrics}
    return {name: raw.name for name, raw in behind.items() if raw in suite.metrics}


#: Explainer name in rows that contain the chance level of the metric behind a chance-corrected metric.
_CHANCE = ""


def _replace_skills(rows: pd.DataFrame, skills: Mapping[str, str]) -> pd.DataFrame:
    """Replace chance-corrected scores by the chance level of each image: score = (raw - chance) / (1 - chance)."""
    import pandas as pd

    found = [rows[~rows["metric"].isin(skills)]]
    for name, raw in skills.items():
        keys = [key for key in _KEYS if key != "metric"]
        both = rows[rows["metric"] == name].merge(rows[rows["metric"] == raw], on=keys, suffixes=("", "_raw"))
        both = both[both["value"] < 0.99]  # near 1, the chance level cannot be recovered
        chance = (both["value_raw"] - both["value"]) / (1 - both["value"])
        each = both.assign(value=chance).groupby(_IMAGE, observed=True, as_index=False)["value"].median()
        found.append(each.assign(model="", seed=0, explainer=_CHANCE, metric=name))
    return pd.concat(found, ignore_index=True)[[*_KEYS, "value"]]


def _restore_skills(rows: pd.DataFrame, about: Mapping[str, Any]) -> pd.DataFrame:
    """Compute the chance-corrected scores from the stored chance levels."""
    import pandas as pd

    chance, scores = (rows[(rows["explainer"] == _CHANCE) == of] for of in (True, False))
    found = [scores]
    for name, raw in about.get("skills", {}).items():
        levels = chance[chance["metric"] == name][[*_IMAGE, "value"]].rename(columns={"value": "chance"})
        skill = scores[scores["metric"] == raw].merge(levels, on=_IMAGE)
        value = (skill["value"] - skill["chance"]) / (1 - skill["chance"])
        found.append(skill.assign(value=value, metric=name)[list(scores)])
    return pd.concat(found, ignore_index=True)


def _metric_identity(part: MetricPart, plan: Plan) -> str:
    """Return the identity of a metric: everything that affects its score of a map."""
    scores = {score for cell in plan.cells for _, score in cell.scores if score.metric == part}
    measured = [each for score in scores for each in (score, score.raw) if each is not None]
    protocol, _ = resolve_protocol(part.info, part.parameters, plan.suite.explaining.protocol)
    signs = {each.sign for each in measured if each.sign}
    return json.dumps([part.as_json(), protocol, sorted({each.revision for each in measured}), *signs])
