"""Figures as files."""

import pandas as pd
import pytest

import xaibench as xb


@pytest.fixture
def figure():
    return xb.plots.forest(
        pd.DataFrame({"metric": ["iou"], "method": ["a"], "mean": [0.5], "low": [0.4], "high": [0.6]})
    )


def test_without_a_suffix_a_figure_is_written_as_svg_and_png(figure, tmp_path):
    files = xb.plots.save(figure, tmp_path / "scores")
    assert files == [tmp_path / "scores.svg", tmp_path / "scores.png"]
    assert (tmp_path / "scores.svg").read_text().startswith("<?xml")
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("kind", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("jpg", b"\xff\xd8"), ("png", b"\x89PNG")]
)
def test_the_same_figure_gives_the_same_bytes(figure, tmp_path, kind, start):
    written = [xb.plots.save(figure, tmp_path / f"{name}.{kind}")[0].read_bytes() for name in "ab"]
    assert written[0] == written[1]
    assert written[0].startswith(start)


def test_an_unknown_format_is_refused(figure, tmp_path):
    with pytest.raises(ValueError, match="not supported"):
        xb.plots.save(figure, tmp_path / "scores.xyz")
    assert list(tmp_path.iterdir()) == []
