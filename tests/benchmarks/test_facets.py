"""Display of subsets and variants."""

import subprocess
import sys

from xaibench.benchmarks.facets import facet_headings, facet_label, is_moving, subset_order, variant_order
from xaibench.benchmarks.xai_tris.noise import BACKGROUNDS
from xaibench.benchmarks.xai_tris.patterns import SCENARIOS


def test_facets_of_xai_tris_are_those_of_its_data_sets():
    assert set(subset_order()) == set(SCENARIOS)
    assert set(variant_order()) == set(BACKGROUNDS)
    assert facet_headings(SCENARIOS) == ("Scenario", "Background")
    assert facet_headings(["my-set"]) == ("Subset", "Variant")
    assert [name for name in SCENARIOS if is_moving(name)] == ["rigid"]
    assert (facet_label("corr"), facet_label("my-set")) == ("CORR", "my-set")


def test_facets_need_no_torch():
    code = (
        "import sys; from xaibench.benchmarks.facets import all_facets; all_facets(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
