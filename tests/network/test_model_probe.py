import pytest
import torch
from torch import nn

from xaibench.network.outputs import check_classes, model_device_and_dtype, probe

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


@pytest.mark.parametrize("error", [RuntimeError, ValueError, TypeError, IndexError])
def test_images_that_it_cannot_take_are_named_with_the_reason(error):
    def model(images):
        raise error("no such luck")

    message = r"^Mine cannot take the training images of shape \[2, 1, 4, 4\], float32, on cpu: no such luck$"
    with pytest.raises(ValueError, match=message):
        probe(model, IMAGES, name="Mine", what="the training images")


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
    def model(images):
        raise error

    with pytest.raises(type(error)) as raised:
        probe(model, IMAGES)
    assert raised.value is error


def test_an_error_that_is_not_about_images_passes():
    def model(images):
        raise KeyError("state")

    with pytest.raises(KeyError, match="state"):
        probe(model, IMAGES)


@pytest.mark.parametrize(("classes", "said"), [(2, "2 classes"), (("cat", "dog"), r"2 classes \(cat, dog\)")])
def test_the_number_of_classes_is_compared(classes, said):
    with pytest.raises(ValueError, match=rf"returns 3 logits for {said}\. Build it with 2 outputs"):
        probe(linear(3), IMAGES, classes=classes)
    assert probe(linear(2), IMAGES, classes=classes).shape == (2, 2)


def test_logits_that_are_not_finite_are_refused_unless_allowed():
    def model(images):
        return torch.full((len(images), 2), -torch.inf)

    with pytest.raises(ValueError, match="returns NaN or infinite logits; check its weights, and that images are"):
        probe(model, IMAGES)
    assert probe(model, IMAGES, finite=False).isinf().all()


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
