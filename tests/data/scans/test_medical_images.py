"""Gray levels of DICOM and NIfTI images, against the formulas of the standards."""

import numpy as np
import pytest
from generators.medical import pydicom, write_slice
from generators.tumor import nibabel, write_nifti
from refusals import refused

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.disk.image_files import is_medical
from xaibench.data.scans.medical_images import open_medical, read_medical_header, read_medical_mask

VALUES = np.array([[-1000, -160, 0], [40, 240, 3000]], dtype=np.int16)


def written(tmp_path, values=VALUES, **more):
    return write_slice(tmp_path / "1.dcm", values, image="1.2.3", series="1.2", z=0, **more)


def gray(path, *arguments):
    image = open_medical(path, *arguments)
    assert image.mode == "F"
    return np.asarray(image)


def clipped(values, low, high):
    return np.clip((np.asarray(values, float) - low) / (high - low), 0, 1)


@pytest.mark.parametrize(("slope", "intercept"), [(1, -1024), (2, -1000), (1, 0)])
def test_a_window_is_of_rescaled_values(tmp_path, slope, intercept):
    found = gray(written(tmp_path, slope=slope, intercept=intercept), None, (-160.0, 240.0))
    assert found == pytest.approx(clipped(VALUES, -160, 240), abs=1e-6)


def test_the_first_window_of_the_file_is_used_as_the_standard_defines_it(tmp_path):
    path = written(tmp_path, WindowCenter=[40, 300], WindowWidth=[400, 1500])
    center, width = 40, 400
    expected = np.clip((VALUES - (center - 0.5)) / (width - 1) + 0.5, 0, 1)  # C.11.2.1.2.1
    assert gray(path) == pytest.approx(expected, abs=1e-6)
    exact = written(tmp_path, WindowCenter=40, WindowWidth=400, VOILUTFunction="LINEAR_EXACT")
    assert gray(exact) == pytest.approx(np.clip((VALUES - 40) / 400 + 0.5, 0, 1), abs=1e-6)
    sigmoid = written(tmp_path, WindowCenter=40, WindowWidth=400, VOILUTFunction="SIGMOID")
    assert gray(sigmoid) == pytest.approx(1 / (1 + np.exp(-4 * (VALUES - 40.0) / 400)), abs=1e-6)
    assert gray(path, None, (0.0, 1.0)) == pytest.approx(clipped(VALUES, 0, 1))  # the option has priority


def test_without_a_window_the_range_is_that_of_the_stored_bits(tmp_path):
    path = written(tmp_path, np.array([[0, 2047, 4095]], dtype=np.int16), intercept=0, BitsStored=12, HighBit=11)
    tags = pydicom.dcmread(path)
    tags.PixelRepresentation = 0
    tags.save_as(path)
    assert gray(path) == pytest.approx(np.array([[0, 2047 / 4095, 1]]), abs=1e-6)


def test_monochrome1_is_inverted(tmp_path):
    plain, inverted = (
        gray(written(tmp_path, PhotometricInterpretation=kind), None, (-160.0, 240.0))
        for kind in ("MONOCHROME2", "MONOCHROME1")
    )
    assert inverted == pytest.approx(1 - plain)


def test_a_lookup_table_of_the_file_is_used(tmp_path):
    table = pydicom.Dataset()
    table.add_new("LUTDescriptor", "US", [4, 0, 8])
    table.add_new("LUTData", "US", [0, 51, 102, 255])
    path = written(tmp_path, np.array([[0, 1, 2, 3]], np.int16), intercept=0, VOILUTSequence=[table])
    assert gray(path) == pytest.approx(np.array([[0, 51, 102, 255]]) / 255, abs=1e-6)


def multi_frame(tmp_path, frames, **more):
    path = written(tmp_path, frames[0], intercept=0)
    tags = pydicom.dcmread(path)
    tags.NumberOfFrames = len(frames)
    tags.PixelData = np.asarray(frames, "<i2").tobytes()
    for name, value in more.items():
        setattr(tags, name, value)
    tags.save_as(path)
    return path


