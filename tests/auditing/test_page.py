"""The evidence sheet: names are whole, and what is found is stated with its numbers."""

import dataclasses
import html
import re

import numpy as np
import pytest

from xaibench.auditing.findings import Finding
from xaibench.auditing.page import render


def text_of(page):
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.replace("<wbr>", ""))))


HINT = Finding("labels", "With the classes exchanged, 24 of 24 answers would be right.", [])
RANGE = Finding("normalization", "The network may expect other pixels: ImageNet's normalization.", [])


@pytest.fixture(scope="module")
def changed(tag_audit):
    """The audit with long names, patients with several images, an explainer that is not stable, and a poor network."""
    ids = [f"hospital-{index}/series_of_a_patient_with_a_long_name/slice.{index:04d}.dcm" for index in range(24)]
    first, *others = tag_audit.verdicts
    check, *checks = tag_audit.checks
    return dataclasses.replace(
        tag_audit,
        subject=dataclasses.replace(tag_audit.subject, ids=ids, classes=["carcinoma <in situ>", "no finding"]),
        verdicts=[dataclasses.replace(first, outcome="not stable", passes=50), *others],
        checks=[dataclasses.replace(check, values={**check.values, first.explainer: np.full(6, np.nan)}), *checks],
        network=dataclasses.replace(tag_audit.network, value=11 / 14, images=14, p=0.027, needed=23),
        findings=[HINT, RANGE, *tag_audit.findings],
    )


@pytest.fixture(scope="module")
def page(changed):
    return render(changed)


def test_names_are_whole(changed, page):
    text = text_of(page)
    drawn = {changed.subject.ids[index] for finding in changed.findings for index in finding.images[:4]}
    assert drawn
    for name in changed.subject.ids:  # in the table of all images, and next to its maps
        assert text.count(name) >= 1 + (name in drawn)
    assert re.search(r"answer: carcinoma <in situ> \(\d\.\d\d\), label: carcinoma <in situ>", text)
    assert "the region at the top left brings about carcinoma <in situ>" in text


def test_each_difference_names_its_control(changed, page):
    bars = re.findall(r'<td class="axis">(.*?)</td>', page)
    assert len(bars) == 2 * len(changed.verdicts)
    for bar in bars:
        assert re.fullmatch(r"[+−]\d\.\d\d against (uniform|sobel|laplace|input|center_prior)", text_of(bar))
    places = [float(place) for place in re.findall(r"left: ([-\d.]+)%", page)]
    assert 0 <= min(places) <= max(places) <= 100


def test_the_budget_stands_next_to_the_verdict(page):
    assert re.search(r"input_x_gradient not stable at this budget .*? 50 – ", text_of(page))


def test_a_value_that_is_missing_has_a_reason(page):
    assert re.search(r'–<sup><a href="#reason-1">1</a></sup>', page)
    assert '<li id="reason-1">The maps are constant' in page


def test_the_network_is_described_with_count_p_value_and_level(changed, page):
    for text in (text_of(page), changed.headline, str(changed)):
        assert "11 of 14 answers agree with the labels" in text
        assert "p 0.027, level 0.02; at this accuracy, about 23 images would be enough" in text


def test_the_promise_is_about_a_random_sample(page):
    assert "If the images are a random sample of those you care about" in text_of(page)


def test_findings_about_the_network_stand_next_to_its_accuracy(changed, page):
    section = page[page.index('id="network"') : page.index('id="kind-intervention"')]
    assert page.count(HINT.text) == section.count(HINT.text) == 1
    assert all(finding.text in text for finding in (HINT, RANGE) for text in (text_of(section), str(changed)))
    assert [finding["key"] for finding in changed.to_dict()["findings"]][:2] == ["labels", "normalization"]
