import logging
import math
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import generators.lidc
import numpy as np
import pytest
import torch
from generators.lidc import FAR, HEIGHT, NODULE, SMALL, WIDTH, Case, everywhere, nodule, non_nodule
from generators.medical import SPACING, write_slice
from matplotlib.path import Path as Polygon
from refusals import refused
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform

import xaibench as xb
from xaibench.data.scans import lidc_volumes
from xaibench.data.scans.lidc_nodules import lidc
from xaibench.types import MetricInfo

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "lidc" / "tcia-lidc-xml"
BOX = (10, 20, 30, 40)
#: Free of marks at the mirrored place of BOX.
CROP = (3, 24, 16)
STEP = 2.5


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The slices of all scans are 2.5 mm apart; those of the generator have a gap before the last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XAIBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(generators.lidc, "Z", tuple(-100 + STEP * number for number in range(8)))
        yield


@pytest.fixture(scope="module")
def official(cache, tmp_path_factory):
    """The official layout with all its traps."""
    root = tmp_path_factory.mktemp("lidc")
    generators.lidc.write(root)
    return root


def one(root, sessions, patient=1, **how):
    case = Case(root / "LIDC-IDRI", patient, **how)
    case.write_xml(sessions(case))
    return case


def marked(root, patient=1, slices=NODULE, **how):
    return one(root, lambda case: [nodule("0", case.rois(everywhere(BOX, slices)))], patient, **how)


def volumes_of(root, crop=CROP, **own):
    return lidc(root=root, volumes=True, crop=crop, splits=(0, 0, 1), **own).test


def slices_of(root, **own):
    source = lidc(root=root, splits=(0, 0, 1), slices="all", negatives=9, **own).test.source
    return source, range(len(source))


def names(split, label="nodule"):
    chosen = [number for number, target in enumerate(split.targets.tolist()) if split.source.classes[target] == label]
    return [split.meta[number]["id"].rpartition("/")[2] for number in chosen]


@pytest.mark.parametrize("crop", [None, CROP, (9, 70, 30)])
def test_volumes_have_the_slices_and_masks_of_the_slice_loader(official, crop):
    given = {"window": (-600, 200), "consensus": 0.4, "contour": True}
    slices, numbers = slices_of(official, **given)
    images = {slices.meta(number)["file"]: np.asarray(slices.image(number, 224)) for number in numbers}
    masks = {slices.meta(number)["file"]: slices.mask(number) for number in numbers}
    split, compared = volumes_of(official, crop, classes=None if crop == CROP else "nodule", **given), 0
    files = {meta["id"][:-5]: {} for meta in map(slices.meta, numbers)}
    for number in numbers:
        meta = slices.meta(number)
        files[meta["id"][:-5]][meta["slice"]] = meta["file"]
    assert len(split) == {None: 13, CROP: 24}.get(crop, 14)
    for (image, mask, _), meta in zip((split[number] for number in range(len(split))), split.meta, strict=True):
        assert meta["spacing"] == (STEP, *SPACING)
        assert (meta["orientation"], meta["shape"]) == ("SPL", (8, HEIGHT, WIDTH))
        (d, h, w), (depth, height, width) = meta["origin"], mask.shape
        assert (depth, height, width) == (crop or (8, HEIGHT, WIDTH))
        for number, file in files[meta["scan"]].items():
            if 0 <= number - d < depth:
                whole = np.pad(images[file], 99, constant_values=0)[99 + h :, 99 + w :][:height, :width]
                truth = np.zeros_like(images[file], bool) if masks[file] is None else masks[file]
                truth = np.pad(truth, 99)[99 + h :, 99 + w :][:height, :width]
                assert np.array_equal(image[0, number - d], whole)  # bit for bit
                assert np.array_equal(mask[number - d], truth)
                compared += 1
    assert compared > 2 * len(split)