def test_each_frame_is_an_image(tmp_path):
    frames = np.arange(24, dtype=np.int16).reshape(4, 2, 3)
    path = multi_frame(tmp_path, frames, PatientID="p7")
    assert read_medical_header(path) == (4, (2, 3), "p7")
    for number in range(4):
        assert gray(path, number, (0.0, 23.0)) == pytest.approx(frames[number] / 23)


def test_gray_levels_of_single_frames(tmp_path):
    groups = []
    for slope in (1, 2):
        group, rescale = pydicom.Dataset(), pydicom.Dataset()
        rescale.RescaleSlope, rescale.RescaleIntercept = str(slope), "0"
        group.PixelValueTransformationSequence = [rescale]
        groups.append(group)
    path = multi_frame(tmp_path, np.full((2, 1, 2), 10, np.int16), PerFrameFunctionalGroupsSequence=groups)
    assert [gray(path, number, (0.0, 40.0))[0, 0] for number in (0, 1)] == pytest.approx([0.25, 0.5])


def test_colors_are_rgb(tmp_path):
    path = written(tmp_path, np.zeros((1, 2), np.int16), intercept=0)
    tags = pydicom.dcmread(path)
    tags.SamplesPerPixel, tags.PhotometricInterpretation, tags.PlanarConfiguration = 3, "RGB", 0
    tags.BitsAllocated, tags.BitsStored, tags.HighBit, tags.PixelRepresentation = 8, 8, 7, 0
    tags.PixelData = bytes([255, 0, 0, 0, 128, 255])
    tags.save_as(path)
    image = open_medical(path)
    assert image.mode == "RGB"
    assert np.asarray(image).tolist() == [[[255, 0, 0], [0, 128, 255]]]


def test_broken_files_are_named(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    refused(DataFileError, "1.dcm", lambda: open_medical(path))
    path.write_bytes(b"no image")
    refused(DataFileError, "1.dcm", lambda: read_medical_header(path))
    refused(MissingDataError, "2.dcm", lambda: open_medical(tmp_path / "2.dcm"))
    for name in ("a.nii", "a.nii.gz"):
        refused(MissingDataError, name, open_medical, tmp_path / name, 0)


@pytest.mark.parametrize("axes", ["RAS", "LPS", "PIR"])
def test_each_axial_slice_is_an_image(tmp_path, axes):
    body = np.random.default_rng(0).integers(-1000, 1000, (3, 4, 5)).astype(np.int16)
    path = write_nifti(tmp_path / "a.nii.gz", body, axes)
    assert read_medical_header(path) == (3, (4, 5), "")
    for number in range(3):
        assert gray(path, number, (-160.0, 240.0)) == pytest.approx(clipped(body[number], -160, 240), abs=1e-6)
        assert gray(path, number) == pytest.approx(clipped(body[number], body.min(), body.max()), abs=1e-6)


def test_the_display_range_of_a_volume_is_its_window(tmp_path):
    image = nibabel.Nifti1Image(np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.eye(4))
    image.header["cal_min"], image.header["cal_max"] = 2, 4
    nibabel.save(image, tmp_path / "a.nii")
    assert gray(tmp_path / "a.nii", 1) == pytest.approx(clipped([[7, 3], [5, 1]], 2, 4))


def test_a_replaced_volume_is_read_again(tmp_path):
    path = write_nifti(tmp_path / "a.nii.gz", np.zeros((1, 2, 2), np.int16))
    assert gray(path, 0, (0.0, 10.0)).max() == 0
    write_nifti(path, np.full((1, 2, 2), 5, np.int16), dtype=np.float32)
    assert gray(path, 0, (0.0, 10.0)).max() == 0.5


@pytest.mark.parametrize("syntax", [pydicom.uid.ExplicitVRLittleEndian, pydicom.uid.ImplicitVRLittleEndian])
@pytest.mark.parametrize("keeps_meta", [True, False])
@pytest.mark.parametrize("name", ["1.dcm", "1"])
def test_files_without_preamble_are_read(tmp_path, syntax, keeps_meta, name):
    path = written(tmp_path)
    expected = gray(path)
    tags = pydicom.dcmread(path)
    tags.file_meta.TransferSyntaxUID = syntax
    tags.save_as(path, implicit_vr=syntax.is_implicit_VR, little_endian=True)
    content = path.read_bytes()
    length = 12 + int.from_bytes(content[140:144], "little")  # of the meta information
    path.unlink()
    path = path.with_name(name)
    path.write_bytes(content[132 if keeps_meta else 132 + length :])
    assert is_medical(path)
    assert np.array_equal(gray(path), expected)
    assert read_medical_header(path).size == expected.shape


def test_other_files_are_not_taken_for_dicom(tmp_path):
    path = tmp_path / "notes"
    for content in (b"", b"plain text", bytes(200), b"\x08\0\x05\0 text in group 8", b"\x02\0\0\0 text"):
        path.write_bytes(content)
        assert not is_medical(path)
        refused(DataFileError, "notes", read_medical_header, path)


@pytest.mark.parametrize("shape", [(3, 4, 5, 1), (3, 4, 5, 1, 1)])
def test_further_axes_of_length_1_are_dropped(tmp_path, shape):
    values = np.arange(60, dtype=np.int16).reshape(shape)
    nibabel.save(nibabel.Nifti1Image(values[..., 0].reshape(3, 4, 5), np.eye(4)), tmp_path / "a.nii.gz")
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "b.nii.gz")
    assert read_medical_header(tmp_path / "a.nii.gz") == read_medical_header(tmp_path / "b.nii.gz")
    for number in range(5):
        assert np.array_equal(gray(tmp_path / "a.nii.gz", number), gray(tmp_path / "b.nii.gz", number))
        assert read_medical_mask(tmp_path / "b.nii.gz", number, tmp_path / "a.nii.gz").shape == (4, 3)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5, 2)])
