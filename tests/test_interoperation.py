"""The recipes of docs/interoperation.md give the numbers of the other library; test_docs_site.py runs the page."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import xaibench as xb

PAGE = Path(__file__).parent.parent / "docs" / "interoperation.md"


def code(heading):
    """The Python blocks below a heading; of the page's own, those before the first section."""
    sections = re.split(r"^##? ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    (section,) = (text for text in sections if text.startswith(heading))
    return "\n".join(re.findall(r"^```python.*?\n(.*?)^```", section, flags=re.M | re.S))


@pytest.fixture(scope="module")
def shared():
    names = {}
    exec(compile(code("Use with"), PAGE.name, "exec"), names)
    return names


@pytest.fixture
def recipe(shared):
    """Run what stands below a heading, where the package is installed and can be loaded; the names it leaves."""

    def run(heading, package):
        try:
            importlib.import_module(package)
        except Exception as error:  # a release that does not go with the others here may fail in any way
            pytest.skip(f"{package} cannot be imported: {error}")
        names = dict(shared)
        exec(compile(code(heading), PAGE.name, "exec"), names)
        return names

    return run


def test_a_quantus_metric_on_our_loader(recipe):
    names = recipe("Quantus", "quantus")
    images, masks, targets = names["data"].test[:]
    maps = xb.explain("integrated_gradients", names["model"], images, targets, dtype=torch.float32)
    assert len(names["scores"]["rank"]) == len(masks) == 100
    # Where theirs are defined; ours are nan for a map that is zero.
    ours = {
        "rank": xb.topk_precision(maps, masks, reduction="none"),
        "mass": xb.mass_accuracy(maps, masks, reduction="none"),
    }
    for name, expected in ours.items():
        defined = ~expected.isnan()
        assert defined.sum() > 90
        theirs = torch.tensor(np.array(names["scores"][name], dtype=np.float64))
        torch.testing.assert_close(theirs[defined], expected[defined].double(), rtol=1e-4, atol=1e-4)
    assert len(names["sensitivity"]) == 5
    assert np.isfinite(names["sensitivity"]).all()


def test_a_grad_cam_object_as_explainer(recipe):
    names = recipe("pytorch-grad-cam", "pytorch_grad_cam")
    model, images, masks, targets = (names[name] for name in ("model", "images", "masks", "targets"))
    maps = names["maps"]
    assert maps.shape == masks.shape
    ours = xb.explain("gradcam", model, images, targets, layer="3", dtype=torch.float32)
    seen = ours.amax((1, 2)) > 0
    assert seen.sum() > 5
    low, high = ours.amin((1, 2), keepdim=True), ours.amax((1, 2), keepdim=True)
    torch.testing.assert_close(maps[seen], ((ours - low) / (high - low))[seen], rtol=0, atol=1e-3)
    assert all(parameter.requires_grad for parameter in model.parameters())
    table = xb.evaluate({"theirs": names["as_explainer"](names["cam"])}, names["data"], model, ["roc_auc"], samples=10)
    assert table.matrix("roc_auc")["theirs"].notna().any()


def test_our_sets_in_the_format_of_datasets(recipe):
    names = recipe("datasets", "datasets")
    images, masks, targets = names["data"].test[:4]
    for column, expected in (("image", images), ("mask", masks), ("target", targets)):
        assert torch.equal(names["batch"][column], expected)
    assert len(names["converted"]) == 100