def test_a_crop_has_the_nodule_at_its_center_and_air_beyond_the_border(tmp_path):
    case = one(tmp_path, lambda case: [nodule("0", case.rois(everywhere((2, 4, 12, 20), (0, 1))))])
    split = volumes_of(tmp_path, (5, 21, 31), classes="nodule", window=(-1200, 400))
    (image, mask, _), meta = split[0], split.meta[0]
    assert (meta["origin"], meta["padding"]) == ((-2, -3, -3), ((2, 0), (3, 0), (3, 0)))
    assert meta["id"] == "LIDC-IDRI-0001/0/-2,-3,-3"
    assert meta["file"] == case.file(0).relative_to(tmp_path / "LIDC-IDRI").as_posix()
    inside = image[0, 2:, 3:, 3:]
    expected = (case.values[:3, :18, :28].astype(np.float32) + 1200) / 1600
    assert torch.allclose(inside, torch.tensor(expected).clip(0, 1), atol=1e-6)
    image[0, 2:, 3:, 3:] = 0.125
    assert (image == 0.125).all()  # -1000 HU
    truth = np.zeros((5, 21, 31), bool)
    truth[2:4, 3 + 3 : 3 + 12, 3 + 5 : 3 + 20] = True
    assert np.array_equal(mask, truth)
    assert (truth.sum(), meta["readers"], meta["annotated"]) == (2 * 9 * 15, [1], True)


def test_crops_without_a_nodule_are_matched_and_free_of_marks(official):
    split = volumes_of(official)
    everything = {
        meta["scan"]: mask for meta, mask in zip(*(lambda s: (s.meta, s.masks))(
            volumes_of(official, None, classes="nodule", consensus=0.01, contour=True)
        ), strict=True)
    }  # fmt: skip
    positives = defaultdict(list)
    for meta, target in zip(split.meta, split.targets.tolist(), strict=True):
        if target:
            positives[meta["scan"]].append(meta["origin"])
    negatives = [meta for meta, target in zip(split.meta, split.targets.tolist(), strict=True) if not target]
    assert len(negatives) >= 10
    for meta in negatives:
        d, h, w = meta["origin"]
        assert not everything[meta["scan"]][d : d + 3, h : h + 24, w : w + 16].any()
        assert (meta["readers"], meta["other_marks"]) == ([], 0)
        assert any(
            h == top and w in (left, WIDTH - 16 - left) and abs(d - first) * STEP <= 50
            for first, top, left in positives[meta["scan"]]
        )
    assert len({meta["id"] for meta in negatives}) == len(negatives)
    assert not split.masks[split.targets == 0].any()
    assert split.masks[split.targets == 1].flatten(1).any(1).all()


def test_any_mark_of_any_reader_excludes_a_crop(tmp_path):
    mirrored = (20, WIDTH - 30)  # row and column in the only crop without an outline

    def free(name, extra):
        one(tmp_path / name, lambda case: [nodule("0", case.rois(everywhere(BOX))) + extra(case)])
        return names(volumes_of(tmp_path / name, negatives=99), "no_nodule")

    def dots(case):
        return "".join(
            nodule(str(at), [case.dot(at, *mirrored)], ratings=None)
            if at % 2
            else non_nodule(case.images[at], 0).replace(">3<", f">{mirrored[1]}<").replace(">4<", f">{mirrored[0]}<")
            for at in range(0, 8, 3)
        )

    assert free("nothing", lambda case: "") == [f"{first},8,42" for first in range(6)]
    # Slices 0, 3 and 6 have a point there; crops of three slices always contain one of them.
    refused(FileNotFoundError, "crop=", lambda: free("points", dots))
    # Without coordinates, a mark may be anywhere in slices 1 and 4.
    assert free("unknown", lambda case: nowhere(case, 1) + nowhere(case, 4)) == ["5,8,42"]


def nowhere(case, slice_):
    return non_nodule(case.images[slice_], 0).replace("<xCoord>3</xCoord>", "")


def test_negatives_are_drawn_by_seed_within_50_mm(tmp_path, monkeypatch):
    monkeypatch.setattr(generators.lidc, "Z", tuple(-100 + 20.0 * number for number in range(8)))
    marked(tmp_path, slices=(4, 5))
    drawn = {names(volumes_of(tmp_path, seed=seed), "no_nodule")[0] for seed in range(20)}
    # The nodule's crop begins at slice 3; at its own place, only the slices 1 to 3 are free. Crop 0 is 60 mm away.
    assert drawn == {"1,8,22", *(f"{first},8,42" for first in range(1, 6))}
    assert len(names(volumes_of(tmp_path, negatives=2), "no_nodule")) == 2
    assert names(volumes_of(tmp_path, seed=3), "no_nodule") == names(volumes_of(tmp_path, seed=3), "no_nodule")


