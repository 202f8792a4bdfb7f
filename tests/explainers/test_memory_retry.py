import logging

import pytest
import torch
from torch import nn

from xaibench.explainers import explain


class Small(nn.Module):
    """A network in whose memory only so many images fit."""

    def __init__(self, fits):
        super().__init__()
        self.fits = fits
        self.record = lambda rows: None
        self.net = nn.Sequential(
            nn.Conv2d(1, 2, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)
        )

    def forward(self, x):
        if len(x) > self.fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        self.record(len(x))
        return self.net(x)


@pytest.fixture
def images():
    return torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "first"),
    [("saliency", 9), ("gradcam", 9), ("rise", 40), ("occlusion", 9), ("integrated_gradients", 64)],
)
def test_the_rows_of_a_pass_are_halved_from_those_there_are_until_they_fit(name, first, images, caplog):
    torch.manual_seed(0)
    model, targets = Small(fits=100_000), torch.arange(9) % 2
    settings = {"rise": {"n_masks": 40}, "integrated_gradients": {"n_steps": 8}}.get(name, {})
    expected = explain(name, model, images, targets, device="cpu", batch_size=64, **settings)
    model.fits, rows = 5, []
    model.record = rows.append
    with caplog.at_level(logging.WARNING, "xaibench"):
        maps = explain(name, model, images, targets, device="cpu", batch_size=64, **settings)
    assert caplog.messages[0] == f"Out of memory with {first} rows per pass; continuing with {first // 2}."
    assert max(rows[-3:]) <= 5
    torch.testing.assert_close(maps, expected, rtol=1e-5, atol=1e-7)


def test_a_single_row_that_does_not_fit_is_the_users_to_know(images):
    with pytest.raises(torch.cuda.OutOfMemoryError):
        explain("saliency", Small(fits=0), images, torch.zeros(9, dtype=torch.int64), device="cpu")


def test_a_callable_that_has_no_rows_is_not_tried_again(images):
    calls = []

    def own(model, images, targets):
        calls.append(1)
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        explain(own, Small(fits=100), images, torch.zeros(9, dtype=torch.int64), device="cpu")
    assert calls == [1]
