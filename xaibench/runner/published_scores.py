"""Scores that come with the library, to rank a method of one's own among methods that need not be run again.

They are those of an ordinary run of a built-in suite, sample by sample, training by training and data set by data set,
so that a run beside them is one folder with one leaderboard and paired tests over the same draws. They stand beside
scores of the same images and the same metrics only: both are known by the keys of the jobs, in which all that decides
them has a part. What follows from other scores is not kept: the controls are made in every run, and a skill is
worked out from the metric that it reads against chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.core.atomic_files import whole_file
from xaibench.core.messages import listed
from xaibench.runfolder.descriptions import PARTS, PartWords, read_environment, read_parts
from xaibench.runfolder.tables import SCORES
from xaibench.runner.parts import find_part, part_info
from xaibench.runner.plan.planning import CellPlan, Plan, make_plan
from xaibench.runner.stages.merged_scores import score_truth, set_name
from xaibench.runner.store.result_store import Store
from xaibench.runner.suites.suite_files import load_suite
from xaibench.runner.suites.suite_tables import NamedPart, Suite, SuiteError

if TYPE_CHECKING:
    import pandas as pd

#: Those of the suites, by name.
FOLDER = resources.files("xaibench.runner.suites.built_in") / "published"

_KEYS = ["dataset", "model", "seed", "data_seed", "explainer", "metric", "sample"]
#: Decimals that are kept: what they leave out no interval of a few hundred samples can tell.
_DECIMALS = 3
#: What identifies an image among those of a run, and a row of scores.
_IMAGE = ["dataset", "data_seed", "sample"]
_ROW = ["dataset", "model", "data_seed", "seed", "sample"]
_ABOUT = b"xaibench"


@dataclass(frozen=True)
class Published:
    """Scores of a run that was made before.

    Attributes:
        name: Of the suite.
        scores: ``dataset, model, seed, data_seed, explainer, metric, sample, value`` of the samples that count.
        about: What they are scores of (``data``, ``trainings``, ``metrics``, ``explainers``), and where they are from.
    """

    name: str
    scores: pd.DataFrame
    about: Mapping[str, Any]

    def differences(self, plan: Plan) -> list[str]:
        """What of a run is not as it was here, in words; its scores are then left out, or to be read with care.

        Raises:
            SuiteError: If nothing can be compared.
        """
        mine, theirs = identity(plan), self.about
        made = [f"xaibench {theirs['xaibench']}", str(theirs["commit"] or "")[:10], theirs["finished"][:10]]
        found = [f"Beside the published scores of {self.name}: {', '.join(filter(None, made))}."]
        if plan.suite.name != self.name:
            found.append(f"This run is of {plan.suite.name}, which is another suite.")
        for what, effect in (("data", "other images; left out"), ("metrics", "measured otherwise; left out")):
            shared = mine[what].keys() & theirs[what].keys()
            other = sorted(name for name in shared if mine[what][name] != theirs[what][name])
            if not shared - set(other):
                raise SuiteError(
                    f"{plan.suite.name}: none of its {what} is that of the published scores of {self.name} "
                    f"({listed(sorted(theirs[what]), 3)}). Run that suite without --quick and with its own data and "
                    "metrics, or leave --against out."
                )
            if lacking := sorted(mine[what].keys() - shared):
                found.append(f"Not published: {listed(lacking, 5)}.")
            if other:
                found.append(f"Unlike the published {what}: {listed(other, 5)} ({effect}).")
        for what, words in (("trainings", "Trained"), ("explaining", "Explained")):
            shared = mine[what].keys() & theirs[what].keys()
            if other := sorted(name for name in shared if mine[what][name] != theirs[what][name]):
                found.append(f"{words} otherwise than published: {listed(other, 5)}; compared all the same.")
        published = theirs["explainers"].items()
        if older := sorted(name for name, was in published if _revision(was["use"]) != was["revision"]):
            found.append(f"Published with another revision: {listed(older, 5)}; run them to have them as they are now.")
        return found

    def shared(self, plan: Plan) -> pd.DataFrame:
        """The scores of the same images by the same metrics, of methods that the run does not have itself."""
        import pandas as pd

        mine, scores = identity(plan), self.scores
        same = {what: [name for name, key in mine[what].items() if self.about[what].get(name) == key] for what in _SAME}
        own = [part.name for part in plan.suite.explainers]
        models = list(dict.fromkeys(cell.model for cell in plan.cells))
        sets = pd.Series([_drawn_set(*pair) for pair in zip(scores["dataset"], scores["data_seed"], strict=True)])
        kept = sets.isin(same["data"]).to_numpy() & scores["metric"].isin(same["metrics"])
        return scores[kept & scores["model"].isin(models) & ~scores["explainer"].isin(own)]


#: What must be the same for scores to stand beside each other.
_SAME = ("data", "metrics")


def find_published(against: str | Path, suite: Suite) -> Published:
    """The published scores that ``against`` names.

    Args:
        against: ``"published"`` for those of the suite, the name of another suite, or a file that
            :func:`write_published` wrote.
        suite: The suite that is run.

    Raises:
        SuiteError: If there are none, or they cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    there = sorted(file.name.removesuffix(".parquet") for file in FOLDER.iterdir() if file.name.endswith(".parquet"))
    name = suite.name.removesuffix("-quick") if against == "published" else str(against)
    source = Path(name).expanduser() if name.endswith(".parquet") else FOLDER / f"{name}.parquet"
    try:
        with source.open("rb") as stream:
            table = pq.read_table(pa.BufferReader(stream.read()))
        about = json.loads(table.schema.metadata[_ABOUT])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise SuiteError(
            f"against is {str(against)!r}: there are no published scores of {name}. Scores are published of: "
            f"{listed(there, 9)}; a file of your own is given as a path that ends in .parquet."
        ) from error
    return Published(about["suite"], _with_skills(table.to_pandas(), about), about)


