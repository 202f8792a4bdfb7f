import logging

import numpy as np
import pytest
import torch
from generators.tumor import DEPTH, HEIGHT, TUMOUR, WIDTH, nibabel, scan, write, write_case, write_nifti, write_patient
from refusals import refused

from xaibench.data.annotated import DataFileError
from xaibench.data.scans.pancreas_tumor import tumor

CROP = (4, 30, 20)
SHAPE = (DEPTH, HEIGHT, WIDTH)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XAIBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """The official layout: ten scans of each class, under all kinds of axes."""
    root = tmp_path_factory.mktemp("tumor")
    write(root)
    return root


@pytest.fixture
def root(tmp_path):
    """Two scans of each class."""
    for number in (1, 2):
        write_case(tmp_path / "data", f"pancreas_00{number}")
        write_patient(tmp_path / "data" / "Pancreas-CT", f"PANCREAS_000{number}")
    return tmp_path / "data"


def volumes_of(root, crop=CROP, **own):
    return tumor(root=root, volumes=True, crop=crop, splits=(0, 0, 1), **own).test


def marks(name):
    """The tumor of a written scan."""
    found = np.zeros(SHAPE, bool)
    found[list(TUMOUR)] = scan(name)[1]
    return found


@pytest.mark.parametrize("crop", [None, CROP, (12, 20, 90)])
def test_volumes_have_the_slices_and_masks_of_the_slice_loader(official, crop):
    window = (-600, 200)
    split, compared = volumes_of(official, crop, window=window), 0
    sources = [tumor(root=official, splits=(0, 0, 1), seed=seed, window=window).test.source for seed in range(6)]
    for number, meta in enumerate(split.meta):
        image, mask, target = split[number]
        assert (meta["shape"], meta["orientation"], mask.shape) == (SHAPE, "SPL", crop or SHAPE)
        assert split.source.classes[target] == ("tumor" if meta["id"].startswith("pancreas") else "no_tumor")
        d, h, w = meta["origin"]
        cut = (slice(99 + h, 99 + h + mask.shape[1]), slice(99 + w, 99 + w + mask.shape[2]))
        for source in sources:
            (index,) = [one for one in range(len(source)) if source.meta(one)["id"] == meta["id"]]
            at = source.meta(index)["slice"] - d
            if 0 <= at < len(mask):
                truth = source.mask(index)
                assert np.array_equal(image[0, at], np.pad(source.image(index, 224), 99)[cut])  # bit for bit
                assert np.array_equal(mask[at], np.pad(np.zeros(SHAPE[1:], bool) if truth is None else truth, 99)[cut])
                compared += 1
    assert compared > 3 * len(split)


def test_every_order_of_axes_gives_the_same_volume(official):
    # The generators store every scan under another order of axes; all must come out as they were made.
    split = volumes_of(official, None, window=(-1000, 400))
    for (image, mask, _), meta in zip((split[number] for number in range(20)), split.meta, strict=True):
        values = scan(meta["id"])[0]
        assert torch.allclose(image[0], torch.tensor((values.astype(np.float32) + 1000) / 1400).clip(0, 1), atol=1e-6)
        assert np.array_equal(mask, marks(meta["id"]) if meta["id"].startswith("pancreas") else np.zeros(SHAPE))
        assert meta["spacing"] == pytest.approx((2.5, 0.8, 0.8) if mask.any() else (1.0, 0.7, 0.7))
    assert split.metric_inputs(slice(0, 2))["spacing"].shape == (2, 3)


def test_the_spacing_follows_the_axes(tmp_path):
    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for name, axes in (("pancreas_001", "RAS"), ("pancreas_002", "SAL"), ("pancreas_003", "PIR")):
        for folder, volume in (("imagesTr", values), ("labelsTr", np.full((2, 3, 4), 2, np.uint8))):
            path = write_nifti(tmp_path / "Task07_Pancreas" / folder / f"{name}.nii.gz", volume, "RAS")
            image = nibabel.Nifti1Image(np.asarray(nibabel.load(path).dataobj), np.diag([0.5, 0.7, 3, 1]))
            moved = nibabel.orientations.ornt_transform(
                nibabel.io_orientation(image.affine), nibabel.orientations.axcodes2ornt(axes)
            )
            nibabel.save(image.as_reoriented(moved), path)
    split = volumes_of(tmp_path, None, classes="tumor", window=(0, 24))
    assert split.metric_inputs(slice(None))["spacing"].tolist() == [pytest.approx([3, 0.7, 0.5])] * 3
    assert torch.allclose(split[:][0] * 24, torch.tensor(values, dtype=torch.float32)[None, None].expand(3, 1, 2, 3, 4))


