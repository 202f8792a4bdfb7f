import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import use as oracle
from part_cases import MetricCase

from xaibench.metrics import use_ap, use_auc

CASES = {
    "use_auc": MetricCase(constant=0.5, takes_magnitude=True),
    "use_ap": MetricCase(constant=6 / 30, takes_magnitude=True),
}


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize(
    ("metric", "counted"), [(use_auc, oracle.pairs_won), (use_ap, oracle.precision_at_each)], ids=["auc", "ap"]
)
def test_they_are_what_is_counted_pixel_by_pixel(metric, counted, data):
    shape = data.draw(st.sampled_from([(1, 1), (1, 5), (2, 3), (6, 2)]))
    elements = st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0])
    map_, mask = data.draw(hnp.arrays(np.float64, shape, elements=elements)), data.draw(hnp.arrays(np.bool_, shape))
    np.testing.assert_allclose(metric(map_, mask), counted(map_, mask), rtol=1e-12)


def test_evidence_against_is_use_too():
    map_, mask = np.array([[-2.0, 1.0, 0.0, 0.5]]), np.array([[True, True, False, False]])
    assert use_auc(map_, mask) == use_ap(map_, mask) == 1
