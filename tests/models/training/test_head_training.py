"""Training a head or all of a network: against plain loops, reproducible, with a cache, and when memory is short."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from refusals import refused
from safetensors import SafetensorError
from torch import nn

from xaibench.models import TrainingDivergedError, build, find_head, fit_head
from xaibench.models.training import head_training as feature_cache
from xaibench.models.training.head_training import extract_features

QUICK = {"epochs": 4, "lr": 0.01, "batch_size": 8, "device": "cpu", "progress": False}


class Split:
    """Samples that are read batch by batch; counts what is read."""

    def __init__(self, count=40, seed=0, classes=2, side=8):
        g = torch.Generator().manual_seed(seed)
        self.targets = torch.arange(count) % classes
        self.pictures = torch.rand(count, 3, side, side, generator=g)
        for index, target in enumerate(self.targets.tolist()):
            self.pictures[index, target % 3, 1:5, 1:5] += 0.7
        self.read = []

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        self.read.append(len(index))
        return self.pictures[index], torch.zeros(len(index), 8, 8, dtype=torch.bool), self.targets[index]


class Small(nn.Sequential):
    def __init__(self, classes=2, seed=0):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            super().__init__(
                nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                nn.Dropout(0.5), nn.Linear(24, classes),
            )  # fmt: skip


TRAIN, VAL = Split(40, 0), Split(20, 1)


def state(model):
    return {key: value.clone() for key, value in model.state_dict().items()}


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(state(one).values(), state(two).values(), strict=True))


def test_features_are_what_reaches_the_head():
    model = Small().train()
    head = find_head(model, TRAIN[[0]][0])
    assert head.name == "6"
    found = extract_features(model, head, TRAIN, batch_size=7, progress=False)
    assert all(module.training for module in model.modules())  # as it came
    with torch.no_grad():
        torch.testing.assert_close(head.layer(found), model.eval()(TRAIN.pictures))
    assert not head.layer._forward_pre_hooks


def plain_loop(network, images, val_images):
    """Train it on batches in the order of seed 3; return the losses of validation and the best weights."""
    adam = torch.optim.Adam(network.parameters(), lr=0.01)
    order, losses, best = torch.Generator().manual_seed(3), [], None
    for _ in range(4):
        network.train()
        for batch in torch.randperm(40, generator=order).split(8):
            adam.zero_grad()
            F.cross_entropy(network(images[batch]), TRAIN.targets[batch]).backward()
            adam.step()
        network.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(network(val_images), VAL.targets).item())
        if losses[-1] == min(losses):
            best = copy.deepcopy(network.state_dict())
    return losses, best


def test_the_head_learns_as_in_a_plain_loop():
    model, plain = Small(), Small().eval()
    before = state(model)
    result = fit_head(model, TRAIN, VAL, seed=3, **QUICK)

    with torch.no_grad():
        trunk = nn.Sequential(*list(plain)[:-1])
        x, vx = trunk(TRAIN.pictures), trunk(VAL.pictures)
    losses, best = plain_loop(plain[-1], x, vx)
    torch.testing.assert_close(torch.tensor(result.val_loss), torch.tensor(losses))
    torch.testing.assert_close(model[-1].weight, best["weight"])
    after = state(model)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {"6.weight", "6.bias"}  # statistics of the batch normalization neither
    assert not any(module.training for module in model.modules())
    assert result.best_epoch == losses.index(min(losses))


def test_the_whole_network_learns_as_in_a_plain_loop():
    model, plain = Small(), Small()
    model[5].p = plain[5].p = 0.0
    result = fit_head(model, TRAIN, VAL, seed=3, finetune="all", **QUICK)
    losses, best = plain_loop(plain, TRAIN.pictures, VAL.pictures)
    torch.testing.assert_close(torch.tensor(result.val_loss), torch.tensor(losses), rtol=1e-4, atol=1e-5)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, best[key], rtol=1e-3, atol=1e-4)
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("finetune", ["head", "all"])
def test_the_first_of_equal_epochs_is_kept(finetune):
    # A learning rate that cannot move float32 weights leaves every epoch as it was.
    model = Small()
    model[1].momentum = 0.0
    before = state(model)
    result = fit_head(model, TRAIN, VAL, finetune=finetune, **{**QUICK, "lr": 1e-30})
    assert result.best_epoch == 0
    assert len(set(result.val_loss)) == 1
    for key, value in state(model).items():
        if "num_batches" not in key:
            torch.testing.assert_close(value, before[key], rtol=0, atol=1e-20)


def test_a_big_network_gets_a_head_that_classifies():
    # An untrained trunk sees little, but light from dark.
    train, val = Split(32, 0, side=32), Split(16, 1, side=32)
    for split in (train, val):
        split.pictures = 0.3 * torch.rand(split.pictures.shape) + 0.7 * split.targets[:, None, None, None]
    model = build("resnet18", (3, 32, 32), 2, weights=None)
    before = state(model)
    result = fit_head(model, train, val, **{**QUICK, "epochs": 30})
    assert find_head(model, val.pictures).name == "network.fc"
    assert result.val_accuracy == 1.0
    changed = {key for key, value in state(model).items() if not torch.equal(value, before[key])}
    assert changed == {"network.fc.weight", "network.fc.bias"}


def test_images_are_read_once_and_with_a_cache_not_again(tmp_path):
    train, val, file = Split(40, 0), Split(20, 1), tmp_path / "cache" / "features"
    model, again, plain = Small(), Small(), Small()
    fit_head(plain, train, val, **QUICK)
    assert sum(train.read) == 40 + 2  # all, and the first twice for a look at the model
    fit_head(model, train, val, cache=file, **QUICK)
    train.read.clear()
    fit_head(again, train, val, cache=str(file), **QUICK)
    assert sum(train.read) == 8 + 2  # the fingerprint looks at eight
    assert same(model, again)
    assert same(model, plain)
    assert [path.name for path in file.parent.iterdir()] == ["features"]


def test_features_of_another_precision_are_not_taken_from_the_cache(tmp_path):
    train, file = Split(40, 0), tmp_path / "features"
    for precision in ("float32", "bfloat16"):
        train.read.clear()
        fit_head(Small(), train, VAL, cache=file, precision=precision, **QUICK)
        assert sum(train.read) >= len(train)


@pytest.mark.parametrize("change", ["weights", "targets", "images"])
def test_a_cache_of_something_else_is_written_anew(tmp_path, caplog, change):
    train, model, other = Split(40, 0), Small(), Small(seed=1 if change == "weights" else 0)
    fit_head(model, train, VAL, cache=tmp_path / "features", **QUICK)
    if change == "targets":
        train.targets = train.targets.flip(0)
    if change == "images":
        train.pictures[-1] += 1
    with caplog.at_level(logging.WARNING, "xaibench"):
        fit_head(other, train, VAL, cache=tmp_path / "features", **QUICK)
    assert "holds the features of another network or data set" in caplog.text
    expected = Small(seed=1 if change == "weights" else 0)
    fit_head(expected, train, VAL, **QUICK)
    assert same(other, expected)


def test_a_file_that_is_no_cache_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    refused(ValueError, "not changed", lambda: fit_head(Small(), TRAIN, VAL, cache=tmp_path / "mine", **QUICK))
    assert (tmp_path / "mine").read_text() == "precious"


class Narrow(Small):
    """Runs out of memory as a GPU does, above some number of images."""

    most = 3

    def forward(self, x):
        if len(x) > self.most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return super().forward(x)


@pytest.mark.parametrize("finetune", ["head", "all"])
def test_out_of_memory_halves_the_batch_and_changes_nothing_else(caplog, finetune):
    narrow, wide = Narrow(), Small()
    for model in (narrow, wide):
        model[1], model[5] = nn.Identity(), nn.Identity()  # what sees the batch, and what is random
    with caplog.at_level(logging.WARNING, "xaibench"):
        results = [fit_head(model, TRAIN, VAL, finetune=finetune, **QUICK) for model in (narrow, wide)]
    assert "rows per pass; continuing with 2." in caplog.text
    torch.testing.assert_close(results[0].val_loss, results[1].val_loss, rtol=1e-4, atol=1e-5)
    for a, b in zip(narrow.parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    steps = [record for record in caplog.records if "out of memory" in record.message]
    assert len(steps) < 12  # it is not tried again for every batch


def test_a_single_image_that_is_too_much_is_an_error():
    class Tiny(Narrow):
        most = 1

        def forward(self, x):
            if x.requires_grad or not self.training:
                return super().forward(x)
            raise torch.cuda.OutOfMemoryError("CUDA out of memory: one image is too much")

    refused(torch.cuda.OutOfMemoryError, "one image", lambda: fit_head(Tiny(), TRAIN, VAL, finetune="all", **QUICK))


class Softmax(Small):
    def forward(self, x):
        return super().forward(x).softmax(1)


class Conv(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 2, 8), nn.Flatten())


def broken():
    model = Small()
    nn.init.constant_(model[0].weight, torch.nan)
    return model


@pytest.mark.parametrize(
    ("model", "train", "parameters", "message"),
    [
        (lambda: Small(5), TRAIN, {}, "2, 3, 4"),
        (lambda: Small(2), Split(classes=3), {}, "training targets"),
        (Small, Split(1), {}, "(1)"),
        (Small, Split(0), {}, "training"),
        (broken, TRAIN, {}, "NaN"),
        (Softmax, TRAIN, {}, "'6'"),
        (Conv, TRAIN, {}, "Conv"),
        (lambda: nn.Sequential(nn.Conv2d(4, 2, 1)), TRAIN, {}, "[1, 3, 8, 8]"),
        (lambda: nn.Sequential(nn.Conv2d(3, 2, 1)), TRAIN, {}, "[1, 2, 8, 8]"),
        (nn.Flatten, TRAIN, {}, "no weights"),
        *(
            (Small, TRAIN, {name: bad}, f"{name}=")
            for name, bad in {"finetune": "tail", "epochs": 0, "lr": 0.0}.items()
        ),
        (Small, TRAIN, {"finetune": "all", "cache": "x"}, "cache"),
    ],
)
def test_bad_input_is_refused(model, train, parameters, message):
    refused(ValueError, message, lambda: fit_head(model(), train, VAL, **{**QUICK, **parameters}))


@pytest.mark.parametrize("finetune", ["head", "all"])
def test_a_training_that_diverges_leaves_the_best_weights(finetune):
    model = Small()
    settings = {**QUICK, "finetune": finetune, "lr": 3e37}
    refused(TrainingDivergedError, "loss", lambda: fit_head(model, TRAIN, VAL, **settings))
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_a_cache_that_does_not_fit_the_disk_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(feature_cache, "save_file", full)
    refused(OSError, "features'", lambda: fit_head(Small(), TRAIN, VAL, cache=tmp_path / "features", **QUICK))
    assert list(tmp_path.iterdir()) == []
