"""Run again in a sandbox: scores that are the method's come out equal to the bit, others do not."""

import json
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from leaderboard.forging import rewritten
from leaderboard.sandboxes import needs_sandbox

from xaibench.leaderboard import verification
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import VERIFICATION, ResultError, read_verification
from xaibench.leaderboard.sandbox.method import FittedSandboxedMethod
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


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Networks are trained once for all that is verified here."""
    return tmp_path_factory.mktemp("work")


def test_an_honest_result_is_equal_to_the_bit_and_a_forged_one_differs(result, work):
    settings = {"work": work / "run", "store": work / "store", "engine": "serial"}
    found = verify(result, **settings)
    assert (found.verdict, found.equal_rows, found.largest_difference) == ("bit-equal", found.rows, 0.0)
    assert json.loads((result / VERIFICATION).read_text())["verdict"] == "bit-equal"
    assert check(result) == [], "the verdict is no part of what is summed up"

    table = pq.read_table(result / "scores.parquet")
    better = np.minimum(1.0, table["value"].to_numpy() + 0.1)
    pq.write_table(
        table.set_column(table.column_names.index("value"), "value", pa.array(better)), result / "scores.parquet"
    )
    (fault,) = check(rewritten(result))
    assert "verification.json is of an earlier state of this result" in fault, "an old verdict vouches for nothing new"
    assert read_verification(result) == {}
    assert check(result, verdict=False) == [], "nothing but running it again tells"
    forged = verify(result, **settings)
    assert forged.verdict == "differs"
    assert 0.05 < forged.largest_difference <= 0.1 + 1e-9


def test_networks_and_sandbox_are_where_it_is_told(result, work, monkeypatch):
    class ToldError(Exception):
        pass

    def run(file, *_, device, **__):
        (explainer,) = tomllib.loads(file.read_text())["explainers"].values()
        raise ToldError(device, json.loads(explainer["settings"])["device"])

    monkeypatch.setattr(verification, "run", run)
    for device, placed in (({}, "cpu"), ({"device": "meta"}, "meta")):
        with pytest.raises(ToldError) as told:
            verify(result, work=work / "told", store=work / "store", **device)
        assert told.value.args == (placed, placed)
    with pytest.raises(ValueError, match="There is no device 'abacus' here"):
        verify(result, work=work / "told", device="abacus")


def test_a_method_that_learns_from_the_masks_is_refused(result, work):
    (result / "method" / "mine.py").write_text(SUPERVISED)
    with pytest.raises(ResultError, match=r"gxi is refused: .*it reads the masks of the training samples"):
        verify(rewritten(result), work=work / "supervised", store=work / "store", engine="serial")


def test_what_does_not_pass_the_check_is_not_run(result):
    (result / "method" / "mine.py").write_text("import this_would_fail")
    with pytest.raises(ResultError, match=r"is refused before it is run: method/mine\.py was modified"):
        verify(result)


def test_the_verdict_follows_the_bound(submitted):
    scores = SCORES.read(submitted)
    assert compare_scores(scores, scores, 0.0).verdict == "bit-equal"
    rounded = scores.assign(value=scores["value"] + 9e-7)
    assert compare_scores(scores, rounded, 0.0).verdict == "equal"
    one_score = scores["value"].where(scores.index != scores["value"].first_valid_index(), scores["value"] + 2e-6)
    assert compare_scores(scores, scores.assign(value=one_score), 0.005).verdict == "within bounds"
    near = scores.assign(value=scores["value"] + 0.004)
    assert compare_scores(scores, near, 0.005).verdict == "within bounds"
    assert compare_scores(scores, near, 0.003).verdict == "differs"
    assert compare_scores(scores, scores[scores["model"] == "mlp"], 0.1).verdict == "differs"
    assert compare_scores(scores, scores.iloc[:-1], 0.5).verdict == "differs", "a row that is missing is no rounding"
    undefined = scores.assign(value=np.nan)
    assert compare_scores(undefined, undefined, 0.0).verdict == "bit-equal"
    assert compare_scores(scores, undefined, 9.0).verdict == "differs"


def test_cells_that_are_undefined_here_and_there_are_alike(submitted):
    scores = SCORES.read(submitted)
    scores.loc[scores["model"] == "mlp", "value"] = np.nan
    near = scores.assign(value=scores["value"] + 0.004)
    found = compare_scores(scores, near, 0.005)
    assert found.verdict == "within bounds"
    assert found.largest_difference == pytest.approx(0.004)
    unlike = compare_scores(scores, near.assign(value=0.5), 9.0)
    assert (unlike.verdict, unlike.largest_difference) == ("differs", None)
    for one in (found, unlike):
        json.loads(one.to_json(), parse_constant=pytest.fail)  # NaN is no JSON


def test_a_fitted_method_is_known_by_its_fit():
    assert callable(FittedSandboxedMethod("{}").fit)
    assert not FittedSandboxedMethod.fitted
