"""The page in a real browser."""

import re

import numpy as np
import pandas as pd
import pytest
from report.browser import HOSTILE, axe, state, visiting, write_hostile_run

from xaibench.runfolder.sample_file import read_samples
from xaibench.scores.leaderboards import leaderboard, place_text
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize

WIDTHS = (390, 1440, 1920)


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    return write_hostile_run(tmp_path_factory.mktemp("browser") / "run")


@pytest.fixture
def visit(tab, hostile_run):
    yield from visiting(tab, (hostile_run / "report.html").as_uri())


@pytest.fixture(scope="module")
def run_and_summary(hostile_run):
    run = read_run(hostile_run)
    return run, *infer(run, summarize(run))


def board(tab, key="place", metric=None):
    """The visible rows of the leaderboard from the top: explainer to what stands in a column."""
    of = "" if metric is None else f'[data-m="{metric}"]'
    return dict(
        tab.eval_on_selector_all(
            "#board tbody tr:not([hidden])",
            f"rows => rows.map(row => [row.dataset.e, row.querySelector('[data-k={key}]{of}').innerText])",
        )
    )


def said(tab, section="results"):
    return tab.inner_text(f'section[aria-labelledby="{section}"] output')


def expected(run_and_summary, **wanted):
    """The places on the leaderboard of some cells, computed from their rows alone."""
    run, summary, pairs = run_and_summary
    for key, name in wanted.items():
        summary = summary[summary[key] == name]
        pairs = pairs[pairs[key] == name]
    rows = leaderboard(run, summary, pairs=pairs)
    return {
        row["explainer"]: (place_text(row["place"], row["last_place"]) or "–") + "†" * (row["ahead"] == 0)
        for row in rows.to_dict("records")
    }


def assert_shows(tab, wanted):
    """The methods are in the order of ``wanted`` and have its places."""
    assert list(board(tab).items()) == list(wanted.items())


def test_filters_show_the_leaderboard_of_what_is_chosen(visit, run_and_summary):
    tab = visit()
    assert_shows(tab, expected(run_and_summary))
    assert said(tab) == "17 methods, 4 of 4 cells"
    form = 'section[aria-labelledby="results"] form'
    tab.select_option(f"{form} [name=subset]", "lin")
    assert_shows(tab, expected(run_and_summary, subset="lin"))
    assert said(tab) == "17 methods, 3 of 4 cells"
    tab.select_option(f"{form} [name=model]", "mlp")
    assert_shows(tab, expected(run_and_summary, subset="lin", model="mlp"))
    assert said(tab) == "16 methods, 1 of 4 cells"  # guided GradCAM is for convolutions
    assert state(tab) == ("#results", {"subset": "lin", "model": "mlp"})
    _, summary, _ = run_and_summary
    cell = summary[(summary["model"] == "mlp") & (summary["metric"] == "emd_perf")].set_index("explainer")
    for name, text in board(tab, "mean", 0).items():
        assert text.split() == [f"{cell.loc[name, column]:.3f}" for column in ("mean", "low")] + [
            "–",
            f"{cell.loc[name, 'high']:.3f}",
        ]
    tab.click(f"{form} [type=reset]")
    assert_shows(tab, expected(run_and_summary))
    assert state(tab) == ("#results", {})


def test_a_metric_is_ranked_by_itself_and_has_its_own_columns(visit, run_and_summary):
    tab = visit("#results?metric=topk_precision")
    assert_shows(tab, expected(run_and_summary, metric="topk_precision"))
    heads = tab.eval_on_selector_all("#board th.group", "heads => heads.map(head => head.checkVisibility())")
    assert heads == [False, True]


def test_columns_sort_both_ways_and_the_link_keeps_it(visit):
    tab = visit()
    head = tab.locator('#board th[data-key="mean:emd_perf"]')
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"  # higher is better, and so comes first
    means = [float(text.split()[0]) for text in board(tab, "mean", 0).values()]
    assert means == sorted(means, reverse=True)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text.split()[0]) for text in board(tab, "mean", 0).values()] == sorted(means)
    assert state(tab) == ("#results", {"sort": "mean:emd_perf"})
    assert tab.locator("#board [aria-sort]").count() == 1
    tab.locator('#board th[data-key="method"]').get_by_role("button").press("Enter")
    labels = tab.eval_on_selector_all("#board tbody tr:not([hidden]) th", "all => all.map(one => one.innerText)")
    assert labels[1:] == sorted(labels[1:], key=str.lower)
    tab.locator('table[data-file="accuracy"] th', has_text="Best").get_by_role("button").click()
    assert state(tab)[1]["sort.accuracy"] == "7"


