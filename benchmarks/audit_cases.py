"""Audits of five networks as users have them, by the command line; prints verdicts and times.

    python benchmarks/audit_cases.py [--photographs DIR] [--out DIR] [CASE ...]

- ``efficientnet``: EfficientNet-Lite0 with its ImageNet weights on 30 photographs (``--photographs``, labeled).
- ``tag``: a ResNet-18 trained on generated slices in 16-bit DICOM files, in which the scanner's tag tells the class.
  The audit must name the corner of the tag, and must not support explainers that miss it.
- ``random``: the same architecture with random weights. Nothing may be supported.
- ``labels``: a network for independent labels that ends in a sigmoid, on images in an array.
- ``transformer``: a vision transformer of Hugging Face transformers, trained on the slices with the tag.

Networks are trained here, on the CPU, in less than a minute each. Needs the extras medical, transformers and offline.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import xaibench as xb

SIDE, TRAINING, IMAGES = 64, 360, 30
CLASSES = ("nodule", "normal")
#: What the edge filter and the map of another network are called; they know nothing of the network.
DECOYS = """
import torch
import xaibench as xb

def edges(model, images, targets):
    return (images - images.roll(1, 3)).abs().sum(1) + (images - images.roll(1, 2)).abs().sum(1)
"""
NETWORK = """
from pathlib import Path
import torch, torchvision

def network():
    model = torchvision.models.resnet18(weights=None, num_classes=2)
    weights = Path(__file__).with_name("weights.pt")
    if weights.exists():
        model.load_state_dict(torch.load(weights, weights_only=True))
    return model.eval()
