"""Training: the same as a plain loop, alone or stacked; reproducible; nothing global changed; errors that help."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from oracles import training as oracle
from refusals import refused
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from xaibench.models import TrainingDivergedError, accuracy, build, fit, fit_many
from xaibench.models.networks.base import Network


class InMemory(Dataset):
    """A data set with the tensors that training looks for."""

    def __init__(self, images, targets):
        self.images, self.targets = self.tensors = images, targets

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


def samples(count=200, seed=0, side=8):
    """A bright pixel here or there, in noise."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, side, side, generator=generator)
    targets = torch.randint(0, 2, (count,), generator=generator)
    images[:, 0, 2, 2] += 2.0 * targets
    images[:, 0, 5, 4] += 2.0 * (1 - targets)
    return InMemory(images, targets)


TRAIN, VAL = samples(200, 0), samples(100, 1)
QUICK = {"epochs": 3, "batch_size": 64, "progress": False, "device": "cpu"}


def weights(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def assert_as_in_a_plain_loop(starts, found, trains, vals, rates, seeds, tolerance, **settings):
    """Train ``starts`` by the oracle, and compare the losses with those of ``found``; return the best epochs."""
    best = []
    for model, training, train, val, rate, seed in zip(starts, found, trains, vals, rates, seeds, strict=True):
        dtype = weights(model).dtype
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            losses, val_losses, epoch = oracle.train(
                model, train.images.to(dtype), train.targets, val.images.to(dtype), val.targets,
                lr=rate, seed=seed, **{"batch_size": 64, "loss": "logits", **settings},
            )  # fmt: skip
        best.append(epoch)
        assert training.train_loss == pytest.approx(losses, abs=tolerance)
        assert training.val_loss == pytest.approx(val_losses, abs=tolerance)
    return best


@pytest.mark.parametrize("loss", ["logits", "probabilities"])
@pytest.mark.parametrize("name", ["llr", "mlp", "cnn"])
def test_stacked_training_is_the_plain_loop(name, loss):
    rates, seeds = [0.004, 0.02, 0.001], [5, 0, 7]
    trains, vals = [TRAIN, samples(200, 2), TRAIN], [VAL, VAL, samples(100, 3)]
    models = [build(name, (1, 8, 8), 2, seed=seed).double() for seed in seeds]
    expected = [copy.deepcopy(model) for model in models]
    got = fit_many(models, trains, vals, epochs=8, lr=rates, batch_size=64, loss=loss, seeds=seeds, stack=2,
                   device="cpu", progress=False)  # fmt: skip
    best = assert_as_in_a_plain_loop(expected, got, trains, vals, rates, seeds, 1e-6, epochs=8, loss=loss)
    assert [training.best_epoch for training in got] == best
    for model, val, training, stacked in zip(expected, vals, got, models, strict=True):
        assert torch.allclose(weights(stacked), weights(model), rtol=0, atol=1e-9)
        assert training.val_accuracy == pytest.approx(accuracy(model, val), abs=1e-6)


def dropout_mlp(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            nn.Linear(64, 16),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(16, 8),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(8, 2),
        ]
        return Network(*layers).double()


def test_stacked_dropout_is_that_of_each_model_alone():
    seeds = [5, 0, 7]
    models = [dropout_mlp(seed) for seed in seeds]
    expected = [copy.deepcopy(model) for model in models]
    got = fit_many(models, [TRAIN] * 3, [VAL] * 3, seeds=seeds, **QUICK)
    assert_as_in_a_plain_loop(expected, got, [TRAIN] * 3, [VAL] * 3, [0.004] * 3, seeds, 1e-6, epochs=3)
    for model, stacked in zip(expected, models, strict=True):
        assert torch.allclose(weights(stacked), weights(model), rtol=0, atol=1e-9)


def own_network():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(72, 2))


