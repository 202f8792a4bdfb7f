import numpy as np
import pytest
import torch
from generators.painted import Painted
from torch import nn

import xaibench as xb
from xaibench.component.registry import UnknownNameError
from xaibench.data import Split
from xaibench.data.annotated import DiskSplit
from xaibench.evaluation.protocol import scaled
from xaibench.models import Wrapped

N, SIZE = 30, 12


@pytest.fixture(scope="module")
def split():
    """Bright squares on noise; the class is the half of the image that contains the square."""
    rng = np.random.default_rng(0)
    targets = np.arange(N) % 2
    masks = np.zeros((N, SIZE, SIZE), bool)
    for mask, target in zip(masks, targets, strict=True):
        top, left = rng.integers(0, SIZE - 4), rng.integers(0, 3) + target * 6
        mask[top : top + 4, left : left + 3] = True
    images = 0.3 * rng.random((N, 3, SIZE, SIZE)) + 0.7 * masks[:, None]
    return Split(torch.tensor(images, dtype=torch.float32), torch.tensor(masks), torch.tensor(targets))


class Halves(nn.Module):
    """Predicts the brighter half of the image."""

    def forward(self, x):
        half = x.shape[-1] // 2
        return 20 * torch.stack([x[..., :half].mean((1, 2, 3)), x[..., half:].mean((1, 2, 3))], 1)


def test_a_row_a_method_and_a_column_a_metric(split):
    result = xb.evaluate({"saliency": "saliency", "mine": lambda m, x, y: x.mean(1)}, split, Halves(), samples=8)
    assert result.methods == ["saliency", "mine", "uniform", "sobel", "laplace", "input", "center_prior"]
    assert list(result.metrics) == [
        *("iou", "topk_precision", "hit", "average_precision"),
        *("insertion", "deletion", "average_drop", "comprehensiveness", "sufficiency"),
    ]
    assert len(result.scores) == 7 * 9 * 8
    table = result.table()
    assert table.columns[0] == "iou ↑"
    assert "deletion ↓" in table.columns
    assert "[" in table.loc["mine", "iou ↑"]
    text = str(result)
    assert "8 samples, all classified correctly by the model; mean and 95 % interval (fewer than 20" in text
    assert "Controls: center_prior, input, laplace, sobel, uniform." in text


class Counting(Halves):
    """Counts the images that it was called with."""

    calls = 0

    def forward(self, x):
        self.calls += len(x)
        return super().forward(x)


def test_default_metrics_call_the_model_less_often_than_the_metrics_themselves(split):
    """All curves of 224 steps made the defaults take minutes; they are asked for by name."""
    chosen = {"controls": ["uniform"], "samples": 4, "scored": "all"}
    few, many = Counting(), Counting()
    default = xb.evaluate("saliency", split, few, **chosen)
    full = xb.evaluate("saliency", split, many, ["insertion", "deletion"], **chosen)
    # Two maps per image: two curves of 20 steps, and fewer than 20 further images.
    assert few.calls <= 4 * 2 * (2 * 21 + 20)
    assert many.calls > 4 * 2 * 2 * SIZE**2
    assert default.parameters == {"insertion": {"steps": 20}, "deletion": {"steps": 20}}
    assert "Parameters: insertion(steps=20), deletion(steps=20)." in str(default)
    assert full.parameters == {}
    assert "Parameters" not in str(full)
    stated = xb.evaluate("saliency", split, Halves(), {"deletion": {"steps": 20}}, **chosen)
    np.testing.assert_allclose(default.matrix("deletion"), stated.matrix("deletion"), atol=1e-6)


@pytest.mark.parametrize("metric", ["iou", "f1", "hit", "average_precision", "insertion", "sparseness"])
def test_scores_are_those_of_the_metric_itself(split, metric):
    model = Halves()
    maps = xb.explain("input_x_gradient", model, split.images, split.targets)
    how = {"controls": False, "batch_size": 7, "sign": "signed"}
    result = xb.evaluate("input_x_gradient", split, model, [metric], **how)
    function = getattr(xb, metric)
    if metric == "insertion":
        expected = function(model, split.images, maps, split.targets, reduction="none")
    elif metric == "sparseness":
        expected = function(maps, reduction="none")
    elif metric in ("iou", "f1"):
        expected = function(maps, split.masks, threshold="area", reduction="none")
    else:
        expected = function(maps, split.masks, reduction="none")
    np.testing.assert_allclose(result.matrix(metric)["input_x_gradient"], np.asarray(expected), rtol=1e-5)


def test_the_published_protocol_takes_the_functions_defaults(split):
    maps = np.random.default_rng(0).normal(size=(N, SIZE, SIZE))
    how = {"controls": False, "protocol": "published", "sign": "signed"}
    result = xb.evaluate(maps, split, metrics=["iou", "recall"], **how)
    for metric in ("iou", "recall"):
        expected = getattr(xb, metric)(maps, split.masks.numpy(), reduction="none")
        assert np.array_equal(result.matrix(metric)["maps"], expected, equal_nan=True)


