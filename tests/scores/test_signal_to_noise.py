"""Accuracies over signal-to-noise ratios: the paper's rule, and the statements on the curves."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from xaibench.benchmarks.claims import all_claims
from xaibench.scores.claims import check_accuracies, resampled_accuracies
from xaibench.scores.signal_to_noise import accuracy_summary, chosen_ratios

RATIOS = (0.1, 0.2, 0.4)


def run_of(*rows, paper=()):
    """``rows``: (subset, variant, model, the two test accuracies at each ratio); ``paper``: cells and ratios it has."""
    trainings = [
        {
            "subset": s,
            "variant": v,
            "model": m,
            "dataset": f"xai-tris/{s}-{v}-8x8",
            "alpha": alpha,
            "test_accuracy": one,
        }
        for s, v, m, reached in rows
        for alpha, both in zip(RATIOS, reached, strict=True)
        for one in both
    ]
    table = pd.DataFrame(trainings)
    keys = ["subset", "variant", "model", "alpha"]
    accuracy = table.groupby(keys, sort=False)["test_accuracy"].mean().rename("mean").reset_index()
    accuracy["paper"] = [85.0 if tuple(row) in paper else np.nan for row in accuracy[keys].to_numpy().tolist()]
    models = {name: SimpleNamespace(label=name.upper()) for name in ("llr", "mlp", "cnn")}
    return SimpleNamespace(accuracy=accuracy, trainings=table, accuracy_keys=tuple(keys), models=models, settings={})


def test_the_rule_takes_the_lowest_ratio_at_which_every_network_of_the_paper_has_80_percent():
    run = run_of(
        ("xor", "white", "llr", [(50, 51), (49, 52), (50, 50)]),
        ("xor", "white", "mlp", [(79, 81), (90, 92), (99, 99)]),  # a mean of exactly 80 suffices
        ("xor", "white", "cnn", [(60, 99), (75, 84), (95, 97)]),
        ("lin", "corr", "mlp", [(50, 50), (60, 61), (70, 72)]),
        paper={("xor", "white", name, 0.4) for name in ("mlp", "cnn")},
    )
    xor, lin = chosen_ratios(run)
    assert xor.lowest == {"llr": None, "mlp": 0.1, "cnn": 0.4}
    assert (xor.ours, xor.paper) == (0.4, 0.4)
    assert (lin.lowest, lin.ours, lin.paper) == ({"mlp": None}, None, None)
    assert accuracy_summary(run)["chosen"].tolist() == ["0.4", "none"]


def test_a_network_that_falls_below_80_percent_again_does_not_hide_the_first_ratio():
    run = run_of(("lin", "white", "mlp", [(85, 85), (70, 70), (99, 99)]))
    assert chosen_ratios(run)[0].ours == 0.1


def test_without_several_ratios_nothing_is_chosen_and_the_accuracies_are_printed():
    run = run_of(("lin", "white", "mlp", [(85, 85), (70, 70), (99, 99)]))
    run.accuracy = run.accuracy[:1].assign(low=84.04, high=86)
    run.accuracy_keys = ("subset", "variant", "model")
    assert chosen_ratios(run) == []
    assert resampled_accuracies(run, "", 5, 0) == {}
    assert accuracy_summary(run)["low"].tolist() == [84.0]


def statement(words):
    (found,) = [each for each in all_claims()["xai_tris"].accuracies if words in each.statement]
    return found


@pytest.mark.parametrize(
    ("words", "rows", "value", "verdict"),
    [
        (
            "logistic regression cannot perform above chance level for non-linear scenarios (8×8)",
            [("xor", "white", "llr", [(50, 50), (49, 51), (53, 53)]), ("lin", "white", "llr", [(99, 99)] * 3)],
            53.0,
            "holds at 55 (also at 60), does not hold at 52",
        ),
        (
            "the MLP reaches 80 % at a lower",
            [("rigid", "corr", "mlp", [(90, 90)] * 3), ("rigid", "corr", "cnn", [(60, 60), (70, 70), (90, 90)])],
            0.3,
            "holds",
        ),
        (
            "the MLP reaches 80 % at a lower",  # of the drawn trainings of the CNN, one passes and the other does not
            [("rigid", "corr", "mlp", [(90, 90)] * 3), ("rigid", "corr", "cnn", [(60, 99), (99, 99), (99, 99)])],
            0.1,
            "undecided",
        ),
        (
            "accuracies of CNN and MLP are comparable",
            [("rigid", "corr", "mlp", [(90, 90)] * 3), ("rigid", "corr", "cnn", [(60, 60), (90, 90), (90, 90)])],
            10.0,
            "does not hold at 5 (also at 2), undecided at 10",
        ),
    ],
)
def test_statements_on_accuracies(words, rows, value, verdict):
    (claim,) = check_accuracies(run_of(*rows), [statement(words)], resamples=200, seed=0)
    assert claim.verdict_text == verdict
    assert claim.value == pytest.approx(value)


def test_statements_of_another_size_are_left_out():
    run = run_of(("rigid", "corr", "mlp", [(90, 90)] * 3), ("rigid", "corr", "cnn", [(60, 60)] * 3))
    assert check_accuracies(run, [statement("outperforms the MLP on RIGID at 64×64")], resamples=9, seed=0) == []
