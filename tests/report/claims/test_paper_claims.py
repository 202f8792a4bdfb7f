"""The paper's statements: their numbers are the literal ones, and their intervals cover what resampling does."""

import dataclasses
import itertools
import json

import numpy as np
import pandas as pd
import pytest

from xaibench.benchmarks.xai_tris.claims import SHAP
from xaibench.report.claims.across_sizes import across_sizes
from xaibench.report.claims.evaluation import Claim
from xaibench.report.claims.paper_claims import claims, exclusions
from xaibench.report.read.results import read_run

CONTROLS = {"sobel", "laplace", "uniform", "input"}


def enlarged(run):
    """The run as one on the data sets of 64×64 pixels."""
    names = run.scores["dataset"].astype(str).str.replace("8x8", "64x64").astype("category")
    return dataclasses.replace(run, scores=run.scores.assign(dataset=names))


def both_sizes(folder, resamples):
    """Claims by metric and statement, of the run and of the same one at 64×64."""
    run = read_run(folder)
    every = claims(enlarged(run), resamples=resamples) + claims(run, resamples=resamples)
    return {(claim.metric, claim.statement): claim for claim in every}


@pytest.fixture(scope="module")
def found(shared_run):
    return both_sizes(shared_run, 200)


@pytest.fixture(scope="module")
def means(shared_run):
    scores = pd.read_parquet(shared_run / "scores.parquet").query("correct")
    return scores.groupby(["metric", "subset", "variant", "model", "explainer"])["value"].mean().to_dict()


def one(found, metric, words):
    (claim,) = (claim for (name, statement), claim in found.items() if name == metric and words in statement)
    return claim


def share(pairs):
    return np.mean([1.0 if low < high else 0.5 if low == high else 0.0 for low, high in pairs])


@pytest.mark.parametrize("metric", ["emd_perf", "topk_precision"])
def test_the_numbers_are_the_literal_ones(found, means, metric):
    mine = {key[1:]: value for key, value in means.items() if key[0] == metric}
    methods = [key for key in mine if key[3] not in CONTROLS]
    corr = [(mine[s, "corr", m, e], mine[s, b, m, e]) for s, b, m, e in methods if b == "white"]
    assert one(found, metric, "Correlated backgrounds").value == pytest.approx(share(corr))
    assert one(found, metric, "Correlated backgrounds").cells == len(corr)
    if metric == "topk_precision":
        best = [(max(mine[(*key[:3], name)] for name in CONTROLS), mine[key]) for key in methods]
        assert one(found, metric, "Most methods outperform").value == pytest.approx(share(best))
        return
    for scenario in ("rigid", "xor"):
        here = [(mine[key], mine[(*key[:3], "laplace")]) for key in methods if key[:2] == (scenario, "corr")]
        assert one(
            found, metric, f"On {scenario.upper()} with correlated backgrounds the Laplace filter outperforms"
        ).value == pytest.approx(share(here))
    pairs = [
        (mine[s, b, second, e], mine[s, b, m, e])
        for first, second in (("llr", "mlp"), ("mlp", "cnn"))
        for s, b, m, e in methods
        if m == first and s != "rigid" and (s, b, second, e) in mine
    ]
    assert one(found, metric, "Explanation performance decreases").value == pytest.approx(share(pairs))
    assert one(found, metric, "In a few cases performance decreases").value == pytest.approx(share(pairs))
    spreads = []
    for cell, keys in itertools.groupby(sorted(methods), key=lambda key: key[:3]):
        values = {key[3]: mine[key] for key in keys}
        shap = [values[name] for name in SHAP if name in values]
        if len(shap) > 1:
            spreads.append(np.ptp(shap) / np.ptp(list(values.values())))
        assert cell
    alike = [claim for key, claim in found.items() if key[0] == metric and "SHAP" in key[1]]
    assert [claim.value for claim in alike] == ([pytest.approx(np.mean(spreads))] if spreads else [])


def test_intervals_hold_the_value_and_tell_what_is_clear(found):
    for claim in found.values():
        assert claim.low <= claim.high
        assert claim.low - 0.15 <= claim.value <= claim.high + 0.15  # a share of few comparisons has few values
    clear = one(found, "emd_perf", "Correlated backgrounds")  # the made scores are lower there by 0.1
    assert clear.verdict == "holds"
    assert clear.low > 0.5


def test_more_samples_make_it_narrower(shared_run, tmp_path):
    run = read_run(shared_run)
    few = tmp_path / "few"
    few.mkdir()
    for path in shared_run.iterdir():
        if path.is_file():
            (few / path.name).write_bytes(path.read_bytes())
    scores = pd.read_parquet(few / "scores.parquet")
    scores[scores["sample"] < 6].to_parquet(few / "scores.parquet")

    def width(claim):
        return claim.high - claim.low

    wide = {claim.statement: width(claim) for claim in claims(read_run(few), resamples=200)}
    narrow = {claim.statement: width(claim) for claim in claims(run, resamples=200)}
    assert sum(wide.values()) > 1.3 * sum(narrow.values())


def claim(value, low, high, *, bound=0.5, above=True):
    return Claim("s", "p", "m", "q", 3, value, low, high, bound, above)


def test_a_source_is_a_paper_and_a_place():
    stated = Claim(
        "s", "Clark, Wilming, Haufe 2024, section 4; Figures 13 and 14", "m", "q", 3, 0.7, 0.6, 0.8, 0.5, True
    )
    assert (stated.paper, stated.place) == ("Clark, Wilming, Haufe 2024", "section 4; Figures 13 and 14")


