"""Base class of the annotated data sets: finds a set on disk, opens it and splits it."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_names
from xaibench.core.files import data_root, default_cache_dir
from xaibench.core.progress import format_bytes
from xaibench.data.base import Dataset
from xaibench.data.disk.downloads import Archive, fetch_archives, one_process
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.lazy_split import DiskSplit, LazySplit, Normalize, Transform
from xaibench.data.disk.source import SampleSource, Source
from xaibench.data.disk.splits import Splits, choose_classes, split_indices
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")

#: ``progress(done, total)``, called during slow steps such as downloads and index building.
ProgressCallback = Callable[[int, int], None]


class AnnotatedSet(ABC):
    """A data set of annotated images on disk. A subclass describes the set and implements :meth:`open`.

    Attributes:
        info: Name, classes, citation, license, how to get it, and the published counts.
        folders: Folders below ``root`` in which the set may be, as unpacked from the download. The first that contains
            ``marker`` is used; ``""`` is ``root`` itself. Glob patterns are allowed.
        marker: A file or folder by which the set is recognized; a glob pattern is allowed.
        contents: What the folder contains, for messages about what is missing: description to glob pattern, or to
            alternatives separated by ``" or "``.
        archives: The archives of the set, of which the last one contains the marker; empty if it has to be downloaded
            by hand.
        archive_folder: The folder below ``root`` into which they are unpacked.
        aliases: Other spellings of the class names.
        default_classes: The classes loaded for ``classes=None``; None = all.
        requires_all_classes: Whether there must be at least one sample of each class.
    """

    info: DatasetInfo
    folders: ClassVar[Sequence[str]]
    marker: ClassVar[str]
    contents: ClassVar[Mapping[str, str]] = {}
    archives: ClassVar[Sequence[Archive]] = ()
    archive_folder: ClassVar[str] = ""
    aliases: ClassVar[Mapping[str, str]] = {}
    default_classes: ClassVar[Sequence[str] | None] = None
    requires_all_classes: ClassVar[bool] = True

    @abstractmethod
    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int) -> SampleSource:
        """Return the samples of ``classes`` in ``folder``; target ``i`` is ``classes[i]``.

        A subclass may add keyword parameters with defaults. Users pass them to ``load`` and ``loading``.

        Args:
            folder: The folder of the set.
            classes: Class names in the order of their index.
            seed: Seed of everything that the set draws at random.

        Returns:
            The samples; no pixel is read yet.

        Raises:
            DataFileError: If a list or an index is malformed.
        """

    def download(self, root: Path) -> None:
        """Download, verify and unpack ``archives``. Does nothing if there are none.

        Args:
            root: The folder that contains the data sets, created if needed.

        Raises:
            ConnectionError: If the download fails; the next call continues.
            DataFileError: If the server sends another file.
            OSError: If there is too little space, or the folder is not writable.
        """
        if self.archives:
            fetch_archives(self.archives, root / self.archive_folder)

    def prepare(  # noqa: B027  # not abstract: most sets have nothing to build
        self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None
    ) -> None:
        """Build and cache the indices of the set. Does nothing by default.

        Every result is written to a file of its own, atomically. An interrupted preparation therefore continues where
        it stopped, and two processes may run it at the same time.

        Args:
            folder: The folder of the set.
            workers: Number of processes.
            progress: Called with the number of parts built so far and their total.
        """

    def __call__(
        self,
        *,
        seed: int = 0,
        root: str | os.PathLike[str] | None = None,
        classes: str | Sequence[str] | None = None,
        size: int = 224,
        channels: int = 3,
        splits: Splits = (0.6, 0.2, 0.2),
        normalize: Normalize = None,
        transform: Transform | None = None,
        include_unannotated: bool = False,
        missing: Literal["skip", "error"] = "skip",
        download: bool = False,
        **own: Any,
    ) -> Dataset:
        """Open the set and split it. Pixels are read when a sample is accessed.

        Args:
            seed: Seed of the split, and of everything that the set draws at random.
            root: The folder that contains the data sets. None = the environment variable ``XAIBENCH_DATA`` or, if that
                is not set, a folder in the user's cache (:func:`xaibench.core.files.data_root`).
            classes: ``"dog,cat"`` or a sequence; targets follow its order. None = the default classes of the set.
            size: Height and width of the images in pixels.
            channels: 3, or 1 for gray images. Gray images are repeated in 3 channels; colors are converted to 1 channel
                by their luminance.
            splits: Fractions of train, validation and test, or ``"official"``
                (:func:`~xaibench.data.disk.splits.split_indices`).
            normalize: ``"imagenet"``, ``(means, deviations)``, or None for pixels in [0, 1].
            transform: Transforms image and mask together, after resizing: any of ``torchvision.transforms.v2``. It is
                applied to all splits; for a single split, see
                :meth:`~xaibench.data.disk.lazy_split.DiskSplit.with_transform`.
            include_unannotated: Keep samples without an annotation; their mask is empty and their ``meta`` has
                ``"annotated": False``.
            missing: How to treat images in the lists of the set that are not on disk: ``"skip"`` leaves them out and
                logs a warning with their number and names; ``"error"`` raises.
            download: Download the set if it is not on disk and its license allows that.
            **own: Parameters of this set, as in :meth:`open`.

        Returns:
            The data set with its splits ``train``, ``val`` and ``test``. An image is ``[channels, size, size]``, a mask
            ``[size, size]``.

        Raises:
            MissingDataError: If the set, or every sample of a class, is missing; the message says how to get it.
            DataFileError: If a list or an index is malformed.
            ValueError: If a parameter is out of range, a class is unknown, or a class has too few samples.
            TypeError: If the set has no such parameter.
        """
        check_names(self.info.name, own, self.__signature__.parameters)
        if missing not in ("skip", "error"):
            raise ValueError(f"missing={missing!r}: expected 'skip' or 'error'.")
        chosen = choose_classes(classes, self.info.classes, aliases=self.aliases, default=self.default_classes)
        folder = self.find(root, download=download)
        source = self.open(folder, classes=chosen, seed=seed, **own)
        selected = self._select_samples(source, folder, include_unannotated, missing)
        train, val, test = (
            self._make_split(source, indices, size=size, channels=channels, normalize=normalize, transform=transform)
            for indices in split_indices(source, selected, splits, seed)
        )
        info = dataclasses.replace(self.info, classes=source.classes, image_shape=(channels, size, size))
        given = {"classes": ",".join(source.classes), "size": size, "splits": splits, "normalize": normalize}
        given |= {"include_unannotated": include_unannotated, **_own_defaults(self.open), **own}
        if channels != 3:
            given["channels"] = channels
        return Dataset(train, val, test, info, parameters=given)

    def _make_split(self, source: SampleSource, indices: NDArray[np.int64], **options: Any) -> LazySplit:
        assert isinstance(source, Source), "sets of volumes override this method"
        return DiskSplit(source, indices, **options)

    def find(self, root: str | os.PathLike[str] | None = None, *, download: bool = False) -> Path:
        """Return the folder of the set.

        Args:
            root: The folder that contains the data sets; None as in :meth:`__call__`.
            download: Download the set if it is not on disk and its license allows that. Other processes that want to
                download it wait.

        Returns:
            The first of ``folders`` below ``root`` that contains ``marker``.

        Raises:
            MissingDataError: If the set is not found; the message says how to get it, and which files are missing.
            ConnectionError: If the download fails; the next call continues.
            DataFileError: If the server sends another file.
            OSError: If there is too little space, or the folder is not writable.
        """
        base = data_root(root)
        folder = self.look_in(base)
        if folder is None and download and self.archives:
            with one_process(base, self.info.name):
                folder = self.look_in(base)
                if folder is None:
                    self.download(base)
                    folder = self.look_in(base)
        if folder is None:
            raise self._missing(base)
        return folder

    def look_in(self, base: Path) -> Path | None:
        """Look for the set without downloading it.

        Args:
            base: The folder that contains the data sets.

        Returns:
            The first of ``folders`` below ``base`` that contains ``marker``; None if there is none.
        """
        for pattern in self.folders:
            for folder in sorted(base.glob(pattern)) if pattern else [base]:
                if next(folder.glob(self.marker), None) is not None:
                    return folder
        return None

    def list_contents(self, base: Path) -> list[tuple[str, bool]]:
        """List what the set consists of.

        Args:
            base: The folder that contains the data sets.

        Returns:
            A line per entry of ``contents``, with its path and description, and whether it is there. If the set is not
            there, the paths are those below the first of ``folders``.
        """
        folder = self.look_in(base) or base / self.folders[0]
        lines = []
        for what, text in (self.contents or {"by which it is recognized": self.marker}).items():
            patterns = text.split(" or ")
            found = any(next(folder.glob(pattern), None) is not None for pattern in patterns)
            lines.append((f"{' or '.join(os.path.normpath(folder / pattern) for pattern in patterns)} ({what})", found))
        return lines

    def _missing(self, base: Path) -> MissingDataError:
        """Return the error for a set that is not in ``base``, with the steps by which to get it."""
        name, size = self.info.name, format_bytes(sum(archive.size for archive in self.archives))
        command = f"xaibench prepare {name}"
        if base != default_cache_dir() / "data":
            command += f" --root {base}"
        by_hand = textwrap.indent(self.info.how_to_get.replace("DIR", str(base)), "  ")
        lines = [f"{name} is not in {base}."]
        if self.archives:
            lines += [f"In a shell, {command} --download gets it ({size}). By hand:", by_hand]
        else:
            lines += ["It has to be downloaded by hand:", by_hand]
        lines += [f"  {'found' if there else 'missing'}: {line}" for line, there in self.list_contents(base)]
        lines.append(
            f"{command} shows what is still missing. Another folder: root=... (--root), or the environment variable "
            "XAIBENCH_DATA."
        )
        error = MissingDataError("\n".join(lines))
        error.download = f"{size} into {base}" if self.archives else ""
        return error

    def counts(self, folder: Path, **own: Any) -> dict[str, tuple[int, int]]:
        """Count the samples of each class.

        Args:
            folder: The folder of the set.
            **own: Parameters of this set, as in :meth:`open`.

        Returns:
            Class name to ``(annotated samples, all samples)``. Samples whose image is not on disk are not counted.
        """
        classes = choose_classes(None, self.info.classes, default=self.default_classes)
        check_names(self.info.name, own, self.__signature__.parameters)
        source = self.open(folder, classes=classes, seed=0, **own)
        count = len(source.classes)
        on_disk = self._find_on_disk(source, folder, "skip")
        annotated = np.bincount(source.targets[on_disk & source.annotated], minlength=count)
        pairs = zip(annotated.tolist(), np.bincount(source.targets[on_disk], minlength=count).tolist(), strict=True)
        return dict(zip(source.classes, pairs, strict=True))

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether the set has annotated images, without building an index.

        Args:
            folder: The folder of the set.

        Returns:
            None if that cannot be known before :meth:`prepare` has run.

        Raises:
            MissingDataError: If a file is missing.
            DataFileError: If a list is malformed.
        """
        return any(annotated for annotated, _ in self.counts(folder).values())

    def _advise_unannotated(self, label: str, *, any_annotated: bool) -> str:
        """Return how to load a class whose images have no annotation, as part of an error message.

        Args:
            label: The class.
            any_annotated: Whether images of other classes are annotated.
        """
        return "include_unannotated=True loads them as they are."

    @property
    def __signature__(self) -> inspect.Signature:
        common = inspect.signature(AnnotatedSet.__call__).parameters.values()
        shared = [one for one in common if one.name not in ("self", "own")]
        own = inspect.signature(self.open).parameters.values()
        return inspect.Signature([*shared, *(one for one in own if one.name not in ("folder", "classes", "seed"))])

    def _select_samples(
        self, source: SampleSource, folder: Path, include_unannotated: bool, missing: str
    ) -> NDArray[np.int64]:
        on_disk = self._find_on_disk(source, folder, missing)
        selected = np.flatnonzero(on_disk if include_unannotated else on_disk & source.annotated)
        if left_out := np.count_nonzero(on_disk) - len(selected):
            _LOGGER.info(
                "%s: %d of %d samples have no annotation and are left out (include_unannotated=True keeps them).",
                self.info.name,
                left_out,
                len(source),
            )
        counts = np.bincount(source.targets[selected], minlength=len(source.classes))
        for name, of_class, count in zip(source.classes, range(len(counts)), counts, strict=True):
            if count == 0 and self.requires_all_classes:
                listed_, n_found = (
                    np.count_nonzero(source.targets[chosen] == of_class) for chosen in (slice(None), on_disk)
                )
                if n_found:
                    advice = self._advise_unannotated(name, any_annotated=bool((on_disk & source.annotated).any()))
                    reason = f"it has {n_found} images without annotation; {advice}"
                elif listed_:
                    reason = f"none of the {listed_} listed images is on disk.\n{self.info.how_to_get}"
                else:
                    reason = f"no list or folder names one; leave it out of classes, or add it.\n{self.info.how_to_get}"
                raise MissingDataError(f"{self.info.name}: {folder} has no annotated image of class {name!r}: {reason}")
        return selected

    def _find_on_disk(self, source: SampleSource, folder: Path, missing: str) -> NDArray[np.bool_]:
        """Return ``[N]`` bool, whether the image of each sample is on disk, and report the missing ones by class."""
        if source.missing is None or not source.missing.any():
            return np.ones(len(source), dtype=np.bool_)
        reports = []
        for number, name in enumerate(source.classes):
            gone = np.flatnonzero(source.missing & (source.targets == number))
            if len(gone):
                ids = ", ".join(str(source.meta(int(one))["id"]) for one in gone[:5])
                of_all = np.count_nonzero(source.targets == number)
                reports.append(f"{len(gone)} of {of_all} {name} ({ids}{', ...' if len(gone) > 5 else ''})")
        text = f"{self.info.name}: listed images that are not in {folder}: {'; '.join(reports)}"
        if missing == "error":
            advice = f"Download them, or leave them out with missing='skip'.\n{self.info.how_to_get}"
            raise MissingDataError(f"{text}. {advice}")
        _LOGGER.warning("%s; they are left out.", text)
        return ~source.missing


class DirectorySet(AnnotatedSet):
    """A data set in a given directory instead of a folder below ``root``.

    Args:
        directory: The folder of the data set; ``~`` is expanded.
    """

    folders = ("",)

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._folder = Path(directory).expanduser()

    def look_in(self, base: Path) -> Path | None:
        """Return the directory; ``base`` is ignored."""
        return self._folder


def _own_defaults(opener: Callable[..., SampleSource]) -> dict[str, object]:
    """Return the defaults of the parameters that only one set has, as :meth:`AnnotatedSet.open` declares them."""
    own = inspect.signature(opener).parameters.values()
    return {one.name: one.default for one in own if one.default is not one.empty}
