"""The version of a suite covers all of it except its explainers."""

import pytest
from refusals import refused

from xaibench.benchmarks.checksums import published_checksums
from xaibench.leaderboard import suites
from xaibench.leaderboard.repository import ResultError
from xaibench.leaderboard.suites import official_suite


@pytest.fixture
def version(ships, tiny):
    """The version of the tiny suite with a change."""

    def compute(old="", new=""):
        text = tiny.read_text()
        assert old in text
        ships(text.replace(old, new))
        return official_suite("tiny").version

    return compute


def test_it_has_128_bits_and_ignores_explainers(version):
    before = version()
    assert len(before) == 32
    assert int(before, 16) >= 0
    assert version("saliency = {}", "lime = {}\nsobel = {}") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("samples = 6", "samples = 5"),
        ("samples = 6", 'samples = 6\nscored = "all"'),
        ("alpha = 0.9", "alpha = 0.8"),
        ("epochs = 20", "epochs = 21"),
        ('models = ["llr", "mlp"]', 'models = ["llr", "mlp"]\nmetrics = ["topk_precision"]'),
        ('models = ["llr", "mlp"]', 'models = ["llr"]'),
    ],
)
def test_every_entry_changes_it(old, new, version):
    assert version(old, new) != version()


def test_the_checksums_of_networks_and_data_change_it(version, monkeypatch):
    before = version()
    monkeypatch.setattr(suites, "network_file_checksums", lambda keys: {"0" * 64})
    of_networks = version()
    monkeypatch.undo()
    (one, *_) = (key for key in published_checksums() if key[0] == "xai-tris/lin-white-8x8")
    monkeypatch.setattr(suites, "published_checksums", lambda: {**published_checksums(), one: "0" * 64})
    of_data = version()
    monkeypatch.undo()
    assert len({before, of_networks, of_data}) == 3


def test_whitened_sets_can_be_made_by_everybody():
    assert official_suite("whitening").suite.cells


def test_suites_of_the_library_have_no_photographs():
    tables = str(official_suite("xai-tris-64x64").tables)
    assert "imagenet" not in tables
    assert "xai-tris/rigid-corr-64x64" in tables


@pytest.mark.parametrize("name", ["photographs", "mine", "subprocess", "saliency-bench-quick-quick", "mosaic"])
def test_only_suites_of_the_library_that_everybody_can_run_have_results(name):
    refused(ResultError, "", official_suite, name)