def test_nodules_with_the_same_crop_are_one_sample_and_disputed_ones_are_not_annotated(official):
    split = volumes_of(official, (3, 50, 70), classes="nodule", include_unannotated=True)
    (disputed,) = [meta for meta in split.meta if not meta["annotated"]]
    assert disputed["patient"] == "LIDC-IDRI-0008"
    number = list(split.ids).index(disputed["id"])
    assert not split[number][1].any()
    assert disputed["id"] not in volumes_of(official, (3, 50, 70), classes="nodule").ids


def test_a_crop_is_annotated_if_it_shows_consensus(tmp_path):
    marks = [(40, 40, 45, 45), (40, 46, 45, 51), (40, 52, 45, 57)]  # they touch in slice 5, with consensus nowhere

    def sessions(case):
        read = [nodule(str(number), case.rois({5: mark})) for number, mark in enumerate(marks)]
        read[0] += nodule("around", case.rois(dict.fromkeys((3, 7), (35, 40, 50, 57))))
        return read

    one(tmp_path, sessions)
    (meta,) = volumes_of(tmp_path, classes="nodule", include_unannotated=True).meta
    assert (meta["readers"], meta["annotated"]) == ([3], False)  # three slices show the disputed nodule only
    split = volumes_of(tmp_path, (5, 20, 20), classes="nodule")
    assert split.meta[0]["readers"] == [1, 3]
    assert split.masks.any()


def test_whole_scans_have_a_class_and_count_their_other_marks(tmp_path):
    marked(tmp_path)
    one(tmp_path, lambda case: [nodule("x", [case.dot(2)], ratings=None)], patient=2)
    split = volumes_of(tmp_path, None)
    facts = {meta["id"]: (target, meta["other_marks"]) for meta, target in zip(split.meta, split.targets, strict=True)}
    assert facts == {"LIDC-IDRI-0001/0": (1, 1), "LIDC-IDRI-0002/0": (0, 2)}
    assert [meta["origin"] for meta in split.meta] == [(0, 0, 0)] * 2


def test_whole_scans_are_streamed_one_at_a_time(tmp_path, monkeypatch):
    for patient in (1, 2, 3):
        marked(tmp_path, patient)
    Case.at(tmp_path / "LIDC-IDRI", 2).file(7).unlink()
    read = []
    real = lidc_volumes.read_slice
    monkeypatch.setattr(lidc_volumes, "read_slice", lambda path: read.append(path) or real(path))
    given = {"classes": "nodule", "volumes": True, "crop": None, "splits": (1, 0, 0), "root": tmp_path}
    train, _, _ = xb.loading("lidc", verbose=False, shuffle=False, **given)
    shapes = []
    for images, masks, _ in train:
        assert len({path.parent for path in read}) == 1
        assert len(read) == len(masks[0])  # the slices of this scan, each once
        read.clear()
        shapes.append(tuple(images.shape))
    assert sorted(shapes) == [(1, 1, 7, HEIGHT, WIDTH), *[(1, 1, 8, HEIGHT, WIDTH)] * 2]
    refused(ValueError, "different shapes", lambda: xb.load("lidc", **given).train[:])
    assert xb.load("lidc", **given).info.image_shape == (1, 0, 0, 0)
    assert read == []


def test_missing_slices_are_found(tmp_path, caplog):
    case = marked(tmp_path, slices=(1, 2))
    marked(tmp_path, patient=2, slices=(4, 5))
    for patient in (1, 2):
        Case.at(tmp_path / "LIDC-IDRI", patient).file(3).unlink()
    with caplog.at_level(logging.WARNING, "xaibench"):
        split = volumes_of(tmp_path, (2, 8, 8), negatives=99)
    assert {meta["patient"]: meta["origin"][0] for meta in split.meta if meta["readers"]} == {
        "LIDC-IDRI-0001": 1,
        "LIDC-IDRI-0002": 3,  # the slices 4 and 5 have become 3 and 4
    }
    # No crop has the slice before and the slice after the gap.
    assert 2 not in {meta["origin"][0] for meta in split.meta if meta["scan"] == "LIDC-IDRI-0001/0"}
    caplog.clear()
    with caplog.at_level(logging.WARNING, "xaibench"), pytest.raises(FileNotFoundError, match="no volume of class"):
        volumes_of(tmp_path, None, classes="nodule")
    place = case.folder.relative_to(tmp_path / "LIDC-IDRI")
    assert f"{place}: slices are missing above z = -95 mm; 1 of 1 volumes are left out." in caplog.text