def test_the_skip_link_goes_to_the_results_and_keeps_the_choice(visit):
    tab = visit("#results?subset=lin")
    tab.focus("a.skip")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    assert state(tab) == ("#results", {"subset": "lin"})
    assert axe(tab, runOnly=["skip-link"]) == []


def test_back_undoes_a_choice_and_forward_does_it_again(visit):
    tab = visit()
    select = 'section[aria-labelledby="results"] [name=model]'
    tab.select_option(select, "mlp")
    tab.select_option(select, "cnn")
    assert said(tab) == "17 methods, 2 of 4 cells"
    tab.go_back()
    assert (said(tab), tab.input_value(select)) == ("16 methods, 1 of 4 cells", "mlp")
    tab.go_back()
    assert (said(tab), tab.input_value(select)) == ("17 methods, 4 of 4 cells", "")
    tab.go_forward()
    assert said(tab) == "16 methods, 1 of 4 cells"
    tab.click("nav >> text=Data and training")
    assert state(tab) == ("#data", {"model": "mlp"})
    assert 0 <= tab.evaluate("document.getElementById('data').getBoundingClientRect().top") < 300


@pytest.mark.parametrize("link", ["subset=rigid&model=mlp", "subset=gone", "metric=%3Cscript%3E"])
def test_where_nothing_fits_the_page_says_so_and_offers_the_way_back(visit, link):
    tab = visit(f"#results?{link}")
    assert said(tab) == "No cell matches the filters"
    assert not tab.is_visible("#board")
    assert "No cell matches the filters." in tab.inner_text("#board-empty")
    tab.click("#board-empty button")
    assert tab.is_visible("#board")
    assert not tab.is_visible("#board-empty")
    assert said(tab) == "17 methods, 4 of 4 cells"


def thumbs(tab):
    """Sample and score of the list, from the left."""
    tab.wait_for_selector(".thumb")
    return tab.eval_on_selector_all(
        ".thumb", "all => all.map(one => [Number(one.dataset.sample), one.innerText.trim()])"
    )


def test_the_browser_of_samples_shows_the_failures_of_a_method_first(visit, hostile_run):
    tab = visit("#examples?cell=lin%2Fcorr%2Fcnn&of=lrp&by=emd_perf")
    scores = pd.read_parquet(hostile_run / "scores.parquet")
    cell = scores[(scores["subset"] == "lin") & (scores["model"] == "cnn") & scores["correct"]]
    mine = cell[(cell["explainer"] == "lrp") & (cell["metric"] == "emd_perf")].set_index("sample")["value"]
    here = sorted(mine.index)[:6]
    worst_first = mine[here].sort_values()
    assert thumbs(tab) == [[sample, f"{value:.3f}"] for sample, value in worst_first.items()]
    tiles = tab.eval_on_selector_all("#samples-tiles figure.tile", "all => all.map(one => one.innerText.split('\\n'))")
    assert [tile[0] for tile in tiles[:3]] == ["Image", "Ground truth", "PFI"]
    assert len(tiles) == 2 + 17
    chosen = tab.inner_text(".is-chosen").split("\n")
    place = (mine < worst_first.iloc[0]).sum() + 1
    assert chosen[:2] == ["LRP", f"{worst_first.iloc[0]:.3f}"]
    assert (
        chosen[2]
        == ("worst" if place == 1 else f"{place}{ {2: 'nd', 3: 'rd'}.get(place, 'th') } worst") + f" of {len(mine)}"
    )
    assert f"6 of {len(mine)} scored samples of LIN · CORR · CNN, sorted by" in tab.inner_text("#samples-note")
    tab.select_option("#samples-view [name=of]", "saliency")
    other = cell[(cell["explainer"] == "saliency") & (cell["metric"] == "emd_perf")].set_index("sample")["value"]
    assert [sample for sample, _ in thumbs(tab)] == other[here].sort_values().index.tolist()
    tab.select_option("#samples-view [name=cell]", "rigid/corr/cnn")
    assert state(tab) == ("#examples", {"cell": "rigid/corr/cnn", "of": "saliency", "by": "emd_perf"})


