import logging
import os
import re
import shutil

import numpy as np
import pytest
from generators.lidc import FAR, FREE, MIDDLE, NODULE, SMALL, Case, everywhere, inside, nodule, write
from part_cases import DatasetCase
from refusals import refused

from xaibench.data.annotated import DataFileError
from xaibench.data.scans.lidc_nodules import lidc

BOX = (10, 20, 30, 40)
CASES = {"lidc": DatasetCase(write=write)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("lidc")
    return root, write(root)


@pytest.fixture(scope="module")
def three_patients(tmp_path_factory):
    """With one nodule in slices 1 to 5, which one reader marked."""
    root = tmp_path_factory.mktemp("patients")
    for patient in (1, 2, 3):
        case = Case(root / "LIDC-IDRI", patient)
        case.write_xml([nodule("0", case.rois(everywhere(BOX)))])
    return root


@pytest.fixture
def root(three_patients, tmp_path):
    """A copy, to be changed."""
    return shutil.copytree(three_patients, tmp_path / "data")


def one(root, sessions, **how):
    case = Case(root / "LIDC-IDRI", 1, **how)
    case.write_xml(sessions(case))
    return case


def source_of(root, **own):
    return lidc(root=root, splits=(0, 0, 1), **own).test.source


def ids(source, label="nodule"):
    return [
        source.meta(i)["id"]
        for i in range(len(source))
        if source.classes[source.targets[i]] == label and source.annotated[i]
    ]


def test_images_are_hounsfield_units_in_the_window(written):
    root, _ = written
    source = source_of(root, window=(-600, 200))
    for index in range(len(source)):
        meta = source.meta(index)
        patient, scan, slice_ = meta["id"].split("/")
        values = Case.values_of(int(patient[-4:]), int(scan))[int(slice_)]
        image = source.image(index, 224)
        assert (image.mode, image.size) == ("F", (80, 60))
        assert np.allclose(np.asarray(image), np.clip((values + 600) / 800, 0, 1), atol=1e-6)
        assert (root / "LIDC-IDRI" / meta["file"]).is_file()


def test_a_nodule_without_consensus_is_not_annotated(written):
    root, _ = written
    source = lidc(root=root, splits=(0, 0, 1), include_unannotated=True).test.source
    (index,) = np.flatnonzero(~source.annotated)
    assert source.mask(index) is None
    meta = source.meta(int(index))
    assert (meta["id"], meta["annotated"]) == ("LIDC-IDRI-0008/0/0005", False)
    assert 3 in meta["readers"]
    assert "LIDC-IDRI-0008/0/0005" in ids(source_of(root, consensus=0.33))


def test_readers_are_counted(written):
    root, _ = written
    source = source_of(root, classes="nodule")
    readers = {source.meta(index)["id"]: source.meta(index)["readers"] for index in range(len(source))}
    assert readers["LIDC-IDRI-0001/0/0003"] == [4]
    assert readers["LIDC-IDRI-0002/0/0003"] == [1]
    assert readers["LIDC-IDRI-0009/0/0003"] == [1, 1]


def test_the_level_of_consensus_and_the_contour(tmp_path):
    boxes = [(10, 20, 30, 40), (10, 20, 30, 44), (10, 20, 30, 48)]
    case = one(tmp_path, lambda case: [nodule("0", case.rois(everywhere(box))) for box in boxes])
    for level, width in ((0.2, 27), (0.5, 23), (1.0, 19)):
        source = source_of(tmp_path, classes="nodule", consensus=level)
        assert source.mask(0).sum() == 19 * width
        assert source_of(tmp_path, classes="nodule", consensus=level, contour=True).mask(0).sum() == 21 * (width + 2)
    assert source.meta(0)["file"] == case.file(MIDDLE).relative_to(tmp_path / "LIDC-IDRI").as_posix()


def test_which_slices_of_a_nodule(tmp_path):
    boxes = dict(zip(NODULE, [(10, 20, 20 + n, 40) for n in (1, 9, 3, 2)], strict=False))  # slices 1 to 4
    one(tmp_path, lambda case: [nodule("0", case.rois(boxes))])
    name = "LIDC-IDRI-0001/0/"
    assert ids(source_of(tmp_path, classes="nodule")) == [name + "0003"]
    assert ids(source_of(tmp_path, classes="nodule", slices="largest")) == [name + "0002"]
    assert ids(source_of(tmp_path, classes="nodule", slices="all")) == [f"{name}000{n}" for n in (1, 2, 3, 4)]


def test_negatives_are_free_slices_nearby_each_once(tmp_path):
    # Slices 3 to 5 show the nodule, 6 a small mark, 7 lies 90 mm away: 0, 1 and 2 are left.
    one(tmp_path, lambda case: [nodule("0", case.rois(everywhere(BOX, (3, 4, 5))))])
    name = "LIDC-IDRI-0001/0/"
    drawn = {seed: ids(source_of(tmp_path, seed=seed, negatives=1), "no_nodule") for seed in range(12)}
    assert {n for (n,) in drawn.values()} == {name + "0000", name + "0001", name + "0002"}
    assert drawn[3] == ids(source_of(tmp_path, seed=3, negatives=1), "no_nodule")
    assert ids(source_of(tmp_path, negatives=9), "no_nodule") == [name + "0000", name + "0001", name + "0002"]
    assert len(ids(source_of(tmp_path, negatives=2), "no_nodule")) == 2
    assert len(ids(source_of(tmp_path, slices="all", negatives=1), "no_nodule")) == 3
    assert (FREE, SMALL, FAR) == (0, 6, 7)


def test_the_choice_in_one_scan_does_not_depend_on_the_others(root):
    for patient in (1, 2, 3):
        case = Case(root / "LIDC-IDRI", patient)
        case.write_xml([nodule("0", case.rois(everywhere(BOX, (5,))))])
    both = ids(source_of(root), "no_nodule")
    shutil.rmtree(root / "LIDC-IDRI" / "LIDC-IDRI-0001")
    assert ids(source_of(root), "no_nodule") == both[1:]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"consensus": 0}, "consensus=0"),
        ({"consensus": 50}, "consensus=50"),
        ({"slices": "first"}, "slices="),
        ({"negatives": -1}, "negatives="),
        ({"negatives": 0}, "negatives="),
        ({"window": (400, -1000)}, "Hounsfield"),
        ({"classes": "nodul"}, "'nodul'"),
    ],
)
def test_parameters_out_of_range(root, own, said):
    refused(ValueError, said, lambda: source_of(root, **own))


