import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from generators.painted import Painted
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.auditing.page import SCHEMA
from xaibench.data import Split
from xaibench.data.annotated import DiskSplit
from xaibench.evaluation.protocol import scaled
from xaibench.explainers import NetworkContractError, label_pairs
from xaibench.models import Wrapped
from xaibench.registry.table import UnknownNameError

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
    refused(KeyError, "There are no scores of 'f1'; known: iou, hit", result.matrix, "f1")


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
BAD = {"controls": ["saliency"], "protocol": "own", "sign": "own", "scored": "right", "samples": 0, "batch_size": 0}


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
        *((MAPS, {name: bad}, ValueError, name) for name, bad in BAD.items()),
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


SIGMOID = {"controls": False, "output": "sigmoid"}
METRICS = ["hit", "deletion", "average_drop", "random_logit"]


@pytest.fixture(scope="module")
def labeled():
    """A network with four labels, each of which is a pixel; images, masks and multi-hot targets."""
    rng = torch.Generator().manual_seed(0)
    images, targets = torch.randn(12, 1, 8, 8, generator=rng), torch.rand(12, 4, generator=rng) < 0.5
    masks = torch.zeros(4, 8, 8, dtype=torch.bool)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    network[1].weight.data.mul_(0.1)
    network[1].bias.data.zero_()
    for label, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        masks[label, row : row + 4, column : column + 4] = True
        network[1].weight.data[label].view(8, 8)[row, column] = 2.0
        images[:, 0, row, column] = torch.where(targets[:, label], 2.0, -2.0)
    return network, images, masks, targets


def pairs(labeled):
    network, images, masks, targets = labeled
    rows, labels = label_pairs(targets)
    return network, Split(images[rows], masks[labels], labels)


def scores(result):
    return result.scores.set_index(["method", "metric", "sample"])["value"]


def test_a_sigmoid_is_explained_and_scored(labeled):
    network, split = pairs(labeled)
    result = xb.evaluate(["saliency", "gradcam", "lrp_epsilon"], split, network, METRICS, **SIGMOID)
    assert result.accuracy == 1.0
    assert set(result.inapplicable) == {"gradcam"}
    found = scores(result)
    maps = xb.explain("lrp_epsilon", network, split.images, split.targets, output="sigmoid")
    expected = xb.deletion(network, split.images, maps, split.targets, output="sigmoid", reduction="none")
    torch.testing.assert_close(torch.tensor(found["lrp_epsilon", "deletion"].to_numpy()), expected, rtol=1e-6, atol=0)
    ended = xb.evaluate(
        ["saliency", "lrp_epsilon"],
        split,
        nn.Sequential(network, nn.Sigmoid()),
        METRICS,
        controls=False,
        output="sigmoid",
    )
    assert ended.accuracy == 1.0
    torch.testing.assert_close(
        torch.tensor(scores(ended).to_numpy()),
        torch.tensor(found[["saliency", "lrp_epsilon"]].to_numpy()),
        rtol=0,
        atol=1e-4,
    )


def test_a_sigmoid_is_not_scored_by_a_softmax(labeled):
    network, split = pairs(labeled)
    for methods, metrics in ((["saliency"], ["hit"]), ({"given": torch.rand(len(split), 8, 8)}, ["deletion"])):
        with pytest.raises(ValueError, match=r"ends in a sigmoid.*Pass output='sigmoid'"):
            xb.evaluate(methods, split, nn.Sequential(network, nn.Sigmoid()), metrics, scored="all")


def test_samples_without_their_label_are_wrong(labeled):
    network, images, masks, targets = labeled
    split = Split(images, masks[torch.zeros(12, dtype=torch.long)], torch.zeros(12, dtype=torch.long))
    result = xb.evaluate("saliency", split, network, ["hit"], **SIGMOID)
    assert result.accuracy == targets[:, 0].double().mean().item()


def test_one_output_has_two_classes(labeled):
    network, images, masks, targets = labeled
    split = Split(images, masks[torch.zeros(12, dtype=torch.long)], targets[:, 0].long())
    one = Wrapped(network, lambda network, x: network(x)[:, 0])
    two = Wrapped(network, lambda network, x: torch.stack([-network(x)[:, 0], network(x)[:, 0]], 1) / 2)
    found = xb.evaluate("saliency", split, one, METRICS, **SIGMOID)
    expected = xb.evaluate("saliency", split, two, METRICS, controls=False)
    assert found.accuracy == expected.accuracy == 1.0
    torch.testing.assert_close(
        *(torch.tensor(scores(one).to_numpy()) for one in (found, expected)), rtol=1e-5, atol=1e-7
    )


