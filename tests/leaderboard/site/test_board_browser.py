"""The site in a real browser, opened from the file system: what is loaded when, what it shows, and for whom."""

import pytest
from leaderboard.site.repositories import METHODS, OTHER, VERSION, write_repository
from report.browser import HOSTILE, axe, state, visiting
from report.conftest import FEW_CELLS

import xaibench as xb
from xaibench.leaderboard.site.results import build_leaderboards, by_suite, read_results
from xaibench.scores.leaderboards import overall_comparisons

#: Printable, as the words of a result must be.
WORDS = HOSTILE.removesuffix(" \u2028")
#: As long as the label of a method may be.
SHORT = "</script><img src=x onerror='window.ran=1'>\"'<!-- {{ 7*7 }} &amp;"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Two suites' worth of results; one method's words would run if they could."""
    folder = tmp_path_factory.mktemp("browser") / "results"
    hostile = {"label": SHORT, "summary": WORDS, "citation": WORDS, "authors": (WORDS,)}
    about = {"lime": hostile}
    write_repository(folder, about=about)
    return write_repository(folder, version=OTHER, methods=METHODS[:3], about=about, pictures=False)


@pytest.fixture(scope="module")
def site(repository, tmp_path_factory):
    out = tmp_path_factory.mktemp("browser") / "site"
    return xb.leaderboard.write_site(repository, out, title=HOSTILE).page.parent


@pytest.fixture
def visit(tab, site):
    yield from visiting(tab, f"{site.as_uri()}/", "index.html")


def newest(repository):
    """What the first page shows."""
    results, _ = read_results(repository)
    return build_leaderboards(by_suite(results)[f"tiny@{VERSION}"])[0]


def loaded(tab):
    """The files of numbers that were asked for."""
    return [url.rpartition("/")[2] for url in tab.requests if "/data/" in url and url.endswith(".js")]


def board(tab, key="place", truth="data"):
    """The visible rows of a leaderboard from the top: method to what stands in a column."""
    script = "(rows, key) => rows.map(row => [row.dataset.e, row.querySelector(`[data-k=${key}]`).innerText])"
    return dict(tab.eval_on_selector_all(f"#board-{truth} tbody tr:not([hidden])", script, key))


def said(tab, section="leaderboard"):
    return tab.inner_text(f'section[aria-labelledby="{section}"] output')


FORM = 'section[aria-labelledby="leaderboard"] form[data-filters]'


def test_a_choice_of_cells_loads_its_numbers_once_and_shows_them(visit, repository):
    tab = visit()
    assert (loaded(tab), said(tab)) == ([], "7 methods, 4 of 4 cells")
    tab.select_option(f"{FORM} [name=subset]", "lin")
    tab.wait_for_function("() => document.querySelector('output').textContent.includes('3 of 4')")
    run = newest(repository).run
    values = run.scores[run.scores["scored"] & (run.scores["metric"] == "emd_perf") & (run.scores["subset"] == "lin")]
    cells = values.groupby(["explainer", "variant", "model"], observed=True)["value"].mean()
    shown = board(tab, "mean")
    for name in METHODS:
        assert shown[name].split()[0] == f"{cells[name].mean():.3f}"
    assert not tab.is_visible("#board-data th.whole")  # what is known of all cells alone
    assert state(tab) == ("#leaderboard", {"subset": "lin"})
    tab.click(f"{FORM} [type=reset]")
    assert said(tab) == "7 methods, 4 of 4 cells"
    tab.select_option(f"{FORM} [name=subset]", "lin")
    assert loaded(tab) == ["cells-0...js"]


def test_another_suite_is_a_page_of_its_own(visit):
    tab = visit()
    tab.select_option("#suite-form select", label=f"Tiny suite · {OTHER[:8]}")
    tab.click("#suite-form button")
    tab.wait_for_url(f"**/suites/tiny.{OTHER}.html")
    assert set(board(tab)) == set(METHODS[:3])


def test_two_methods_are_put_beside_each_other_with_their_maps(visit, repository):
    tab = visit(f"pairs/tiny.{VERSION}.html#pairs?first=saliency&second=integrated_gradients&metric=emd_perf")
    tab.wait_for_selector("#pairs-table tbody tr")
    pairs = newest(repository).pairs
    both = pairs[(pairs["metric"] == "emd_perf") & pairs["first"].eq("integrated_gradients")]
    differences = -both[both["second"] == "saliency"]["difference"]  # turned: Saliency was asked for first
    texts = tab.eval_on_selector_all("#pairs-table tbody .n .strong", "all => all.map(one => one.innerText)")
    assert [float(text.replace("\u2212", "-")) for text in texts] == pytest.approx(differences.tolist(), abs=6e-4)
    assert len(loaded(tab)) == 1
    overall = overall_comparisons(newest(repository).boards)
    wanted = overall[overall["metric"].eq("emd_perf") & overall["first"].eq("integrated_gradients")]
    (difference,) = -wanted[wanted["second"] == "saliency"]["difference"]
    words = "better" if difference > 0 else "worse"
    sentence = tab.inner_text("#pairs-verdict")
    assert sentence.startswith(f"Saliency is {words} than Integrated Gradients by {abs(difference):.3f} [")
    assert "] in EMD_perf; significant in " in sentence
    tiles = tab.eval_on_selector_all(
        "#pairs-maps [data-of]", "all => all.map(one => [one.ariaLabel, one.style.backgroundImage])"
    )
    assert "Maps of Saliency" in tiles[0][0]
    assert "maps-saliency.webp" in tiles[0][1]
    rows = tab.locator("#pairs-maps tbody tr")
    assert rows.count() == len(FEW_CELLS)
    tab.select_option("form[data-filters] select[name=model]", FEW_CELLS[0][2])
    shown = rows.filter(visible=True)
    assert shown.count() == sum(model == FEW_CELLS[0][2] for _, _, model in FEW_CELLS) < rows.count()
    assert tab.evaluate("Array.from(document.images).every(one => one.complete)")
    with_maps = [url for url in tab.requests if url.endswith(".webp")]
    assert len(set(with_maps)) == 3  # the samples, and the two methods alone


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("page", ["index.html", "methods/lime.html", f"pairs/tiny.{VERSION}.html", "downloads.html"])
def test_pages_are_accessible_and_fit_in_both_colors(visit, tab, page, width):
    try:
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme="dark" if width == 390 else "light")
        visit(page)
        assert axe(tab, preload=False) == []
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        names = tab.eval_on_selector_all("table", "all => all.filter(one => !one.caption).length")
        assert names == 0
    finally:
        tab.set_viewport_size({"width": 1440, "height": 1000})
        tab.emulate_media(color_scheme="light")


def test_intervals_are_on_a_scale_that_is_written_above_them(visit):
    tab = visit()
    tab.wait_for_selector("#board-data .axis span")
    texts = tab.locator("#board-data th .axis >> nth=0").inner_text().split()
    low, high = (float(text.replace("\u2212", "-")) for text in texts)
    ends = "one => [one.getBoundingClientRect().left, one.getBoundingClientRect().right]"
    left, right = tab.eval_on_selector("#board-data th .axis", ends)
    mean = float(tab.inner_text('#board-data tr[data-e="lrp"] [data-k="mean"] .v'))
    place = "one => one.getBoundingClientRect().left + parseFloat(getComputedStyle(one, '::after').left)"
    drawn = tab.eval_on_selector('#board-data tr[data-e="lrp"] .whisker', place)
    assert drawn == pytest.approx(left + (mean - low) / (high - low) * (right - left), abs=4)


def test_words_of_a_result_are_words(visit):
    tab = visit("methods/lime.html")
    assert tab.inner_text("h1") == SHORT
    assert tab.eval_on_selector_all("a", "all => all.filter(one => one.protocol === 'javascript:').length") == 0
