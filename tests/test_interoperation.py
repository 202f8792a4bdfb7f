"""The recipes of docs/interoperation.md do what the page says, each where the other library is installed."""

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


def test_every_recipe_is_tested():
    titles = re.findall(r"^## (.*?):", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert titles == ["Captum", "Quantus", "pytorch-grad-cam", "torchmetrics", "datasets"]


def test_a_captum_attribution_as_explainer(recipe):
    names = recipe("Captum", "captum")
    matrix = names["result"].matrix("topk_precision")
    assert set(matrix.columns) > {"shapley", "saliency", "noise tunnel", "laplace"}
    images, masks, targets = names["data"].test[[int(name) for name in matrix.index]]  # those classified correctly
    assert 0 < len(images) < 20
    ours = xb.explain("saliency", names["model"], images, targets)
    np.testing.assert_allclose(matrix["saliency"], xb.topk_precision(ours, masks, reduction="none"))
    assert names["maps"].shape == (25, 8, 8)
    assert names["maps"].std() > 0


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


def test_our_metrics_in_a_collection(recipe):
    names = recipe("torchmetrics", "torchmetrics")
    model, (images, masks, targets) = names["model"], names["data"].test[:]
    maps = xb.explain("integrated_gradients", model, images, targets)
    expected = {
        "EMDPerformance": xb.emd_perf(maps, masks),
        "IoU": xb.iou(maps, masks, threshold=0.1),
        "Sparseness": xb.sparseness(maps),
        "Deletion": xb.deletion(model, images, maps, targets, steps=8),
    }
    assert names["means"] == pytest.approx(expected, rel=1e-4)


def test_our_sets_in_the_format_of_datasets(recipe):
    names = recipe("datasets", "datasets")
    images, masks, targets = names["data"].test[:4]
    for column, expected in (("image", images), ("mask", masks), ("target", targets)):
        assert torch.equal(names["batch"][column], expected)
    assert len(names["converted"]) == 100
