"""Networks as people publish them: every map is right, or refused with a name."""

import pytest
import torch
from zoo.idioms import HIDDEN, IDIOMS, IMPURE, OUTPUTS, WRITTEN
from zoo.published import PUBLISHED, SMALL
from zoo.verdicts import INFOS, Trial, WrongError

#: One explainer of each way to use a network, for the fast tests.
FEW = ("guided_backprop", "deeplift", "lrp_epsilon")
FEWER = ("saliency", "occlusion")
#: For the slow tests; counts.py tries many more.
MAIN = ("saliency", "guided_backprop", "deeplift", "lrp_epsilon", "deep_taylor", "gradcam", "attnlrp", "legrad")


def judge(entry, explainers):
    """Return what is neither right nor refused, and what is refused or not against the expectation."""
    trial, problems = Trial(entry), {}
    for name in explainers:
        try:
            verdict = trial.verdict(name)
        except WrongError as failure:
            problems[name] = str(failure)
            continue
        if unexpected(trial, name, verdict):
            problems[name] = f"{verdict}, expected {entry.expected}: {trial.known[name]}"
    return problems


def unexpected(trial, name, verdict):
    expected = trial.entry.expected
    if expected == "either":
        expected = "right or refused" if INFOS[name].needs_gradient else "right"
    elif expected == "no gradient":
        expected = "refused" if INFOS[name].needs_gradient else "right"
    if expected == "right" and verdict == "refused":
        return any(isinstance(plain.maps(name), torch.Tensor) for plain in trial.plain)
    return expected == "refused" and verdict == "right"


def test_the_zoo_is_large():
    assert len(IDIOMS) + len(PUBLISHED) >= 300


@pytest.mark.parametrize("name", WRITTEN)
def test_tensors_written_in_place(name):
    assert judge(IDIOMS[name], FEW) == {}


@pytest.mark.parametrize("name", [name for name in (*HIDDEN, *IMPURE, *OUTPUTS) if name in IDIOMS])
def test_what_explainers_assume_of_a_network(name):
    assert judge(IDIOMS[name], FEWER) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", IDIOMS)
def test_idioms(name):
    assert judge(IDIOMS[name], MAIN) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_published_networks(name):
    assert judge(PUBLISHED[name], MAIN) == {}
