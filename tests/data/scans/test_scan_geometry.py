import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.data.scans.scan_geometry import Box, check_crop, common_value, measure_stack, window_air

nibabel = pytest.importorskip("nibabel")
UPRIGHT = (1, 0, 0, 0, 1, 0)
AXIAL = [(sign_a, sign_b, turned) for sign_a in (1, -1) for sign_b in (1, -1) for turned in (False, True)]


def positions(*z, x=0.0):
    return np.array([(x, 0.0, one) for one in z])


@pytest.mark.parametrize(("a", "b", "turned"), AXIAL)
def test_the_orientation_is_that_of_nibabel(a, b, turned):
    along_columns, along_rows = np.array([a, 0, 0]), np.array([0, b, 0])
    if turned:
        along_columns, along_rows = along_rows, along_columns
    stack = measure_stack(positions(1, 3, 5), (*along_columns, *along_rows), (0.7, 0.6))
    # DICOM's x and y point the other way than those of nibabel.
    affine = np.eye(4)
    affine[:3, :3] = (np.column_stack([(0, 0, 1), along_rows, along_columns]).T * (-1, -1, 1)).T
    assert stack.orientation == "".join(nibabel.aff2axcodes(affine))
    assert stack.spacing == (2.0, 0.7, 0.6)
    assert (stack.gaps.tolist(), stack.deviation, stack.is_uniform) == ([False, False], 0.0, True)


def test_distances_are_along_the_normal_of_oblique_slices():
    angle = np.deg2rad(20)
    normal = np.array([0, -np.sin(angle), np.cos(angle)])
    stack = measure_stack(np.outer([0, 3, 6], normal), (1, 0, 0, 0, np.cos(angle), np.sin(angle)), (1, 1))
    assert stack.spacing[0] == pytest.approx(3)
    assert stack.orientation == "SPL"


def test_missing_slices_and_steps_that_differ_are_found():
    stack = measure_stack(positions(0, 2, 4, 8, 10, 12.4, 14), UPRIGHT, (1, 1))
    assert stack.gaps.tolist() == [False, False, True, False, False, False]
    assert stack.spacing[0] == 2
    assert stack.deviation == pytest.approx(0.4)
    assert not stack.is_uniform
    assert measure_stack(positions(0, 2, 4.05), UPRIGHT, (1, 1)).is_uniform


@pytest.mark.parametrize(
    ("place", "orientation", "said"),
    [
        (positions(0, 1), [np.nan] * 6, "orientation"),
        (positions(0, 1), (1, 0, 0, 0, 0, -1), "axial"),
        (positions(0), UPRIGHT, "single slice"),
        (positions(0, 1, 1), UPRIGHT, "order"),
        (np.array([(0, 0, 0), (0, 1.5, 1)]), UPRIGHT, "1.5 mm"),
    ],
)
def test_slices_that_are_not_a_volume(place, orientation, said):
    refused(ValueError, said, lambda: measure_stack(np.asarray(place, dtype=float), orientation, (1, 1)))


def test_vectors_that_differ_have_no_common_value():
    assert common_value([UPRIGHT, (1, 0, 0, 0, 1, 1e-5)]).tolist() == list(UPRIGHT)
    assert np.isnan(common_value([UPRIGHT, (-1, 0, 0, 0, 1, 0)])).all()
    assert np.isnan(common_value([[np.nan] * 6] * 2)).all()


SIDES = st.tuples(*[st.integers(1, 5)] * 3)


@settings(deadline=None, max_examples=80)
@given(SIDES, SIDES, st.tuples(*[st.integers(-6, 6)] * 3))
def test_a_box_is_cut_from_the_padded_scan(scan, shape, origin):
    values = np.random.default_rng(0).random(scan)
    wide = np.pad(values, 12, constant_values=-1)
    expected = wide[tuple(slice(12 + first, 12 + first + side) for first, side in zip(origin, shape, strict=True))]
    box = Box(origin, shape)
    assert np.array_equal(box.fill(scan, lambda number: values[number], np.float64(-1)), expected)
    for axis, padding in enumerate(box.padding(scan)):
        indices = range(origin[axis], origin[axis] + shape[axis])
        assert padding == (sum(one < 0 for one in indices), sum(one >= scan[axis] for one in indices))
        assert list(box.inside(scan)[axis]) == [one for one in indices if 0 <= one < scan[axis]]


@pytest.mark.parametrize(
    ("low", "high", "side", "first"), [(4, 7, 3, 4), (4, 7, 5, 3), (4, 8, 2, 5), (4, 7, 4, 3), (0, 1, 4, -2)]
)
def test_a_box_has_the_center_of_what_it_surrounds(low, high, side, first):
    assert Box.around((low,) * 3, (high,) * 3, (side,) * 3) == Box((first,) * 3, (side,) * 3)


def test_a_box_crosses_a_gap_only_if_it_has_slices_on_both_sides():
    gaps = np.array([False, True, False])  # between the second and the third of four slices
    crossed = {
        (first, depth)
        for first in range(-3, 4)
        for depth in (1, 2, 3)
        if Box((first, 0, 0), (depth, 1, 1)).crosses(gaps)
    }
    assert crossed == {(1, 2), (0, 3), (1, 3)}


def test_air_is_black_in_usual_windows():
    assert window_air((-1000, 400)) == 0
    assert window_air((-1200, -800)) == 0.5


@pytest.mark.parametrize("crop", [(0, 4, 4), (4, 4), 32, "32,64,64", (4.0, 4, 4)])
def test_crops_have_three_positive_sides(crop):
    refused(ValueError, "slices, rows and columns", lambda: check_crop(crop))


def test_the_shape_of_a_crop_is_a_tuple():
    assert check_crop([4, 5, 6]) == (4, 5, 6)
    assert check_crop(None) is None
