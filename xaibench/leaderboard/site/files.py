"""Files of the site. They are written to a temporary folder that replaces the previous site when it is complete.

Maps are sprites: one image file per method with its maps of the same samples.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from xaibench.core.pictures import palette
from xaibench.leaderboard.repository import ResultError
from xaibench.leaderboard.scores import CellKey, decode_sheet, read_picture, read_sample_sheet
from xaibench.leaderboard.site.results import ExcludedResult, SuiteLeaderboards
from xaibench.report.page.templating import json_block, script, template_environment
from xaibench.runfolder.schema import frame_to_csv

#: Marks a folder as a site, which may be replaced.
SITE_MARKER = ".xaibench-leaderboard"
#: Parts of the site's script, in order.
_SCRIPTS = ("state", "theme", "table", "board", "pairs", "pair_files", "site")


class SiteError(ValueError):
    """A site that cannot be built. The message says why, and what to do."""


class SuiteEntry(NamedTuple):
    """A suite as other pages refer to it.

    Attributes:
        key: ``SUITE@VERSION``.
        suite: Name of the suite.
        version: Version of the suite.
        title: Display name.
        slug: Name in addresses.
        page: Address of its page, relative to the root.
    """

    key: str
    suite: str
    version: str
    title: str
    slug: str
    page: str


@dataclass(frozen=True)
class Site:
    """Folder of the site, and what all of its pages share.

    Attributes:
        folder: The folder.
        title: Title of the site.
        suites: All suites.
        methods: Method to its name in addresses.
        left_out: Results that are not shown.
        templates: The template environment.
    """

    folder: Path
    title: str
    suites: Sequence[SuiteEntry]
    methods: Mapping[str, str]
    left_out: Sequence[ExcludedResult] = ()
    templates: Any = field(default_factory=template_environment)

    def method_page(self, name: str) -> str:
        """Return the address of a method's page, relative to the root."""
        return f"methods/{self.methods[name]}.html"

    def render(self, template: str, page: str, data: Mapping[str, Any], **values: Any) -> str:
        """Render a page.

        Args:
            template: Name of the template.
            page: Address of the page, relative to the root.
            data: Data for the page's script.
            **values: Variables of the template.
        """
        root = "../" * page.count("/")
        empty: dict[str, Any] = dict.fromkeys(("subsets", "variants", "models", "explainers", "metrics", "cells"), ())
        content = json_block({**empty, "truths": {}, "root": root, **data})
        rendered: str = self.templates.get_template(template).render(site=self, root=root, data=content, **values)
        return rendered

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file below the root."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def write_data(self, name: str, value: Any) -> None:
        """Write data that a page's script loads on demand."""
        self.write(f"data/{name}.js", f"xaibenchData({json_block(name)},{json_block(value)});\n")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a downloadable table as CSV and Parquet. In CSV, formulas are quoted."""
        path = self.folder / "downloads" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{path.name}.csv").write_bytes(frame_to_csv(table))
        table.to_parquet(f"{path}.parquet", index=False, compression="zstd")

    def write_assets(self) -> None:
        """Write the style sheet and the script shared by all pages."""
        self.write("assets/site.css", self.templates.get_template("site/site.css.j2").render())
        self.write("assets/site.js", str(script(_SCRIPTS).text))
        self.write(SITE_MARKER, "A site that `xaibench leaderboard` wrote; it replaces this folder as a whole.\n")


@contextmanager
def replace_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``out`` if the block succeeds, and is deleted otherwise.

    Args:
        out: A new or empty folder, or an existing site, which is replaced.

    Raises:
        SiteError: If ``out`` is something else.
        OSError: If ``out`` cannot be written.
    """
    if out.exists() and not (out.is_dir() and ((out / SITE_MARKER).is_file() or not any(out.iterdir()))):
        raise SiteError(
            f"{out} exists and is not a site of `xaibench leaderboard`; expected a new folder. Choose another --out."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".partial", dir=out.parent) as place:
        fresh, old = Path(place) / "site", Path(place) / "old"
        fresh.mkdir()
        yield fresh
        if out.exists():
            out.rename(old)
        try:
            fresh.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
        shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True)
class SpriteFiles:
    """Sprites of a suite.

    Attributes:
        cells: Cell of each row of the sprites; none if the suite has no pictures.
        words: Labels of these cells.
        columns: Number of samples per row.
        samples: Address of the sprite of the samples.
        maps: Method to the address of its sprite.
        rows: Method to the rows of its sprite that have maps.
    """

    cells: Sequence[CellKey] = ()
    words: Sequence[str] = ()
    columns: int = 0
    samples: str = ""
    maps: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def write_pictures(site: Site, slug: str, leaderboards: SuiteLeaderboards) -> SpriteFiles:
    """Write the sprite of the samples of a suite, and one of each method's maps.

    Args:
        site: The site.
        slug: The suite's name in addresses.
        leaderboards: The suite; methods whose picture is missing or damaged have no sprite.
    """
    facts = next(iter(leaderboards.results.values())).facts
    if (layout := facts.layout) is None:
        return SpriteFiles()
    samples, maps, rows = f"data/{slug}/samples.webp", {}, {}
    try:
        site.write(samples, _encode_webp(read_sample_sheet(facts.folder, layout)))
    except ResultError:  # the scores are shown without maps
        return SpriteFiles()
    for name, result in leaderboards.results.items():
        try:
            levels = decode_sheet(read_picture(result.folder), "The picture", layout.size)
        except ResultError:
            continue
        if levels.any():
            maps[name] = f"data/{slug}/maps-{site.methods[name]}.webp"
            rows[name] = tuple(np.flatnonzero(levels.reshape(len(layout.cells), -1).any(axis=1)).tolist())
            site.write(maps[name], _encode_webp(palette()[levels]))
    words = [leaderboards.run.words_of(cell) for cell in layout.cells]
    return SpriteFiles(layout.cells, words, layout.columns, samples, maps, rows)


def _encode_webp(sheet: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(sheet).save(content, "WEBP", lossless=True, quality=50, method=2)
    return content.getvalue()
