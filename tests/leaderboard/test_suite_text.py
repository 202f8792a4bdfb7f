"""The version of a suite covers all of it except its explainers."""

import pytest

from xaibench.benchmarks.checksums import published_checksums
from xaibench.leaderboard import suite_text
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.suite_text import official_suite, suite_version


@pytest.fixture
def version(ships, tiny):
    """The version of the tiny suite with a change."""

    def find(old="", new=""):
        text = tiny.read_text()
        assert old in text
        ships(text.replace(old, new))
        return suite_version("tiny")

    return find


def test_it_has_128_bits_and_ignores_explainers(version):
    before = version()
    assert len(before) == 32
    assert int(before, 16) >= 0
    assert version("saliency = {}", "lime = {}\nsobel = {}") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("samples = 6", "samples = 5"),
        ("samples = 6", "samples = 6\nseed = 7"),
        ("samples = 6", 'samples = 6\nscored = "all"'),
        ("samples = 6", "samples = 6\nsamples_per_job = 3"),
        ("alpha = 0.9", "alpha = 0.8"),
        ("epochs = 20", "epochs = 21"),
        ('models = ["llr", "mlp"]', 'models = ["llr", "mlp"]\nmetrics = ["topk_precision"]'),
        ('models = ["llr", "mlp"]', 'models = ["llr"]'),
        ('title = "Tiny"', 'title = "Other"'),
    ],
)
def test_every_entry_changes_it(old, new, version):
    assert version(old, new) != version()


def test_the_checksums_of_networks_and_data_change_it(version, monkeypatch):
    before = version()
    monkeypatch.setattr(suite_text, "network_file_checksums", lambda keys: {"0" * 64})
    of_networks = version()
    monkeypatch.undo()
    (one, *_) = (key for key in published_checksums() if key[0] == "xai-tris/lin-white-8x8")
    monkeypatch.setattr(suite_text, "published_checksums", lambda: {**published_checksums(), one: "0" * 64})
    of_data = version()
    monkeypatch.undo()
    assert len({before, of_networks, of_data}) == 3


def test_suites_of_the_library_have_no_photographs():
    text = official_suite("xai-tris-64x64")
    assert "imagenet" not in text
    assert "xai-tris/rigid-corr-64x64" in text
    with pytest.raises(ResultError, match="uses images of a local folder"):
        official_suite("photographs")