def test_other_numbers_of_axes_are_refused_with_advice(tmp_path, shape):
    nibabel.save(nibabel.Nifti1Image(np.zeros(shape, np.int16), np.eye(4)), tmp_path / "a.nii")
    assert "again" not in str(refused(DataFileError, "three axes", read_medical_header, tmp_path / "a.nii"))


def test_missing_numbers_are_refused(tmp_path):
    body = np.zeros((2, 2, 2), np.float32)
    body[1, 0, 0] = np.nan
    path = write_nifti(tmp_path / "a.nii.gz", body)
    assert gray(path, 0).max() == 0
    refused(DataFileError, "slice 1", lambda: open_medical(path, 1))


def test_masks_match_their_images(tmp_path):
    marks = np.zeros((3, 4, 5), np.uint8)
    marks[1, 2, 3] = 7
    image = write_nifti(tmp_path / "a.nii.gz", marks.astype(np.int16))
    mask = write_nifti(tmp_path / "m.nii.gz", marks)
    assert [read_medical_mask(mask, number, image).sum() for number in range(3)] == [0, 1, 0]
    assert read_medical_mask(mask, 1, image)[2, 3]
    shorter = write_nifti(tmp_path / "b.nii.gz", np.zeros((2, 4, 5), np.int16))
    refused(DataFileError, "m.nii.gz", read_medical_mask, mask, 0, shorter)
    flipped = nibabel.Nifti1Image(np.zeros((5, 4, 3), np.int16), np.diag([-0.8, 0.8, 2.5, 1]))
    nibabel.save(flipped, tmp_path / "c.nii.gz")
    refused(DataFileError, "another region", lambda: read_medical_mask(mask, 0, tmp_path / "c.nii.gz"))


def test_images_that_are_nearly_uniform_without_a_window_are_warned_of_once(tmp_path, caplog):
    path = written(tmp_path, np.array([[0, 1000]], np.int16), intercept=0)
    for _ in range(2):
        open_medical(path)
    assert caplog.text.count("Give window=(center, width)") == 1
    caplog.clear()
    other = write_slice(tmp_path / "b" / "1.dcm", VALUES * 10, image="1.2", series="1", z=0, intercept=0)
    open_medical(other)
    open_medical(path, None, (0.0, 1e6))
    assert caplog.text == ""