@pytest.mark.parametrize("precision", [None, "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["llr", "mlp", "cnn", "dropout", "own"])
def test_a_training_does_not_depend_on_its_neighbors(name, precision):
    """To the bit, in whatever place it stands, with whatever stops beside it, and where no size is even."""
    train, val = InMemory(TRAIN.images[:131], TRAIN.targets[:131]), InMemory(VAL.images[:67], VAL.targets[:67])

    def trained(seeds, **arguments):
        models = []
        for seed in seeds:
            torch.manual_seed(seed)
            made = {"dropout": lambda: dropout_mlp(seed).float(), "own": own_network}  # noqa: B023
            models.append(made[name]() if name in made else build(name, (1, 8, 8), 2, seed=seed))
        models = [model.double() if precision == "float64" else model for model in models]
        found = fit_many(models, [train] * len(seeds), [val] * len(seeds), epochs=3, batch_size=50, seeds=list(seeds),
                         lr=[0.01 + 0.01 * seed for seed in seeds], device="cpu", progress=False, patience=1,
                         precision=precision, **arguments)  # fmt: skip
        return models[seeds.index(0)], found[seeds.index(0)]

    model, training = trained([0])
    for seeds in ([0, 1], [0, 1, 2], [3, 0], [4, 1, 0, 2, 3]):
        beside, course = trained(seeds)
        assert torch.equal(weights(beside), weights(model)), seeds
        assert course == training, seeds
    assert torch.equal(weights(trained([2, 1, 0], stack=2)[0]), weights(model))


def test_a_model_that_no_stack_holds_leaves_the_others_together():
    models = [build("mlp", (1, 8, 8), 2, seed=seed) for seed in (0, 1)]
    models[1][0].weight.requires_grad_(False)
    found = fit_many(models, [TRAIN] * 2, [VAL] * 2, seeds=[0, 1], **QUICK)
    assert found[0] == fit(build("mlp", (1, 8, 8), 2, seed=0), TRAIN, VAL, seed=0, **QUICK)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_large_models_train_alone_as_they_would_in_a_stack(name, monkeypatch):
    results = []
    for most in (0, 2**30):
        monkeypatch.setattr("xaibench.models.training.fitting.ALONE", most)
        models = [build(name, (1, 8, 8), 2, seed=seed) for seed in range(3)]
        results.append([each.val_loss for each in fit_many(models, [TRAIN] * 3, [VAL] * 3, **QUICK)])
    assert torch.allclose(*map(torch.tensor, results), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llr", "mlp", "cnn"])
def test_each_model_stops_early_by_itself(name):
    """A stack from which members drop out gives what the full training gave up to there."""
    trains, seeds = [TRAIN, samples(200, 2), TRAIN, samples(200, 4)], [3, 4, 5, 6]
    vals = [VAL, VAL, samples(100, 3), InMemory(VAL.images, 1 - VAL.targets)]
    rates = [0.05, 0.001, 0.02, 0.05]

    def train(**arguments):
        models = [build(name, (1, 8, 8), 2, seed=seed).double() for seed in seeds]
        found = fit_many(models, trains, vals, epochs=25, lr=rates, batch_size=64, seeds=seeds, device="cpu",
                         progress=False, **arguments)  # fmt: skip
        return models, found

    _, full = train()
    models, early = train(patience=4)
    assert len({len(each.val_loss) for each in early}) > 1
    assert min(len(each.val_loss) for each in early) < 25
    for model, val, whole, part in zip(models, vals, full, early, strict=True):
        done = [e for e in range(25) if e - min(range(e + 1), key=whole.val_loss.__getitem__) >= 4]
        length = done[0] + 1 if done else 25
        assert part.val_loss == pytest.approx(whole.val_loss[:length], abs=1e-9)
        assert part.train_loss == pytest.approx(whole.train_loss[:length], abs=1e-9)
        assert part.best_epoch == min(range(length), key=whole.val_loss.__getitem__)
        kept = nn.functional.cross_entropy(model(val.images.double()), val.targets)
        assert kept.item() == pytest.approx(part.best_val_loss, abs=1e-9)
        assert part.val_accuracy == pytest.approx(accuracy(model, val), abs=1e-6)


def test_in_single_precision_the_loss_agrees_to_1e_4():
    models = [build("cnn", (1, 8, 8), 2, seed=seed) for seed in range(4)]
    expected = [copy.deepcopy(model) for model in models]
    got = fit_many(models, [TRAIN] * 4, [VAL] * 4, epochs=4, batch_size=64, device="cpu", progress=False)
    assert_as_in_a_plain_loop(expected, got, [TRAIN] * 4, [VAL] * 4, [0.004] * 4, range(4), 1e-4, epochs=4)


@pytest.mark.parametrize("name", ["llr", "mlp", "cnn"])
def test_the_same_seed_gives_the_same_bits(name):
    runs = []
    for _ in range(2):
        models = [build(name, (1, 8, 8), 2, seed=seed) for seed in range(3)]
        results = fit_many(models, [TRAIN] * 3, [VAL] * 3, **QUICK)
        runs.append((results, [weights(model) for model in models]))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))


def test_fit_is_a_stack_of_one_and_the_seed_decides_the_order():
    one, two, other = (build("mlp", (1, 8, 8), 2) for _ in range(3))
    alone = fit(one, TRAIN, VAL, seed=3, **QUICK)
    assert alone == fit_many([two], [TRAIN], [VAL], seeds=[3], **QUICK)[0]
    assert alone != fit(other, TRAIN, VAL, seed=4, **QUICK)


def test_weights_of_the_lowest_validation_loss_are_kept():
    # Targets that contradict the training samples: every step makes validation worse.
    val = InMemory(TRAIN.images, 1 - TRAIN.targets)
    model = build("llr", (1, 8, 8), 2)
    training = fit(model, TRAIN, val, epochs=20, batch_size=64, lr=0.01, device="cpu", progress=False)
    assert training.best_epoch == training.val_loss.index(min(training.val_loss)) == 0
    assert training.best_val_loss == training.val_loss[0] < training.val_loss[-1]
    kept = nn.functional.cross_entropy(model(val.images), val.targets)
    assert kept.item() == pytest.approx(training.best_val_loss, abs=1e-6)


def test_training_learns():
    model = build("mlp", (1, 8, 8), 2)
    training = fit(model, samples(2000), VAL, epochs=20, batch_size=64, device="cpu", progress=False)
    assert accuracy(model, samples(500, 9)) > 0.85
    assert training.val_accuracy > 0.85


def test_probabilities_bound_the_loss_below():
    data = InMemory(100 * TRAIN.images, TRAIN.targets)
    training = fit(build("llr", (1, 8, 8), 2), data, data, loss="probabilities", lr=0.1, **QUICK)
    # log(1 + exp(-1)), what a certain and right prediction costs.
    assert min(training.val_loss) > 0.31326


def dropout_network(*_):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def test_models_of_any_kind_train_one_after_another():
    torch.manual_seed(0)
    start = dropout_network()
    together, alone = [copy.deepcopy(start) for _ in range(2)], [copy.deepcopy(start) for _ in range(2)]
    results = fit_many(together, [TRAIN] * 2, [VAL] * 2, seeds=[1, 2], **QUICK)
    assert results == [fit(model, TRAIN, VAL, seed=seed, **QUICK) for seed, model in zip((1, 2), alone, strict=True)]
    assert results[0] != results[1]
    assert not any(module.training for module in together[0].modules())
    # The kept weights and the running statistics belong to the same epoch.
    kept = nn.functional.cross_entropy(together[0](VAL.images), VAL.targets)
    assert kept.item() == pytest.approx(results[0].best_val_loss, abs=1e-6)


def test_unknown_layers_are_stacked():
    torch.manual_seed(0)
    models = [own_network() for _ in range(3)]
    alone = copy.deepcopy(models)
    results = fit_many(models, [TRAIN] * 3, [VAL] * 3, **QUICK)
    assert_as_in_a_plain_loop(alone, results, [TRAIN] * 3, [VAL] * 3, [0.004] * 3, range(3), 1e-5, epochs=3)


def test_frozen_weights_stay():
    model = build("mlp", (1, 8, 8), 2)
    model[0].weight.requires_grad_(False)
    before, free = model[0].weight.clone(), model[2].weight.clone()
    fit(model, TRAIN, VAL, **QUICK)
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(model[2].weight, free)


def test_a_plain_loader_gives_what_its_data_set_gives():
    results = [
        fit(build("llr", (1, 8, 8), 2), train, VAL, epochs=2, batch_size=size, device="cpu", progress=False)
        for train, size in ((TRAIN, 50), (DataLoader(TRAIN, 50, shuffle=True), None))
    ]
    assert results[0] == results[1]


def test_an_unshuffled_loader_keeps_its_order():
    data = TensorDataset(TRAIN.images, TRAIN.targets)
    results = [
        fit(build("llr", (1, 8, 8), 2), train, VAL, epochs=2, seed=seed, device="cpu", progress=False)
        for seed, train in itertools.product((0, 1), (DataLoader(TRAIN, 64), DataLoader(data, 64)))
    ]
    assert results.count(results[0]) == 4


def test_nothing_global_changes():
    model = dropout_network()
    state, threads, dtype = torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()
    fit(model, DataLoader(TensorDataset(*TRAIN.tensors), 64, shuffle=True), VAL, epochs=1, device="cpu", progress=False)
    fit(build("cnn", (1, 8, 8), 2), TRAIN, VAL, **QUICK)
    accuracy(model, DataLoader(TensorDataset(*VAL.tensors), 64, shuffle=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)
    assert torch.is_grad_enabled()
    assert all(weight.grad is None for weight in model.parameters())


def test_accuracy_is_the_share_of_hits_and_leaves_the_mode():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9))
    model[1].eval()
    data = TensorDataset(torch.tensor([[[[1.0, 0.0]]], [[[0.0, 1.0]]], [[[3.0, 2.0]]]]), torch.tensor([0, 0, 0]))
    assert accuracy(model, data) == pytest.approx(2 / 3)
    assert accuracy(model, DataLoader(data, 2)) == pytest.approx(2 / 3)
    assert model.training
    assert not model[1].training