def add_published(published: Published, plan: Plan, folder: Path) -> None:
    """Put the published scores into the tables of a run folder, under labels that say so.

    Only samples of trainings that count in both, because the networks there and here classify them correctly, count.

    Args:
        published: The scores.
        plan: Of the run.
        folder: Its folder, gathered.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = list(SCORES.text)
    mine = SCORES.read(folder).astype(dict.fromkeys(text, object))
    theirs = published.shared(plan)
    counted = mine.loc[mine["correct"], _ROW].drop_duplicates()
    theirs = theirs.merge(counted, on=_ROW)
    both = pd.MultiIndex.from_frame(theirs[_ROW].drop_duplicates())
    # Of a cell that is published, only what was drawn in both: else its means were over other draws than the others'.
    cells = [pd.MultiIndex.from_frame(rows[["dataset", "model"]]) for rows in (mine, theirs)]
    mine["correct"] &= ~cells[0].isin(cells[1]) | pd.MultiIndex.from_frame(mine[_ROW]).isin(both)
    places = mine[["dataset", "scenario", "background"]].drop_duplicates("dataset")
    directions = mine[["metric", "higher_is_better"]].drop_duplicates("metric")
    theirs = theirs.merge(places, on="dataset").merge(directions, on="metric").assign(correct=True, reason="")
    truths = {
        (set_name(cell), job.metric.name): score_truth(cell, job) for cell in plan.cells for _, job in cell.scores
    }
    theirs["truth"] = [truths[pair] for pair in zip(theirs["dataset"], theirs["metric"], strict=True)]
    rows = pd.concat([mine, theirs[mine.columns]], ignore_index=True)
    table = pa.Table.from_pandas(rows, SCORES.arrow_schema(), preserve_index=False)
    with whole_file(folder / SCORES.name) as stream:
        pq.write_table(table, stream, write_page_checksum=True)
    parts = read_parts(folder)
    words = {name: known["words"] for name, known in published.about["explainers"].items()}
    added = {name: PartWords.of(name, words[name]) for name in dict.fromkeys(theirs["explainer"])}
    labelled = {name: replace(part, label=f"{part.label} (published)") for name, part in added.items()}
    with whole_file(folder / PARTS) as stream:
        stream.write(replace(parts, explainers={**parts.explainers, **labelled}).to_json())


def write_published(folder: Path, file: Path) -> None:
    """Write the scores of a run folder as published ones.

    Args:
        folder: Of a whole run, by this version: every score is looked up under the key that it has now.
        file: Where to; ends in ``.parquet``.

    Raises:
        SuiteError: If the folder lacks a score, as after a change of a part's revision.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    suite, _ = load_suite(folder / "suite.toml")
    plan, store = make_plan(suite), Store(folder / "store")
    done = store.keys("score")
    if lacking := [str(job) for job in plan.jobs if job.stage == "score" and job.key not in done]:
        raise SuiteError(
            f"{folder} lacks {len(lacking)} scores of its suite as it would run now ({listed(lacking, 2)}). Run it to "
            "the end with this version, and then publish it."
        )
    infos = {part.name: part_info("explainer", part.use) for part in suite.explainers}
    unranked = [name for name, info in infos.items() if info and (info.control or info.reference)]
    rows = SCORES.read(folder, [*_KEYS, "value", "correct"])
    rows = rows.astype({key: object for key in _KEYS if key in SCORES.text})
    rows = rows[rows["correct"] & ~rows["explainer"].isin(unranked)].drop(columns="correct")
    skills = _skills(suite)
    rows = _without_skills(rows, skills).sort_values(_KEYS, kind="stable")
    rows["value"] = rows["value"].round(_DECIMALS).astype("float32")
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
    with whole_file(file) as stream:
        pq.write_table(table, stream, compression="zstd", compression_level=19)


