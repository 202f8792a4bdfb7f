"""How the model is run: layout, folding, batches, and what is read from its outputs."""

import copy

import numpy as np
import pretend_device
import pytest
import torch
from oracles import perturbation as oracle
from oracles.networks import batch, small_cnn
from pretend_device import pretended
from torch import nn

from xaibench.metrics import METRICS, average_drop, completeness_error, deletion, insertion
from xaibench.metrics.shared import model_scores as module
from xaibench.metrics.shared.model_scores import as_samples, model_scorer
from xaibench.models import Wrapped


def scores_of(model, images, targets, points=200, **settings):
    samples = as_samples(model, images, targets)
    with model_scorer(model, samples, points, **{"output": "probability", "batch_size": None} | settings) as scorer:
        return scorer.predict(samples, 1, lambda group: lambda sample, point: samples.images[group][sample]), scorer


def test_folding_changes_nothing_but_the_time(monkeypatch):
    model, (images, maps, targets) = small_cnn(), batch()
    expected = [oracle.probability(model, *one) for one in zip(images, targets, strict=True)]
    folded, scorer = scores_of(model, images, targets)
    assert scorer._model is not model
    assert not any(isinstance(m, nn.BatchNorm2d) for m in scorer._model.modules())
    np.testing.assert_allclose(folded[:, 0], expected, atol=1e-6)
    plain, scorer = scores_of(model, images, targets, points=1)
    assert scorer._model is model
    np.testing.assert_allclose(plain[:, 0], expected, atol=1e-6)
    area = deletion(model, images, maps, targets, steps=40, reduction="none")
    monkeypatch.setattr(module, "_MIN_ROWS_TO_FUSE", 10**9)
    np.testing.assert_allclose(area, deletion(model, images, maps, targets, steps=40, reduction="none"), atol=1e-6)


def branching():
    """Cannot be traced: what it does depends on the numbers."""
    return Wrapped(small_cnn(), lambda network, x: network(x if x.abs().sum() > 0 else -x))


class Shared(nn.Module):
    """One convolution before two normalizations: folding either into it would be wrong for the other."""

    def __init__(self):
        super().__init__()
        network = small_cnn()
        self.first, self.norm, self.rest = network[0], network[1], network[2:]
        self.other = nn.BatchNorm2d(6)

    def forward(self, images):
        return self.rest(self.norm(self.first(images)) + self.other(self.first(images.abs())))


def viewing():
    """Calls view where reshape is needed: channels last is an error."""
    layers = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 5 * 4, 3))
    return Wrapped(layers, lambda layers, x: layers[2](layers[:2](x).view(len(x), -1)))


@pytest.mark.parametrize("make", [branching, Shared, viewing])
def test_networks_that_cannot_be_folded_or_laid_out_run_as_they_are(make):
    torch.manual_seed(0)
    model, (images, _, targets) = make().eval(), batch()
    expected = [oracle.probability(model, *one) for one in zip(images, targets, strict=True)]
    scores, _ = scores_of(model, images, targets)
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-6)


@pytest.mark.skipif(not pretend_device.available(), reason="this torch has no devices written in Python")
def test_nothing_is_folded_on_an_accelerator(monkeypatch):
    folded, fold = [], module._fuse_batchnorm
    monkeypatch.setattr(module, "_fuse_batchnorm", lambda model: folded.append(model) or fold(model))
    given = [small_cnn(), *batch()]
    for device in ("cpu", "pretend"):
        with pretended():
            deletion(*(copy.deepcopy(one).to(device) for one in given), steps=40)
        assert len(folded) == 1


def test_hooks_are_heard():
    # A traced copy would run past the hook of a container.
    model, (images, _, targets) = small_cnn(), batch()
    wrapped = nn.Sequential(model)
    wrapped[0].register_forward_hook(lambda _, inputs, output: output.flip(1))
    expected = [oracle.probability(wrapped, *one) for one in zip(images, targets, strict=True)]
    scores, scorer = scores_of(wrapped, images, targets)
    assert scorer._model is wrapped
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-6)


def test_rows_are_channels_last_where_it_pays():
    strides = []
    model, (images, maps, targets) = small_cnn(), batch()
    model.register_forward_pre_hook(lambda _, inputs: strides.append(inputs[0].stride()))
    deletion(model, images, maps, targets, steps=3)
    assert set(strides[4:]) == {(84, 1, 12, 2)}  # after the checks of the model
    strides.clear()
    deletion(model.double(), images, maps, targets, steps=3)
    assert set(strides) == {(84, 42, 6, 1)}


