"""Task07_Pancreas of the Medical Segmentation Decathlon (NIfTI), and the NIH's Pancreas-CT (DICOM)."""

from pathlib import Path

import numpy as np
import pytest
from generators.common import Expected, rectangle
from generators.medical import UPRIGHT, noise, write_slice

nibabel = pytest.importorskip("nibabel")

HEIGHT, WIDTH, DEPTH = 60, 80, 9
#: Slices with a tumour, from the feet up.
TUMOUR = (3, 4, 6)


def write_nifti(path, volume, axes="RAS", dtype=None):
    """``volume`` ``[slices, rows, columns]``, feet first, as radiologists look; stored as the axes say."""
    stored = volume[:, ::-1, ::-1].transpose(2, 1, 0)  # x to the right, y to the front, z up
    image = nibabel.Nifti1Image(stored.astype(dtype or stored.dtype), np.diag([0.8, 0.8, 2.5, 1]))
    here = nibabel.io_orientation(image.affine)
    image = image.as_reoriented(nibabel.orientations.ornt_transform(here, nibabel.orientations.axcodes2ornt(axes)))
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, path)
    return path


def scan(name):
    """Hounsfield values ``[slices, rows, columns]`` and the mask that each slice with a tumour has."""
    rng = np.random.default_rng(list(name.encode()))
    return noise(rng, DEPTH, HEIGHT, WIDTH), rectangle(rng, HEIGHT, WIDTH)


def write_case(root, name, axes="RAS", label_type=np.uint8, image_type=np.int16):
    values, mask = scan(name)
    labels = np.zeros(values.shape, dtype=np.uint8)
    labels[2:8, 5:50, 5:70] = 1
    labels[list(TUMOUR)] = np.where(mask, 2, labels[list(TUMOUR)])
    task = Path(root) / "Task07_Pancreas"
    write_nifti(task / "imagesTr" / f"{name}.nii.gz", values, axes, image_type)
    write_nifti(task / "labelsTr" / f"{name}.nii.gz", labels, axes, label_type)
    return Expected(name, "tumor", mask)


def write_patient(folder, name, orientation=UPRIGHT, turn=lambda values: values):
    """A scan in DICOM; ``turn`` says how the pixels must be stored under the orientation."""
    values, _ = scan(name)
    for number in range(DEPTH):
        write_slice(
            folder / name / "study" / "series" / f"{DEPTH - number:06d}.dcm",
            turn(values[number]),
            image=f"1.2.{number}",
            series="1.2",
            z=-50 + number,
            orientation=orientation,
        )
    return Expected(name, "no_tumor", None)


def write(root):
    root, found = Path(root), []
    for number, axes in enumerate(("RAS", "LPS", "LAS", "PIR", "RAS", "LPS", "RAS", "RAI", "SAR", "RAS")):
        kind = np.float32 if number % 2 else np.uint8
        image_type = np.float32 if number == 5 else np.int16
        found.append(write_case(root, f"pancreas_{3 * number + 1:03d}", axes, kind, image_type))
    for folder in ("imagesTr", "labelsTr"):
        (root / "Task07_Pancreas" / folder / "._pancreas_001.nii.gz").write_bytes(b"Mac OS X")
    write_nifti(root / "Task07_Pancreas" / "imagesTs" / "pancreas_500.nii.gz", scan("test")[0])
    (root / "Task07_Pancreas" / "dataset.json").write_text("{}")
    place = root / "manifest-123" / "Pancreas-CT"
    for number in range(1, 9):
        found.append(write_patient(place, f"PANCREAS_{number:04d}"))
    found.append(write_patient(place, "PANCREAS_0009", (-1, 0, 0, 0, -1, 0), lambda values: values[::-1, ::-1]))
    found.append(write_patient(place, "PANCREAS_0010", (0, 1, 0, 1, 0, 0), lambda values: values.T))
    return found
