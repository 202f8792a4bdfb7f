from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from generators.medical import SPACING, write_slice
from matplotlib.path import Path as Polygon
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform

from xaibench.data.scans.lidc_nodules import lidc

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "lidc" / "tcia-lidc-xml"


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
    source = lidc.open(folder.parents[1].parent, classes=("nodule",), seed=0, slices="all")
    mask = np.zeros((len(z), 512, 512), bool)
    for number in np.flatnonzero(source.annotated).tolist():
        mask[source.meta(number)["slice"]] = source.mask(number)

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
