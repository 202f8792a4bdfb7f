"""Conversion of figures to files, and labels that fit them."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from xaibench.core.files import atomic_file
from xaibench.plots.figure_style import house_style

#: The longest label of a figure in characters.
_LONGEST = 26


def save(figure: Figure, path: str | os.PathLike[str]) -> list[Path]:
    """Write a figure to a file, or to an SVG and a PNG file. The same figure gives the same bytes.

    Args:
        figure: The figure.
        path: The file, whose suffix is the format: ``.svg``, ``.png`` or ``.jpg`` (150 dpi), ``.pdf``, or another one
            of matplotlib. Without a suffix, ``.svg`` and ``.png`` files are written.

    Returns:
        The written files.

    Raises:
        ValueError: If matplotlib does not know the format.
        OSError: If the file cannot be written.
    """
    wanted = Path(path)
    files = [wanted] if wanted.suffix else [wanted.with_name(f"{wanted.name}.{kind}") for kind in ("svg", "png")]
    for file in files:
        content = encode(figure, file.suffix[1:].lower())
        with atomic_file(file, durable=False) as stream:
            stream.write(content)
    return files


def encode(figure: Figure, kind: str, dpi: int = 150) -> bytes:
    """Return the figure as ``"png"``, ``"jpg"``, ``"svg"`` or another format; deterministic."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"metadata": {"CreationDate" if kind == "pdf" else "Date": None}}
    if kind == "png":  # compressed in half of the time, to a file a sixth larger
        options = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}}
    elif kind not in ("svg", "pdf"):
        options = {"pil_kwargs": {"quality": 88}} if kind in ("jpg", "jpeg") else {}
    with house_style():
        figure.savefig(buffer, format=kind, dpi=dpi, **options)
    return buffer.getvalue()


def shorten_label(label: str) -> str:
    """Shorten a label so that it fits a figure."""
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
