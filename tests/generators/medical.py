"""Writing single slices of CT as DICOM."""

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom")

UPRIGHT = (1, 0, 0, 0, 1, 0)
SPACING = (0.7, 0.7)


def noise(rng, *shape):
    """Hounsfield values between those of air and bone, all even."""
    return (rng.integers(-500, 200, shape) * 2).astype(np.int16)


def write_slice(
    path, values, *, image, series, z, number=1, slope=1, intercept=-1024, orientation=UPRIGHT, compressed=False, **more
):
    """A CT slice whose Hounsfield values are ``values`` ``[rows, columns]``."""
    said = pydicom.Dataset()
    said.file_meta = pydicom.dataset.FileMetaDataset()
    said.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    said.SOPClassUID, said.SOPInstanceUID, said.SeriesInstanceUID = pydicom.uid.CTImageStorage, image, series
    said.Modality, said.InstanceNumber = "CT", number
    said.Rows, said.Columns = values.shape
    said.SamplesPerPixel, said.PhotometricInterpretation = 1, "MONOCHROME2"
    said.BitsAllocated, said.BitsStored, said.HighBit, said.PixelRepresentation = 16, 16, 15, 1
    said.PixelSpacing, said.ImagePositionPatient = list(SPACING), [0, 0, z]
    said.ImageOrientationPatient = list(orientation)
    said.RescaleSlope, said.RescaleIntercept = str(slope), str(intercept)
    stored = (values.astype(np.int64) - intercept) / slope
    assert (stored == stored.astype(np.int16)).all()
    said.PixelData = stored.astype("<i2").tobytes()
    for keyword, value in more.items():
        if value is None:
            delattr(said, keyword)
        else:
            setattr(said, keyword, value)
    if compressed:
        said.compress(pydicom.uid.RLELossless, generate_instance_uid=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    said.save_as(path, enforce_file_format=True)
    return path
