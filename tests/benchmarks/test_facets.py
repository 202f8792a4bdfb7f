"""Display of subsets and variants."""

import itertools
import subprocess
import sys

from xaibench.benchmarks.certified.functions import FUNCTIONS
from xaibench.benchmarks.facets import (
    CERTIFIED,
    PATTERN_GAM_VARIANTS,
    answering_controls,
    facet_headings,
    facet_label,
    is_moving,
    subset_order,
    variant_order,
)
from xaibench.benchmarks.watermarks.regimes import REGIMES
from xaibench.benchmarks.xai_tris.noise import BACKGROUNDS
from xaibench.benchmarks.xai_tris.patterns import SCENARIOS
from xaibench.data import load
from xaibench.explainers.controls import Prior
from xaibench.metrics import precision_skill


def test_facets_are_those_of_the_data_sets():
    assert set(subset_order()) == {*SCENARIOS, *REGIMES}
    assert {*variant_order()} > {*BACKGROUNDS, *PATTERN_GAM_VARIANTS, "bright", "inverted"}
    assert facet_headings(SCENARIOS) == ("Scenario", "Background")
    assert facet_headings(REGIMES) == ("Watermark in training", "Intensities")
    assert facet_headings(["my-set"]) == ("Subset", "Variant")
    assert [name for name in SCENARIOS if is_moving(name)] == ["rigid"]
    assert (facet_label("corr"), facet_label("my-set")) == ("CORR", "my-set")


def test_controls_that_are_the_answer_score_best_where_the_facets_say_so():
    for scenario, background in itertools.product(SCENARIOS, ("white", "corr")):
        data = load(f"xai-tris/{scenario}-{background}-8x8", n_samples=400)
        prior = Prior().fit(None, [data.train[:]])(None, *data.test[:][::2])
        skill = precision_skill(prior.numpy(), data.test.masks.numpy())
        assert ("prior" in answering_controls(scenario, background)) == (skill == 1)
    assert set(CERTIFIED) == set(FUNCTIONS)
    for name in CERTIFIED:
        masks = load(f"certified:{name}", n_samples=50).test.masks
        assert bool((masks == masks[:1]).all())
        assert answering_controls(name, "-") == {"prior"}
    for regime, ending in itertools.product(REGIMES, ("", "-inverted")):
        data = load(f"watermarks/{regime}{ending}", n_samples=80)
        prior = Prior().fit(None, [data.train[:]])(None, *data.test[:][::2])
        assert (precision_skill(prior.numpy(), data.test.masks.numpy(), reduction="none") == 1).all()
        assert answering_controls(regime, data.info.variant) == {"prior"}


def test_facets_need_no_torch():
    code = "import sys; from xaibench.benchmarks.facets import FACETS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
