from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from xaibench.network.outputs import (
    check_classes,
    check_logits,
    check_plain_logits,
    check_scalars,
    find_logits,
    map_tensors,
    model_device_and_dtype,
    probe,
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


DENSE = r"returns \[2, 3\] .* expected floating-point numbers in a dense tensor"
NUMBER = r"expected one floating-point number per image, \[2\]"


@pytest.mark.parametrize(
    ("check", "returned", "message"),
    [
        *((check_logits, change(), DENSE) for change in (Z.long, Z.bool, Z.cfloat, Z.to_sparse, lambda: Z.to("meta"))),
        *((check_scalars, change()[:, 0], "expected") for change in (Z.long, Z.bool, Z.cfloat, lambda: Z.to("meta"))),
        (check_logits, Z[:, :0], r"returns \[2, 0\] for 2 images"),
        (check_logits, torch.zeros(3), r"returns \[3\] for 2 images"),
        (check_plain_logits, {"logits": Z}, r"expected a tensor of logits \[2, K\] .*Wrap it: xaibench"),
        *((check_scalars, one, NUMBER) for one in (Z, torch.zeros(2, dtype=torch.long), torch.zeros(()), 3.0, None)),
    ],
)
def test_other_outputs_are_refused(check, returned, message):
    with pytest.raises(ValueError, match=message):
        check(returned, 2)
    assert check_plain_logits(Z, 2) is Z


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


IMAGES = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def linear(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16, classes))


def test_a_network_is_asked_in_evaluation_mode_and_comes_back_in_its_own():
    model = linear()
    logits = probe(model, IMAGES, classes=3)
    assert [module.training for module in model] == [True, True, True]
    assert not logits.requires_grad
    torch.testing.assert_close(logits, model[2](IMAGES.flatten(1)).detach())  # no dropout


def test_a_function_will_do():
    assert probe(lambda images: images.flatten(1), IMAGES).shape == (2, 16)


def test_images_follow_the_network_in_precision():
    model = linear().double()
    assert probe(model, IMAGES).dtype == torch.float64
    assert model_device_and_dtype(model, IMAGES) == (torch.device("cpu"), torch.float64)
    assert (
        model_device_and_dtype(nn.Flatten(), IMAGES)
        == model_device_and_dtype(torch.tanh, IMAGES)
        == (IMAGES.device, IMAGES.dtype)
    )


def raising(error):
    def model(images):
        raise error

    return model


def infinite(images):
    return torch.full((len(images), 2), -torch.inf)


TAKES = r"^Mine cannot take the training images of shape \[2, 1, 4, 4\], float32, on cpu: no such luck$"
MINE = {"name": "Mine", "what": "the training images"}


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        *((raising(kind("no such luck")), MINE, ValueError, TAKES)
          for kind in (RuntimeError, ValueError, TypeError, IndexError)),
        (raising(KeyError("state")), {}, KeyError, "state"),
        (linear(3), {"classes": 2}, ValueError, r"returns 3 logits for 2 classes\. Build it with 2 outputs"),
        (linear(3), {"classes": ("cat", "dog")}, ValueError, r"3 logits for 2 classes \(cat, dog\)\. Build it with 2"),
        (infinite, {}, ValueError, "returns NaN or infinite logits; check its weights, and that images are"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(model, options, error, message):
    with pytest.raises(error, match=message):
        probe(model, IMAGES, **options)


def test_classes_and_infinite_logits_may_be_stated():
    assert probe(linear(2), IMAGES, classes=2).shape == probe(linear(2), IMAGES, classes=("cat", "dog")).shape
    assert probe(infinite, IMAGES, finite=False).isinf().all()


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "mps", "cublas", "python"],
)
def test_want_of_memory_is_never_said_to_be_a_wrong_shape(error):
    with pytest.raises(type(error)) as raised:
        probe(raising(error), IMAGES)
    assert raised.value is error


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0, 1, 2, 0, -1], "targets: class 2 in samples 2, 4; the model has classes 0 to 1"),
        ([7] * 9, r"targets: class 7 in samples 0, 1, 2, 3, 4, \.\.\. \(9 in all\); the model"),
    ],
)
def test_targets_that_are_no_class_are_named(targets, message):
    with pytest.raises(ValueError, match=message):
        check_classes(torch.tensor(targets), 2)
    with pytest.raises(ValueError, match=r"^validation targets: class"):
        check_classes(torch.tensor(targets), 2, "validation targets")
    check_classes(torch.tensor(targets).clamp(0, 1), 2)
