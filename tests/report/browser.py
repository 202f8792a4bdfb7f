"""Helpers of the browser tests: a run with hostile names, visits of its page, and checks for errors and requests."""

import json
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs

import pandas as pd
import pytest
from report.conftest import FEW_CELLS, draw_svg_only, write_run
from report.pictures import change_samples

from xaibench.report import write_report

#: Everything that ends an attribute, an element, a script, a comment or a template, and would tell that it ran.
HOSTILE = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>\"'<!-- {{ 7*7 }} &amp; \u2028"


def write_hostile_run(folder: Path) -> Path:
    """A run of few cells whose title, one method, one metric and samples have names that would run if they could."""
    folder = write_run(folder, samples=16, cells=FEW_CELLS)
    parts = json.loads((folder / "descriptions.json").read_text())
    parts["title"] = parts["explainers"]["lime"]["label"] = parts["metrics"]["topk_precision"]["label"] = HOSTILE
    (folder / "descriptions.json").write_text(json.dumps(parts))
    change_samples(folder, lambda cell: {"labels": tuple(f"{HOSTILE} {i}" for i in cell.samples)})
    rows = [{"job": HOSTILE, "stage": "train", "error": HOSTILE}]
    pd.DataFrame(rows).to_csv(folder / "failures.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        draw_svg_only(patch)
        write_report(folder)
    return folder


def visiting(tab, home, first=""):
    """Opens pages below ``home`` anew; afterwards nothing may have been complained of, fetched elsewhere, or run."""

    def go(page=first):
        tab.goto("about:blank")
        tab.goto(home + page)
        return tab

    tab.requests.clear()
    tab.complaints.clear()
    yield go
    assert tab.complaints == [], tab.complaints
    elsewhere = [url for url in tab.requests if not url.startswith((home, "data:", "about:blank"))]
    assert elsewhere == [], elsewhere
    assert tab.evaluate("window.ran") is None


def state(tab):
    """Section and choices, as the address has them."""
    section, _, query = tab.evaluate("location.hash").partition("?")
    return section, {name: values[0] for name, values in parse_qs(query).items()}


def axe(tab, **options):
    """Rule and first element of each violation."""
    if not tab.evaluate("Boolean(window.axe)"):
        tab.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = tab.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **options})
    return [(one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"]) for one in found["violations"]]