def test_a_crop_is_centered_on_the_largest_part_and_shows_all(root):
    labels = np.zeros(SHAPE, np.uint8)
    labels[2:6, 10:20, 30:41] = 2  # center (4, 15, 35.5)
    labels[4, 22, 35] = 2  # another part inside of the crop
    labels[8, 50:52, 70:72] = 2  # and one far away
    labels[:, 0] = 1
    write_nifti(root / "Task07_Pancreas" / "labelsTr" / "pancreas_001.nii.gz", labels)
    (image, mask, _), meta = volumes_of(root, classes="tumor")[0], volumes_of(root, classes="tumor").meta[0]
    assert (meta["id"], meta["origin"]) == ("pancreas_001", (2, 0, 25))
    assert np.array_equal(mask, (labels == 2)[2:6, 0:30, 25:45])
    values = scan("pancreas_001")[0][2:6, 0:30, 25:45].astype(np.float32)
    assert torch.allclose(image[0], torch.tensor((values + 160) / 400).clip(0, 1), atol=1e-6)


def test_a_crop_that_shows_nothing_of_its_tumor_is_not_annotated(root):
    labels = np.zeros(SHAPE, np.uint8)
    labels[4, 10:21, 30:41] = 2
    labels[4, 11:20, 31:40] = 0
    write_nifti(root / "Task07_Pancreas" / "labelsTr" / "pancreas_001.nii.gz", labels)
    facts = {meta["id"]: meta["annotated"] for meta in volumes_of(root, (1, 9, 9), include_unannotated=True).meta}
    assert facts == {"PANCREAS_0001": True, "PANCREAS_0002": True, "pancreas_001": False, "pancreas_002": True}
    assert volumes_of(root, (1, 11, 9), classes="tumor").masks.flatten(1).any(1).tolist() == [True, True]


def test_beyond_the_border_is_air(root):
    split = volumes_of(root, (15, 70, 90), window=(-1200, -200))
    for number, meta in enumerate(split.meta):
        inside = np.zeros((15, 70, 90), bool)
        inside[tuple(slice(a, side - b) for (a, b), side in zip(meta["padding"], inside.shape, strict=True))] = True
        assert inside.sum() < inside.size
        image, mask, _ = split[number]
        assert (image[0].numpy()[~inside] == np.float32(0.2)).all()  # -1000 HU
        assert not mask.numpy()[~inside].any()


def test_healthy_crops_are_in_the_middle_half_at_the_place_of_a_tumor(official):
    split = volumes_of(official, (1, 5, 5))
    places = {"tumor": set(), "no_tumor": set()}
    for meta, target in zip(split.meta, split.targets.tolist(), strict=True):
        label = split.source.classes[target]
        rows, columns = (
            (first + 2 - (side - 1) / 2) * step
            for first, side, step in zip(meta["origin"][1:], SHAPE[1:], meta["spacing"][1:], strict=True)
        )
        places[label].add((rows, columns))
        assert target or DEPTH // 4 <= meta["origin"][0] < DEPTH - DEPTH // 4
    assert len(places["no_tumor"]) > 4
    for row, column in places["no_tumor"]:  # up to half a voxel of either
        assert min(max(abs(row - r), abs(column - c)) for r, c in places["tumor"]) <= 0.75 + 1e-6


def test_the_seed_places_healthy_crops_only(official):
    origins = [{meta["id"]: meta["origin"] for meta in volumes_of(official, seed=seed).meta} for seed in (1, 1, 2)]
    assert origins[0] == origins[1]
    changed = {name for name in origins[0] if origins[0][name] != origins[2][name]}
    assert len(changed) > 5
    assert all(name.startswith("PANCREAS") for name in changed)


def test_healthy_crops_need_scans_with_a_tumor_and_whole_scans_do_not(root):
    healthy = volumes_of(root, classes="no_tumor")
    assert list(healthy.ids) == ["PANCREAS_0001", "PANCREAS_0002"]
    both = {meta["id"]: meta["origin"] for meta in volumes_of(root).meta}
    assert {meta["id"]: meta["origin"] for meta in healthy.meta}.items() <= both.items()
    for path in (root / "Task07_Pancreas" / "labelsTr").glob("*.nii.gz"):
        path.unlink()
    refused(DataFileError, "crop=", lambda: volumes_of(root, classes="no_tumor"))
    assert len(volumes_of(root, None, classes="no_tumor")) == 2


def test_a_healthy_scan_with_missing_slices(root, caplog):
    gone = root / "Pancreas-CT" / "PANCREAS_0001" / "study" / "series" / f"{DEPTH - 4:06d}.dcm"
    gone.unlink()
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert list(volumes_of(root, None, classes="no_tumor").ids) == ["PANCREAS_0002"]
    assert "PANCREAS_0001 is left out: slices are missing" in caplog.text
    assert {volumes_of(root, (2, 4, 4), seed=seed, classes="no_tumor").meta[0]["origin"][0] for seed in range(12)} <= {
        *(1, 2),  # the gap is between the slices 3 and 4 of the remaining ones
        *(4, 5),
    }


def test_values_that_are_not_finite(root):
    write_nifti(root / "Task07_Pancreas" / "imagesTr" / "pancreas_001.nii.gz", np.full(SHAPE, np.nan, np.float32))
    assert list(volumes_of(root, classes="tumor").ids) == ["pancreas_002"]
    refused(DataFileError, "pancreas_001.nii.gz", lambda: volumes_of(root, None, classes="tumor")[0])
