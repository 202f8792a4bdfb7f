"""Networks as people publish them: every map is right, or refused with a name."""

import pytest
import torch
from zoo.idioms import IDIOMS, WRITTEN
from zoo.published import PUBLISHED
from zoo.verdicts import INFOS, METHODS, Trial, WrongError

#: One explainer of each way to use a network.
FEW = ("saliency", "integrated_gradients", "guided_backprop", "deeplift", "lrp_epsilon", "gradcam", "occlusion")
MORE = (*FEW, "deconvolution", "deep_taylor", "lrp_gamma", "lrp", "fullgrad", "attnlrp", "legrad", "attention_rollout")
QUICK_IDIOMS = [name for name in WRITTEN if name != "x[x < 0] = 0"]


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


@pytest.mark.parametrize("name", QUICK_IDIOMS)
def test_idioms(name):
    assert judge(IDIOMS[name], FEW) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_with_all_explainers(name):
    assert judge(IDIOMS[name], METHODS) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_networks(name):
    assert judge(PUBLISHED[name], MORE) == {}
