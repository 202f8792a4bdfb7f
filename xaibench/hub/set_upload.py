"""Prepare the upload of a data set: Parquet files and the card."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xaibench.core.files import atomic_file
from xaibench.data import Dataset
from xaibench.data.exchange.parquet_format import HUB_SPLITS
from xaibench.data.exchange.parquet_writing import hub_features, layout_of, write_parquet
from xaibench.hub.card_text import readme, strip_folders_nested
from xaibench.hub.license import choose_license, is_generated_set
from xaibench.hub.set_datasheet import DatasetFacts, measure_dataset, render_datasheet

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def prepare_dataset(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    *,
    license: str | None = None,
    repo: str = "OWNER/NAME",
) -> Path:
    """Write the files of an upload: ``data/*.parquet``, and ``README.md`` with a datasheet.

    Args:
        dataset: The data set. Local folders are removed from its name and parameters.
        folder: Target folder, which should contain nothing else.
        license: License as an identifier of the Hub (``"cc-by-4.0"``, ``"mit"``, ...). None = CC0 for data generated
            from numbers alone; other data sets require one.
        repo: Repository of the upload, for the card.

    Returns:
        The folder.

    Raises:
        LicenseError: If the data set belongs to others (annotated sets), requires a license, or its name is malformed.
        TypeError: If a parameter of the data set is not a plain value.
        OSError: If the folder cannot be written.
    """
    chosen = choose_license(dataset.info, license)
    info = dataclasses.replace(dataset.info, name=strip_folders_nested(dataset.info.name))
    if license is not None:
        info = dataclasses.replace(info, license=license)
    shown = dataclasses.replace(dataset, info=info, parameters=strip_folders_nested(dict(dataset.parameters)))
    files = write_parquet(shown, folder)
    facts = measure_dataset(shown)
    text = readme(_card_metadata(shown, facts, files, chosen), render_datasheet(shown, facts, chosen, repo))
    with atomic_file(Path(folder) / "README.md") as stream:
        stream.write(text.encode())
    return Path(folder)


def _card_metadata(dataset: Dataset, facts: DatasetFacts, files: Sequence[Path], license: str) -> dict[str, Any]:
    """Return the card's header for the Hub and its viewer."""
    total = sum(facts.samples.values())
    size = next((name for limit, name in _SIZES if total < limit), "n>1M")
    generated = is_generated_set(dataset.info)
    layout = layout_of(files)
    stored = {theirs: [file for file in files if file.name.startswith(f"{theirs}-")] for theirs in HUB_SPLITS.values()}
    present = [theirs for theirs in HUB_SPLITS.values() if facts.samples[theirs]]
    splits = [
        {
            "name": theirs,
            "num_bytes": sum(file.stat().st_size for file in stored[theirs]),
            "num_examples": facts.samples[theirs],
        }
        for theirs in present
    ]
    return {
        "license": license,
        "pretty_name": dataset.info.name,
        "task_categories": ["image-classification"],
        "tags": ["xaibench", "explainable-ai", "saliency-maps", "attribution", *(["synthetic"] if generated else [])],
        "annotations_creators": ["machine-generated" if generated else "other"],
        "size_categories": [size],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": theirs, "path": f"data/{theirs}-*"} for theirs in present],
            }
        ],
        "dataset_info": {
            "features": [_card_feature(name, what) for name, what in hub_features(dataset.info, layout).items()],
            "splits": splits,
            "download_size": sum(file.stat().st_size for file in files),
            "dataset_size": sum(one["num_bytes"] for one in splits),
        },
    }


def _card_feature(name: str, feature: dict[str, Any]) -> dict[str, Any]:
    """Return a column in the format of ``dataset_info``."""
    if feature["_type"] == "ClassLabel":
        names = {str(index): label for index, label in enumerate(feature["names"])}
        return {"name": name, "dtype": {"class_label": {"names": names}}}
    if feature["_type"] == "Array3D":
        return {"name": name, "dtype": {"array3_d": {"shape": feature["shape"], "dtype": feature["dtype"]}}}
    return {"name": name, "dtype": "image"}
