"""LIDC-IDRI as the NBIA Data Retriever leaves it: scans in DICOM with the readers' XML beside, and its traps."""

from pathlib import Path

import numpy as np
from generators.common import Expected
from generators.medical import noise, write_slice

HEIGHT, WIDTH = 60, 80
#: Slice 0 is free, 1 to 5 show a nodule, 6 a mark of a small one; 7 is free too, but 100 mm away.
Z = (*(-100 + 2.5 * i for i in range(7)), 0.0)
FREE, NODULE, SMALL, FAR = 0, (1, 2, 3, 4, 5), 6, 7
MIDDLE = 3
RATINGS = {"subtlety": 5, "internalStructure": 1, "malignancy": 3}


def outline(box):
    """The pixels along a rectangle's rim, in order, the first repeated at the end as readers' tools do.

    ``box`` is ``(top, left, bottom, right)``, all on the rim.
    """
    top, left, bottom, right = box
    down, along = range(top, bottom), range(left, right)
    rim = [(top, c) for c in along] + [(r, right) for r in down]
    rim += [(bottom, c + 1) for c in reversed(along)] + [(r + 1, left) for r in reversed(down)]
    return [*rim, rim[0]]


def roi(image, z, points, inclusion="TRUE"):
    edges = "".join(f"<edgeMap><xCoord>{c}</xCoord><yCoord>{r}</yCoord></edgeMap>" for r, c in points)
    return (
        f"<roi><imageZposition>{z:.6f} </imageZposition><imageSOP_UID>{image}</imageSOP_UID>"
        f"<inclusion>{inclusion}</inclusion>{edges}</roi>"
    )


def nodule(name, rois, ratings=RATINGS):
    said = "".join(f"<{key}>{value}</{key}>" for key, value in (ratings or {}).items())
    said = "" if ratings is None else f"<characteristics>{said}</characteristics>"
    return f"<unblindedReadNodule><noduleID>{name}</noduleID>{said}{''.join(rois)}</unblindedReadNodule>"


def non_nodule(image, z):
    return (
        f"<nonNodule><nonNoduleID>x</nonNoduleID><imageZposition>{z}</imageZposition>"
        f"<imageSOP_UID>{image}</imageSOP_UID><locus><xCoord>3</xCoord><yCoord>4</yCoord></locus></nonNodule>"
    )


def write_xml(
    path, series, sessions, *, root="LidcReadMessage", namespace="http://www.nih.gov", uid="SeriesInstanceUid"
):
    read = "".join(
        f"<readingSession><annotationVersion>3</annotationVersion>{one}</readingSession>" for one in sessions
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} uid="1.3" xmlns="{namespace}">'
        f"<ResponseHeader><Version>1.8.1</Version><{uid}>{series}</{uid}></ResponseHeader>{read}</{root}>"
    )
    return path


class Case:
    """One scan of a patient: 8 slices on disk."""

    def __init__(self, root, patient, scan=0, **how):
        self._name(root, patient, scan)
        for slice_ in range(len(Z)):
            write_slice(self.file(slice_), self.values[slice_], z=Z[slice_], **self.says(slice_), **how)

    @classmethod
    def at(cls, root, patient, scan=0):
        """One that was written before."""
        case = cls.__new__(cls)
        case._name(root, patient, scan)
        return case

    @staticmethod
    def values_of(patient, scan):
        """``[slices, rows, columns]`` Hounsfield units."""
        return noise(np.random.default_rng([patient, scan]), len(Z), HEIGHT, WIDTH)

    def _name(self, root, patient, scan):
        self.root, self.patient, self.scan = Path(root), patient, scan
        self.name = f"LIDC-IDRI-{patient:04d}"
        self.series = f"1.3.6.1.{patient}.{scan}"
        self.folder = self.root / self.name / f"01-01-2000-NA-NA-{patient}" / f"300056{scan}.000000-NA-{patient}"
        self.images = [f"{self.series}.{slice_}" for slice_ in range(len(Z))]
        self.values = self.values_of(patient, scan)

    def file(self, slice_):
        """Names run from the head down, as scanners number."""
        return self.folder / f"1-{len(Z) - slice_:02d}.dcm"

    def says(self, slice_):
        return {"image": self.images[slice_], "series": self.series, "number": len(Z) - slice_}

    def rois(self, boxes, inclusion="TRUE"):
        """``{slice: box}`` in that order."""
        return [roi(self.images[at], Z[at], outline(box), inclusion) for at, box in boxes.items()]

    def dot(self, slice_, row=5, column=5):
        return roi(self.images[slice_], Z[slice_], [(row, column)])

    def small(self):
        """A nodule under 3 mm."""
        return nodule("small", [self.dot(SMALL)], ratings=None)

    def write_xml(self, sessions, path=None):
        return write_xml(path or self.folder / f"{self.patient:03d}.xml", self.series, [*sessions, self.small()])

    def expected(self, mask, middle=MIDDLE):
        return [
            Expected(f"{self.name}/{self.scan}/{middle:04d}", "nodule", mask),
            Expected(f"{self.name}/{self.scan}/{FREE:04d}", "no_nodule", None),
        ]


def inside(*boxes):
    """How many boxes hold each pixel, their rims left out."""
    votes = np.zeros((HEIGHT, WIDTH), dtype=int)
    for top, left, bottom, right in boxes:
        votes[top + 1 : bottom, left + 1 : right] += 1
    return votes


