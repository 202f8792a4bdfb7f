"""The report's numbers again: one score after the other, no pandas, no shared code, only the definitions."""

import math

from scipy import stats


def quantile(ordered: list[float], q: float) -> float:
    """Linear interpolation between the two nearest of the sorted values (Hyndman and Fan, type 7)."""
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def summarize(rows: list[dict], controls: set[str], answers: set[tuple[str, str, str]]) -> dict[tuple, dict]:
    """``{(subset, variant, model, explainer, metric): numbers}`` from rows of scores.

    ``answers``: subset, variant and name of controls that are the answer by construction, and are not ranked.
    """
    keys = ("subset", "variant", "model", "explainer", "metric")
    table: dict[tuple, dict] = {}
    for row in rows:
        entry = table.setdefault(
            tuple(row[key] for key in keys), {"all": [], "higher_is_better": row["higher_is_better"]}
        )
        if row["correct"]:
            entry["all"].append(row["value"])
    for entry in table.values():
        values = sorted(value for value in entry["all"] if not math.isnan(value))
        entry["n"], entry["n_valid"] = len(entry["all"]), len(values)
        if values:
            entry["mean"] = math.fsum(values) / len(values)
            entry["min"], entry["max"] = values[0], values[-1]
            entry["q25"], entry["median"], entry["q75"] = (quantile(values, q) for q in (0.25, 0.5, 0.75))
        if len(values) > 1:
            squares = math.fsum((value - entry["mean"]) ** 2 for value in values)
            entry["std"] = math.sqrt(squares / (len(values) - 1))
    for key, entry in table.items():
        ranked = {key: one for key, one in table.items() if (key[0], key[1], key[3]) not in answers}
        if key in ranked:
            _compare(key, entry, ranked, controls)
    return table


def _compare(key: tuple, entry: dict, table: dict[tuple, dict], controls: set[str]) -> None:
    if "mean" not in entry:
        return
    rivals = {
        other[3]: theirs
        for other, theirs in table.items()
        if (*other[:3], other[4]) == (*key[:3], key[4]) and "mean" in theirs
    }
    better = sum(_beats(theirs, entry) for theirs in rivals.values())
    level = sum(not _beats(theirs, entry) and not _beats(entry, theirs) for theirs in rivals.values())
    entry["rank"] = better + (level + 1) / 2
    bars = [theirs for name, theirs in rivals.items() if name in controls]
    if key[3] not in controls and bars:
        entry["above_controls"] = all(_beats(entry, bar) for bar in bars)


def _beats(one: dict, other: dict) -> bool:
    sign = 1 if one["higher_is_better"] else -1
    if math.isclose(one["mean"], other["mean"], rel_tol=0, abs_tol=1e-12):
        return False
    return sign * one["mean"] > sign * other["mean"]


def ranks_over_samples(rows: list[dict]) -> tuple[dict[str, float], int]:
    """Mean rank of each explainer over the rows (sample, training) on which all have a defined score; one cell."""
    table: dict[tuple, dict[str, float]] = {}
    for row in rows:
        if row["correct"] and not math.isnan(row["value"]):
            table.setdefault((row["data_seed"], row["seed"], row["sample"]), {})[row["explainer"]] = row["value"]
    names = {name for scores in table.values() for name in scores}
    whole = [scores for scores in table.values() if set(scores) == names]
    sign = 1 if rows[0]["higher_is_better"] else -1
    totals = dict.fromkeys(names, 0.0)
    for scores in whole:
        for name, value in scores.items():
            better = sum(sign * other > sign * value for other in scores.values())
            level = sum(other == value for other in scores.values())
            totals[name] += better + (level + 1) / 2
    return {name: total / len(whole) for name, total in totals.items()}, len(whole)


def t_of_groups(rows: list[dict], first: str, second: str, group: dict[int, str]) -> tuple[float, float]:
    """Mean difference of two explainers on one cell and metric, and the p-value of Student's t over groups of samples.

    The variance is that of the jackknife: of the means without each group.
    """
    scores = {row["sample"]: row["value"] for row in rows if row["correct"] and row["explainer"] == first}
    others = {row["sample"]: row["value"] for row in rows if row["correct"] and row["explainer"] == second}
    differences = {sample: value - others.get(sample, math.nan) for sample, value in scores.items()}
    differences = {sample: value for sample, value in differences.items() if not math.isnan(value)}
    n = len(differences)
    mean = math.fsum(differences.values()) / n
    groups = {group[sample] for sample in differences}
    g, total = len(groups), 0.0
    for left_out in groups:
        kept = [value for sample, value in differences.items() if group[sample] != left_out]
        total += (math.fsum(kept) / len(kept) - mean) ** 2
    variance = total * (g - 1) / g
    return mean, float(2 * stats.t.sf(abs(mean) / math.sqrt(variance), g - 1))


def holm(p: list[float]) -> list[float]:
    """Step down: the smallest times their number, the next times one less, never falling, never above one."""
    adjusted, reached = [0.0] * len(p), 0.0
    for place, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        reached = max(reached, min(1.0, p[index] * (len(p) - place)))
        adjusted[index] = reached
    return adjusted
