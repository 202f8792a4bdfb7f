import pytest
import torch
from torch import nn

from xaibench.compute.network_outputs import check_classes, check_logits, check_module, model_device_and_dtype, probe

IMAGES = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def linear(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16, classes))


@pytest.mark.parametrize(
    ("model", "got"),
    [(torch.tanh, "builtin_function_or_method"), (nn.Linear, "the class Linear"), (None, "NoneType"), ("cnn", "str")],
)
def test_what_is_no_network_is_named(model, got):
    with pytest.raises(TypeError, match=f"model: got {got}, expected a torch.nn.Module that returns logits"):
        check_module(model)


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


@pytest.mark.parametrize(
    ("found", "got"),
    [
        (torch.zeros(3), r"\[3\]"),
        (torch.zeros(1, 3), r"\[1, 3\]"),
        (torch.zeros(2, 3, 1, 1), r"\[2, 3, 1, 1\]"),
        ((torch.zeros(2, 3, 1),), r"tuple of 1 \(\[2, 3, 1\]\)"),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(2, 4)}, r"{'a': \[2, 3\], 'b': \[2, 4\]}"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_logits_is_named(found, got):
    with pytest.raises(ValueError, match=rf"The model returns {got} for 2 images, expected logits \[2, K\]\. Taken"):
        check_logits(found, 2)
    with pytest.raises(ValueError, match=rf"Mine returns {got} for 2 images"):
        probe(lambda images: found, IMAGES, name="Mine")


def test_one_image_is_no_images():
    with pytest.raises(ValueError, match=r"for 1 image, expected logits \[1, K\]"):
        check_logits(torch.zeros(2), 1)


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
