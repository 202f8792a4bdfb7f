"""Run again in a sandbox: what is refused, and the verdict on scores.

``test_verification_runs.py`` verifies honest results and a forged one.
"""

import dataclasses
import json
import tomllib

import numpy as np
import pytest
from leaderboard.forging import rewritten
from leaderboard.sandboxes import needs_sandbox

from xaibench.leaderboard import verification
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.sandbox.method import FittedSandboxedMethod
from xaibench.leaderboard.score_files import STEP
from xaibench.leaderboard.verification import compare_scores, verify
from xaibench.runfolder.tables import SCORES

pytestmark = needs_sandbox

#: Learns where the answers lie from the masks of the training samples.
SUPERVISED = """
class gxi:
    def __init__(self, power=1.0): ...
    def fit(self, network, batches):
        self.where = sum(masks.double().mean(0) for _, masks, _ in batches)
        return self
    def __call__(self, model, images, targets):
        return self.where.expand(len(images), -1, -1)
"""


def test_networks_and_sandbox_are_where_it_is_told(result, tmp_path, monkeypatch):
    class ToldError(Exception):
        pass

    def run(file, *_, device, **__):
        (explainer,) = tomllib.loads(file.read_text())["explainers"].values()
        raise ToldError(device, json.loads(explainer["settings"])["device"])

    monkeypatch.setattr(verification, "run", run)
    with pytest.raises(ToldError) as told:
        verify(result, work=tmp_path / "told", device="meta")
    assert told.value.args == ("meta", "meta")
    monkeypatch.setattr(verification.sandboxed_method, "has_fit", lambda settings: False)  # which starts a sandbox
    with pytest.raises(ToldError) as told:
        verify(result, work=tmp_path / "told")
    assert told.value.args == ("cpu", "cpu")
    with pytest.raises(ValueError, match="There is no device 'abacus' here"):
        verify(result, work=tmp_path / "told", device="abacus")


def test_a_method_that_learns_from_the_masks_is_refused(result, tmp_path):
    (result / "method" / "mine.py").write_text(SUPERVISED)
    with pytest.raises(ResultError, match=r"gxi is refused: .*it reads the masks of the training samples"):
        verify(rewritten(result), work=tmp_path / "supervised", engine="serial")


def test_what_does_not_pass_the_check_is_not_run(result):
    (result / "method" / "mine.py").write_text("import this_would_fail")
    with pytest.raises(ResultError, match=r"is refused before it is run: the files below method were modified"):
        verify(result)


def test_the_verdict_follows_the_largest_difference_of_a_score(submitted):
    scores = SCORES.read(submitted)
    assert compare_scores(scores, scores).verdict == "bit-equal"
    rounded = compare_scores(scores, scores.assign(value=scores["value"] + 9e-7))
    assert (rounded.verdict, rounded.equal_rows) == ("equal", int(scores["value"].isna().sum()))
    assert rounded.largest_difference == pytest.approx(9e-7, abs=STEP)
    first = scores["value"].first_valid_index()
    one = compare_scores(scores, scores.assign(value=scores["value"].where(scores.index != first, 2.0)))
    assert (one.verdict, one.largest_difference) == ("differs", pytest.approx(2 - scores["value"][first]))
    row = scores.loc[first]
    assert one.where == f"{row['dataset']} {row['model']} {row['metric']}"


def test_every_score_set_to_its_mean_differs(submitted):
    """Where means of cells were compared, this passed, with an interval of width zero."""
    scores = SCORES.read(submitted)
    means = scores.groupby(["dataset", "model", "metric"], observed=True)["value"].transform("mean")
    assert compare_scores(scores.assign(value=means), scores).verdict == "differs"


def test_rows_that_one_side_lacks_differ(submitted):
    scores = SCORES.read(submitted)
    undefined = scores.assign(value=np.nan)
    assert compare_scores(undefined, undefined).verdict == "bit-equal"
    for other in (scores[scores["model"] == "mlp"], scores.iloc[:-1], undefined, scores.assign(correct=False)):
        found = compare_scores(scores, other)
        assert (found.verdict, found.largest_difference) == ("differs", None)
        json.loads(json.dumps(dataclasses.asdict(found)), parse_constant=pytest.fail)  # NaN is no JSON


def test_a_map_that_was_scored_as_chance_on_one_side_differs(submitted):
    scores = SCORES.read(submitted).astype({"reason": object})
    first = scores["value"].first_valid_index()
    hidden = scores.assign(reason=scores["reason"].where(scores.index != first, "map is all zero: scored as chance"))
    assert compare_scores(hidden, hidden).verdict == "bit-equal"
    assert compare_scores(scores, hidden).verdict == compare_scores(hidden, scores).verdict == "differs"


def test_a_fitted_method_is_known_by_its_fit():
    assert callable(FittedSandboxedMethod("{}").fit)
    assert not FittedSandboxedMethod("{}").fitted
    assert FittedSandboxedMethod("{}", number=1).fitted