def test_a_verdict_needs_the_whole_interval():
    assert claim(0.7, 0.6, 0.8).verdict == "holds"
    assert claim(0.7, 0.4, 0.8).verdict == "undecided"
    assert claim(0.3, 0.2, 0.4).verdict == "does not hold"
    assert claim(0.3, 0.2, 0.4, above=False).verdict == "holds"
    assert claim(0.7, 0.6, 0.8, above=False).verdict == "does not hold"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.95, "holds at 0.5 (also at 0.4 and 0.6)"),
        (0.55, "undecided at 0.5 (also at 0.6), holds at 0.4"),
        (0.3, "does not hold at 0.5 (also at 0.6), undecided at 0.4"),
    ],
)
def test_the_verdict_on_a_bound_of_ours_is_given_at_other_bounds(value, text):
    ours = dataclasses.replace(claim(value, value - 0.1, value + 0.1), tried=(0.4, 0.6))
    assert (ours.verdict_text, ours.bound_text) == (text, "> 0.5 (ours)")
    stated = claim(0.7, 0.6, 0.8, above=False)
    assert (stated.verdict_text, stated.bound_text) == ("does not hold", "< 0.5")


def test_statements_are_tested_on_the_size_and_metric_of_the_paper(shared_run):
    run = read_run(shared_run)
    small, large = (
        {(claim.metric, claim.statement.split()[0]) for claim in claims(each, resamples=20)}
        for each in (run, enlarged(run))
    )
    assert ("topk_precision", "LIME") in large - small
    assert ("emd_perf", "LIME") not in large
    assert ("emd_perf", "Explanation") in small - large
    assert ("emd_perf", "Correlated") in small & large


def test_cells_that_support_no_claim_are_left_out(shared_run):
    run = enlarged(read_run(shared_run))
    accuracy = run.accuracy.copy()
    accuracy["mean"] = np.where((accuracy["subset"] == "lin") & (accuracy["model"] == "cnn"), 79.9, 95.0)
    photographs = run.scores.assign(variant=run.scores["variant"].cat.rename_categories({"white": "imagenet"}))
    note = {"xai-tris/xor-white-64x64": "10 photographs are the backgrounds of 40,000 samples."}
    poor = dataclasses.replace(
        run, scores=photographs, accuracy=accuracy, environment=dict(run.environment) | {"notes": note}
    )
    assert exclusions(dataclasses.replace(run, accuracy=accuracy.assign(mean=80.0))) == []
    phrases = exclusions(poor)
    assert [phrase.partition(" (")[0] for phrase in phrases] == ["LIN CORR CNN", "XOR IMAGENET MLP, XOR IMAGENET CNN"]
    kept = photographs[
        ~((photographs["subset"] == "xor") & (photographs["variant"] == "imagenet"))
        & ~((photographs["subset"] == "lin") & (photographs["variant"] == "corr") & (photographs["model"] == "cnn"))
    ]
    without = dataclasses.replace(poor, scores=kept)
    assert exclusions(without) == []
    assert claims(poor, resamples=20) == claims(without, resamples=20) != []


def test_the_direction_of_a_metric_counts(shared_run, tmp_path):
    """Under a metric of which lower is better, the same values say the opposite."""
    for path in shared_run.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    parts = json.loads((tmp_path / "parts.json").read_text())
    parts["metrics"]["emd_perf"]["higher_is_better"] = False
    (tmp_path / "parts.json").write_text(json.dumps(parts))
    scores = pd.read_parquet(tmp_path / "scores.parquet")
    scores.loc[scores["metric"] == "emd_perf", "higher_is_better"] = False
    scores.to_parquet(tmp_path / "scores.parquet")
    turned, plain = (
        {statement: claim for (metric, statement), claim in both_sizes(folder, 50).items() if metric == "emd_perf"}
        for folder in (tmp_path, shared_run)
    )
    shares = [each for each in plain if each.startswith(("Correlated", "On RIGID", "On XOR", "Explanation"))]
    assert len(shares) >= 5
    for statement in shares:
        assert turned[statement].value == pytest.approx(1 - plain[statement].value)


def test_each_paper_is_held_against_its_own_sets(annotated_run, shared_run):
    annotated, generated = (
        {claim.source[:5] for claim in claims(read_run(r), resamples=20)} for r in (annotated_run, shared_run)
    )
    assert annotated == {"Zhang"}
    assert generated == {"Clark"}


def test_skills_are_no_scores_of_the_paper(shared_run, tmp_path):
    for path in shared_run.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    parts = json.loads((tmp_path / "parts.json").read_text())
    parts["metrics"]["emd_perf"]["skill_of"] = "emd"
    (tmp_path / "parts.json").write_text(json.dumps(parts))
    assert {claim.metric for claim in claims(read_run(tmp_path), resamples=20)} == {"topk_precision"}


def test_no_statement_is_about_a_network_that_the_paper_does_not_have(few_cells_run, four_columns):
    three, four = read_run(few_cells_run), read_run(four_columns)
    assert set(four.scores["model"]) > set(three.scores["model"])
    assert claims(four, resamples=20) == claims(three, resamples=20) != []
    of_both = []
    for run in (three, four):
        skilled = dataclasses.replace(run, metrics=_with_skill(run.metrics))
        of_both.append(across_sizes(skilled, skilled, resamples=20))
    assert of_both[0] == of_both[1] != []


def _with_skill(metrics):
    return {name: dataclasses.replace(part, skill_of="emd_perf") for name, part in metrics.items()}
