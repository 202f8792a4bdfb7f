"""Files of precomputed maps, which are matched to the samples of a data set by their ids."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xaibench.core.files import check_regular, name_file_in_errors
from xaibench.core.messages import first_line, listed
from xaibench.data.disk.file_readers import read_arrays

if TYPE_CHECKING:
    from xaibench.data import Split

#: Entries of an ``.npz`` file that holds all maps in one array.
IDS, MAPS = "ids", "maps"
_SHOWN = 5
_TEMPLATE = "xaibench score FILE.npz --dataset NAME --template."
#: First bytes of numpy files: .npy, and .npz, which is a zip archive.
_MAGIC = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")


class MapFileError(ValueError):
    """A file of maps does not match the samples; the message contains the file and the ids."""


def read_maps(path: str | os.PathLike[str], ids: Sequence[str]) -> NDArray[np.floating[Any]]:
    """Read the maps of the samples ``ids``, in their order.

    Args:
        path: One file: ``.npz`` with the arrays ``ids`` ``[N]`` (text) and ``maps`` ``[N, H, W]``, or with one array
            ``[H, W]`` per sample under its id; ``.safetensors`` with one tensor ``[H, W]`` per sample; or ``.npy``
            ``[N, H, W]`` in the order of the template. Or a folder with one file per sample, which has the name of the
            image, or its path below a folder: ``.npy``, ``.npz`` with one array, or for volumes NIfTI (``.nii``,
            ``.nii.gz``) with the affine of the image, which orients the map like the image. Volumes have D before H.
            Pickled arrays are refused, so that no code in the file is executed.
        ids: The sample ids (``ids`` of a :class:`~xaibench.data.Split`).

    Returns:
        The maps ``[N, H, W]``, or ``[N, D, H, W]``.

    Raises:
        MapFileError: If a file cannot be read, lacks samples, contains unknown or repeated samples or maps of
            different shapes, or all maps are zero (an unchanged template).
    """
    path = Path(path)
    try:
        maps_by_id = _read(path, ids)
    except MapFileError:
        raise
    except FileNotFoundError as error:
        raise MapFileError(f"{path}: there is no such file. Command for a template: {_TEMPLATE}") from error
    except Exception as error:  # numpy, zip and safetensors raise different exceptions
        raise MapFileError(
            f"{path} cannot be read ({first_line(error)}); expected maps as .npz, .npy or .safetensors, or a folder."
        ) from error
    missing = [one for one in ids if one not in maps_by_id]
    unknown = sorted(set(maps_by_id) - set(ids))
    if missing or unknown:
        problems = [f"{len(missing)} of {len(ids)} samples have no map ({listed(missing, _SHOWN)})"] if missing else []
        problems += [f"{len(unknown)} maps have unknown sample ids ({listed(unknown, _SHOWN)})"] if unknown else []
        raise MapFileError(f"{path}: {'; '.join(problems)}. A template shows the ids: {_TEMPLATE}")
    shapes = {np.shape(maps_by_id[one]) for one in ids}
    if len(shapes) != 1 or len(next(iter(shapes))) not in (2, 3):
        got = ", ".join(str(list(shape)) for shape in sorted(shapes))
        raise MapFileError(
            f"{path}: expected a map [H, W] (volumes: [D, H, W]) for each sample, all of one size, got {got}."
        )
    maps = np.stack([maps_by_id[one] for one in ids])
    if not maps.any():
        raise MapFileError(
            f"{path}: all {len(ids)} maps are zero everywhere, as in an unchanged template. Put your maps into its "
            f"entry {MAPS!r}, in the order of {IDS!r}, and save it."
        )
    return maps


def write_template(path: str | os.PathLike[str], split: Split) -> None:
    """Write an ``.npz`` template to fill in: the sample ids, their files if known, and maps of zeros.

    Args:
        path: The file, which must end in ``.npz``.
        split: The samples to be explained.

    Raises:
        MapFileError: If the suffix is not ``.npz``.
        OSError: If the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise MapFileError(f"{path}: a template is an .npz file; give it the suffix .npz.")
    ids = list(split.ids)
    files = [str(known.get("file", "")) for known in split.meta]
    with name_file_in_errors(path):
        np.savez_compressed(
            path,
            ids=np.array(ids),
            files=np.array(files),
            targets=split.targets.numpy(),
            maps=np.zeros((len(ids), *split[0][1].shape), dtype=np.float32),
        )


def _read(path: Path, ids: Sequence[str]) -> Mapping[str, NDArray[Any]]:
    if path.is_dir():
        return _read_folder(path, ids)
    check_regular(path)
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return dict(load_file(path))
    with open(path, "rb") as stream:
        if not stream.read(6).startswith(_MAGIC):
            raise MapFileError(f"{path} is not a numpy file; write it with numpy.savez or numpy.save.")
    loaded = read_arrays(path)
    if "" in loaded:
        if loaded[""].shape[:1] != (len(ids),):
            raise MapFileError(
                f"{path} holds an array {list(loaded[''].shape)}; expected maps [{len(ids)}, H, W], in the order of "
                "the template."
            )
        return dict(zip(ids, loaded[""], strict=True))
    if (IDS in loaded) != (MAPS in loaded):
        raise MapFileError(f"{path} holds {', '.join(loaded)}; expected both {IDS!r} and {MAPS!r}.")
    if IDS not in loaded:
        return loaded
    names = [str(name) for name in loaded[IDS]]
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise MapFileError(
            f"{path}: the ids {listed(duplicates, _SHOWN)} occur more than once; expected one map for each."
        )
    maps = loaded[MAPS]
    if len(maps) != len(names):
        raise MapFileError(f"{path} holds {len(names)} ids and {len(maps)} maps; expected one map for each id.")
    return dict(zip(names, maps, strict=True))


def _read_folder(folder: Path, ids: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read one file per sample; files that belong to no sample are returned under their path."""
    from xaibench.data.volume_folder import VALUE_SUFFIXES, read_values

    files: dict[str, Path] = {}
    for file in sorted(folder.rglob("*")):
        stem = next((str(file)[: -len(end)] for end in VALUE_SUFFIXES if file.name.lower().endswith(end)), None)
        if stem is None:
            continue
        name = Path(stem).relative_to(folder).as_posix()
        if name in files:
            raise MapFileError(f"{files[name]} and {file} have the same name; expected one map for each sample.")
        files[name] = file
    if not files:
        raise MapFileError(f"{folder} has no maps; expected files named like the images, as {listed(VALUE_SUFFIXES)}.")
    keys = [(key, one) for one in ids for key in _file_names(one)]
    count = Counter(key for key, _ in keys)
    names = {key: one for key, one in keys if count[key] == 1}  # a name that two samples share needs its folder
    found: dict[str, NDArray[Any]] = {}
    for name, file in files.items():
        if (identity := names.get(name, name)) in found:
            raise MapFileError(
                f"{folder} has several maps of {identity}, such as {file}; expected one for each sample."
            )
        found[identity] = read_values(file)
    return found


def _file_names(identity: str) -> list[str]:
    """Return the names that the map of a sample may have, without the suffix.

    Example:
        >>> _file_names("image/tumor/scan.nii.gz")
        ['image/tumor/scan.nii.gz', 'image/tumor/scan', 'tumor/scan', 'scan']
    """
    stem = identity.removesuffix(".gz")
    stem = stem.removesuffix(Path(stem).suffix)
    parts = stem.split("/")
    return [identity, *("/".join(parts[first:]) for first in range(len(parts)))]
