"""What a reader sees before scrolling, on a desktop and on a phone."""

import re

import pytest
from report.browser import visiting

SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(params=SCREENS)
def screen(request, tab):
    width, height = SCREENS[request.param]
    tab.set_viewport_size({"width": width, "height": height})
    yield request.param, height
    tab.set_viewport_size({"width": 1440, "height": 1000})


@pytest.fixture
def visit(tab, shared_run, shared_page):
    assert shared_page
    yield from visiting(tab, (shared_run / "report.html").as_uri())


def top(tab, selector):
    return tab.eval_on_selector(selector, "one => one.getBoundingClientRect().top")


def test_verdicts_forest_plot_and_maps_are_on_the_first_screen(visit, screen):
    tab = visit()
    _, height = screen
    assert 0 < top(tab, ".verdict") < height
    assert 0 < top(tab, ".forest svg") < height
    assert 0 < top(tab, ".strip-of-maps img") < height
    assert top(tab, "#board tbody tr") < height + 300  # right below
    assert tab.eval_on_selector(".forest svg", "one => one.getBoundingClientRect().right <= innerWidth")


def test_filters_are_one_line_or_a_drawer(visit, screen):
    tab = visit()
    name, _ = screen
    form, button = 'section[aria-labelledby="results"] form', 'section[aria-labelledby="results"] button.drawer'
    if name == "phone":
        assert not tab.is_visible(form)
        tab.focus(button)
        tab.keyboard.press("Enter")
        assert tab.get_attribute(button, "aria-expanded") == "true"
        assert tab.is_visible(form)
        tab.select_option(f"{form} [name=subset]", "lin")
    else:
        assert not tab.is_visible(button)
        tops = tab.eval_on_selector_all(f"{form} select", "all => all.map(one => one.getBoundingClientRect().top)")
        assert len(set(tops)) == 1


def test_nothing_moves_by_itself(shared_page):
    styles = "".join(re.findall(r"<style>(.*?)</style>", shared_page, re.S))
    assert not re.search(r"\b(animation|transition|scroll-behavior)\b", styles)