def test_no_negatives_for_the_positives_alone(root):
    assert len(source_of(root, classes="nodule", negatives=0)) == 3


@pytest.mark.parametrize("folder", ["LIDC-IDRI", "manifest-1600709154662/LIDC-IDRI", ""])
def test_where_it_may_lie(root, folder, tmp_path):
    place = tmp_path / "moved" / folder
    place.parent.mkdir(parents=True, exist_ok=True)
    (root / "LIDC-IDRI").rename(place)
    assert len(source_of(tmp_path / "moved")) == 6


def replace_in(path, old, new):
    path.write_bytes(path.read_bytes().replace(old, new))


def write_two_sizes(case):
    from generators.medical import write_slice

    write_slice(case.file(2), case.values[2][:50], z=-95, **case.says(2))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda case: case.file(2).write_bytes(case.file(2).read_bytes()[:-2]),
            r"1-06\.dcm cannot be read \(its pixels are truncated\)",
        ),
        (lambda case: case.file(0).write_text("hello" * 100), r"1-08\.dcm is not a DICOM file"),
        (
            lambda case: replace_in(case.file(2), b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.9.9.9\0"),
            r"1-06\.dcm cannot be read \(its transfer syntax is '1\.2\.840\.10008\.9\.9\.9', which DICOM does not",
        ),
        (
            lambda case: replace_in(case.file(2), b"\x28\0\x10\0US\2\0\x3c\0", b"\x28\0\x10\0US\1\0\x3c"),
            r"1-06\.dcm cannot be read \(",
        ),
        (
            lambda case: case.file(2).unlink(),
            r"002\.xml outlines '0' in the slice 1\.3\.6\.1\.2\.0\.2 \(z = -95\.0\), which is not in .*300056",
        ),
        (lambda case: shutil.rmtree(case.folder), r"LIDC-IDRI-0002 has no CT slices"),
        (write_two_sizes, r"300056.* has slices of several sizes in one series, \[\(50, 80\), \(60, 80\)\]"),
        (
            lambda case: (case.folder / "002.xml").unlink(),
            r"has the CT series 1\.3\.6\.1\.2\.0, but its annotation \(XML\) is missing; get LIDC-XML-only\.zip",
        ),
        (
            lambda case: (case.folder / "002.xml").write_text((case.folder / "002.xml").read_text()[:-30]),
            r"002\.xml cannot be read",
        ),
        (
            lambda case: (case.folder / "002.xml").write_text('<!DOCTYPE a [<!ENTITY b "b">]><a>&b;</a>'),
            r"002\.xml declares a document type or entities",
        ),
        (
            lambda case: replace_in(case.folder / "002.xml", f"Uid>{case.series}<".encode(), b"Uid>1.9<"),
            r"002\.xml marks the CT series 1\.9, which is not in .*LIDC-IDRI-0002",
        ),
        (
            lambda case: case.write_xml([nodule("0", case.rois({2: (10, 20, 60, 30)}))]),
            r"002\.xml outlines '0' outside of slices of 60×80 pixels",
        ),
    ],
)
def test_a_broken_patient_is_named_and_the_others_go_on(root, damage, said, caplog):
    damage(Case.at(root / "LIDC-IDRI", 2))
    with caplog.at_level(logging.WARNING, "xaibench"):
        source = source_of(root)
    assert {source.meta(index)["patient"] for index in range(len(source))} == {"LIDC-IDRI-0001", "LIDC-IDRI-0003"}
    (line,) = [message for message in caplog.messages if message.startswith("LIDC-IDRI-0002 is left out: ")]
    assert re.search(said, line)
    for patient in (1, 3):
        shutil.rmtree(root / "LIDC-IDRI" / f"LIDC-IDRI-000{patient}")
    with pytest.raises(DataFileError, match=r"None of 1 could be read; the first error: .*" + said):
        source_of(root)


