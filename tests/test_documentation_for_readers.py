"""The documentation as a newcomer uses it: first questions, clicks, accessibility and size of the built pages.

The site is built from all hand-written and part pages; the API reference and the example leaderboard, which take long,
are replaced by empty pages.
"""

import functools
import html
import posixpath
import re
import sys
import types
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from report.browser import axe

pytest.importorskip("material")
pytest.importorskip("ziamath")

ROOT = Path(__file__).parents[1]
#: What a newcomer asks first: the question, the page that answers it, and a phrase of the answer.
QUESTIONS = [
    ("What does the library tell me?", "index.html", "scores visual explanations of image classifiers"),
    ("How do I install it, and does it need a GPU?", "install.html", "and no GPU"),
    ("How do I get a first result?", "first-benchmark.html", "xaibench run xai-tris-8x8 --quick"),
    ("How do I test my own explainer?", "tutorials/benchmark-a-new-explainer.html", "any callable"),
    ("Which explanation can I trust for my network?", "audit.html", "a verdict for each explainer"),
    ("How do I score maps that I already have?", "tutorials/score-your-own-maps.html", "Maps are an array"),
    ("Can I use my own images and masks?", "tutorials/add-a-data-set.html", "A folder of images and masks"),
    ("What does it mean that a map is right?", "truths.html", "has four meanings"),
    ("Which metric should I use?", "metrics-tested.html", "Choose metrics that rank a better map"),
    ("Is a difference between two methods significant?", "uncertainty.html", "when two methods differ significantly"),
    ("Which explainer supports my network?", "explainers-networks.html", "whether an explainer supports your network"),
    ("How do I get onto the leaderboard?", "tutorials/submit-a-method.html", "Add your method to the leaderboard"),
]
CLICKS = 3
#: Pages that are tested in a browser: one of each kind.
SHOWN = ("index", "metrics/iou", "explainers/rise", "findings", "tutorials/read-the-report")
#: Bytes that the first view of a page may load.
FIRST_VIEW = 600_000


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    from mkdocs.commands.build import build
    from mkdocs.config import config_options, load_config

    config_options.Hooks._load_hook.cache_clear()  # the hook of an earlier build has other modules

    generate = ROOT / "docs" / "generate"
    folder, known = tmp_path_factory.mktemp("documentation"), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(generate)
        import api

        patch.setattr(api, "_written_by_hand", tuple)  # which imports TorchMetrics, only for names on an API page
        empty = {name: f"# {name}\n" for name in ("index", "cli", *api.layout())}
        instead = {"pages": lambda: empty, "linked": lambda *_: None, "reference": str}
        patch.setitem(sys.modules, "api", types.SimpleNamespace(**instead, reference_block=lambda *_: []))
        patch.setitem(sys.modules, "example_leaderboard", types.SimpleNamespace(write_example=lambda out: None))
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    for name in set(sys.modules) - known:
        if str(generate) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    return folder


def links(site, page):
    """Pages of the site to which a page links."""
    text = (site / page).read_text(encoding="utf-8")
    for target in re.findall(r'<a\b[^>]*?\shref="([^"]+)"', text):
        parts = urlsplit(html.unescape(target))
        if not parts.scheme and not parts.netloc and parts.path.endswith(".html"):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))


@pytest.fixture(scope="module")
def clicks(site):
    """How many clicks each page is from the home page."""
    found, edge = {"index.html": 0}, ["index.html"]
    for distance in range(1, CLICKS + 1):
        reached = {target for page in edge for target in links(site, page)}
        edge = [page for page in sorted(reached - set(found)) if (site / page).exists()]
        found |= dict.fromkeys(edge, distance)
    return found