def test_a_model_that_diverges_is_named_and_keeps_its_best_weights():
    bad = InMemory(TRAIN.images.clone(), TRAIN.targets)
    bad.images[3] = torch.nan
    models = [build("mlp", (1, 8, 8), 2, seed=seed) for seed in range(2)]
    before = [weights(model) for model in models]
    refused(TrainingDivergedError, "seed 8", lambda: fit_many(models, [TRAIN, bad], [VAL] * 2, seeds=[7, 8], **QUICK))
    assert all(torch.equal(weights(model), old) for model, old in zip(models, before, strict=True))


def test_an_interrupted_training_leaves_the_best_weights(monkeypatch):
    model = build("mlp", (1, 8, 8), 2)
    before = weights(model)
    calls = iter([0, 1])
    monkeypatch.setattr("tqdm.std.tqdm.update", lambda bar, n=1: next(calls, None) or _interrupt())
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        fit(model, TRAIN, VAL, epochs=5, batch_size=64, device="cpu", progress=False)
    assert not torch.equal(weights(model), before)
    assert not model.training


def _interrupt():
    raise KeyboardInterrupt("by hand")


EMPTY = InMemory(torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "probs"}, "'probs'"),
        *(({name: bad}, f"{name}=") for name, bad in {"epochs": 0, "patience": 0, "batch_size": 0, "lr": -1.0}.items()),
        ({"train": EMPTY}, "training"),
        ({"val": EMPTY}, "validation"),
        ({"val": DataLoader(EMPTY, 4)}, "validation"),
        ({"train": DataLoader(TensorDataset(*EMPTY.tensors), 4)}, "training"),
        ({"train": samples(side=9)}, "training"),
        ({"val": samples(side=9)}, "validation"),
        ({"train": InMemory(TRAIN.images, TRAIN.targets + 1)}, "training targets"),
        ({"train": InMemory(TRAIN.images, TRAIN.targets.float())}, "targets"),
        ({"train": InMemory(TRAIN.images, TRAIN.targets[:-1])}, "199 targets"),
    ],
)
def test_bad_input_is_refused(change, message):
    given = {"train": TRAIN, "val": VAL, "epochs": 1, "device": "cpu", "progress": False} | change
    refused(ValueError, message, lambda: fit(build("mlp", (1, 8, 8), 2), given.pop("train"), given.pop("val"), **given))