def test_steps_of_many_images_share_passes_of_at_most_the_batch_size():
    rows = []
    model, (images, maps, targets) = small_cnn(), batch(n=7)
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    deletion(model, images, maps, targets, steps=9, batch_size=4)
    # One look at the first image in either layout, the check of the model on two, 4 images with 10 points each, and 3.
    assert rows == [1, 2, 1, 1, *[4] * 10, *[4] * 7, 2]
    rows.clear()
    insertion(model, images[:1], maps[:1], targets[:1], steps=9, batch_size=4)
    assert rows == [1, 1, 4, 4, 2]


def test_what_is_read_from_the_outputs():
    model, (images, maps, targets) = small_cnn(), batch()
    softmax = average_drop(model, images, maps, targets, reduction="none")
    closed = nn.Sequential(model, nn.Softmax(1))
    by_hand = average_drop(closed, images, maps, targets, output="logit", reduction="none")
    np.testing.assert_allclose(softmax, by_hand, atol=1e-3)
    called = average_drop(model, images, maps, targets, output=lambda z: z.softmax(1), reduction="none")
    assert torch.equal(called, softmax)
    logits, scorer = scores_of(model, images, targets, output="logit")
    np.testing.assert_allclose(logits[:, 0], model(images).gather(1, targets[:, None])[:, 0].detach(), rtol=1e-5)
    assert scorer.classes == 3


def test_a_margin_is_the_log_odds_of_the_probability():
    model, (images, maps, targets) = small_cnn(), batch()
    probability, _ = scores_of(model, images, targets)
    margin, _ = scores_of(model, images, targets, output="margin")
    torch.testing.assert_close(margin, probability.log() - (1 - probability).log(), rtol=1e-5, atol=1e-6)
    shared = completeness_error(model, images, maps, targets, output="margin", reduction="none")
    ratio = completeness_error(model, images, maps, targets, output="margin", relative=True, reduction="none")
    baseline, _ = scores_of(model, torch.zeros_like(images), targets, output="margin")
    torch.testing.assert_close(ratio * (margin - baseline)[:, 0].abs(), shared, rtol=1e-4, atol=1e-5)


def test_probabilities_taken_for_logits_are_reported():
    model, (images, maps, targets) = nn.Sequential(small_cnn(), nn.Softmax(1)), batch()
    with pytest.warns(UserWarning, match="look like probabilities.*output='logit'"):
        deletion(model, images, maps, targets, steps=2)


def test_the_softmax_of_one_output_is_refused():
    model = lambda images: images.sum((2, 3))  # noqa: E731
    for output in ("probability", "margin"):
        with pytest.raises(ValueError, match=f"with a single class there is no {output}"):
            deletion(model, torch.randn(1, 1, 2, 2), torch.eye(2)[None], torch.tensor([0]), output=output)


def test_a_softmax_near_zero_is_exact():
    # exp(-200) is zero in float32; the accurate softmax knows it.
    model = lambda images: torch.cat([images[:, :, 0, 0], -200 - images[:, :, 0, 0]], 1)  # noqa: E731
    images, maps = torch.zeros(1, 1, 1, 2), torch.tensor([[[1.0, 0.0]]])
    score = deletion(model, images, maps, torch.tensor([1]))
    assert score == pytest.approx(np.exp(-200), rel=1e-9)


def test_images_follow_the_model_in_precision():
    model, (images, maps, targets) = small_cnn().double(), batch()
    assert deletion(model, images, maps, targets, steps=4) == deletion(model, images.double(), maps, targets, steps=4)


class Crowded(torch.nn.Module):
    """A network in whose memory only so many images fit."""

    fits = 10_000

    def forward(self, x):
        if len(x) > self.fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        means = x.mean((1, 2, 3))
        return torch.stack([3 * means, 1 - means], 1)


@pytest.mark.parametrize("name", ["deletion", "insertion", "average_drop", "sufficiency"])
def test_out_of_memory_the_rows_of_a_pass_are_halved(name, caplog):
    metric = METRICS.resolve(name)
    images = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    maps, targets = images[:, 0] + 0.1, torch.arange(5) % 2
    model = Crowded()
    expected = metric(model, images, maps, targets, batch_size=16, reduction="none")
    model.fits = 3
    with caplog.at_level("WARNING", "xaibench"):
        scores = metric(model, images, maps, targets, batch_size=16, reduction="none")
    assert "Out of memory with" in caplog.text
    torch.testing.assert_close(scores, expected)
    model.fits = 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        metric(model, images, maps, targets, reduction="none")