def test_arrow_keys_move_through_the_samples_and_focus_is_seen(visit):
    tab = visit("#examples?cell=lin%2Fwhite%2Fmlp&of=lrp")
    samples = [sample for sample, _ in thumbs(tab)]
    tab.focus('.thumb[aria-selected="true"]')
    for key, place in (
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("End", 5),
        ("ArrowRight", 5),
        ("ArrowLeft", 4),
        ("Home", 0),
    ):
        tab.keyboard.press(key)
        assert tab.evaluate("Number(document.activeElement.dataset.sample)") == samples[place], key
        assert tab.get_attribute(".thumb:focus", "aria-selected") == "true"
        assert tab.inner_text("#samples-title").endswith(f" {samples[place]}")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.click("#samples-next")
    assert tab.inner_text("#samples-place") == "2 of 6"
    assert state(tab)[1]["sample"] == str(samples[1])
    assert tab.locator(".thumb[tabindex='0']").count() == 1
    tab.go_back()  # small steps are no steps of the history
    assert tab.url == "about:blank"
    tab.requests.clear()


def test_maps_are_painted_in_their_colors_and_described(visit, hostile_run):
    tab = visit("#examples?cell=lin%2Fwhite%2Fllr&of=pfi&outline=no")
    tab.wait_for_function("document.querySelector('.is-chosen canvas').ariaLabel.includes('ground truth')")
    sample = thumbs(tab)[0][0]
    cell = read_samples(hostile_run)[0]
    shares = cell.maps[cell.samples.index(sample), cell.explainers.index("pfi")]
    levels = np.rint(255 * shares.astype(float)).astype(int)
    import matplotlib

    painted = tab.eval_on_selector(
        ".is-chosen canvas",
        "canvas => { const side = canvas.width, at = i => Math.floor((i + .5) * side / 8);"
        "const all = canvas.getContext('2d').getImageData(0, 0, side, side).data;"
        "return [...Array(64).keys()].map(i => 4 * (at(Math.floor(i / 8)) * side + at(i % 8)))"
        ".map(start => Array.from(all.slice(start, start + 3))) }",
    )
    assert painted == matplotlib.colormaps["inferno"](levels.ravel(), bytes=True)[:, :3].tolist()
    labels = tab.eval_on_selector_all("#samples-tiles canvas", "all => all.map(one => one.ariaLabel)")
    assert labels[2].startswith("Map of PFI, largest ")
    assert all(labels)
    tab.click("#samples-all summary")
    tab.wait_for_selector("#samples-all tbody tr")  # rows are made once the list is open
    assert tab.locator("#samples-all tbody tr").count() == 16


def test_axe_finds_nothing_in_light_and_dark(visit):
    tab = visit("#examples")
    thumbs(tab)
    tab.wait_for_function("document.querySelector('.is-chosen canvas').ariaLabel.includes('largest')")
    # Many equal rows: the first of each table stand for the others.
    tab.evaluate(
        "document.querySelectorAll('tbody tr:nth-child(n+5), .heat tr:nth-child(n+7)').forEach(row => row.remove())"
    )
    tab.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    assert axe(tab) == []
    tab.emulate_media(color_scheme="dark")
    tab.evaluate("document.querySelectorAll('.views input.mean').forEach(one => (one.checked = true))")
    assert axe(tab, runOnly=["color-contrast"]) == []
    tab.emulate_media(color_scheme="light")
    assert axe(tab, runOnly=["color-contrast"]) == []
    tab.set_viewport_size({"width": 390, "height": 800})
    assert axe(tab, runOnly=["target-size", "scrollable-region-focusable"]) == []
    tab.set_viewport_size({"width": 1440, "height": 1000})