def test_maps_are_compared_by_magnitude_unless_signed_is_asked_for(split):
    maps = np.random.default_rng(0).normal(size=(N, SIZE, SIZE))
    for sign, expected in (({}, np.abs(maps)), ({"sign": "signed"}, maps)):
        result = xb.evaluate(maps, split, metrics=["hit", "average_precision"], controls=False, **sign)
        for metric in ("hit", "average_precision"):
            scores = getattr(xb, metric)(expected, split.masks.numpy(), reduction="none")
            np.testing.assert_allclose(result.matrix(metric)["maps"], scores)


def test_a_threshold_that_is_stated_is_kept(split):
    maps = np.random.default_rng(0).random((N, SIZE, SIZE))
    result = xb.evaluate(maps, split, metrics={"iou": {"threshold": 0.9}}, controls=False)
    expected = xb.iou(maps, split.masks.numpy(), threshold=0.9, reduction="none")
    np.testing.assert_allclose(result.matrix("iou")["maps"], expected)
    result = xb.evaluate(maps, split, metrics={"iou": {"threshold": 0.9}}, controls=False, protocol="scaled")
    expected = xb.iou(scaled(maps), split.masks.numpy(), threshold=0.9, reduction="none")
    assert np.array_equal(result.matrix("iou")["maps"], expected)
    result = xb.evaluate(maps, split, metrics={"iou": {"threshold": "area"}}, controls=False, protocol="scaled")
    expected = xb.iou(maps, split.masks.numpy(), threshold="area", reduction="none")
    np.testing.assert_allclose(result.matrix("iou")["maps"], expected)


def test_a_list_of_names_and_captums_objects_are_methods(split):
    from captum.attr import Saliency

    model = nn.Sequential(nn.Flatten(), nn.Linear(split.images[0].numel(), 2)).double()
    how = {"metrics": ["f1"], "controls": False, "scored": "all"}
    names = xb.evaluate(["saliency", "input_x_gradient"], split, model, **how)
    theirs = xb.evaluate({"theirs": Saliency(model)}, split, model, **how)
    assert list(names.matrix("f1")) == ["saliency", "input_x_gradient"]
    maps = xb.explain(Saliency(model), model, split.images, split.targets)
    expected = xb.evaluate(maps, split, metrics=["f1"], controls=False)
    np.testing.assert_allclose(theirs.matrix("f1")["theirs"], expected.matrix("f1")["maps"], rtol=1e-5)


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_maps_computed_elsewhere(split, make):
    maps = make(split.masks.numpy().astype(np.float32))
    result = xb.evaluate({"right": maps}, split, controls=["uniform", "sobel"])
    summary = result.summary().set_index(["metric", "method"])
    assert (summary.loc[["iou", "topk_precision", "hit", "average_precision"]].xs("right", level=1)["mean"] == 1).all()
    assert summary.loc[("iou", "right"), "beats_controls"]
    assert summary.loc[("iou", "sobel"), "beats_controls"] is None


def test_batches_change_nothing(split):
    one, other = (
        xb.evaluate("rise", split, Halves(), ["iou", "deletion"], controls=["uniform"], batch_size=size, samples=9)
        for size in (2, 9)
    )
    for metric in ("iou", "deletion"):
        np.testing.assert_allclose(one.matrix(metric)["rise"], other.matrix(metric)["rise"], atol=1e-6)


def test_a_method_that_is_no_better_than_noise_is_marked(split):
    noise = np.random.default_rng(1).normal(size=(N, SIZE, SIZE))
    result = xb.evaluate({"noise": noise, "right": split.masks.float()}, split, metrics=["iou"], controls=["uniform"])
    table = result.table()["iou ↑"]
    assert table["noise"].endswith("†")
    assert not table["right"].endswith("†")
    assert not table["uniform"].endswith("†")


def test_undefined_scores_have_a_reason_and_are_counted(split):
    masks = split.masks.clone()
    masks[:5] = False
    holes = Split(split.images, masks, split.targets)
    result = xb.evaluate(split.masks.float(), holes, metrics=["average_precision"], controls=False)
    row = result.summary().iloc[0]
    assert (row["n"], row["n_valid"]) == (N, N - 5)
    assert result.scores["reason"].tolist() == ["mask is empty"] * 5 + [""] * (N - 5)


