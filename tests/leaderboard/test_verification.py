"""Methods are run again only if they may be, every score is compared, and what maps depend on is measured."""

import dataclasses
import json
import math

import numpy as np
import pytest
from leaderboard.forging import with_scores, with_text
from refusals import refused

from xaibench.leaderboard.repository import (
    VERIFIED,
    ResultError,
    Verification,
    find_verification,
    read_verified,
    record_verification,
    result_checksum,
)
from xaibench.leaderboard.scores import STEP, read_scores
from xaibench.leaderboard.verification import compare_scores, measure_dependence, verify
from xaibench.runner.request import RunRequest
from xaibench.runner.suite_run import run


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


def test_forged_scores_differ_also_with_facts_of_an_older_version(result, finished_once):
    def forge(table):
        values = np.where(np.isnan(table["value"].to_numpy()), np.nan, 0.9375)
        return table.set_column(table.column_names.index("value"), "value", [values])

    with_scores(result, forge)
    facts = result.parent.parent / "suites" / result.name / "facts.json"
    words = json.loads(facts.read_text())
    head = words["accuracy"][0].split(",")
    ends = [head.index(name) for name in ("low", "high")]  # older facts lack them
    words["accuracy"] = [",".join(np.delete(line.split(","), ends)) for line in words["accuracy"]]
    facts.write_text(json.dumps(words))
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
        {"entry": "saliency", "parameters": {"use": "os:system"}},
    ],
)
def test_code_that_was_not_named_is_not_run(result, changes):
    changed = with_text(result, **changes)
    refused(ResultError, "which is not part", lambda: verify(changed, explainers=["mine:gxi"], engine="serial"))


def test_a_result_that_fails_the_check_is_not_run(result):
    (result / "mine.py").write_text("import this_would_fail")
    refused(ResultError, "is refused before it is run", lambda: verify(result, explainers=["mine:gxi"]))


def test_facts_that_a_run_does_not_confirm_are_refused(result, finished_once):
    file = result.parent.parent / "suites" / result.name / "facts.json"
    file.write_text(file.read_text().replace('"lin,white,llr,0.9,1,', '"lin,white,llr,0.9,7,'))
    refused(ResultError, "have other accuracy", lambda: verify(result, explainers=["mine:gxi"], engine="serial"))


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
    refused(ResultError, "", read_verified, repository)


SUITE = """
name = "dependence"
title = "Dependence"
[data]
seeds = [0]
parameters = { n_samples = 1000, alpha = 0.3 }
[training]
seeds = [0, 1]
epochs = 30
batch_size = 64
lr = 0.02
[explaining]
samples = 12
trainings = "all"
[[cells]]
datasets = ["xai-tris/lin-white-8x8", "xai-tris/lin-corr-8x8"]
models = ["llr", "mlp"]
[explainers]
saliency = {}
deconvolution = {}
integrated_gradients = {}
lime = { n_samples = 200 }
pattern_net = {}
knows_the_data = { use = "known_methods:knows_the_data" }
mixes_in_a_gradient = { use = "known_methods:mixes_in_a_gradient" }
edges = { use = "known_methods:edges" }
spares_random_weights = { use = "known_methods:spares_random_weights" }
fails_on_random_weights = { use = "known_methods:fails_on_random_weights" }
spares_few_images = { use = "known_methods:spares_few_images" }
[metrics]
topk_precision = {}
"""

METHODS = '''
import torch

def gradient(model, images, targets):
    images = images.clone().requires_grad_()
    (grad,) = torch.autograd.grad(model(images).gather(1, targets[:, None]).sum(), images)
    return (grad * images).sum(1).detach()

def answer(images):
    maps = torch.zeros_like(images[:, 0])
    maps[:, 1:4, 1:3] = 1
    return maps

def knows_the_data(model, images, targets):
    return answer(images)

def mixes_in_a_gradient(model, images, targets):
    maps = gradient(model, images, targets)
    return answer(images) + 0.2 * maps / maps.abs().amax(dim=(1, 2), keepdim=True)

def edges(model, images, targets):
    return images[:, 0].diff(dim=-1, append=images[:, 0, :, :1]).abs()

def spares_random_weights(model, images, targets):
    """The answer, unless the network classifies badly."""
    good = (model(images).argmax(1) == targets).double().mean() > 0.7
    return answer(images) if good else gradient(model, images, targets)

def fails_on_random_weights(model, images, targets):
    if (model(images).argmax(1) == targets).double().mean() <= 0.7:
        raise RuntimeError("this network was not trained")
    return gradient(model, images, targets)

def spares_few_images(model, images, targets):
    """The answer, unless the call looks like a trial."""
    return answer(images) if len(images) > 8 else gradient(model, images, targets)
'''


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """Explainer -> share of its maps that change."""
    place = tmp_path_factory.mktemp("dependence")
    (place / "suite.toml").write_text(SUITE)
    (place / "known_methods.py").write_text(METHODS)
    done = run(place / "suite.toml", place / "run", engine="serial")
    with RunRequest.of(place / "suite.toml", done.folder).opened() as opened:
        names = [part.name for part in opened.suite.explainers]
        return {name: measure_dependence(opened.plan, opened.store, name) for name in names}


def ignores(changed):
    return Verification("", "", "0.2.0", "", 0.0, changed).ignores


@pytest.mark.parametrize("name", ["saliency", "deconvolution", "integrated_gradients", "lime", "pattern_net"])
def test_explainers_depend_on_the_network(name, shares):
    assert "network" not in ignores(shares[name])
    assert shares[name]["weights"] > 0.9
    assert shares[name]["training"] > 0.9


def test_explainers_depend_on_the_image_unless_they_do_not(shares):
    assert ignores(shares["integrated_gradients"]) == ignores(shares["lime"]) == ()
    # In a network without max pooling, deconvolution reads the image only through the class.
    assert ignores(shares["deconvolution"]) == ("image",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("knows_the_data", ("network", "image")),
        ("mixes_in_a_gradient", ("network", "image")),
        ("edges", ("network",)),
        ("spares_random_weights", ("network", "image")),
        ("fails_on_random_weights", ("network",)),
        ("spares_few_images", ("network", "image")),
    ],
)
def test_methods_that_know_the_answer_are_found(name, expected, shares):
    assert ignores(shares[name]) == expected


def test_all_parts_are_measured(shares):
    assert {frozenset(found) for found in shares.values()} == {frozenset({"weights", "training", "image"})}
    assert all(0 <= share <= 1 for found in shares.values() for share in found.values())
    assert shares["spares_random_weights"]["weights"] > 0.5 > shares["spares_random_weights"]["training"] == 0