def test_colors_follow_the_reader(visit):
    tab = visit()
    colors = []
    for _ in range(3):
        colors.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.click("#theme")
    assert colors == ["rgb(245, 246, 248)", "rgb(245, 246, 248)", "rgb(13, 17, 23)"]
    tab.click("#theme")
    tab.click("#theme")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == colors[2]
    tab.reload()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == colors[2]
    tab.evaluate("localStorage.clear()")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_as_wide_as_the_screen(visit, width):
    tab = visit("#examples")
    tab.set_viewport_size({"width": width, "height": 900})
    thumbs(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.set_viewport_size({"width": 1440, "height": 1000})


def test_names_of_users_are_text_and_nothing_of_them_runs(visit):
    tab = visit("#examples")
    thumbs(tab)
    shown = re.sub(r"\s+", " ", HOSTILE).strip()
    for where in ("h1", "#samples-title", ".failures .error"):
        assert shown in re.sub(r"\s+", " ", tab.inner_text(where)), where
    assert tab.title().startswith(HOSTILE.split("\u2028")[0])
    assert tab.locator("script").count() == 3 + 4 + 1
    assert tab.locator("img[src=x]").count() == 0
    # Even a script that got onto the page would not run: its policy knows the page's own alone.
    tab.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 2'}))"
    )
    assert tab.evaluate("window.ran") is None
    assert any("Content Security Policy" in text for text in tab.complaints)
    tab.complaints.clear()


def test_without_scripts_the_page_is_complete(chromium, hostile_run):
    tab = chromium.new_page(java_script_enabled=False)
    tab.goto((hostile_run / "report.html").as_uri())
    assert tab.locator("#board tbody tr:visible").count() == 17
    assert tab.locator("form:visible").count() == 0
    assert tab.locator(".forest svg:visible").count() == 1
    assert tab.locator(".strip-of-maps img:visible").count() == 2 + 5  # image, mask and maps
    assert tab.locator("noscript .notice:visible").count() == 2  # pairs and samples
    assert tab.locator(".files a[download='leaderboard.csv']").get_attribute("href")[:9] == "data:text"
    tab.close()


def test_two_methods_are_compared_in_every_cell(visit, hostile_run):
    tab = visit("#pairs?first=saliency&second=lrp&metric=emd_perf")
    pairs = pd.read_csv(hostile_run / "comparisons.csv").query("subset != 'all'")
    mine = pairs[(pairs["first"] == "saliency") & (pairs["second"] == "lrp") & (pairs["metric"] == "emd_perf")]
    shown = tab.eval_on_selector_all("#pairs-table tbody tr", "rows => rows.map(row => row.innerText.split('\\t'))")
    assert [row[0].split("\n")[0] for row in shown[:2]] == ["LIN · WHITE · LLR", "LIN · WHITE · MLP"]
    signs = [f"{value:+.3f}".replace("-", "\u2212") for value in mine["difference"]]
    assert [row[1].split("\n")[0] for row in shown] == signs
    better = ((mine["p_holm"] < 0.05) & (mine["difference"] > 0)).sum()
    assert [row[-1] for row in shown].count("better") == better
    worse = ((mine["p_holm"] < 0.05) & (mine["difference"] < 0)).sum()
    assert worse > better == 0
    words = tab.inner_text("#pairs-verdict")
    difference = f"by {-mine['difference'].mean():.3f} ["
    assert words.startswith("Saliency is worse than LRP " + difference)
    assert words.endswith(f"] in EMD_perf; significant in {worse} of 4 cells.")
    tab.select_option('section[aria-labelledby="pairs"] [name=subset]', "rigid")
    expected = f"In EMD_perf, Saliency is significantly better than LRP in 0 and worse in {(worse == 4) + 0} of 1 cell."
    assert tab.inner_text("#pairs-verdict") == expected
    tab.click('section[aria-labelledby="pairs"] [type=reset]')
    tab.select_option('section[aria-labelledby="pairs"] [name=metric]', "emd_perf")
    tab.click("#pairs-swap")
    turned = tab.eval_on_selector_all("#pairs-table tbody tr", "rows => rows.map(row => row.innerText.split('\\t'))")
    other = {"better": "worse", "worse": "better"}
    assert [row[-1] for row in turned] == [other.get(row[-1], row[-1]) for row in shown]
    assert state(tab)[1] == {"first": "lrp", "second": "saliency", "metric": "emd_perf"}
    tab.select_option("#pairs-form [name=second]", "uniform")
    assert tab.inner_text("#pairs-verdict").startswith("LRP is better than Uniform by 0.")
