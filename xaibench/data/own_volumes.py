"""Your own volumes and masks."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Sequence
from pathlib import Path

from xaibench.component.info import describe_own_data
from xaibench.data.base import Dataset
from xaibench.data.disk.annotated_set import DirectorySet
from xaibench.data.disk.image_lists import choose_optional_classes
from xaibench.data.disk.lazy_split import Normalize, Transform
from xaibench.data.disk.splits import Splits, choose_classes, split_indices
from xaibench.data.volume_folder import FolderVolumes, VolumeFolderSplit, open_volumes

_LAYOUT = (
    "Expected image/<class>/<name>.nii.gz (or .nii, .npy, .npz) and mask/<class>/<name> of the same shape, in which "
    "every voxel other than 0 is important. Without classes, the files are directly in image and mask. A file "
    "groups.csv with the columns file and group keeps related volumes (of one patient) in one split."
)


class OwnVolumes(DirectorySet):
    """Your own volumes and masks: ``OwnVolumes("~/scans")``, by name ``"volumes:~/scans"``.

    The volumes are ``image/<class>/*``; the classes are the subfolders, sorted. Without subfolders, the volumes in
    ``image`` are a set of one class, ``unlabeled``. The masks are ``mask/<class>/*`` with the same name and shape. The
    folders may also be called ``images`` and ``masks``. NIfTI files (``.nii``, ``.nii.gz``) are read with ``pip install
    "xaibench[medical]"`` and oriented as slices of scans are: D from the feet to the head, H from front to back, W to
    the patient's left; metrics of distance get their voxel size in mm. Arrays (``.npy``, or ``.npz`` with one array)
    are ``[D, H, W]`` or ``[C, D, H, W]``. Volumes are not scaled or cropped: a batch needs volumes of one shape.

    A volume without a mask is not annotated; a volume whose mask is all 0 is a true negative. ``groups.csv`` states
    related volumes, as for :class:`~xaibench.data.photographs.image_folder.OwnFolder`.

    Args:
        directory: The folder; ``~`` is expanded. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder has no volumes.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for kind, values in (("image", np.ones((4, 5, 6))), ("mask", np.eye(6)[None, :5].repeat(4, 0))):
        ...         _ = (Path(folder) / kind).mkdir()
        ...         np.save(f"{folder}/{kind}/a.npy", values)
        ...     images, masks, targets = OwnVolumes(folder)(splits=(0, 0, 1)).test[:]
        >>> list(images.shape), list(masks.shape)
        ([1, 1, 4, 5, 6], [1, 4, 5, 6])
    """

    marker = "*"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        found = open_volumes(self._folder)
        name, classes = f"volumes:{os.fspath(directory)}", found.classes
        self.info = describe_own_data(name, classes, found.shape(0), _LAYOUT)

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        negatives: str | Sequence[str] = (),
        window: str | Sequence[float] | None = None,
    ) -> FolderVolumes:
        """Return the volumes and their masks.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Not used.
            negatives: Classes whose volumes show nothing important (``"healthy"``): without a mask, such a volume
                counts as annotated with an empty mask.
            window: ``(center, width)`` of the values that become [0, 1], such as ``(40, 400)``. None = arrays are taken
                as they are (8-bit integers divided by 255), NIfTI files are scaled from their smallest to their largest
                value.

        Raises:
            MissingDataError: If there is no volume of a class.
            ValueError: If a class is unknown, or the window has no positive width.
        """
        chosen = choose_optional_classes(negatives, self.info.classes)
        return open_volumes(folder, classes=classes, negatives=chosen, window=window)

    def __call__(  # type: ignore[override]  # volumes are not scaled: there are no size and no channels
        self,
        *,
        seed: int = 0,
        root: str | os.PathLike[str] | None = None,
        classes: str | Sequence[str] | None = None,
        splits: Splits = (0.6, 0.2, 0.2),
        normalize: Normalize = None,
        transform: Transform | None = None,
        include_unannotated: bool = False,
        negatives: str | Sequence[str] = (),
        window: str | Sequence[float] | None = None,
    ) -> Dataset:
        """Open the set and split it. Voxels are read when a volume is accessed.

        Args:
            seed: Seed of the split.
            root: Not used.
            classes: ``"tumor,healthy"`` or a sequence; targets follow its order. None = all.
            splits: Fractions of train, validation and test.
            normalize: ``(means, deviations)`` of the channels, or None.
            transform: Transforms volume and mask together: any of ``torchvision.transforms.v2``.
            include_unannotated: Keep volumes without an annotation; their mask is empty.
            negatives: As for :meth:`open`.
            window: As for :meth:`open`.

        Returns:
            The data set: images ``[C, D, H, W]``, masks ``[D, H, W]``.

        Raises:
            MissingDataError: If there is no annotated volume of a class.
            DataFileError: If the first file cannot be read, or ``groups.csv`` is malformed.
            ValueError: If a parameter is out of range, a class is unknown, or a class has too few volumes.
        """
        chosen = choose_classes(classes, self.info.classes)
        source = self.open(self._folder, classes=chosen, seed=seed, negatives=negatives, window=window)
        kept = self._select_samples(source, self._folder, include_unannotated, "skip")
        train, val, test = (
            VolumeFolderSplit(source, part, normalize=normalize, transform=transform)
            for part in split_indices(source, kept, splits, seed)
        )
        given: dict[str, object] = {"classes": ",".join(chosen), "splits": splits, "normalize": normalize}
        given |= {"include_unannotated": include_unannotated, "negatives": negatives, "window": window}
        info = dataclasses.replace(self.info, classes=chosen)
        return Dataset(train, val, test, info, parameters=given)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__call__)

    def _advise_unannotated(self, label: str, *, any_annotated: bool) -> str:
        """Return how to load a class without masks, for an error message."""
        return (
            f"add masks to {self._folder / 'mask'}; if there is nothing to mark in them, give negatives={label!r} "
            f"(--negatives {label!r} on the command line); include_unannotated=True loads them with empty masks."
        )