def everywhere(box, slices=NODULE):
    return dict.fromkeys(slices, box)


def write(root):
    root = Path(root) / "LIDC-IDRI"
    found = _readers(root) + _holes(root) + _scans(root) + _apart(root) + _disputed(root)
    for patient in range(10, 13):
        case = Case(root, patient)
        box = (10 + patient, 20, 25 + patient, 40)
        case.write_xml([nodule("0", case.rois(everywhere(box)))] * 3)
        found += case.expected(inside(box) > 0)
    (root / "LIDC-IDRI-0010" / "._junk.dcm").write_bytes(b"Mac OS X")
    (root / "LIDC-IDRI-0010" / "._junk.xml").write_bytes(b"Mac OS X")
    (root / "LICENSE").write_text("CC BY 3.0")
    return found


def _readers(root):
    """Four readers who disagree, draw in different orders, and name the nodule as they please; and one alone."""
    case = Case(root, 1)
    boxes = [(10, 20, 30, 40), (12, 22, 32, 42), (14, 24, 34, 44), (20, 30, 28, 38)]
    orders = (NODULE, NODULE[::-1], (3, 1, 5, 2, 4), NODULE[:4])
    sessions = [
        nodule(f"reader{n}", case.rois(everywhere(box, order)))
        for n, (box, order) in enumerate(zip(boxes, orders, strict=True))
    ]
    sessions[1] += non_nodule(case.images[SMALL], Z[SMALL])
    case.write_xml(sessions)
    # A chest film of the same patient, with an XML of its own kind.
    film = root / case.name / "01-01-2000-NA-NA-7" / "film"
    write_slice(film / "1-1.dcm", case.values[0], z=0, image="1.9.1", series="1.9", Modality="DX")
    write_xml(film / "070.xml", "1.9", [], root="IdriReadMessage", namespace="http://www.nih.gov/idri")
    alone = Case(root, 2, slope=2, intercept=-1000)
    alone.write_xml([nodule("1", alone.rois(everywhere(boxes[0]))), nodule("2", [alone.dot(SMALL)], ratings=None)])
    return case.expected(inside(*boxes) >= 2) + alone.expected(inside(boxes[0]) > 0)


def _holes(root):
    """A hole, which one of two readers drew before its surroundings; a stray point; a mark rated 0."""
    box, hole = (10, 20, 30, 40), (14, 24, 20, 30)
    case = Case(root, 3)
    rois = case.rois(dict.fromkeys(NODULE, box))
    holes = case.rois(dict.fromkeys(NODULE, hole), "FALSE")
    zero = nodule("zero", case.rois({SMALL: box}), ratings=dict.fromkeys(RATINGS, 0))
    case.write_xml([nodule("0", holes + rois), nodule("0", [*rois, *holes, case.dot(MIDDLE)]) + zero])
    mask = inside(box) > 0
    mask[hole[0] : hole[2] + 1, hole[1] : hole[3] + 1] = False
    return case.expected(mask)


def _scans(root):
    """A patient with two scans, one of them compressed; and one with a slice that is stored twice."""
    found, box = [], (10, 20, 30, 40)
    for scan in (0, 1):
        case = Case(root, 4, scan, compressed=scan == 1)
        case.write_xml([nodule("0", case.rois(everywhere(box)))])
        found += case.expected(inside(box) > 0)
    case = Case(root, 5)
    again = f"{case.series}.99"
    write_slice(case.folder / "1-99.dcm", case.values[0], z=Z[MIDDLE], image=again, series=case.series, number=99)
    other = (12, 22, 32, 42)
    rois = [roi(again if at == MIDDLE else case.images[at], Z[at], outline(other)) for at in NODULE]
    case.write_xml([nodule("0", case.rois(everywhere(box))), nodule("0", rois), nodule("0", rois)])
    return found + case.expected(inside(box, other, other) >= 2)


def _apart(root):
    """The XML of two patients in a folder of their own, one of them sent in twice, and one of an absent patient."""
    found = []
    for patient in (6, 7):
        case, box = Case(root, patient), (10, 20, 30, 40 + patient)
        sessions = [nodule("0", case.rois(everywhere(box)))]
        case.write_xml(sessions, root.parent / "tcia-lidc-xml" / "157" / f"{patient}.xml")
        found += case.expected(inside(box) > 0)
    case.write_xml([], root.parent / "tcia-lidc-xml" / "157" / "9.xml")
    case.write_xml(sessions, root.parent / "tcia-lidc-xml" / "157" / "7-resubmitted.xml")
    write_xml(root.parent / "tcia-lidc-xml" / "158" / "1.xml", "1.9.9", [])
    return found


def _disputed(root):
    """Beside a nodule, three readers' marks that touch but do not overlap: one nodule, with consensus nowhere."""
    case, box = Case(root, 8), (10, 20, 30, 40)
    marks = [(40, 40, 45, 45), (40, 46, 45, 51), (40, 52, 45, 57)]
    sessions = [nodule("9", case.rois({5: mark})) for mark in marks]
    sessions[0] += nodule("8", case.rois(everywhere(box)))
    case.write_xml(sessions)
    other = Case(root, 9)
    # Two nodules whose middle slice is the same: one image, one sample, both in its mask.
    boxes = [box, (40, 50, 50, 60)]
    other.write_xml(["".join(nodule(str(n), other.rois(everywhere(one))) for n, one in enumerate(boxes))])
    return case.expected(inside(box) > 0) + other.expected(inside(*boxes) > 0)