def test_stacks_of_unequal_members_are_refused():
    one, two = build("mlp", (1, 8, 8), 2), build("mlp", (1, 8, 8), 2)
    refused(ValueError, "models", lambda: fit_many([one, build("cnn", (1, 8, 8), 2)], [TRAIN] * 2, [VAL] * 2, **QUICK))
    refused(ValueError, "data 1", lambda: fit_many([one, two], [TRAIN, samples(50)], [VAL] * 2, **QUICK))
    refused(ValueError, "1 trains", lambda: fit_many([one, two], [TRAIN], [VAL] * 2, **QUICK))
    refused(ValueError, "3 lr", lambda: fit_many([one, two], [TRAIN] * 2, [VAL] * 2, lr=[0.1] * 3, **QUICK))
    refused(ValueError, "stack=", lambda: fit_many([one], [TRAIN], [VAL], stack=0, **QUICK))
    refused(ValueError, "models", lambda: fit_many([], [], [], **QUICK))
    refused(ValueError, "weights", lambda: fit(nn.Flatten(), TRAIN, VAL, **QUICK))
    refused(ValueError, "twice", lambda: fit_many([one, one], [TRAIN] * 2, [VAL] * 2, **QUICK))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_cuda_trains_the_same(name):
    here, there = ([build(name, (1, 8, 8), 2, seed=seed) for seed in range(3)] for _ in range(2))
    state = torch.cuda.get_rng_state()
    expected = fit_many(here, [TRAIN] * 3, [VAL] * 3, **QUICK)
    got = fit_many(there, [TRAIN] * 3, [VAL] * 3, **(QUICK | {"device": "cuda"}))
    for one, two in zip(expected, got, strict=True):
        assert one.train_loss == pytest.approx(two.train_loss, abs=1e-3)
    assert next(there[0].parameters()).device.type == "cpu"
    assert torch.equal(torch.cuda.get_rng_state(), state)


