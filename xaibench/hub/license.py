"""Licenses of uploads, and which data sets may be uploaded."""

from __future__ import annotations

import re

from xaibench.component.info import DatasetInfo
from xaibench.data import DATASETS

#: License of data generated from numbers alone.
GENERATED = "cc0-1.0"

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")


class LicenseError(ValueError):
    """A data set that may not be uploaded, or a license that is missing or malformed."""


def check_license_name(license: str | None) -> None:
    """Check the form of a license name; None is accepted.

    Raises:
        LicenseError: If it is malformed.
    """
    if license is not None and not _NAME.fullmatch(license):
        raise LicenseError(f"license={license!r}: expected a license identifier of the Hub, such as cc-by-4.0 or mit.")


def choose_license(info: DatasetInfo, license: str | None) -> str:
    """Return the license of an upload: the given one, or CC0 for data generated from numbers alone.

    Raises:
        LicenseError: If the data set may not be uploaded, requires a license and none is given, or the name is
            malformed.
    """
    check_license_name(license)
    known = DATASETS.canonical(info.name)
    if info.name.startswith("published:") or (known in DATASETS and not is_generated_set(info)):
        raise LicenseError(
            f"{info.name} cannot be uploaded: its files belong to their publishers, under this license: "
            f"{info.license}. Upload generated data sets or your own images (folder:DIR)."
        )
    if license is None and (known not in DATASETS or info.variant == "imagenet"):
        raise LicenseError(
            f"{info.name} contains images that xaibench did not generate; its license is: "
            f"{info.license or '(none)'}. If "
            "you may redistribute them, state the license: --license cc-by-4.0 (in Python license='cc-by-4.0')."
        )
    return license or GENERATED


def is_generated_set(info: DatasetInfo) -> bool:
    """Return whether xaibench generated the images (some of them over photographs)."""
    return info.name.startswith(("xai-tris/", "parts/"))
