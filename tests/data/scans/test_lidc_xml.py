import numpy as np
import pytest
from generators.lidc import RATINGS, nodule, non_nodule, outline, roi, write_xml
from refusals import refused

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.scans.lidc_xml import read_reading

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
    reading = reading_of(tmp_path, nodule("A", [roi("u", 0, BOX[:1])], ratings), non_nodule("v", 1))
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
    path.write_text(path.read_text()[:-9])
    refused(DataFileError, "2.xml", lambda: read_reading(path))
    path.write_text('<!DOCTYPE x [<!ENTITY a "aaaa">]><LidcReadMessage>&a;</LidcReadMessage>')
    refused(DataFileError, "2.xml", lambda: read_reading(path))
    path.write_text("<LidcReadMessage></LidcReadMessage>")
    refused(DataFileError, "2.xml", lambda: read_reading(path))
    refused(MissingDataError, "3.xml", lambda: read_reading(tmp_path / "3.xml"))


def test_points_are_row_and_column(tmp_path):
    reading = reading_of(tmp_path, nodule("A", [roi("u", 0, [(1, 50), (1, 51), (2, 51)])]))
    assert np.array_equal(reading.marks[0].contours[0].points, [[1, 50], [1, 51], [2, 51]])
