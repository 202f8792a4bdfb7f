"""``evaluate(output=...)``: methods explain it, metrics score it."""

import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.data import Split
from xaibench.explainers import label_pairs
from xaibench.models import Wrapped

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


def values(result):
    return torch.tensor(scores(result).to_numpy())


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
