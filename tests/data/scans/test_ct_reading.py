import sys
import tracemalloc

import numpy as np
import pytest
from generators.medical import noise, pydicom, write_slice
from refusals import refused

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.scans.ct_reading import (
    check_window,
    dicom_files,
    import_medical,
    read_header,
    read_slice,
    scan_rng,
    window_image,
)


@pytest.fixture
def values():
    return noise(np.random.default_rng(0), 20, 30)


def written(tmp_path, values, **more):
    return write_slice(tmp_path / "1.dcm", values, **{"image": "1.2.3", "series": "1.2", "z": -7.5, "number": 4} | more)


def test_a_head_says_where_the_slice_is(tmp_path, values):
    head = read_header(written(tmp_path, values, PixelSpacing=[0.5, 0.6]))
    assert (head.image, head.series, head.z, head.number) == ("1.2.3", "1.2", -7.5, 4)
    assert (head.rows, head.columns, head.spacing) == (20, 30, (0.5, 0.6))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("slope", "intercept"), [(1, -1024), (2, -1000), (0.5, 0)])
def test_pixels_are_hounsfield_units(tmp_path, values, slope, intercept, compressed):
    read = read_slice(written(tmp_path, values, slope=slope, intercept=intercept, compressed=compressed))
    assert read.dtype == np.float32
    assert np.array_equal(read, values)


@pytest.mark.parametrize("orientation", [(1, 0, 0, 0, 1, 0), (-1, 0, 0, 0, 1, 0), (0, -1, 0, -1, 0, 0)])
def test_pixels_lie_as_stored_unless_they_are_to_be_turned(tmp_path, values, orientation):
    assert np.array_equal(read_slice(written(tmp_path, values, orientation=orientation)), values)


@pytest.mark.parametrize("number", range(8))
def test_every_axial_orientation_is_turned_to_the_same_view(tmp_path, number):
    # A body as radiologists see it: the patient's left is to the right of the image, his back below.
    body = np.add.outer(100 * np.arange(4), np.arange(6)).astype(np.int16)
    left, back = np.array([1, 0, 0]), np.array([0, 1, 0])
    across, down = (-1 if number & 1 else 1), (-1 if number & 2 else 1)
    stored, directions = body[::down, ::across], [across * left, down * back]
    if number & 4:
        stored, directions = stored.T, directions[::-1]
    path = written(tmp_path, stored, orientation=np.concatenate(directions).tolist())
    assert np.array_equal(read_slice(path, radiological=True), body)


def test_a_slight_tilt_is_axial_and_a_side_view_is_not(tmp_path, values):
    tilted = written(tmp_path, values, orientation=(1, 0, 0, 0, 0.95, -0.31))
    assert np.array_equal(read_slice(tilted, radiological=True), values)
    side = written(tmp_path, values, orientation=(0, 1, 0, 0, 0, -1))
    refused(DataFileError, "1.dcm", lambda: read_slice(side, radiological=True))


@pytest.mark.parametrize("kept", [0, 100, 140, 400, 600, -2])
def test_a_file_that_is_cut_off_is_named(tmp_path, values, kept):
    path = written(tmp_path, values)
    path.write_bytes(path.read_bytes()[:kept])
    for read in (read_header, read_slice):
        refused(DataFileError, "1.dcm", read, path)


def test_other_files_are_named(tmp_path, values):
    refused(MissingDataError, "no.dcm", lambda: read_slice(tmp_path / "no.dcm"))
    (tmp_path / "text.dcm").write_text("hello" * 100)
    refused(DataFileError, "text.dcm", lambda: read_header(tmp_path / "text.dcm"))
    refused(DataFileError, "1.dcm", lambda: read_slice(written(tmp_path, values, RescaleSlope=None)))
    refused(DataFileError, "1.dcm", lambda: read_header(written(tmp_path, values, ImagePositionPatient=None)))
    refused(DataFileError, "1.dcm", lambda: read_slice(written(tmp_path, values, NumberOfFrames=2, Rows=10)))


