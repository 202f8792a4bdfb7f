"""MkDocs hooks: read formulas; add the API reference, the math font and the example leaderboard to the site."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import example_leaderboard
import math_font
from api import pages
from formulas import Formulas, block
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let Markdown read formulas."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]  # MkDocs hands it on as it is
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "formula", "format": block})
    if address := repository():
        # Not as `repo_url`: the theme would ask GitHub for its stars whenever a page is opened.
        config.extra["social"] = [{"icon": "material/source-repository", "link": address, "name": "Repository"}]
    return config


def repository() -> str:
    """The address of the repository that the site is built in: as GitHub Actions tells it, else git's; else nothing."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    asked = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
    found = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", found).removesuffix(".git")
    return found if found.startswith("https://") else ""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    for name, content in pages().items():
        files.append(File.generated(config, f"api/{name}.md", content=content))
    files.append(File.generated(config, math_font.FILE, content=math_font.woff()))
    return files


#: The folder of the example leaderboard below the site of the documentation; docs/leaderboard.md links to it.
EXAMPLE = "example-leaderboard"


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Add the example leaderboard to the built site."""
    example_leaderboard.write_example(Path(config.site_dir) / EXAMPLE)


def on_page_content(html: str, **_: Any) -> str:
    """Tables inside ``<div class="cards">`` say in each cell what column it is of, for screens that have no columns."""
    return re.sub(r'<div class="cards">.*?</div>', lambda found: labeled(found[0]), html, flags=re.S)


def labeled(tables: str) -> str:
    """Every cell of a table with the text above its column as ``data-label``."""

    def of_table(found: re.Match[str]) -> str:
        heads = [re.sub(r"<[^>]+>", "", head) for head in re.findall(r"<th[^>]*>(.*?)</th>", found[0])]
        rows = re.split(r"(?=<tr>)", found[0])
        return "".join(of_row(row, heads) for row in rows)

    def of_row(row: str, heads: list[str]) -> str:
        names = iter(heads)
        return re.sub(r"<td(?=[ >])", lambda _: f'<td data-label="{next(names)}"', row)

    return re.sub(r"<table>.*?</table>", of_table, tables, flags=re.S)