def identity(plan: Plan) -> dict[str, dict[str, str]]:
    """What decides the images, the networks and the measuring of a plan, each under its name."""
    how = plan.suite.explaining
    return {
        "data": dict(_per_set(plan)),
        "explaining": {"output": how.output, "precision": how.precision, "trainings": how.trainings},
        "trainings": {
            f"{cell.model} on {_drawn_set(set_name(cell), cell.data.seed)}": _joined(job.key for job in cell.trainings)
            for cell in plan.cells
        },
        "metrics": {part.name: _metric(part, plan) for part in plan.suite.metrics},
    }


def _per_set(plan: Plan) -> Iterator[tuple[str, str]]:
    """Each data set of each seed, which a run may have some of."""
    yield from dict.fromkeys((_drawn_set(set_name(cell), cell.data.seed), cell.data.key) for cell in plan.cells)


def _drawn_set(name: str, seed: int) -> str:
    return f"{name} (seed {seed})"


def _revision(explainer: str) -> str:
    return find_part("explainer", explainer).revision


def _skills(suite: Suite) -> dict[str, str]:
    """The metrics of a suite that read another one of it against chance, and which."""
    names = {part.use: part.name for part in suite.metrics}
    return {part.name: names[raw] for part in suite.metrics if (raw := find_part("metric", part.use).skill_of) in names}


#: In place of an explainer: what chance scores by the metric that a skill is of.
_CHANCE = ""


def _without_skills(rows: pd.DataFrame, skills: Mapping[str, str]) -> pd.DataFrame:
    """Each image's chance in place of the scores of a skill, which follow from it: (score - chance) / (1 - chance)."""
    import pandas as pd

    found = [rows[~rows["metric"].isin(skills)]]
    for name, raw in skills.items():
        keys = [key for key in _KEYS if key != "metric"]
        both = rows[rows["metric"] == name].merge(rows[rows["metric"] == raw], on=keys, suffixes=("", "_raw"))
        both = both[both["value"] < 0.99]  # beside 1 nothing is left of chance
        chance = (both["value_raw"] - both["value"]) / (1 - both["value"])
        each = both.assign(value=chance).groupby(_IMAGE, observed=True, as_index=False)["value"].median()
        found.append(each.assign(model="", seed=0, explainer=_CHANCE, metric=name))
    return pd.concat(found, ignore_index=True)[[*_KEYS, "value"]]


def _with_skills(rows: pd.DataFrame, about: Mapping[str, Any]) -> pd.DataFrame:
    """The scores of skills again."""
    import pandas as pd

    chance, scores = (rows[(rows["explainer"] == _CHANCE) == of] for of in (True, False))
    found = [scores]
    for name, raw in about.get("skills", {}).items():
        levels = chance[chance["metric"] == name][[*_IMAGE, "value"]].rename(columns={"value": "chance"})
        skill = scores[scores["metric"] == raw].merge(levels, on=_IMAGE)
        value = (skill["value"] - skill["chance"]) / (1 - skill["chance"])
        found.append(skill.assign(value=value, metric=name)[list(scores)])
    return pd.concat(found, ignore_index=True)


def _metric(part: NamedPart, plan: Plan) -> str:
    """A metric with all that decides its score of a map."""
    jobs = {score for _, score in _scores(plan.cells) if score.metric == part}
    revised = {each.revision for score in jobs for each in (score, score.raw) if each is not None}
    return json.dumps([part.as_json(), plan.suite.explaining.protocol, sorted(revised)])


def _scores(cells: tuple[CellPlan, ...]) -> Iterator[Any]:
    for cell in cells:
        yield from cell.scores


def _joined(keys: Any) -> str:
    return " ".join(keys)