def test_broken_xml_that_lies_apart_is_named_and_the_others_are_read(root, caplog):
    apart = root / "tcia-lidc-xml" / "1"
    apart.mkdir(parents=True)
    for patient in (1, 2):
        xml = Case.at(root / "LIDC-IDRI", patient).folder / f"00{patient}.xml"
        xml.rename(apart / xml.name)
    (apart / "002.xml").write_text("<LidcReadMessage>")
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert len(source_of(root)) == 4
    assert "1/002.xml cannot be read" in caplog.text
    assert "LIDC-IDRI-0002 is left out" in caplog.text


def test_a_slice_that_breaks_later_is_named(root):
    source = source_of(root)
    path = root / "LIDC-IDRI" / source.meta(0)["file"]
    path.write_bytes(path.read_bytes()[:-2])
    refused(DataFileError, path.name, source.image, 0, 224)


def test_a_file_that_is_overwritten_where_it_lies_is_read_again(root):
    assert "LIDC-IDRI-0002/0/0003" in ids(source_of(root))
    case = Case.at(root / "LIDC-IDRI", 2)
    xml = case.write_xml([nodule("0", case.rois(everywhere(BOX, (2,))))])
    folders = [(place, os.stat(place).st_mtime_ns) for place, _, _ in os.walk(root)]
    assert xml.name in os.listdir(case.folder)
    assert "LIDC-IDRI-0002/0/0002" in ids(source_of(root))
    case.file(2).write_bytes(b"damaged")
    assert not [name for name in ids(source_of(root)) if name.startswith("LIDC-IDRI-0002")]
    assert folders == [(place, os.stat(place).st_mtime_ns) for place, _, _ in os.walk(root)]


def test_nothing_is_written_into_the_data(root):
    before = sorted(os.walk(root))
    source_of(root)
    assert sorted(os.walk(root)) == before
    assert inside(BOX).sum() == source_of(root, classes="nodule").mask(0).sum()
