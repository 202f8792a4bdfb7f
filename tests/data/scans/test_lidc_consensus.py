from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.readers import marked

from xaibench.data.scans.lidc_consensus import draw_contours, find_nodules
from xaibench.data.scans.lidc_xml import Contour, Mark, read_reading

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "lidc" / "tcia-lidc-xml"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the sample files are not here")

SLICES = {f"u{number}": number for number in range(10)}


def contour(points, slice_=0, inclusion=True):
    return Contour(f"u{slice_}", 2.5 * slice_, inclusion, np.array(points, dtype=np.int64))


def box(top, left, bottom, right):
    """The corners only: what lies between them is filled in."""
    return [(top, left), (top, right), (bottom, right), (bottom, left)]


def mark(reader, *boxes, slices=(0,)):
    return Mark(reader, "n", tuple(contour(box(*one), slice_) for slice_ in slices for one in boxes))


def nodules_of(marks, thickness=2.5, spacing=(1.0, 1.0)):
    return find_nodules(marks, SLICES, spacing, thickness)


def grouped(nodules):
    """For each nodule, its readers and the frame of each slice."""
    return [
        (one.readers, [(part.slice, part.top, part.left, *part.whole.shape) for part in one.slices]) for one in nodules
    ]


def scan_of(name):
    reading = read_reading(REAL / name)
    heights = sorted({contour.z for mark in reading.marks for contour in mark.contours})
    slice_of = {contour.image: heights.index(contour.z) for mark in reading.marks for contour in mark.contours}
    return find_nodules(reading.marks, slice_of, (0.7, 0.7), float(np.diff(heights).min())), heights


@real
@pytest.mark.parametrize(
    ("contour_pixels", "counts"),
    [(False, [262, 665, 790, 924, 889, 785, 660, 453, 0]), (True, [325, 783, 910, 1067, 1004, 894, 754, 545, 0])],
)
def test_the_first_patient_has_the_published_voxels(contour_pixels, counts):
    (nodule,), heights = scan_of("185/069.xml")
    assert nodule.readers == 4
    assert heights == [-125 + 2.5 * number for number in range(9)]
    assert [int(part.consensus(4, 0.5, contour_pixels).sum()) for part in nodule.slices] == counts
    assert sum(counts) == (6282 if contour_pixels else 5428)


@real
def test_readers_who_saw_one_or_two_nodules_are_told_apart():
    # One reader marked a small nodule right beside another that all four marked: five marks, too many for one.
    nodules, _ = scan_of("157/158.xml")
    assert [nodule.readers for nodule in nodules] == [4, 4, 1, 4]


@real
def test_a_chest_film_is_passed_over():
    assert read_reading(REAL / "185/070.xml") is None


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8), st.booleans()),
        min_size=1,
        max_size=3,
    )
)
def test_pixels_are_those_of_the_oracle(outlines):
    drawn = draw_contours([contour(points, inclusion=inclusion) for points, inclusion in outlines])
    for contour_pixels, mask in ((False, drawn.inner), (True, drawn.whole)):
        whole = np.zeros((10, 10), dtype=bool)
        whole[drawn.top : drawn.top + mask.shape[0], drawn.left : drawn.left + mask.shape[1]] = mask
        expected = [[marked(row, column, outlines, contour_pixels) for column in range(10)] for row in range(10)]
        assert whole.tolist() == expected


