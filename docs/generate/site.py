"""MkDocs hooks: read formulas; add generated pages, a notebook, a font and a leaderboard; label tables."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import math_font
import part_pages
from api import pages
from formulas import Formulas, block
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from xaibench import leaderboard

ROOT = Path(__file__).parents[2]
RESULTS, NOTEBOOK = ROOT / "examples" / "leaderboard" / "results", ROOT / "examples" / "quickstart.ipynb"
#: The notebook itself, next to its page.
DOWNLOAD = "\n\n[Download the notebook](quickstart.ipynb){ .md-button download }\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let Markdown read formulas, and add the pages of metrics and explainers to the menu."""
    # The lists `__all__` with names from tables are read at run time (api.py), not by static analysis.
    logging.getLogger("mkdocs.plugins.griffe").addFilter(lambda record: "Unsupported item in" not in str(record.msg))
    if config.nav:
        config.nav = with_part_pages(config.nav, part_pages.navigation())
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]  # MkDocs hands it on as it is
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "formula", "format": block})
    if address := repository():
        # Not as `repo_url`: the theme would ask GitHub for its stars whenever a page is opened.
        config.extra["social"] = [{"icon": "material/source-repository", "link": address, "name": "Repository"}]
    return config


def with_part_pages(menu: Any, below: dict[str, list[Any]]) -> Any:
    """Return the menu with the pages of the parts after their overview."""
    if isinstance(menu, dict):
        return {title: with_part_pages(entry, below) for title, entry in menu.items()}
    if not isinstance(menu, list):
        return menu
    entries = []
    for entry in menu:
        page = next(iter(entry.values())) if isinstance(entry, dict) else entry
        entries += [with_part_pages(entry, below), *(below.get(page, []) if isinstance(page, str) else [])]
    return entries


def repository() -> str:
    """Return the address of the repository: from GitHub Actions, otherwise from git, otherwise empty."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    asked = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
    found = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", found).removesuffix(".git")
    return found if found.startswith("https://") else ""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Say on pages that name files of the repository where these are: the package does not contain them."""
    folders = [name for name in ("docs", "examples", "speed", "tests") if re.search(rf"[ `]{name}/\w", markdown)]
    if not folders:
        return markdown
    named = ", ".join(f"`{name}/`" for name in folders)
    where = f"[repository]({address})" if (address := repository()) else "repository"
    note = f"*Files in {named} are in the {where}, not in the package: run their commands in a clone.*"
    return f"{markdown}\n\n---\n\n{note}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the font."""
    made = {f"api/{name}": content for name, content in pages().items()} | part_pages.pages()
    made["quickstart"] = notebook_page()
    for name, content in made.items():
        files.append(File.generated(config, f"{name}.md", content=content))
    files.append(File.generated(config, "quickstart.ipynb", content=NOTEBOOK.read_bytes()))
    files.append(File.generated(config, math_font.FILE, content=math_font.woff()))
    return files


def notebook_page() -> str:
    """Return the notebook with its stored outputs as a Markdown page."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(block for cell in cells for block in cell_blocks(cell)).replace("](../docs/", "](") + DOWNLOAD


def cell_blocks(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the Markdown of a cell: its text, or its code and each of its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            png = "".join(data["image/png"]).strip()
            yield f'<img alt="The picture that the code above draws" src="data:image/png;base64,{png}">'
        else:
            yield f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"


#: The folder of the example leaderboard below the site of the documentation; docs/leaderboard.md links to it.
EXAMPLE = "example-leaderboard"


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Add the leaderboard of the library's own results to the built site."""
    title, out = "Explainers of xaibench", Path(config.site_dir) / EXAMPLE
    leaderboard.write_site(RESULTS, out, strict=True, title=title, first="xai-tris-8x8")


def on_page_content(html: str, **_: Any) -> str:
    """Make pages accessible and fast: label cells of cards, drop empty table headers, load visible pictures only.

    The cells of tables inside ``<div class="cards">`` get the heading of their column, for narrow screens. Pictures of
    the other color scheme are not visible and therefore not loaded.
    """
    html = re.sub(r'<div class="cards">.*?</div>', lambda found: labeled(found[0]), html, flags=re.S)
    html = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)
    html = html.replace('<div class="wide">', '<div class="wide" tabindex="0">')  # scrolled by keyboard
    return html.replace("<img ", '<img loading="lazy" ')


def on_post_page(output: str, **_: Any) -> str:
    """Give the search dialog a name, and the menus of a page different names, for screen readers."""
    seen: Counter[str] = Counter()

    def numbered(found: re.Match[str]) -> str:
        seen[found[2]] += 1
        return f'{found[1]}{found[2]}{f" ({seen[found[2]]})" * (seen[found[2]] > 1)}"'

    search = 'data-md-component="search" role="dialog"'
    output = output.replace(search, f'{search} aria-label="Search"')
    return re.sub(r'(<nav class="md-nav[^>]* aria-label=")([^"]*)"', numbered, output)


def labeled(tables: str) -> str:
    """Return tables whose cells have the heading of their column as ``data-label``."""

    def of_table(found: re.Match[str]) -> str:
        heads = [re.sub(r"<[^>]+>", "", head) for head in re.findall(r"<th[^>]*>(.*?)</th>", found[0])]
        rows = re.split(r"(?=<tr>)", found[0])
        return "".join(of_row(row, heads) for row in rows)

    def of_row(row: str, heads: list[str]) -> str:
        names = iter(heads)
        return re.sub(r"<td(?=[ >])", lambda _: f'<td data-label="{next(names)}"', row)

    return re.sub(r"<table>.*?</table>", of_table, tables, flags=re.S)