class Spy(nn.Module):
    """A linear network that notes how its float32 would be multiplied."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(64, 2), set()

    def forward(self, images):
        logits = self.layer(images.flatten(1))
        self.seen.add((torch.backends.cudnn.allow_tf32, logits.dtype))
        return logits


@pytest.mark.parametrize(
    ("precision", "seen"),
    [
        (None, (False, torch.float32)),
        ("float32", (False, torch.float32)),
        ("tf32", (True, torch.float32)),
        ("bfloat16", (False, torch.bfloat16)),
    ],
)
def test_training_is_in_the_precision_that_is_stated(precision, seen):
    model = Spy()
    # The probe before the training looks at the classes only.
    fit(model, TRAIN, VAL, precision=precision, **QUICK)
    assert seen in model.seen
    assert model.seen <= {seen, (True, torch.float32)}
    assert model.layer.weight.dtype is torch.float32
    assert torch.backends.cudnn.allow_tf32  # torch's own default, put back


@pytest.mark.parametrize(("precision", "kept"), [("float64", "float32"), ("float32", "float64")])
def test_a_precision_that_the_weights_do_not_have_is_refused(precision, kept):
    model = build("llr", (1, 8, 8), 2).to(getattr(torch, kept))
    refused(ValueError, "precision=", lambda: fit(model, TRAIN, VAL, precision=precision, **QUICK))