def test_a_function_of_any_output_is_explained_and_scored(labeled):
    network, images, masks, _ = labeled
    boxes = Wrapped(network, lambda network, x: [{"scores": row} for row in network(x)])
    split = Split(images, masks[torch.ones(12, dtype=torch.long)], torch.zeros(12, dtype=torch.long))

    def second(found):
        return torch.stack([one["scores"][1] for one in found])

    metrics = ["hit", "deletion", "average_drop"]
    found = xb.evaluate(["saliency", "lrp_epsilon"], split, boxes, metrics, controls=False, output=second)
    assert found.accuracy is None
    assert len(scores(found)) == 2 * 3 * 12
    split = Split(images, split.masks, torch.ones(12, dtype=torch.long))
    expected = xb.evaluate(
        ["saliency", "lrp_epsilon"], split, network, metrics, controls=False, output="logit", scored="all"
    )
    torch.testing.assert_close(
        *(torch.tensor(scores(one).to_numpy()) for one in (found, expected)), rtol=0, atol=1e-5, equal_nan=True
    )


def test_a_metric_with_its_own_output_keeps_it(labeled):
    network, split = pairs(labeled)
    result = xb.evaluate("saliency", split, network, {"deletion": {"output": "logit"}}, **SIGMOID)
    maps = xb.explain("saliency", network, split.images, split.targets, output="sigmoid")
    expected = xb.deletion(network, split.images, maps, split.targets, output="logit", reduction="none")
    torch.testing.assert_close(torch.tensor(scores(result).to_numpy()), expected, rtol=1e-6, atol=0)


def test_multi_hot_samples_are_refused_with_the_remedy(labeled):
    _, images, masks, targets = labeled
    for rows in (targets, targets.long()):
        with pytest.raises((TypeError, ValueError), match=r"one sample per image and set label.*label_pairs"):
            Split(images, masks[torch.zeros(12, dtype=torch.long)], rows)


IMAGES = (
    torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    * torch.linspace(0.3, 1, 12)[:, None, None, None]
)
MASKS = torch.zeros(12, 8, 8, dtype=torch.bool)
MASKS[:, 2:5, 2:5] = True
SPLIT = Split(IMAGES, MASKS, torch.zeros(12, dtype=torch.long))


class Net(nn.Module):
    def __init__(self, change):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.head, self.change = nn.Conv2d(1, 4, 3), nn.Linear(4, 2), change

    def forward(self, x):
        return self.head(self.change(F.relu(self.conv(x)).mean((2, 3))))


BROKEN = {
    "random": (lambda x: F.dropout(x, 0.1), "draws random numbers"),
    "batch": (lambda x: x / x.abs().max(), "other images of its batch"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_evaluation_raises_or_says_what_is_wrong(kind):
    change, message = BROKEN[kind]
    methods, metrics = {"occlusion": xb.explainers.Occlusion(window=4, stride=4)}, {"iou": {}, "deletion": {"steps": 2}}
    with pytest.raises(NetworkContractError, match=message):
        xb.evaluate(methods, SPLIT, Net(change), metrics, scored="all", batch_size=4, progress=False)
    with pytest.warns(UserWarning, match=message):
        result = xb.evaluate(
            methods, SPLIT, Net(change), metrics, scored="all", batch_size=4, progress=False, check_network=False
        )
    assert len(result.broken_assumptions) == 1
    assert message in result.broken_assumptions[0]
    assert message in str(result)


def test_of_a_lost_gradient_only_methods_with_gradients_are_left_out():
    model, methods = Net(lambda x: x.detach() + 0.01 * x), ["saliency", "occlusion"]
    arguments = (methods, SPLIT, model, {"iou": {}, "deletion": {"steps": 2}})
    result = xb.evaluate(*arguments, controls=False, scored="all", progress=False)
    assert "detach" in result.inapplicable["saliency"]
    assert result.methods == ["occlusion"]
    assert result.broken_assumptions == ()
    with pytest.warns(UserWarning, match="detach"):
        result = xb.evaluate(*arguments, controls=False, scored="all", progress=False, check_network=False)
    assert result.methods == methods
    assert len(result.broken_assumptions) == 1


def test_right_networks_have_nothing_to_say():
    result = xb.evaluate(
        "saliency", SPLIT, Net(nn.Identity()), {"deletion": {"steps": 2}}, scored="all", progress=False
    )
    assert result.broken_assumptions == ()
    assert "relied on" not in str(result)


def test_an_audit_raises_or_says_what_is_wrong(tmp_path):
    model, settings = Net(BROKEN["batch"][0]), {"explainers": ["saliency"], "budget": 4, "progress": False}
    refused(NetworkContractError, "other images of its batch", lambda: xb.audit(model, IMAGES, **settings))
    with pytest.warns(UserWarning, match="other images of its batch"):
        found = xb.audit(model, IMAGES, check_network=False, **settings)
    why = found.record["broken_assumptions"][0]
    assert "other images of its batch" in why
    assert why in str(found)
    assert "Not to be relied on" in found.write(tmp_path).read_text()
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads((tmp_path / "audit.json").read_text()), json.loads(SCHEMA.read_text()))
