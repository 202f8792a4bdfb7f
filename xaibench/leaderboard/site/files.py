"""The files of the site: written to a folder beside the final one, which they replace when all of them are there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from xaibench.leaderboard.site.read import ExcludedResult, SuiteKey
from xaibench.report.page.templating import create_environment, json_block, script

#: Says that a folder is such a site, and may be replaced by another.
SITE_MARKER = ".xaibench-board"
#: The parts of the site's script, in the order in which they stand.
_SCRIPTS = ("state", "theme", "table", "board", "pairs", "pair_files", "site")


class SiteError(ValueError):
    """A site that cannot be built; the message says why, and what to do."""


@dataclass(frozen=True)
class SuiteEntry:
    """What other pages say of a suite.

    Attributes:
        key: Which.
        title: For people.
        slug: Its name in addresses.
        page: The address of its page, below the root.
    """

    key: SuiteKey
    title: str
    slug: str
    page: str


@dataclass(frozen=True)
class Site:
    """Where the site is written, and what all of its pages know.

    Attributes:
        folder: Where.
        title: Of the site.
        suites: All of them.
        methods: Name to the name in addresses.
        left_out: The results that are not shown.
        templates: Of the pages.
    """

    folder: Path
    title: str
    suites: Sequence[SuiteEntry]
    methods: Mapping[str, str]
    left_out: Sequence[ExcludedResult] = ()
    templates: Any = field(default_factory=create_environment)

    def method_page(self, name: str) -> str:
        """The address of a method's page, below the root."""
        return f"methods/{self.methods[name]}.html"

    def render(self, template: str, page: str, data: Mapping[str, Any], **values: Any) -> str:
        """A page.

        Args:
            template: Its name.
            page: The address of the page, below the root.
            data: For its script.
            values: For the template.
        """
        root = "../" * page.count("/")
        known: dict[str, Any] = {
            "subsets": [],
            "variants": [],
            "models": [],
            "explainers": [],
            "metrics": [],
            "truths": {},
        }
        content = json_block({**known, "root": root, **data})
        rendered: str = self.templates.get_template(template).render(site=self, root=root, data=content, **values)
        return rendered

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file below the root."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def write_data(self, name: str, value: Any) -> None:
        """Write what a page's script loads when it is asked for."""
        self.write(f"data/{name}.js", f"xaibenchData({json_block(name)},{json_block(value)});\n")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table to download, as CSV and as Parquet."""
        path = self.folder / "downloads" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(f"{path}.csv", index=False, lineterminator="\n")
        table.to_parquet(f"{path}.parquet", index=False, compression="zstd")

    def write_assets(self) -> None:
        """Write the style and the script that all pages share."""
        self.write("assets/site.css", self.templates.get_template("site/site.css.j2").render())
        self.write("assets/site.js", str(script(_SCRIPTS).text))
        self.write(SITE_MARKER, "A site that `xaibench leaderboard` wrote; it replaces this folder as a whole.\n")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder that becomes ``out`` when the block ends well, and leaves nothing when it does not.

    Args:
        out: New, empty, or such a site from before, which is replaced.

    Raises:
        BoardError: If it is something else.
        OSError: If it cannot be written.
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