def words(site, page):
    """The text of the article of a page."""
    article = re.search(r"<article.*?</article>", (site / page).read_text(encoding="utf-8"), re.S)[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", article)).split())


@pytest.mark.parametrize(("question", "page", "phrase"), QUESTIONS)
def test_first_questions_are_answered_within_three_clicks(site, clicks, question, page, phrase):
    assert clicks.get(page, CLICKS + 1) <= CLICKS, question
    assert phrase in words(site, page), question


def test_there_are_twelve_questions_on_different_pages():
    assert len(QUESTIONS) == len({page for _, page, _ in QUESTIONS}) == 12


def test_every_metric_and_explainer_is_found_within_three_clicks(site, clicks):
    for folder in ("metrics", "explainers"):
        pages = sorted(f"{folder}/{path.name}" for path in (site / folder).glob("*.html"))
        assert len(pages) > 40
        assert not [page for page in pages if page not in clicks]


def test_pages_begin_with_their_purpose(site):
    """Below its heading every page has a sentence, before any table, list or code."""
    for path in sorted((ROOT / "docs").glob("**/*.md")):
        text = path.read_text(encoding="utf-8")
        first = re.sub(r"^(?:---.*?---|\s*<div.*?>)\s*", "", text.split("\n# ", 1)[-1].partition("\n")[2], flags=re.S)
        assert re.match(r"\s*(?:<!--[^>]*-->\s*)?(?:>|\*\*|[\w`\[])", first), path


@pytest.fixture(scope="module")
def tab_in(chromium):
    """A tab per color scheme, in a context of its own: pages remember the scheme that they were opened in."""
    settings = {"viewport": {"width": 1440, "height": 1000}, "reduced_motion": "reduce"}
    return functools.cache(lambda scheme: chromium.new_context(color_scheme=scheme, **settings).new_page())


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_accessibility_violations(tab_in, site, name, scheme):
    tab = tab_in(scheme)
    tab.goto((site / f"{name}.html").as_uri())
    assert tab.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    assert axe(tab, preload=False) == []


def test_the_keyboard_reaches_the_content(tab, site):
    tab.goto((site / "metrics" / "iou.html").as_uri())
    tab.keyboard.press("Tab")
    focused = tab.evaluate("[document.activeElement.className, document.activeElement.getAttribute('href')]")
    assert "md-skip" in focused[0]
    tab.keyboard.press("Enter")
    assert tab.evaluate("location.hash") == focused[1]
    assert tab.evaluate("document.querySelector(location.hash) !== null")


def test_nothing_moves_for_readers_who_prefer_less_motion(tab, site):
    tab.emulate_media(reduced_motion="reduce")
    tab.goto((site / "index.html").as_uri())
    moving = """[...document.querySelectorAll('*')].filter((one) => {
        const style = getComputedStyle(one);
        return [style.transitionDuration, style.animationDuration].some((all) =>
            all.split(', ').some((text) => parseFloat(text) > 0.01));
    }).map((one) => one.className)"""
    assert tab.evaluate(moving) == []


def test_the_first_view_of_a_page_is_small(chromium, site):
    """Of all pages at once: each waits until nothing was loaded for half a second."""
    tabs, requests = {name: chromium.new_page(viewport={"width": 1440, "height": 1000}) for name in SHOWN}, []
    for name, tab in tabs.items():
        tab.on("request", lambda request, name=name: requests.append((name, request.url)))
        tab.goto((site / f"{name}.html").as_uri(), wait_until="commit")
    for name, tab in tabs.items():
        tab.wait_for_load_state("networkidle")
        loaded = {unquote(urlsplit(url).path) for of, url in requests if of == name and url.startswith("file:")}
        sizes = {path: Path(path).stat().st_size for path in loaded if Path(path).exists()}
        assert len(sizes) > 3, name
        assert sum(sizes.values()) < FIRST_VIEW, (name, sorted(sizes.items(), key=lambda item: -item[1])[:5])
        tab.close()


def test_narrow_screens_scroll_in_one_direction(tab, site):
    size = tab.viewport_size
    tab.set_viewport_size({"width": 390, "height": 844})
    for name in SHOWN:
        tab.goto((site / f"{name}.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
    tab.set_viewport_size(size)
