"""Methods are run again only if they may be, and every score is compared."""

import dataclasses
import math

import numpy as np
import pytest
from leaderboard.forging import with_scores, with_text

from xaibench.leaderboard.manifest import ResultError, result_checksum
from xaibench.leaderboard.scores import STEP, read_scores
from xaibench.leaderboard.verification import compare_scores, verify
from xaibench.leaderboard.verified import (
    VERIFIED,
    Verification,
    find_verification,
    read_verified,
    record_verification,
)


@pytest.fixture
def scores(result):
    return read_scores(result, 1000)


def test_a_method_of_ones_own_is_verified_and_recorded(result, finished_once, typed):
    """``finished_once`` keeps the module of the method importable."""
    repository = result.parent.parent
    arguments = ["results", "verify", str(repository), "--workers", "1", "--record"]
    refused = typed(arguments)
    assert refused.exit_code == 1
    assert "runs mine:gxi, which is not part of the library" in " ".join(refused.output.split())
    assert set(read_verified(repository)) == {f"saliency/{result.name}"}  # a library's explainer needs no option
    accepted = typed([*arguments, "--new", "--explainers", "mine.py:gxi"])
    assert accepted.exit_code == 0, accepted.output
    verification = find_verification(result)
    assert verification.verdict == "bit-equal"
    assert verification.ignores == ()
    assert verification.changed["weights"] > 0.5
    assert verification.to_csv() in accepted.output
    assert typed([*arguments, "--new"]).output == ""


def test_forged_scores_differ(result, finished_once):
    def forge(table):
        values = np.where(np.isnan(table["value"].to_numpy()), np.nan, 0.9375)
        return table.set_column(table.column_names.index("value"), "value", [values])

    with_scores(result, forge)
    verification = verify(result, explainers=["mine:gxi"], engine="serial")
    assert verification.verdict == "differs"
    assert 0 < verification.largest_difference < 1


@pytest.mark.parametrize(
    "changes",
    [
        {"entry": "os:system"},
        {"entry": "subprocess.run"},
        {"entry": "saliency", "parameters": {"explainer": "os:system"}},
        {"entry": "saliency", "parameters": {"rules": [{"os:system": 1}]}},
    ],
)
def test_code_that_was_not_named_is_not_run(result, changes):
    with pytest.raises(ResultError, match="which is not part of the library"):
        verify(with_text(result, **changes), explainers=["mine:gxi"], engine="serial")


def test_parameters_cannot_name_another_explainer(result):
    with pytest.raises(ResultError, match="which is not part of the library"):
        verify(with_text(result, entry="saliency", parameters={"use": "os:system"}), engine="serial")


def test_a_result_that_fails_the_check_is_not_run(result):
    (result / "mine.py").write_text("import this_would_fail")
    with pytest.raises(ResultError, match="is refused before it is run"):
        verify(result, explainers=["mine:gxi"])


def test_facts_that_a_run_does_not_confirm_are_refused(result, finished_once):
    file = result.parent.parent / "suites" / result.name / "facts.json"
    file.write_text(file.read_text().replace('"lin,white,llr,0.9,1,', '"lin,white,llr,0.9,7,'))
    with pytest.raises(ResultError, match="have other accuracy than its run"):
        verify(result, explainers=["mine:gxi"], engine="serial")


def test_the_largest_difference_of_a_score(scores):
    assert compare_scores(scores, scores)[0] == 0
    rounded, _ = compare_scores(scores, scores.assign(value=scores["value"] + 9e-7))
    assert rounded == pytest.approx(9e-7, abs=STEP)
    first = scores["value"].first_valid_index()
    one, where = compare_scores(scores, scores.assign(value=scores["value"].where(scores.index != first, 2.0)))
    row = scores.loc[first]
    assert (one, where) == (pytest.approx(2 - row["value"]), f"{row['dataset']} {row['model']} {row['metric']}")


def test_rows_that_one_side_lacks_differ(scores):
    undefined = scores.assign(value=np.nan)
    assert compare_scores(undefined, undefined)[0] == 0
    chance = scores.astype({"reason": object}).assign(reason="map is all zero: scored as chance")
    assert compare_scores(chance, chance)[0] == 0
    for other in (scores[scores["model"] == "mlp"], scores[:-1], undefined, scores.assign(correct=False), chance):
        assert compare_scores(scores, other)[0] == compare_scores(other, scores)[0] == math.inf


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.0, "bit-equal"), (1e-7, "equal"), (1e-5, "differs"), (math.inf, "differs")]
)
def test_rows_of_verified_csv_are_read_as_they_were_written(result, difference, verdict):
    repository, name = result.parent.parent, "/".join(result.parts[-2:])
    row = Verification(name, result_checksum(result), "0.2.0", "abc", difference, {"weights": 0.25, "image": 1.0})
    record_verification(repository, dataclasses.replace(row, sha256="0" * 64))
    assert find_verification(result) is None  # of another state
    record_verification(repository, row)
    assert find_verification(result) == row
    assert (row.verdict, row.ignores) == (verdict, ("network",))
    (repository / VERIFIED).write_text("result\nx\n")
    with pytest.raises(ResultError):
        read_verified(repository)