def test_a_crop_across_a_gap_is_left_out(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(generators.lidc, "Z", (*(STEP * number for number in range(7)), 100))
    one(
        tmp_path,
        lambda case: [nodule("0", case.rois(everywhere(BOX, (SMALL, FAR)))) + nodule("1", case.rois({2: BOX}))],
    )
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert names(volumes_of(tmp_path, (2, 8, 8), classes="nodule")) == ["1,16,26"]
    assert "slices are missing above z = 15 mm; 1 of 2 volumes are left out" in caplog.text


def test_slices_that_are_not_a_volume_are_named_and_still_slices(tmp_path, caplog):
    marked(tmp_path, 1)
    marked(tmp_path, 2, ImageOrientationPatient=None)
    case = marked(tmp_path, 3)
    write_slice(case.file(4), case.values[4], z=generators.lidc.Z[4], **case.says(4), orientation=(-1, 0, 0, 0, -1, 0))
    with caplog.at_level(logging.WARNING, "xaibench"):
        split = volumes_of(tmp_path, classes="nodule")
    assert [meta["patient"] for meta in split.meta] == ["LIDC-IDRI-0001"]
    assert len([line for line in caplog.messages if "its slices have no orientation" in line]) == 2
    assert len({meta["patient"] for meta in lidc(root=tmp_path, splits=(0, 0, 1)).test.meta}) == 3


def test_the_order_of_files_makes_no_difference_and_orientation_is_stated(tmp_path):
    case = marked(tmp_path / "a")
    other = marked(tmp_path / "b", orientation=(-1, 0, 0, 0, -1, 0))
    for number in range(8):  # names and numbers from the feet up instead of from the head down
        path = other.file(number)
        path.rename(path.with_name(f"x{number}.dcm"))
    one_, two = (volumes_of(root, None, classes="nodule") for root in (tmp_path / "a", tmp_path / "b"))
    assert all(torch.equal(a, b) for a, b in zip(one_[:], two[:], strict=True))
    assert [split.meta[0]["orientation"] for split in (one_, two)] == ["SPL", "SAR"]  # as stored, like the slices
    assert case.values.shape == (8, HEIGHT, WIDTH)


def test_metrics_get_the_spacing(official):
    @MetricInfo("Voxel", "ground-truth", higher_is_better=True, range=(0, math.inf), sample_inputs=("spacing",))
    def voxel(maps, masks, *, spacing=None, reduction="mean"):
        volume = np.prod(spacing, axis=1)
        return volume if reduction == "none" else float(volume.mean())

    split = volumes_of(official, classes="nodule")
    result = xb.evaluate({"truth": split.masks.float()}, split, metrics=[voxel, "iou"], controls=False, batch_size=4)
    means = result.summary().set_index("metric")["mean"]
    assert means["iou"] == 1
    assert means.drop("iou").item() == pytest.approx(STEP * SPACING[0] * SPACING[1])


def test_a_parameter_of_slices_is_refused(official):
    refused(TypeError, "volumes=", lambda: volumes_of(official, slices="all"))
    refused(ValueError, "size=", lambda: volumes_of(official, size=64))
    refused(ValueError, "crop=", lambda: lidc(root=official, crop=(4, 4, 4)))
    refused(ValueError, "negatives=", lambda: volumes_of(official, negatives=0))
    refused(ValueError, "consensus=", lambda: volumes_of(official, consensus=2))


def readings_of(path):
    """``[(reader, {uid: [(points (column, row), inclusion)]}, points in mm)]`` of the nodules of at least 3 mm."""
    tree = ElementTree.parse(path)
    for element in tree.iter():
        element.tag = element.tag.rpartition("}")[2]
    found, heights = [], {}
    for reader, session in enumerate(tree.iter("readingSession")):
        for mark in session.findall("unblindedReadNodule"):
            if mark.find("characteristics") is None or not len(mark.find("characteristics")):
                continue
            contours, places = defaultdict(list), []
            for roi in mark.findall("roi"):
                uid, z = roi.findtext("imageSOP_UID").strip(), float(roi.findtext("imageZposition"))
                points = [(int(e.findtext("xCoord")), int(e.findtext("yCoord"))) for e in roi.findall("edgeMap")]
                heights[uid] = z
                contours[uid].append((points, roi.findtext("inclusion").strip() == "TRUE"))
                places += [(x * SPACING[1], y * SPACING[0], z) for x, y in points]
            if len(places) > 1:
                found.append((reader, contours, np.array(places)))
    return found, heights, tree.find(".//SeriesInstanceUid").text


def strictly_inside(points, shape):
    """Pixels inside a polygon, without and with those on its lines, by matplotlib and the distance to each line."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    grid = np.column_stack([columns.ravel(), rows.ravel()])
    box = [slice(min(values) - 1, max(values) + 2) for values in zip(*points, strict=True)][::-1]
    near = np.zeros(shape, bool)
    near[tuple(box)] = True
    grid = grid[near.ravel()]
    on_line = np.zeros(len(grid), bool)
    for start, end in zip(points, [*points[1:], points[0]], strict=True):
        along, from_start = np.subtract(end, start), grid - start
        length = max(float(along @ along), 1e-9)
        share = np.clip(from_start @ along / length, 0, 1)
        on_line |= np.linalg.norm(from_start - share[:, None] * along, axis=1) < 1e-6
    inside = np.zeros(shape, bool)
    inside[near] = Polygon(points, closed=False).contains_points(grid) & ~on_line
    whole = np.zeros(shape, bool)
    whole[near] = inside[near] | on_line
    return inside, whole


@pytest.mark.skipif(not REAL.is_dir(), reason="the sample files are not here")
@pytest.mark.parametrize(
    ("name", "voxels", "nodules"), [("185/069.xml", 5428, [4]), ("157/158.xml", None, [1, 4, 4, 4])]
)
def test_masks_of_sample_files_are_those_of_independent_code(tmp_path, name, voxels, nodules):
    readings, heights, series = readings_of(REAL / name)
    step = float(np.diff(sorted(set(heights.values()))).min())
    low, high = min(heights.values()) - step, max(heights.values()) + step
    z = [low + step * number for number in range(round((high - low) / step) + 1)]
    uids = {round((height - low) / step): uid for uid, height in heights.items()}
    folder = tmp_path / "LIDC-IDRI" / "LIDC-IDRI-0001" / "study" / "series"
    for number, height in enumerate(z):
        uid = uids.get(number, f"1.2.{number}")
        write_slice(folder / f"{number}.dcm", np.zeros((512, 512), np.int16), z=height, image=uid, series=series)
    (folder / "readings.xml").write_bytes((REAL / name).read_bytes())
    (mask,) = volumes_of(tmp_path, None, classes="nodule").masks.numpy()

    # Single linkage over all marks, the distance reduced until no nodule has more than four, as in pylidc.
    distances = np.array([[cdist(one_[2], two[2]).min() for two in readings] for one_ in readings])
    tolerance, groups = step, None
    while groups is None or np.bincount(groups).max() > 4:
        groups = fcluster(linkage(squareform(distances, checks=False), "single"), tolerance, "distance")
        tolerance *= 0.9
    expected, readers = np.zeros(mask.shape, bool), []
    for group in set(groups.tolist()):
        members = [reading for reading, own in zip(readings, groups.tolist(), strict=True) if own == group]
        readers.append(len({reader for reader, _, _ in members}))
        votes = np.zeros(mask.shape)
        for _, contours, _ in members:
            for uid, parts in contours.items():
                seen = np.zeros(mask.shape[1:], bool)
                for points, inclusion in sorted(parts, key=lambda part: not part[1]):
                    inside, whole = strictly_inside(points, seen.shape)
                    seen = seen | inside if inclusion else seen & ~whole
                votes[round((heights[uid] - low) / step)] += seen
        expected |= votes / readers[-1] >= 0.5
    assert sorted(readers) == nodules
    assert np.array_equal(mask, expected)
    assert mask.any()
    assert voxels in (None, mask.sum())
