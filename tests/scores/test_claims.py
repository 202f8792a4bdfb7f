"""The papers' statements on runs: numbers computed in another way, verdicts, and the cells that count."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pointbiserialr, spearmanr

from xaibench.benchmarks.claims import Statement, all_claims
from xaibench.runner import run as run_suite
from xaibench.scores.cells import cell_matrices
from xaibench.scores.claims import (
    Cells,
    Claim,
    check_correlations,
    check_pairs,
    claims,
    evaluate_statement,
    exclusions,
    paired_scores,
)
from xaibench.scores.results import read_run

CONTROLS = {"sobel", "laplace", "uniform", "input"}


def enlarged(run):
    """The run as one on the data sets of 64×64 pixels."""
    names = run.scores["dataset"].astype(str).str.replace("8x8", "64x64").astype("category")
    return dataclasses.replace(run, scores=run.scores.assign(dataset=names))


def by_words(run, resamples=20):
    return {(claim.metric, " ".join(claim.statement.split()[:4])): claim for claim in claims(run, resamples=resamples)}


@pytest.fixture(scope="module")
def tested(shared_run):
    return by_words(read_run(shared_run), 200)


def test_numbers_are_those_computed_from_the_scores(shared_run, tested):
    scores = pd.read_parquet(shared_run / "scores.parquet").query("correct")
    means = scores.groupby(["metric", "subset", "variant", "model", "explainer"])["value"].mean().to_dict()
    pairs = [
        (means[m, s, "corr", n, e], mean)
        for (m, s, v, n, e), mean in means.items()
        if m == "emd_perf" and v == "white" and e not in CONTROLS
    ]
    claim = tested["emd_perf", "Correlated backgrounds lead to"]
    assert claim.value == pytest.approx(np.mean([low < high for low, high in pairs]))
    assert claim.cells == len(pairs)
    assert claim.verdict == "holds"  # the made scores are lower there by 0.1
    above = [
        mean > max(means[(*key[:4], name)] for name in CONTROLS)
        for key, mean in means.items()
        if key[0] == "topk_precision" and key[4] not in CONTROLS
    ]
    assert tested["topk_precision", "Most methods outperform the"].value == pytest.approx(np.mean(above), abs=0.02)


def test_intervals_hold_the_value_and_narrow_with_more_samples(shared_run, tested, tmp_path):
    few = shutil.copytree(shared_run, tmp_path / "few", ignore=shutil.ignore_patterns("figures", "tables"))
    scores = pd.read_parquet(few / "scores.parquet")
    scores[scores["sample"] < 6].to_parquet(few / "scores.parquet")
    assert all(claim.low <= claim.value <= claim.high for claim in tested.values())
    wide, narrow = (
        sum(claim.high - claim.low for claim in each.values()) for each in (by_words(read_run(few), 200), tested)
    )
    assert wide > 1.3 * narrow


@pytest.mark.parametrize(
    ("numbers", "above", "verdict"),
    [
        ((0.7, 0.6, 0.8), True, "holds"),
        ((0.7, 0.4, 0.8), True, "undecided"),
        ((0.3, 0.2, 0.4), True, "does not hold"),
        ((0.3, 0.2, 0.4), False, "holds"),
        ((0.7, 0.6, 0.8), False, "does not hold"),
    ],
)
def test_a_verdict_needs_the_whole_interval(numbers, above, verdict):
    value, low, high = numbers
    claim = Claim(value=value, low=low, high=high, bound=0.5, above=above, cells=3)
    assert (claim.verdict, claim.verdict_text, claim.bound_text[0]) == (verdict, verdict, "<>"[above])


def test_an_interval_that_resampling_has_biased_contains_the_value():
    recall = np.concatenate([[0.63], np.linspace(0.56, 0.62, 201)])
    cells = {("lin", "white", "mlp"): {"a": recall}}
    zero = {metric: {cell: {"a": 0 * recall} for cell in cells} for metric in ("precision",)}
    stated = Statement(check="difference", options={"other": "precision", "methods": ["a"]}, bound=0.625)
    claim = evaluate_statement(stated, "recall", Cells(cells, ("a",), others=zero))
    assert (claim.low, claim.value) == pytest.approx((0.5615, 0.63))
    assert claim.high == pytest.approx(0.6185 + 0.63 - 0.59)
    assert claim.verdict == "undecided"


def test_one_data_set_decides_no_statement_about_most_data_sets():
    claim = Claim(cells=1, value=0.0, low=0.0, high=0.0, bound=0.5, least=2)
    assert claim.verdict == "undecided"
    assert dataclasses.replace(claim, cells=2).verdict == "does not hold"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.95, "holds at 0.5 (also at 0.4 and 0.6)"),
        (0.55, "undecided at 0.5 (also at 0.6), holds at 0.4"),
        (0.3, "does not hold at 0.5 (also at 0.6), undecided at 0.4"),
    ],
)
def test_the_verdict_on_a_bound_of_ours_is_given_at_other_bounds(value, text):
    claim = Claim(value=value, low=value - 0.1, high=value + 0.1, bound=0.5, tried=(0.4, 0.6), cells=3)
    assert (claim.verdict_text, claim.bound_text) == (text, "> 0.5 (ours)")


def test_statements_are_tested_on_the_size_and_metric_of_the_paper(shared_run, tested):
    large = by_words(enlarged(read_run(shared_run)))
    assert ("topk_precision", "LIME struggles across all") in large.keys() - tested.keys()
    assert ("emd_perf", "Explanation performance decreases as") in tested.keys() - large.keys()
    assert ("emd_perf", "Correlated backgrounds lead to") in tested.keys() & large.keys()


def test_cells_that_support_no_claim_are_left_out_of_all_that_do_not_note_it(shared_run):
    run = enlarged(read_run(shared_run))
    accuracy = run.accuracy.copy()
    accuracy["mean"] = np.where((accuracy["subset"] == "lin") & (accuracy["model"] == "cnn"), 79.9, 95.0)
    photographs = run.scores.assign(variant=run.scores["variant"].cat.rename_categories({"white": "imagenet"}))
    note = {"xai-tris/xor-white-64x64": "10 photographs are the backgrounds of 40,000 samples."}
    environment = dict(run.environment) | {"notes": note}
    poor = dataclasses.replace(run, scores=photographs, accuracy=accuracy, environment=environment)
    assert exclusions(dataclasses.replace(run, accuracy=accuracy.assign(mean=80.0))) == []
    phrases = exclusions(poor)
    assert [phrase.partition(" (")[0] for phrase in phrases] == ["LIN CORR CNN", "XOR IMAGENET MLP, XOR IMAGENET CNN"]
    kept = photographs[
        ~((photographs["subset"] == "xor") & (photographs["variant"] == "imagenet"))
        & ~((photographs["subset"] == "lin") & (photographs["variant"] == "corr") & (photographs["model"] == "cnn"))
    ]
    without = dataclasses.replace(poor, scores=kept)
    assert exclusions(without) == []
    found, others = (
        {noted: [claim for claim in every if claim.noted is noted] for noted in (False, True)}
        for every in (claims(poor, resamples=20), claims(without, resamples=20))
    )
    assert found[False] == others[False] != []
    note = all_claims()["xai_tris"].noted[1]
    for claim, other in zip(found[True], others[True], strict=True):
        assert (claim.statement, claim.note, other.note) == (other.statement, note, "")
        assert claim.cells > other.cells or claim.statement != "On IMAGENET backgrounds the CNN is explained well"
        assert claim.verdict_text.endswith(f" ({note})")


def changed_metric(folder, target, **changes):
    """A copy of the run whose EMD has other facts."""
    target = shutil.copytree(folder, target, ignore=shutil.ignore_patterns("figures", "tables"))
    parts = json.loads((target / "descriptions.json").read_text())
    parts["metrics"]["emd_perf"] |= changes
    (target / "descriptions.json").write_text(json.dumps(parts))
    return target


def test_the_direction_of_a_metric_counts(shared_run, tested, tmp_path):
    """Under a metric of which lower is better, the same values say the opposite."""
    folder = changed_metric(shared_run, tmp_path / "lower", higher_is_better=False)
    scores = pd.read_parquet(folder / "scores.parquet")
    scores.loc[scores["metric"] == "emd_perf", "higher_is_better"] = False
    scores.to_parquet(folder / "scores.parquet")
    lower = by_words(read_run(folder))
    for words in ("Correlated backgrounds lead to", "On RIGID the CNN", "Explanation performance decreases as"):
        assert lower["emd_perf", words].value == pytest.approx(1 - tested["emd_perf", words].value)


def test_skills_are_no_scores_of_the_paper(shared_run, tmp_path):
    folder = changed_metric(shared_run, tmp_path / "skill", skill_of="emd")
    assert {claim.metric for claim in claims(read_run(folder), resamples=20)} == {"topk_precision"}


def test_each_paper_is_compared_on_its_own_data_sets(annotated_run, tested):
    assert {claim.paper for claim in claims(read_run(annotated_run), resamples=20)} == {"Zhang et al. 2023"}
    assert {claim.paper for claim in tested.values()} == {"Clark, Wilming, Haufe 2024"}
    assert {claim.source for claim in tested.values()} >= {"section 4; Figures 13 and 14", "Figure 15"}


def test_no_statement_is_about_a_network_that_the_paper_does_not_have(few_cells_run, four_columns):
    three, four = read_run(few_cells_run), read_run(four_columns)
    assert set(four.scores["model"]) > set(three.scores["model"])
    assert claims(four, resamples=20) == claims(three, resamples=20) != []


@pytest.mark.parametrize(("words", "method"), [("good by insertion", "gradcam"), ("pointing game and IoU", "rise")])
def test_correlations_are_those_of_scipy(annotated_run, words, method):
    run = read_run(annotated_run)
    matrices = list(cell_matrices(run))
    (stated,) = (each for each in all_claims()["saliency_bench"].correlations if words in each.statement)
    label = run.explainers[method].label
    (claim,) = (c for c in check_correlations(run, matrices, [stated], 50, 0) if c.statement.endswith(f"({label})"))
    expected = []
    for cell in matrices:
        columns = [cell.values[:, cell.metrics.index(name), cell.methods.index(method)] for name in stated.metrics]
        x, y = (v if run.metrics[n].higher_is_better else -v for n, v in zip(stated.metrics, columns, strict=True))
        expected.append((pointbiserialr if "hit" in stated.metrics else spearmanr)(x, y).statistic)
    assert claim.value == pytest.approx(np.mean(expected))
    assert claim.low <= claim.value <= claim.high


def test_samples_in_two_forms_are_compared_in_pairs(tmp_path):
    explainers = ["integrated_gradients", "sobel"]
    run_suite("watermarks", quick=True, explainers=explainers, out=tmp_path / "run", device="cpu")
    run, paper = read_run(tmp_path / "run"), all_claims()["watermarks"]
    scores = paired_scores(run, paper, "relative_importance")
    assert set(scores) == {("confounder", "bright", "small_cnn"), ("none", "bright", "small_cnn")}
    rows = run.scores[(run.scores["metric"] == "relative_importance") & (run.scores["model"] == "small_cnn")]
    for (regime, _, _), methods in scores.items():
        for name, values in methods.items():
            one = rows[(rows["subset"] == regime) & (rows["explainer"] == name)].sort_values("sample")["value"]
            assert np.array_equal(values[0], one.to_numpy().reshape(-1, 2))  # watermarked, plain
    tested = check_pairs(run, paper, 50, 0)
    assert [claim.statement.split()[0] for claim in tested] == ["Watermarks", "Importance", "Edge"]
    assert all(claim.low <= claim.value <= claim.high for claim in tested)
    assert tested == check_pairs(run, paper, 50, 0)
