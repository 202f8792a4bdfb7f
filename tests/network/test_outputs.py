from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from xaibench.network.answers import ends_in_sigmoid
from xaibench.network.explained_output import ExplainedOutput
from xaibench.network.outputs import (
    check_logits,
    check_plain_logits,
    check_scalars,
    find_logits,
    map_tensors,
)

Z, OTHER = torch.tensor([[2.0, 0.0, -1.0], [0.0, 3.0, 1.0]]), torch.ones(2, 4)
Inception = namedtuple("Inception", ["logits", "aux_logits"])


@pytest.mark.parametrize(
    "found",
    [
        Z,
        SimpleNamespace(logits=Z, hidden=OTHER),
        OrderedDict(hidden=OTHER, logits=Z),
        {"features": torch.zeros(2, 3, 4, 4), "ids": torch.zeros(2, 3, dtype=torch.long), "scores": Z},
        (torch.zeros(2, 3, 4, 4), Z),
        [torch.zeros(2, 3, 1), Z],
        Inception(Z, OTHER),
        (Z, Z.softmax(1)),
        (Z.softmax(1), Z),
        {"out": Z.softmax(1), "raw": Z},
        OrderedDict(logits=Z.softmax(1), raw=Z, features=OTHER),
        SimpleNamespace(logits=Z.softmax(1), raw=Z),
        Inception(Z.softmax(1), Z),
    ],
)
def test_logits_are_found(found):
    assert find_logits(found) is Z
    assert check_logits(found, 2) is Z


@pytest.mark.parametrize(
    "found",
    [
        {"a": Z, "b": OTHER},
        (OTHER, Z),
        (Z, Z + 1),
        [Z, 2 * Z.softmax(1)],
        (Z, Z.softmax(1), OTHER),
        {"logits": None},
        (),
        "text",
        None,
        [{"boxes": Z}],
    ],
)
def test_what_is_ambiguous_stays(found):
    assert find_logits(found) is found
    with pytest.raises(ValueError, match=r"expected logits \[2, K\].*pass output="):
        check_logits(found, 2)


def test_one_output_per_image_is_a_column():
    assert check_logits(torch.zeros(2), 2).shape == (2, 1)
    with pytest.raises(ValueError, match=r"returns \[2\] for 3 images"):
        check_logits(torch.zeros(2), 3)


@pytest.mark.parametrize("change", [Z.long, Z.bool, Z.cfloat, Z.to_sparse, lambda: Z.to("meta")])
def test_logits_are_dense_numbers(change):
    with pytest.raises(ValueError, match=r"returns \[2, 3\] .* expected floating-point numbers in a dense tensor"):
        check_logits(change(), 2)
    with pytest.raises(ValueError, match="expected"):
        check_scalars(change()[:, 0], 2)


def test_a_network_without_classes_is_refused():
    with pytest.raises(ValueError, match=r"returns \[2, 0\] for 2 images"):
        check_logits(Z[:, :0], 2)


def test_training_needs_a_tensor():
    assert check_plain_logits(Z, 2) is Z
    with pytest.raises(ValueError, match=r"expected a tensor of logits \[2, K\] .*Wrap it: xaibench"):
        check_plain_logits({"logits": Z}, 2)


@pytest.mark.parametrize("found", [Z, torch.zeros(2, dtype=torch.long), torch.zeros(()), 3.0, None])
def test_a_function_returns_a_number_per_image(found):
    with pytest.raises(ValueError, match=r"expected one floating-point number per image, \[2\]"):
        check_scalars(found, 2)


def test_tensors_are_changed_in_every_structure():
    @dataclass(frozen=True)
    class Data:
        value: torch.Tensor
        name: str

    zeros = torch.zeros(2, 3)
    found = {
        "a": [zeros, (OTHER, 1)],
        "b": Inception(zeros, OTHER),
        "c": Data(zeros, "x"),
        "d": SimpleNamespace(logits=zeros),
    }
    changed = map_tensors(lambda x: x + 1, found)
    flat = [changed["a"][0], changed["a"][1][0] - 1, changed["b"].logits, changed["c"].value, changed["d"].logits]
    assert all((x == 1).all() for x in flat)
    assert (changed["a"][1][1], changed["c"].name) == (1, "x")
    assert found["c"].value is zeros
    assert (zeros == 0).all()


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (torch.sigmoid, True),
        (nn.Sigmoid(), True),
        (torch.special.expit, True),
        (lambda z: z.sigmoid().flatten(1), True),
        (lambda z: z.sigmoid()[:, 0], True),
        (lambda z: z.sigmoid().double().unsqueeze(1).squeeze(1), True),
        (lambda z: z.sigmoid().reshape(-1, 3).clone().float(), True),
        (lambda z: z, False),
        (lambda z: z.softmax(1), False),
        (lambda z: 2 * z.sigmoid(), False),
        (lambda z: z.sigmoid() * z, False),  # SiLU
        (lambda z: z.sigmoid().detach(), False),
    ],
)
def test_a_sigmoid_at_the_end_is_recognized(end, expected):
    assert ends_in_sigmoid(lambda images: end(images * 1.0), torch.randn(1, 3)) == expected


def test_only_many_numbers_look_like_labels():
    rng = torch.Generator().manual_seed(0)
    explained = ExplainedOutput(nn.Identity())
    with pytest.warns(UserWarning, match="independent labels"):
        explained.check_activation(torch.zeros(1, 8), torch.rand(2, 8, generator=rng))
    for outputs in (torch.rand(2, 3, generator=rng), torch.randn(2, 8, generator=rng), torch.eye(4).repeat(1, 4)):
        explained.check_activation(torch.zeros(1, 8), outputs)
