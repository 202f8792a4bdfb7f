from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from generators.lidc import RATINGS, nodule, non_nodule, outline, roi, write_xml
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.readers import marked
from refusals import refused

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.scans.lidc_index import Contour, Mark, draw_contours, find_nodules, read_reading

BOX = outline((10, 20, 14, 25))


def reading_of(tmp_path, *sessions, **how):
    return read_reading(write_xml(tmp_path / "1.xml", "1.2", sessions, **how))


def test_a_nodule_is_read_with_its_outlines_from_the_lowest_up(tmp_path):
    rois = [roi(f"u{z}", z, BOX) for z in (-5, 0, -7.5)]
    reading = reading_of(tmp_path, "", nodule("A 1", rois))
    (mark,) = reading.marks
    assert (reading.series, mark.reader, mark.name) == ("1.2", 1, "A 1")
    assert [(contour.z, contour.image) for contour in mark.contours] == [(-7.5, "u-7.5"), (-5, "u-5"), (0, "u0")]
    assert mark.contours[0].points.tolist() == [list(point) for point in BOX[:-1]]
    assert all(contour.inclusion for contour in mark.contours)


def test_a_hole_is_an_outline_without_inclusion(tmp_path):
    reading = reading_of(tmp_path, nodule("A", [roi("u", 0, BOX), roi("u", 0, BOX, "FALSE")]))
    assert [contour.inclusion for contour in reading.marks[0].contours] == [True, False]


@pytest.mark.parametrize(
    "ratings",
    [None, {}, dict.fromkeys(RATINGS, 0), {**RATINGS, "malignancy": ""}],
    ids=["missing", "empty", "zero", "blank"],
)
def test_what_is_not_rated_is_no_nodule_but_touches_its_slice(tmp_path, ratings):
    reading = reading_of(tmp_path, nodule("A", [roi("u", 0, BOX)], ratings), non_nodule("v", 1))
    assert reading.marks == ()
    assert reading.touched == {"u", "v"}


def test_a_stray_point_is_no_outline(tmp_path):
    reading = reading_of(
        tmp_path, nodule("A", [roi("u", 0, BOX), roi("v", 1, BOX[:1])]) + nodule("B", [roi("w", 2, BOX[:1])])
    )
    assert [[contour.image for contour in mark.contours] for mark in reading.marks] == [["u"]]
    assert reading.touched == {"u", "v", "w"}


def test_a_chest_film_is_passed_over(tmp_path):
    assert reading_of(tmp_path, root="IdriReadMessage", namespace="http://www.nih.gov/idri") is None


def test_neither_the_namespace_nor_the_case_of_uid_matters(tmp_path):
    assert reading_of(tmp_path, nodule("A", [roi("u", 0, BOX)]), namespace="", uid="SeriesInstanceUID").series == "1.2"


@pytest.mark.parametrize(
    ("session", "how", "said"),
    [
        ("", {"root": "html"}, "'html'"),
        ("", {"uid": "Other"}, "SeriesInstanceUid"),
        (nodule("A", [roi("u", 0, BOX, "MAYBE")]), {}, "'MAYBE'"),
        (nodule("A", [roi("", 0, BOX)]), {}, "imageSOP_UID"),
        (nodule("A", [roi("u", 0, [("a", 1), (2, 3)])]), {}, "1.xml"),
    ],
)
def test_what_is_built_otherwise_is_named(tmp_path, session, how, said):
    refused(DataFileError, said, lambda: reading_of(tmp_path, session, **how))


def test_broken_files_are_named(tmp_path):
    path = write_xml(tmp_path / "2.xml", "1.2", [])
    entities = '<!DOCTYPE x [<!ENTITY a "aaaa">]><LidcReadMessage>&a;</LidcReadMessage>'
    for text in (path.read_text()[:-9], entities, "<LidcReadMessage></LidcReadMessage>"):
        path.write_text(text)
        refused(DataFileError, "2.xml", read_reading, path)
    refused(MissingDataError, "3.xml", read_reading, tmp_path / "3.xml")


def test_points_are_row_and_column(tmp_path):
    reading = reading_of(tmp_path, nodule("A", [roi("u", 0, [(1, 50), (1, 51), (2, 51)])]))
    assert np.array_equal(reading.marks[0].contours[0].points, [[1, 50], [1, 51], [2, 51]])


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
def test_a_real_chest_film_is_passed_over():
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
