import gzip
from pathlib import Path

import numpy as np
import pytest
from generators.medical import write_slice
from generators.tumor import nibabel, write_nifti
from refusals import refused, refused_early

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.scans.ct_reading import read_slice
from xaibench.data.scans.nifti_volumes import are_misaligned, read_volume, read_volume_header

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "msd" / "Task04_Hippocampus"


@pytest.mark.parametrize("axes", ["RAS", "LPS", "LAS", "PIR", "SLA", "IPL"])
def test_every_order_of_axes_is_read_to_the_same_view(tmp_path, axes):
    body = np.random.default_rng(0).integers(-1000, 1000, (3, 4, 5)).astype(np.int16)
    path = write_nifti(tmp_path / "a.nii.gz", body, axes)
    read, header = read_volume(path)
    assert (header.axes, header.shape, header.affine.shape) == (axes, (3, 4, 5), (4, 4))
    assert header.spacing == pytest.approx((2.5, 0.8, 0.8))
    assert np.array_equal(read_volume_header(path).affine, nibabel.as_closest_canonical(nibabel.load(path)).affine)
    assert read.dtype == np.int16
    assert np.array_equal(read, body)


def test_nifti_and_dicom_show_the_same_body_the_same_way(tmp_path):
    # One bright voxel at a known place of the body, in the coordinates of either standard, written by hand.
    stored = np.zeros((6, 4, 1), dtype=np.int16)
    stored[5, 3, 0] = 700  # NIfTI: x to the right, y to the front: right front
    nibabel.save(nibabel.Nifti1Image(stored, np.eye(4)), tmp_path / "a.nii.gz")
    pixels = np.zeros((4, 6), dtype=np.int16)
    pixels[0, 0] = 700  # DICOM: columns to the left, rows to the back: the first pixel is right front
    path = write_slice(tmp_path / "1.dcm", pixels, image="1.2.3", series="1.2", z=0)
    (volume,) = read_volume(tmp_path / "a.nii.gz").values
    assert np.array_equal(volume, read_slice(path, radiological=True))
    assert volume[0, 0] == 700


def test_broken_volumes_are_named(tmp_path):
    body = np.random.default_rng(0).integers(-1000, 1000, (8, 40, 50)).astype(np.int16)
    path = write_nifti(tmp_path / "a.nii.gz", body)
    whole = path.read_bytes()
    cut = (whole[:kept] for kept in (0, 5, 40, len(whole) // 2, -9))
    for content in (*cut, whole[:3000] + bytes(50) + whole[3050:]):
        path.write_bytes(content)
        refused(DataFileError, "a.nii.gz", read_volume, path)
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 4, 5, 2), np.int16), np.eye(4)), path)
    refused(DataFileError, "a.nii.gz", lambda: read_volume(path))
    refused(MissingDataError, "b.nii.gz", lambda: read_volume(tmp_path / "b.nii.gz"))


@pytest.mark.skipif(not REAL.is_dir(), reason="the sample files are not here")
def test_a_case_of_the_decathlon():
    image, label = (read_volume(REAL / name / "hippocampus_001.nii.gz").values for name in ("imagesTr", "labelsTr"))
    assert image.shape == label.shape == (35, 51, 35)
    assert set(np.unique(label).tolist()) == {0, 1, 2}
    # Label 1 is the anterior hippocampus, 2 the posterior one: the front is on top.
    rows = [np.nonzero(label == value)[1].mean() for value in (1, 2)]
    assert rows[0] < rows[1]


def head(*shape, kind=np.int16, **fields):
    """The first 352 bytes of a volume."""
    made = nibabel.Nifti1Header()
    made.set_data_dtype(kind)
    made.set_data_shape(shape)
    made["vox_offset"], made["magic"] = 352, b"n+1"
    for name, value in fields.items():
        made[name] = value
    return made.binaryblock + bytes(4)


def padded(size):
    """A gzip file of many zeros, in members of 1 MB, so that it is quickly made."""
    return gzip.compress(bytes(2**20), mtime=0) * (size // 2**20)


NOISE = np.random.default_rng(0).bytes(20_000)
LIMITED = [
    (gzip.compress(head(30000, 30000, 100)), "30000×30000×100"),
    (head(30000, 30000, 100), "30000×30000×100"),
    (head(512, 512, 2048), "XAIBENCH_MAX_GB"),
    (gzip.compress(head(512, 512, 2048)), "512×512×2048"),
    (gzip.compress(head(40, 30, 5)) + padded(2**28), "12,352"),
    (gzip.compress(head(200, 200, 10) + NOISE), "20,352"),
    (head(40, 30, 5, kind=np.complex128), "complex128"),
    (head(40, 30, 5, vox_offset=1e12), "999999995904"),
    (head(40, 30, 5, vox_offset=-5e9), "a.nii.gz"),
    (head(40, 30, 5, vox_offset=np.nan), "a.nii.gz"),
    (head(40, 0, 5), "(40, 0, 5)"),
]


@pytest.mark.parametrize(("content", "said"), LIMITED, ids=range(len(LIMITED)))
def test_limits_are_checked_before_memory_is_asked_for(tmp_path, content, said):
    path = tmp_path / "a.nii.gz"
    path.write_bytes(content)
    refused_early(DataFileError, said, read_volume, path)


def test_volumes_that_lie_on_each_other_do_so_in_any_order_of_axes(tmp_path):
    body = np.random.default_rng(0).integers(0, 9, (3, 4, 5)).astype(np.int16)
    stored = [write_nifti(tmp_path / f"{axes}.nii.gz", body, axes) for axes in ("RAS", "LPS", "SLA")]
    first, *others = (read_volume_header(path) for path in stored)
    assert not any(are_misaligned(first, other) for other in others)
    for axis in range(3):
        image = nibabel.load(stored[0])
        flip = np.diag([-1.0 if number == axis else 1.0 for number in range(4)])
        nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), flip @ image.affine), tmp_path / "flipped.nii.gz")
        assert are_misaligned(first, read_volume_header(tmp_path / "flipped.nii.gz"))
    moved = image.affine.copy()
    moved[:3, 3] += 50  # such files exist, and belong together voxel by voxel
    nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), moved), tmp_path / "moved.nii.gz")
    assert not are_misaligned(first, read_volume_header(tmp_path / "moved.nii.gz"))
