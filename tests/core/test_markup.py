"""Representations of results in a terminal and in a notebook. Evaluations: tests/evaluation."""

from pathlib import Path

import xaibench as xb
from xaibench.core.markup import html_table
from xaibench.models import Training
from xaibench.runner import Run


def test_a_table_holds_what_it_is_given_and_no_markup_of_it():
    shown = html_table([("<b>", 1)], head=("", "a&b"), title="<i>", notes=["1 < 2"])
    assert all(text in shown for text in ("&lt;b&gt;", "a&amp;b", "&lt;i&gt;", "1 &lt; 2"))
    assert not any(text in shown for text in ("<b><", "<i>", "a&b"))


def test_a_training_says_how_it_ended_and_not_every_loss():
    training = Training((0.7, 0.4, 0.3), (0.6, 0.35, 0.45), best_epoch=1, val_accuracy=0.9)
    assert repr(training) == (
        "Training(epochs 3, kept the epoch 1, training loss 0.4, validation loss 0.35, validation accuracy 0.900)"
    )
    assert "<th>validation accuracy</th><td>0.900</td>" in training._repr_html_()


def test_a_data_set_shows_its_splits_classes_and_source():
    shown = xb.load("xai-tris/lin-white-8x8", n_samples=100)._repr_html_()
    assert "<th>train</th><td>80</td>" in shown
    assert "<th>T</th><th>L</th>" in shown
    assert "images: [1, 8, 8]" in shown
    assert "n_samples=100" in shown


def test_a_run_shows_where_it_is_and_what_went_wrong():
    good = Run(Path("runs/mine"), {}, 12, 3.21)
    assert repr(good) == f"Run(folder {good.folder}, jobs 12, seconds 3.2, failed 0)"
    bad = Run(Path("runs/mine"), {"lime for cnn": "OSError: <gone>"}, 12, 3.21, inapplicable={"cam for mlp": "no map"})
    assert "failed 1, not applicable 1" in repr(bad)
    assert "Failed: lime for cnn: OSError: &lt;gone&gt;" in bad._repr_html_()
    assert "Not applicable: cam for mlp: no map" in bad._repr_html_()
