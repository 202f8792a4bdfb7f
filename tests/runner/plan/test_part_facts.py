import pytest

from xaibench.runner.plan.part_facts import is_own, run_with


def build(model, images, targets, *, alpha=0.5, sizes=(1, 2), limit=float("inf")):
    """An explainer of a user's own."""


def test_what_a_part_is_run_with_is_its_defaults_and_what_the_suite_states():
    assert run_with("explainer", "occlusion", {"window": 4}) == {
        **{"window": 4, "stride": None, "baseline": 0.0, "batch_size": None}
    }
    assert run_with("explainer", "lrp_epsilon", {})["rules"] == {}
    own = f"{__name__}:build"
    assert run_with("explainer", own, {"beta": 1}) == {"alpha": 0.5, "sizes": [1, 2], "limit": "inf", "beta": 1}


@pytest.mark.parametrize(
    ("name", "own"),
    [(f"{__name__}:build", True), ("lime", False), ("LIME", False), ("xaibench.explainers:LIME", False)],
)
def test_a_part_of_the_users_own_is_told_from_the_registered(name, own):
    assert is_own("explainer", name) is own
