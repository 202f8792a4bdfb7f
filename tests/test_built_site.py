"""The docs site as MkDocs builds it, of a few pages: it works from the disk and asks no server."""

import re
import shutil
import sys
import types
from pathlib import Path

import pytest
from report.browser import axe

pytest.importorskip("material")
pytest.importorskip("ziamath")

ROOT = Path(__file__).parents[1]
PAGES = {
    "index": "# Start\n\nSee [the other](other.md). The integral is $\\int_0^1 |x| \\, dx$.\n",
    "other": "# Other\n\nWhat a quokka finds.\n\n<div class='cards' markdown>\n\n| claim | here |\n|---|--:|\n"
    "| it holds | 0.5 |\n\n</div>\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site; its API pages and the example leaderboard, which take long, are left out."""
    from mkdocs.commands.build import build
    from mkdocs.config import config_options, load_config

    config_options.Hooks._load_hook.cache_clear()  # the hook of an earlier build has other modules

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "javascripts", folder / "docs" / "javascripts")
    shutil.copytree(ROOT / "docs" / "stylesheets", folder / "docs" / "stylesheets")
    for name, text in PAGES.items():
        (folder / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "api", types.SimpleNamespace(pages=dict, linked=lambda *_: None))
        patch.setitem(sys.modules, "part_pages", types.SimpleNamespace(pages=dict, navigation=dict))
        patch.setattr("xaibench.leaderboard.write_site", lambda *arguments, **options: None)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        nav = [{"Start": "index.md"}, {"Other": "other.md"}]
        places = {"docs_dir": str(folder / "docs"), "site_dir": str(folder / "site")}
        build(load_config(str(ROOT / "mkdocs.yml"), nav=nav, **places))
    return folder / "site"


@pytest.fixture(scope="module")
def start(site):
    return (site / "index.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_another_server(site):
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]*"', text)
    assert "IFrameWorker" in (site / "javascripts" / "iframe-worker.js").read_text()


def test_formulas_have_a_font_of_mathematics(start, site):
    from fontTools.ttLib import TTFont

    assert "<math" in start
    (sheet,) = (site / "stylesheets").glob("site*.css")
    file = re.search(r'@font-face \{ font-family: "STIX Two Math"; src: url\("\.\./([^"]+)"', sheet.read_text())[1]
    font = TTFont(site / file)
    assert "MATH" in font
    assert {ord(sign) for sign in "∫∑√|𝑥𝛿ℝ→"} <= set(font.getBestCmap())


def test_search_works_from_the_disk(tab, site):
    tab.goto((site / "index.html").as_uri())
    tab.click("input.md-search__input")
    # What is typed before the index is there is not searched for.
    tab.get_by_text("Type to start searching").wait_for(timeout=60_000)
    tab.keyboard.type("quokka", delay=20)
    found = tab.locator("a.md-search-result__link").first
    found.wait_for(timeout=60_000)
    assert "other.html" in found.get_attribute("href")
    assert tab.evaluate("document.fonts.load('20px \"STIX Two Math\"').then((fonts) => fonts.length)") == 1
    assert not [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]


def test_pages_are_accessible_and_fit_narrow_screens(tab, site):
    size = tab.viewport_size
    for width in (1440, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        tab.goto((site / "other.html").as_uri())
        assert axe(tab, preload=False) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.set_viewport_size(size)
