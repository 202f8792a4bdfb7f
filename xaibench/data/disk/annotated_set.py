"""What all annotated sets have in common: where they lie, and the way from there to three splits."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xaibench.core.messages import unknown
from xaibench.core.part_info import DatasetInfo
from xaibench.data.dataset import Dataset
from xaibench.data.disk.class_choice import choose_classes
from xaibench.data.disk.disk_split import DiskSplit, Normalize, Transform
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.set_division import Splits, divide
from xaibench.data.disk.source import Source

_LOGGER = logging.getLogger("xaibench")

#: ``progress(done, total)``, called as the slow parts of a preparation are done.
Progress = Callable[[int, int], None]


class AnnotatedSet(ABC):
    """A set of annotated images. A subclass says what it is, where it lies and how it is opened.

    Attributes:
        info: Name, classes, citation, licence, how to get it, and the published counts.
        folders: Where it lies below ``root``, as unpacked from the download: the first that has ``marker`` is taken;
            ``""`` is ``root`` itself. ``*`` stands for any part of a name.
        marker: A file or folder that must be in it, ``*`` likewise.
        aliases: Other spellings of its classes.
        default_classes: What ``classes=None`` stands for; None = all.
        shows_all: Whether there must be a sample of each class.
    """

    info: DatasetInfo
    folders: ClassVar[Sequence[str]]
    marker: ClassVar[str]
    aliases: ClassVar[Mapping[str, str]] = {}
    default_classes: ClassVar[Sequence[str] | None] = None
    shows_all: ClassVar[bool] = True

    @abstractmethod
    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int) -> Source:
        """The samples of these classes in ``folder``, their targets in this order.

        Keyword parameters that a set adds here, with defaults, are its own: users give them to ``load`` and
        ``loading``.

        Args:
            folder: Where the set lies.
            classes: Names in the order of their index.
            seed: Of what the set draws.

        Returns:
            The samples; no pixel is read yet.

        Raises:
            DataFileError: If a list or an index cannot be understood.
        """

    def download(self, root: Path, *, progress: Progress | None = None) -> None:
        """Fetch the set into ``root``, where the licence lets us.

        Args:
            root: The folder below which the sets lie.
            progress: Told how many bytes have come, and of how many.

        Raises:
            MissingDataError: If it does not; says what the user has to do.
        """
        raise MissingDataError(f"{self.info.name} cannot be downloaded by a program.\n{self.info.how_to_get}")

    def prepare(  # noqa: B027  # not abstract: most sets have nothing to build
        self, folder: Path, *, workers: int = 1, progress: Progress | None = None
    ) -> None:
        """Build what is slow to build, once. Nothing, for a set that is read as it lies.

        Everything built is a whole file under a name of its own, so that a stopped preparation goes on where it was,
        and two at once do no harm.

        Args:
            folder: Where the set lies.
            workers: Processes to work with.
            progress: Told how many things are built, and of how many.
        """

    def __call__(
        self,
        *,
        seed: int = 0,
        root: str | os.PathLike[str] | None = None,
        classes: str | Sequence[str] | None = None,
        size: int = 224,
        splits: Splits = (0.6, 0.2, 0.2),
        normalize: Normalize = None,
        transform: Transform | None = None,
        include_unannotated: bool = False,
        missing: Literal["skip", "error"] = "skip",
        download: bool = False,
        **own: Any,
    ) -> Dataset:
        """Open the set and split it; pixels are read when they are asked for.

        Args:
            seed: Of the split, and of what the set draws.
            root: The folder below which the sets lie. None = the environment variable ``XAIBENCH_DATA``.
            classes: ``"dog,cat"`` or a sequence; targets follow its order. None = the set's own choice.
            size: Side of the images in pixels.
            splits: Fractions of train, validation and test, or ``"official"``
                (:func:`~xaibench.data.disk.set_division.divide`).
            normalize: ``"imagenet"``, ``(means, deviations)``, or None for pixels in [0, 1].
            transform: Moves image and mask together, after the scaling: any of ``torchvision.transforms.v2``. It is
                applied to all splits; for one of them, see :meth:`DiskSplit.with_transform`.
            include_unannotated: Keep samples whose important pixels are not known; their mask is empty, and ``meta``
                says ``"annotated": False``.
            missing: What becomes of images that the set's lists name and that are not on disk: ``"skip"`` leaves them
                out, with a warning that counts and names them; ``"error"`` refuses the set.
            download: Fetch the set if it is not there, where the licence lets us.
            **own: The set's own parameters (those of :meth:`open`).

        Returns:
            The set with its ``train``, ``val`` and ``test``; an image is ``[3, size, size]``, a mask ``[size, size]``.

        Raises:
            MissingDataError: If the set is not there, or nothing is left of a class; says how to get it.
            DataFileError: If a list or an index cannot be understood.
            ValueError: For a parameter out of its range, an unknown class, or a class with too few samples.
            TypeError: For a parameter that the set does not take.
        """
        self._check_own(own)
        if missing not in ("skip", "error"):
            raise ValueError(f"missing={missing!r}: expected 'skip' or 'error'.")
        chosen = choose_classes(classes, self.info.classes, aliases=self.aliases, default=self.default_classes)
        folder = self.find(root, download=download)
        source = self.open(folder, classes=chosen, seed=seed, **own)
        kept = self._kept(source, folder, include_unannotated, missing)
        parts = divide(source, kept, splits, seed)
        train, val, test = (
            DiskSplit(source, part, size=size, normalize=normalize, transform=transform) for part in parts
        )
        info = dataclasses.replace(self.info, classes=source.classes, image_shape=(3, size, size))
        given = {"classes": ",".join(source.classes), "size": size, "splits": splits, "normalize": normalize}
        given |= {"include_unannotated": include_unannotated, **self._defaults(), **own}
        return Dataset(train, val, test, info, parameters=given)

    def find(self, root: str | os.PathLike[str] | None = None, *, download: bool = False) -> Path:
        """The folder in which the set lies.

        Args:
            root: The folder below which the sets lie. None = the environment variable ``XAIBENCH_DATA``.
            download: Fetch the set if it is not there, where the licence lets us.

        Returns:
            The first of ``folders`` below it that has the ``marker``.

        Raises:
            MissingDataError: If it is nowhere; says where it was looked for and how to get it.
        """
        base = data_root(root)
        if base is None:
            raise MissingDataError(
                f"{self.info.name}: where are your data? Give root='~/data' (--root on the command line) or set the "
                f"environment variable XAIBENCH_DATA.\n{self.info.how_to_get}"
            )
        for attempt in range(2 if download else 1):
            for folder in self.folders:
                for place in sorted(base.glob(folder)) if folder else [base]:
                    if next(place.glob(self.marker), None) is not None:
                        return place
            if download and attempt == 0:
                self.download(base)
        looked = " or ".join(str(base / folder / self.marker) for folder in self.folders)
        raise MissingDataError(f"{self.info.name} is not in {base}: there is no {looked}.\n{self.info.how_to_get}")

    def counts(self, folder: Path) -> dict[str, tuple[int, int]]:
        """How many samples there are.

        Args:
            folder: Where the set lies.

        Returns:
            Of each class, how many samples are annotated, and how many there are in all; those whose image is not on
            disk do not count.
        """
        classes = choose_classes(None, self.info.classes, default=self.default_classes)
        source = self.open(folder, classes=classes, seed=0)
        count = len(source.classes)
        there = self._there(source, folder, "skip")
        annotated = np.bincount(source.targets[there & source.annotated], minlength=count)
        pairs = zip(annotated.tolist(), np.bincount(source.targets[there], minlength=count).tolist(), strict=True)
        return dict(zip(source.classes, pairs, strict=True))

    def is_ready(self, folder: Path) -> bool | None:
        """Whether there are annotated images; nothing is built to find out.

        Args:
            folder: Where the set lies.

        Returns:
            None where only :meth:`prepare` can tell, since nothing of what it builds is there.

        Raises:
            MissingDataError: If a file is not there.
            DataFileError: If a list cannot be understood.
        """
        return any(annotated for annotated, _ in self.counts(folder).values())

    @property
    def __signature__(self) -> inspect.Signature:
        common = inspect.signature(AnnotatedSet.__call__).parameters.values()
        shared = [one for one in common if one.name not in ("self", "own")]
        own = inspect.signature(self.open).parameters.values()
        return inspect.Signature([*shared, *(one for one in own if one.name not in ("folder", "classes", "seed"))])

    def _defaults(self) -> dict[str, object]:
        own = inspect.signature(self.open).parameters.values()
        return {one.name: one.default for one in own if one.default is not one.empty}

    def _check_own(self, own: Mapping[str, object]) -> None:
        known = self._defaults()
        for name in own:
            if name not in known:
                raise TypeError(unknown(f"{self.info.name} takes no", name, self.__signature__.parameters))

    def _kept(self, source: Source, folder: Path, include_unannotated: bool, missing: str) -> NDArray[np.int64]:
        """The samples to share out."""
        there = self._there(source, folder, missing)
        kept = np.flatnonzero(there if include_unannotated else there & source.annotated)
        if left_out := np.count_nonzero(there) - len(kept):
            _LOGGER.info(
                "%s: %d of %d samples have no annotation and are left out (include_unannotated=True keeps them).",
                self.info.name,
                left_out,
                len(source),
            )
        counts = np.bincount(source.targets[kept], minlength=len(source.classes))
        for name, of_class, count in zip(source.classes, range(len(counts)), counts, strict=True):
            if count == 0 and self.shows_all:
                listed_, found = (np.count_nonzero(source.targets[part] == of_class) for part in (slice(None), there))
                if found:
                    reason = f"its {found} images have no annotation; include_unannotated=True loads them as they are."
                elif listed_:
                    reason = f"none of the {listed_} that the lists name is there.\n{self.info.how_to_get}"
                else:
                    reason = f"no list or folder names one; leave it out of classes, or add it.\n{self.info.how_to_get}"
                raise MissingDataError(
                    f"{self.info.name}: {folder} holds no annotated image of class {name!r}: {reason}"
                )
        return kept

    def _there(self, source: Source, folder: Path, missing: str) -> NDArray[np.bool_]:
        """``[N]``: which samples have their image on disk; the others are counted and named, class by class."""
        if source.missing is None or not source.missing.any():
            return np.ones(len(source), dtype=np.bool_)
        said = []
        for number, name in enumerate(source.classes):
            gone = np.flatnonzero(source.missing & (source.targets == number))
            if len(gone):
                ids = ", ".join(str(source.meta(int(one))["id"]) for one in gone[:5])
                of_all = np.count_nonzero(source.targets == number)
                said.append(f"{len(gone)} of {of_all} {name} ({ids}{', ...' if len(gone) > 5 else ''})")
        text = f"{self.info.name}: listed images that are not in {folder}: {'; '.join(said)}"
        if missing == "error":
            advice = f"Fetch them, or leave them out with missing='skip'.\n{self.info.how_to_get}"
            raise MissingDataError(f"{text}. {advice}")
        _LOGGER.warning("%s; they are left out.", text)
        return ~source.missing


def data_root(root: str | os.PathLike[str] | None) -> Path | None:
    """Where the sets lie.

    Args:
        root: As a user gave it; None = the environment variable ``XAIBENCH_DATA``.

    Returns:
        The folder, with ``~`` resolved; None when neither is given.
    """
    given = root if root is not None else os.environ.get("XAIBENCH_DATA") or None
    return None if given is None else Path(given).expanduser()