"""


def slices(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Slices like those of a CT, ``[N, 64, 64]`` uint16, and their class. Class 0 has a tag at the bottom left."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    images, labels = np.empty((count, SIDE, SIDE), np.uint16), rng.integers(2, size=count)
    for index in range(count):
        body = ((rows / rng.uniform(0.35, 0.45)) ** 2 + (columns / rng.uniform(0.35, 0.45)) ** 2 < 1) * 900.0
        for _ in range(4):  # organs, in both classes
            center = rng.uniform(-0.25, 0.25, 2)
            distance = (rows - center[0]) ** 2 + (columns - center[1]) ** 2
            body += (distance < rng.uniform(0.04, 0.12) ** 2) * rng.uniform(-300, 300)
        body += rng.normal(0, 60, (SIDE, SIDE))
        if labels[index] == 0:  # an L and a bar
            body[-12:-4, 4:6] = body[-6:-4, 4:10] = body[-12:-6:2, 12] = 1400
        images[index] = np.clip(body + 400, 0, 4095)
    return images, labels


def write_dicom(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Write one file per slice, in a folder for each class."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = CTImageStorage, ExplicitVRLittleEndian
        meta.MediaStorageSOPInstanceUID = generate_uid()
        file = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
        file.PatientID, file.Modality, file.PhotometricInterpretation = f"patient{index}", "CT", "MONOCHROME2"
        file.Rows, file.Columns, file.SamplesPerPixel, file.PixelRepresentation = SIDE, SIDE, 1, 0
        file.BitsAllocated, file.BitsStored, file.HighBit = 16, 12, 11
        file.WindowCenter, file.WindowWidth = 1000, 2000
        file.PixelData = image.tobytes()
        file.save_as(place / f"slice{index}.dcm", enforce_file_format=True)


def windowed(images: np.ndarray) -> torch.Tensor:
    """The slices as the library reads them: 3 channels in [0, 1]."""
    shown = np.clip((images.astype(np.float32) - 999.5) / 1999 + 0.5, 0, 1)
    return torch.from_numpy(shown)[:, None].repeat(1, 3, 1, 1)


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, loss: Any, lr: float) -> nn.Module:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(40):
            outputs = model(images[part])
            optimizer.zero_grad()
            loss(getattr(outputs, "logits", outputs), labels[part]).backward()
            optimizer.step()
    return model.eval()


def command(folder: Path, network: str, images: str, *options: str) -> str:
    arguments = [sys.executable, "-m", "xaibench", "audit", network, "--images", images, "--out", str(folder), *options]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise SystemExit(done.stderr or done.stdout)
    return done.stdout


def efficientnet(folder: Path, photographs: str | None) -> str:
    if photographs is None:
        return "skipped: needs --photographs"
    return command(folder, "efficientnet_lite0", f"photographs:{photographs}")


def _resnet(folder: Path, trained: bool) -> str:
    import torchvision

    (folder / "net.py").write_text(NETWORK)
    (folder / "decoys.py").write_text(DECOYS)
    if trained:
        images, labels = slices(TRAINING, 0)
        torch.manual_seed(0)
        model = torchvision.models.resnet18(weights=None, num_classes=2)
        train(model, windowed(images), torch.from_numpy(labels), 12, nn.functional.cross_entropy, 1e-3)
        torch.save(model.state_dict(), folder / "weights.pt")
    write_dicom(folder / "scans", *slices(IMAGES, 1))
    explainers = (
        "saliency,input_x_gradient,integrated_gradients,smoothgrad,gradcam,layercam,lrp_gamma,occlusion,decoys:edges"
    )
    options = ("--size", str(SIDE), "--classes", ",".join(CLASSES), "--explainers", explainers)
    return command(folder, f"{folder / 'net.py'}:network", str(folder / "scans"), *options)


def labels(folder: Path) -> str:
    rng = np.random.default_rng(0)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = rng.normal(0.4, 0.1, (count, 1, 32, 32))
        wanted = rng.integers(2, size=(count, 2))
        for image, (striped, spotted) in zip(images, wanted, strict=True):
            (a, b), (c, d) = rng.integers(0, 22, 2), rng.integers(0, 22, 2)
            if striped:
                image[0, a : a + 10 : 3, b : b + 10] = 0.9
            if spotted:
                image[0, c : c + 6, d : d + 6] = 0.05
        return torch.from_numpy(images).float(), torch.from_numpy(wanted)

    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 2), nn.Sigmoid())
    images, wanted = draw(600)
    train(model, images, wanted.float(), 25, nn.functional.binary_cross_entropy, 3e-3)
    shown, truth = draw(IMAGES)
    audit = xb.audit(model, shown, truth, output="sigmoid", classes=["striped", "spotted"], progress=False)
    audit.write(folder)
    return str(audit)


def transformer(folder: Path) -> str:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    config = ViTConfig(**sizes, image_size=SIDE, patch_size=8, num_labels=2, attn_implementation="eager")
    config.id2label = dict(enumerate(CLASSES))
    torch.manual_seed(0)
    model = ViTForImageClassification(config)
    images, wanted = slices(TRAINING, 0)
    train(model, windowed(images), torch.from_numpy(wanted), 15, nn.functional.cross_entropy, 1e-3)
    model.save_pretrained(folder / "vit")
    write_dicom(folder / "scans", *slices(IMAGES, 1))
    return command(folder, str(folder / "vit"), str(folder / "scans"))


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="all by default")
    parser.add_argument("--photographs", help="folder of labeled photographs of ImageNet's classes")
    parser.add_argument("--out", type=Path, help="folder of the evidence sheets; a temporary one by default")
    chosen = parser.parse_args()
    out = chosen.out or Path(tempfile.mkdtemp())
    cases = {
        "efficientnet": lambda folder: efficientnet(folder, chosen.photographs),
        "tag": lambda folder: _resnet(folder, trained=True),
        "random": lambda folder: _resnet(folder, trained=False),
        "labels": labels,
        "transformer": transformer,
    }
    for name in chosen.cases or cases:
        folder = (out / name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        print(f"== {name}\n{cases[name](folder)}\n{time.monotonic() - started:.0f} s with training\n", flush=True)


if __name__ == "__main__":
    main()