def test_samples_of_a_group_are_drawn_together():
    source = Painted([0, 1] * 20, groups=np.arange(40) // 10)
    disk = DiskSplit(source, np.arange(40), size=8)
    maps = np.repeat(np.random.default_rng(0).random((4, 8, 8)), 10, axis=0)
    grouped = xb.evaluate({"a": maps}, disk, metrics=["average_precision"], controls=False)
    assert grouped.groups.tolist() == (np.arange(40) // 10).tolist()
    alone = xb.evaluate({"a": maps}, Split(*disk[:]), metrics=["average_precision"], controls=False)
    width = [(row["high"] - row["low"]) for row in (grouped.summary().iloc[0], alone.summary().iloc[0])]
    assert width[0] > 2 * width[1]
    assert grouped.scores["sample"].tolist() == [str(i) for i in range(40)]


def test_pairs_are_compared_on_the_samples_that_both_have(split):
    right = split.masks.float()
    result = xb.evaluate({"right": right, "wrong": 1 - right}, split, metrics=["iou", "hit"], controls=False)
    (row,) = result.compare("iou").to_dict("records")
    assert (row["first"], row["second"], row["difference"], row["n_valid"]) == ("right", "wrong", 1.0, N)
    assert row["p_holm"] < 0.001
    ranks, distance, n = result.ranks("iou")
    assert ranks.to_dict() == {"right": 1.0, "wrong": 2.0}
    assert (n, round(distance, 2)) == (N, 0.36)
    with pytest.raises(KeyError, match="There are no scores of 'f1'; known: iou, hit"):
        result.matrix("f1")


def test_progress_is_told(split):
    seen = []
    xb.evaluate(
        split.masks.float(), split, metrics=["iou"], controls=False, batch_size=13, progress=lambda *a: seen.append(a)
    )
    assert seen == [(13, N), (26, N), (N, N)]


def test_the_model_comes_back_as_it_was(split):
    model = Halves().train()
    xb.evaluate("saliency", split, model, ["iou"], samples=2)
    assert model.training


def test_a_metric_of_the_explainer_is_scored(split):
    result = xb.evaluate("saliency", split, Halves(), ["sensitivity_max"], controls=False, samples=3)
    assert result.summary()["n_valid"].tolist() == [3]


def model(make):
    """A model whose outputs do not depend on the images."""
    return Wrapped(Halves(), lambda network, x: make(len(x)))


def one_for_all(maps, masks, *, reduction="mean"):
    return 0.5


MAPS = np.zeros((N, SIZE, SIZE))


@pytest.mark.parametrize(
    ("methods", "options", "error", "named"),
    [
        (MAPS[:3], {}, ValueError, "maps"),
        (MAPS[:, :5], {}, ValueError, "maps"),
        (MAPS + np.nan, {"metrics": ["iou"]}, ValueError, "maps"),
        ([[0.0]], {}, TypeError, "list"),
        ({}, {"controls": False}, ValueError, "methods"),
        ("saliency", {}, ValueError, "saliency"),
        ("salency", {"model": Halves()}, UnknownNameError, "saliency"),
        (MAPS, {"controls": ["saliency"]}, ValueError, "controls"),
        (MAPS, {"protocol": "own"}, ValueError, "protocol"),
        (MAPS, {"sign": "own"}, ValueError, "sign"),
        (MAPS, {"scored": "right"}, ValueError, "scored"),
        (MAPS, {"samples": 0}, ValueError, "samples"),
        (MAPS, {"batch_size": 0}, ValueError, "batch_size"),
        (MAPS, {"metrics": ["deletion"]}, ValueError, "deletion"),
        (MAPS, {"metrics": ["recal"]}, UnknownNameError, "recall"),
        (MAPS, {"metrics": []}, ValueError, "metrics"),
        (MAPS, {"metrics": [0.5]}, TypeError, "metric"),
        (MAPS, {"metrics": ["iou", "jaccard"]}, ValueError, "metrics"),
        (MAPS, {"metrics": {"iou": 0.5}}, TypeError, "metrics"),
        (MAPS, {"metrics": {"iou": {"treshold": 0.5}}}, TypeError, "threshold"),
        (MAPS, {"metrics": [one_for_all], "batch_size": N}, ValueError, "one_for_all"),
        (MAPS, {"metrics": ["sensitivity_max"], "model": Halves(), "controls": False}, ValueError, "sensitivity_max"),
        (MAPS, {"model": "resnet18"}, TypeError, "model"),
        (MAPS, {"model": nn.Linear}, TypeError, "model"),
        ("saliency", {"model": model(lambda n: torch.zeros(n))}, ValueError, "model"),
        ("saliency", {"model": model(lambda n: torch.full((n, 2), torch.nan))}, ValueError, "model"),
        ("saliency", {"model": model(lambda n: (torch.zeros(n, 2, 1),))}, ValueError, "model"),
        ("saliency", {"model": model(lambda n: torch.zeros(n, 2) @ torch.zeros(3))}, ValueError, "model"),
        ("input", {"dataset": torch.zeros(3, 1, 4, 4)}, TypeError, "dataset"),
        (
            "input",
            {"dataset": Split(torch.zeros(0, 1, 4, 4), torch.zeros(0, 4, 4).bool(), torch.zeros(0).long())},
            ValueError,
            "dataset",
        ),
        ("saliency", {"dataset": "xai-tris/lin-white-8x8", "model": nn.Linear(8, 3)}, ValueError, "model"),
    ],
)
def test_bad_input_is_refused(split, methods, options, error, named):
    with pytest.raises(error, match=rf"\b{named}\b"):
        xb.evaluate(methods, **{"dataset": split} | options)