#: Bytes of a slice, and what is put in their place.
STRANGE = {
    "a transfer syntax that is none": (b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.9.9.9\0"),
    "an element of 4 GB": (b"CS\2\0CT", b"UN\0\0\xf0\xff\xff\xff"),
    "a number of one byte": (b"\x28\0\x10\0US\2\0\x14\0", b"\x28\0\x10\0US\1\0\x14"),
    "rows beyond any slice": (b"\x28\0\x10\0US\2\0\x14\0", b"\x28\0\x10\0US\2\0\xff\xff"),
    "a width that is none": (b"\x28\0\x11\0US\2\0\x1e\0", b"\x28\0\x11\0US\2\0\0\0"),
    "no pixels": (b"\xe0\x7f\x10\0OW", b""),
}


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("read", [read_header, read_slice])
def test_whatever_pydicom_raises_is_said_with_the_file(tmp_path, values, read, strange):
    path = written(tmp_path, values)
    old, new = STRANGE[strange]
    before, found, after = path.read_bytes().partition(old)
    assert found
    path.write_bytes(before + new + (after if new else b""))
    tracemalloc.start()
    refused(DataFileError, "1.dcm", read, path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5e6


def test_what_is_inflated_as_a_whole_or_claims_too_much_is_refused_before_it_is_decoded(tmp_path, values):
    deflated = pydicom.dcmread(written(tmp_path, values))
    deflated.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    deflated.save_as(tmp_path / "deflated.dcm")
    large = pydicom.dcmread(written(tmp_path, values, compressed=True))
    large.Rows = large.Columns = 65535
    large.save_as(tmp_path / "large.dcm")
    for read in (read_header, read_slice):
        refused(DataFileError, "deflated.dcm", read, tmp_path / "deflated.dcm")
        refused(DataFileError, "65535×65535", read, tmp_path / "large.dcm")


def test_a_missing_decoder_is_said_with_the_command_that_gets_it(tmp_path, values):
    said = pydicom.dcmread(written(tmp_path, values))
    said.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8\xff\xc3" + bytes(60)])
    said["PixelData"].is_undefined_length = True
    said.file_meta.TransferSyntaxUID = pydicom.uid.JPEGLosslessSV1
    said.save_as(tmp_path / "j.dcm")
    if pydicom.pixels.get_decoder(pydicom.uid.JPEGLosslessSV1).is_available:
        pytest.skip("a decoder is installed")
    refused(DataFileError, "j.dcm", lambda: read_slice(tmp_path / "j.dcm"))


@pytest.mark.parametrize("module", ["pydicom", "nibabel"])
def test_a_missing_package_is_said_with_the_command_that_gets_it(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    refused(ImportError, "xaibench[medical]", import_medical, module)


def test_hidden_files_are_no_slices(tmp_path, values):
    path = written(tmp_path / "a" / "b", values)
    path.rename(path.with_name("2.DCM"))
    written(tmp_path / "a" / "b", values)
    for name in ("._1.dcm", "1.xml"):
        (tmp_path / "a" / "b" / name).write_bytes(b"")
    assert dicom_files(tmp_path) == {tmp_path / "a" / "b": [tmp_path / "a" / "b" / name for name in ("1.dcm", "2.DCM")]}


def test_windows():
    image = window_image(np.array([[-1001, -1000, -300, 400, 3000]], dtype=np.int16), (-1000, 400))
    assert image.mode == "F"
    assert np.asarray(image).tolist() == [[0, 0, 0.5, 1, 1]]
    assert check_window([-160, 240]) == (-160.0, 240.0)
    for window in ((400, -1000), (0, 0), (1, 2, 3), (float("nan"), 1), (0, float("inf"))):
        refused(ValueError, "Hounsfield", check_window, window)


def test_what_is_drawn_from_a_scan_depends_on_nothing_else():
    drawn = [scan_rng(seed, scan).integers(1 << 60) for seed in (0, 1) for scan in ("a", "b")]
    assert len(set(drawn)) == 4
    assert drawn[0] == scan_rng(0, "a").integers(1 << 60)
