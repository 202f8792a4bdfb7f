"""Shared by all tests: the oracles are importable, torch uses one thread (sizes are small), and there is a browser.

Tests that use the browser carry the marker ``system``, like all that need programs which README's commands do not
install; a test whose program is missing is skipped.
"""

import functools
import gc
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
import typer.testing
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
# What is imported and the 14,000 collected tests stay: visiting these objects often takes a tenth of the time.
gc.set_threshold(100_000, 50, 100)
# Property tests that state no number of examples: few and always the same ones, or those of tests/fuzz.py. There is no
# deadline, since a busy machine is no failure.
settings.register_profile("suite", max_examples=20, deadline=None, derandomize=True)
settings.register_profile(
    "fuzz", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("suite")

# Typer builds all commands again each time that a test calls one, which takes as long as many a command.
typer.testing._get_command = functools.cache(typer.testing._get_command)

#: The doctest collector would import this file a second time, and torch takes the device that it registers only once.
collect_ignore = ["pretend_device.py"]


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_flushing():
    """Files of tests need not survive a power cut, and waiting for the disk takes 5 ms for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


#: The names of one browser, in the order in which they are tried.
CHROMIUM = "chromium|chromium-browser|google-chrome|google-chrome-stable"


def program(names: str) -> str | None:
    """Return the path of the first program of ``names``, which are separated by ``|``, that is installed."""
    return next(filter(None, map(shutil.which, names.split("|"))), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.system(CHROMIUM))


def pytest_runtest_setup(item):
    missing = [names for mark in item.iter_markers("system") for names in mark.args if not program(names)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def chromium():
    """Headless Chromium, driven by playwright-core's Python client, which downloads nothing.

    One for each module: what drives it runs an event loop in this thread, which no test outside may find there.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(chromium):
    """One tab for all tests of a module; what it asks for and complains about is written down."""
    tab = chromium.new_page(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    tab.set_default_timeout(15_000)
    tab.requests, tab.complaints = [], []
    tab.on("request", lambda request: tab.requests.append(request.url))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (tab.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    tab.on("console", lambda said: said.type in ("error", "warning") and tab.complaints.append(said.text))
    return tab
