"""An audit says if the network would answer better with other pixels."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.auditing.images import make_subject
from xaibench.auditing.input_range import find_input_range

LABELS = torch.tensor([0, 1] * 15)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Brightness(nn.Module):
    """Class 1 if the mean of its input is above a threshold."""

    def __init__(self, threshold):
        super().__init__()
        self.layer = nn.Linear(1, 2)
        with torch.no_grad():
            self.layer.weight[:, 0] = torch.tensor([-1.0, 1.0])
            self.layer.bias[:] = torch.tensor([threshold, -threshold])

    def forward(self, images):
        return self.layer(images.flatten(1).mean(1, keepdim=True))


def bright(channels, dark=0.2, light=0.47):
    noise = np.random.default_rng(0).uniform(-0.02, 0.02, (len(LABELS), channels, 4, 4))
    return (torch.from_numpy(noise) + torch.where(LABELS == 1, light, dark)[:, None, None, None]).float()


def hint(network, images, labels=LABELS, **options):
    return find_input_range(make_subject(network, images, labels=labels, **options))


@pytest.mark.parametrize(
    ("threshold", "channels", "light", "name"),
    [
        (0.0, 3, 0.47, "ImageNet's normalization"),
        (0.0, 1, 0.47, "mean 0 and standard deviation 1"),
        (0.2, 3, 0.62, "pixels from -1 to 1"),
        (100.0, 3, 0.47, "pixels from 0 to 255"),
    ],
)
def test_the_normalization_that_fits_is_named(threshold, channels, light, name):
    text = hint(Brightness(threshold), bright(channels, 0.58 if light == 0.62 else 0.2, light))
    assert f"with {name}, 30 of 30 answers would be right, instead of 15" in text


def test_one_output_and_several_labels():
    class One(Brightness):
        def forward(self, images):
            return super().forward(images)[:, 1:]

    assert "30 of 30" in hint(One(0.0), bright(3), output="sigmoid")
    several = torch.stack([1 - LABELS, LABELS], 1)
    assert "100% of the labels would be right, instead of 50%" in hint(
        Brightness(0.0), bright(3), several, output="sigmoid"
    )


def test_nothing_is_said_where_there_is_no_reason():
    images = bright(3)
    assert hint(Brightness(0.3), images) is None  # right as it is
    assert hint(Brightness(0.0), images, None) is None
    assert hint(Brightness(0.0), images - 0.3) is None  # normalized already
    assert hint(xb.models.Classifier(Brightness(100.0), MEAN, STD), images) is None
    assert hint(Brightness(0.0), images[:8], LABELS[:8]) is None  # 4 images more
    # The other answer to all images is right more often, but tells nothing.
    assert hint(Brightness(1.0), images, torch.tensor([0] * 3 + [1] * 27)) is None


def test_the_audit_states_it(tmp_path):
    audit = xb.audit(Brightness(0.0), bright(3), LABELS, explainers=["saliency"], budget=10, progress=False)
    assert "ImageNet's normalization" in str(audit)
    audit.write(tmp_path)
    assert "ImageNet&#39;s normalization" in (tmp_path / "audit.html").read_text()
    findings = json.loads((tmp_path / "audit.json").read_text())["findings"]
    assert "normalization" in [finding["key"] for finding in findings]