def test_consensus_is_a_share_of_those_who_marked_the_nodule():
    marks = [mark(reader, (0, 0, 4, 4 + 2 * reader)) for reader in range(4)]
    (nodule,) = nodules_of(marks)
    (part,) = nodule.slices
    assert nodule.readers == 4
    for level, readers in ((0.01, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (1.0, 4)):
        agreed = part.consensus(4, level, False)
        assert agreed.any(axis=0).tolist() == [0 < c < 4 + 2 * (4 - readers) for c in range(11)]
    (alone,) = nodules_of(marks[:1])
    assert alone.readers == 1
    assert alone.slices[0].consensus(1, 0.5, True).sum() == 25


def test_thirds_are_not_lost_to_rounding():
    (nodule,) = nodules_of([mark(reader, (0, 0, 4, 4)) for reader in range(3)])
    assert nodule.slices[0].consensus(3, 3 * (1 / 3), False).sum() == 9
    assert nodule.slices[0].consensus(3, 0.1 + 0.2 + 0.7, False).sum() == 9


def test_marks_are_one_nodule_when_they_overlap_or_are_near():
    near = [mark(0, (0, 0, 4, 4)), mark(1, (0, 6, 4, 10))]
    assert [nodule.readers for nodule in nodules_of(near, thickness=2.0)] == [2]
    assert [nodule.readers for nodule in nodules_of(near, thickness=1.9)] == [1, 1]
    assert [nodule.readers for nodule in nodules_of(near, thickness=2.0, spacing=(1.0, 1.1))] == [1, 1]
    # Outlines far from each other, one within the other: pylidc does not see that they overlap.
    assert [nodule.readers for nodule in nodules_of([mark(0, (0, 0, 40, 40)), mark(1, (18, 18, 22, 22))])] == [2]
    # One above the other, in neighboring slices.
    assert [one.readers for one in nodules_of([mark(0, (0, 0, 4, 4)), mark(1, (0, 0, 4, 4), slices=(1,))])] == [2]
    assert [one.readers for one in nodules_of([mark(0, (0, 0, 4, 4)), mark(1, (0, 0, 4, 4), slices=(2,))])] == [1, 1]


def test_nearness_goes_on_from_mark_to_mark():
    chain = [mark(reader, (0, 6 * reader, 4, 6 * reader + 4)) for reader in range(4)]
    assert [nodule.readers for nodule in nodules_of(chain)] == [4]


def test_more_marks_than_readers_are_taken_apart_at_their_widest_gap():
    two = [mark(reader, (0, 0, 4, 4)) for reader in range(4)] + [mark(reader, (0, 6, 4, 9)) for reader in range(2)]
    assert [nodule.readers for nodule in nodules_of(two)] == [4, 2]
    assert [nodule.readers for nodule in nodules_of(two[1:5])] == [4]
    # Marks that overlap stay together, however many; each reader counts once.
    assert [nodule.readers for nodule in nodules_of([mark(n % 4, (0, 0, 4, 4 + n)) for n in range(6)])] == [4]


def test_taking_apart_one_group_leaves_the_others_alone():
    crowd = [mark(reader, (0, 0, 4, 4)) for reader in range(4)] + [mark(0, (0, 6, 4, 9))]
    apart = [mark(0, (50, 0, 54, 4)), mark(1, (50, 6, 54, 10))]
    assert [nodule.readers for nodule in nodules_of(crowd + apart)] == [4, 1, 2]


def test_a_reader_who_drew_two_parts_counts_once():
    parts = [mark(0, (0, 0, 4, 4)), mark(0, (0, 5, 4, 9)), mark(1, (0, 0, 4, 9))]
    (nodule,) = nodules_of(parts)
    assert nodule.readers == 2
    assert nodule.slices[0].inner.max() == 2
    assert nodule.slices[0].consensus(2, 1.0, False).sum() == 18


def test_the_order_of_marks_makes_no_difference():
    marks = [
        mark(0, (0, 0, 4, 4), slices=(2, 1)),
        mark(1, (1, 1, 5, 5), slices=(1, 2, 3)),
        mark(0, (30, 30, 40, 40)),
        mark(2, (31, 31, 36, 36), (50, 50, 54, 54)),
    ]
    expected = grouped(nodules_of(marks))
    assert len(expected) == 2
    for order in permutations(marks):
        assert grouped(nodules_of(order)) == expected


def test_no_marks_no_nodules():
    assert nodules_of([]) == []
