"""Base class of data sets of scans, which load slices or volumes."""

from __future__ import annotations

import dataclasses
import inspect
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xaibench.core.checks import ParameterError, check_names
from xaibench.data.base import Dataset
from xaibench.data.disk.annotated_set import AnnotatedSet, own_defaults
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.lazy_split import Normalize, Transform, VolumeSplit
from xaibench.data.disk.source import VolumeSource
from xaibench.data.disk.splits import Splits, choose_classes, split_indices
from xaibench.data.scans.scan_geometry import Triple, check_crop

#: Slices, rows and columns of a crop.
_CROP = (32, 64, 64)
#: Shape of a scan of the chest or the abdomen, for estimates of costs.
_USUAL_SCAN = (150, 512, 512)


class ScanSet(AnnotatedSet):
    """A data set of scans. A subclass implements :meth:`open` for slices and :meth:`open_volumes` for volumes."""

    @abstractmethod
    def open_volumes(self, folder: Path, *, classes: tuple[str, ...], seed: int, crop: Triple | None) -> VolumeSource:
        """Return crops or whole scans; parameters and errors as for :meth:`open`.

        Args:
            folder: The folder of the set.
            classes: Class names in the order of their index.
            seed: Seed of everything that the set draws at random.
            crop: Number of slices, rows and columns; None = whole scans.

        Returns:
            The samples; no voxel is read yet, except of files from which a part cannot be read.
        """

    def __call__(self, *, volumes: bool = False, crop: Sequence[int] | None = _CROP, **others: Any) -> Dataset:
        """Open the set and split it: slices (:meth:`AnnotatedSet.__call__`), or volumes.

        Args:
            volumes: Load volumes: images ``[C, D, H, W]`` and masks ``[D, H, W]``, as in :meth:`load_volumes`.
            crop: Shape of the volumes.
            **others: Parameters of :meth:`AnnotatedSet.__call__` or :meth:`load_volumes`.

        Raises:
            ParameterError: If ``crop`` is given without ``volumes=True``; otherwise as for slices.
        """
        if volumes:
            return self.load_volumes(crop=crop, **others)
        if crop is None or tuple(crop) != _CROP:
            raise ParameterError(
                f"crop={crop!r} is the shape of volumes, but {self.info.name} loads slices; add volumes=True.",
                parameter="crop",
            )
        return super().__call__(**others)

    def load_volumes(
        self,
        *,
        seed: int = 0,
        root: str | os.PathLike[str] | None = None,
        classes: str | Sequence[str] | None = None,
        crop: Sequence[int] | None = _CROP,
        channels: int = 1,
        splits: Splits = (0.6, 0.2, 0.2),
        normalize: Normalize = None,
        transform: Transform | None = None,
        include_unannotated: bool = False,
        download: bool = False,
        **own: Any,
    ) -> Dataset:
        """Open the set as volumes and split it by patient. Voxels are read when a sample is accessed.

        Volumes are not scaled. Their axes are D (slices, from the feet to the head), H (rows) and W (columns). ``meta``
        has ``spacing`` (mm along D, H and W), ``orientation`` (``"SPL"``: the indices increase towards the head, the
        back and the patient's left, as in nibabel's ``aff2axcodes``), ``shape`` of the whole scan, ``origin`` (index
        of the first voxel of the crop in the scan) and ``padding`` (voxels before and after the scan per axis).

        Args:
            seed: Seed of the split, and of everything that the set draws at random.
            root: The folder that contains the data sets; None as for slices.
            classes: As for slices.
            crop: Slices, rows and columns of a crop, in voxels. Voxels outside of the scan are air (-1000 HU). None =
                whole scans, whose shapes differ, so that they are read one at a time.
            channels: 1, or 3 for three equal channels.
            splits: Fractions of train, validation and test.
            normalize: ``(means, deviations)``, or None for voxels in [0, 1].
            transform: Transforms volume and mask together (:class:`~xaibench.data.disk.lazy_split.VolumeSplit`).
            include_unannotated: As for slices.
            download: As for slices.
            **own: Parameters of this set, as in :meth:`open_volumes`.

        Raises:
            ParameterError: If ``crop`` is not three positive integers, or there is no such parameter for volumes.
            MissingDataError: If the set, or every sample of a class, is missing; the message says how to get it.
            DataFileError: If an index is malformed.
            ValueError: If a parameter is out of range, a class is unknown, or a class has too few samples.
        """
        shape = check_crop(crop)
        self._check_own(own)
        chosen = choose_classes(classes, self.info.classes, aliases=self.aliases, default=self.default_classes)
        folder = self.find(root, download=download)
        source = self.open_volumes(folder, classes=chosen, seed=seed, crop=shape, **own)
        for number, label in enumerate(source.classes):
            if not (source.targets == number).any():
                raise MissingDataError(
                    f"{self.info.name}: {folder} has no volume of class {label!r} for crop={shape}; a smaller crop may "
                    "have a place, or leave the class out of classes."
                )
        selected = self._select_samples(source, folder, include_unannotated, "skip")
        train, val, test = (
            VolumeSplit(source, indices, channels=channels, normalize=normalize, transform=transform)
            for indices in split_indices(source, selected, splits, seed)
        )
        sides = shape or (0, 0, 0)
        info = dataclasses.replace(self.info, classes=source.classes, image_shape=(channels, *sides))
        parameters = {"volumes": True, "classes": ",".join(source.classes), "crop": shape, "splits": splits}
        parameters |= {"normalize": normalize, "include_unannotated": include_unannotated}
        parameters |= own_defaults(self.open_volumes) | own
        if channels != 1:
            parameters["channels"] = channels
        return Dataset(train, val, test, info, parameters=parameters, batch_size=32 if shape else 1)

    @staticmethod
    def volume_shape(parameters: Mapping[str, Any]) -> tuple[int, ...]:
        """Return ``(C, D, H, W)`` of the crops that these parameters load; of whole scans, a usual shape."""
        return int(parameters.get("channels", 1)), *(check_crop(parameters.get("crop", _CROP)) or _USUAL_SCAN)

    @property
    def __signature__(self) -> inspect.Signature:
        slices = super().__signature__.parameters.values()
        own = [
            one for one in inspect.signature(ScanSet.__call__).parameters.values() if one.name in ("volumes", "crop")
        ]
        return inspect.Signature([*slices, *own])

    def _check_own(self, own: dict[str, Any]) -> None:
        if "size" in own:
            raise ParameterError(
                f"size={own['size']!r}: volumes are not scaled; give the number of slices, rows and columns of a crop, "
                "such as crop=(32, 64, 64).",
                parameter="size",
            )
        common = inspect.signature(ScanSet.load_volumes).parameters
        known = [name for name in common if name not in ("self", "own")]
        check_names(f"{self.info.name} (volumes=True)", own, [*known, *own_defaults(self.open_volumes)])
