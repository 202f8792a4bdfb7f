"""Download and unpacking of the archives of data sets."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from urllib.error import URLError
from urllib.parse import urlsplit

from xaibench.core.files import name_folder_if_disk_full
from xaibench.data.disk.file_readers import DataFileError


def fetch_archive(url: str, root: str | os.PathLike[str], *, md5: str) -> None:
    """Download a tar archive of folders, unless it is there, and unpack it next to it. The archive is kept.

    It is unpacked into a temporary folder first, so that an interrupted call leaves no partial data set.

    Args:
        url: Address; the last part of its path is the file name.
        root: The folder, created if needed.
        md5: Checksum, in hexadecimal. A file with another checksum is downloaded again.

    Raises:
        ConnectionError: If the download fails.
        DataFileError: If the checksum is wrong, or a member of the archive would be outside of the folder or a device.
        OSError: If the disk is full or the folder is not writable.
    """
    from torchvision.datasets.utils import download_url

    folder = Path(root)
    archive = folder / PurePosixPath(urlsplit(url).path).name
    with name_folder_if_disk_full(folder):
        try:
            download_url(url, folder, filename=archive.name, md5=md5)
        except URLError as error:
            raise ConnectionError(f"{url} cannot be downloaded: {error.reason}. Try again.") from error
        except RuntimeError as error:
            raise DataFileError(f"{archive} has another checksum than {md5}; delete it and try again.") from error
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
            try:
                with tarfile.open(archive) as opened:
                    opened.extractall(temporary, filter="data")
            except tarfile.TarError as error:
                raise DataFileError(f"{archive} cannot be unpacked safely ({error}).") from error
            for entry in Path(temporary).iterdir():
                shutil.copytree(entry, folder / entry.name, copy_function=os.replace, dirs_exist_ok=True)
