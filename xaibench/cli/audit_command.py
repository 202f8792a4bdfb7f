"""``xaibench audit``: which explanations of a network can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.options import takes_request
from xaibench.cli.terminal import clear_errors, echo

if TYPE_CHECKING:
    from xaibench.auditing.plan import AuditPlan


@dataclass(frozen=True)
class AuditRequest:
    """A request for an audit of a network on images, both from files.

    Attributes:
        network: package.module:name, FILE.py:name, a TorchScript file (a program: opening it runs it) or an ONNX file,
            all of which get pixels in [0, 1] as they are; or torchvision:NAME, timm:NAME, hf:OWNER/NAME, or a folder
            with config.json, which normalize inside.
        images: Folder of images or volumes (with class folders or without), Parquet file, or name of a data set.
        masks: Folder of masks with the names of their images.
        classes: Names of the network's classes in the order of its outputs, such as cat,dog; class folders must have
            these names. [default: the names that the network carries]
        no_labels: Do not use the names of class folders as labels.
        size: Side of the images in pixels. [default: the network's]
        out: Folder of the evidence sheet and audit.json.
        samples: Number of images, drawn at random; at least 8.
        explainers: Their names, or all. [default: some of each family]
        output: What is explained: probability, sigmoid (networks with independent labels), logit or margin.
        budget: Passes per image for each explainer. [default: what --minutes allow]
        minutes: Time that the audit may take on two cores.
        train: Also fine-tune a copy of the network to react to a pattern.
        negatives: Classes without masks in which there is nothing to mark, such as normal.
        window: Center and width of the gray values that are shown, such as 40,400; default as stated in the file.
        slices: Slices of NIfTI volumes that are images, such as 40,60. [default: all]
        volumes: Read NIfTI files whole, as volumes; .npy and .npz arrays always are.
        random_weights: Do not load pretrained weights, as a test.
        seed: Seed of all random choices.
        device: cpu, cuda or auto.
    """

    network: str
    images: str
    masks: Path | None = None
    classes: Sequence[str] | None = None
    no_labels: bool = False
    size: int | None = None
    out: Path = Path("audit")
    samples: int = 30
    explainers: Sequence[str] | None = None
    output: str | None = None
    budget: int | None = None
    minutes: float = 15.0
    train: bool = False
    negatives: Sequence[str] | None = None
    window: str | None = None
    slices: str | None = None
    volumes: bool = False
    random_weights: bool = False
    seed: int = 0
    device: str = "auto"


@app.command()
@takes_request
def audit(
    request: AuditRequest,
    plan: Annotated[bool, typer.Option("--plan", help="Only print what would be done and how long it takes.")] = False,
) -> None:
    """Find out which explanations of a network can be trusted on your images, and write an evidence sheet."""
    with clear_errors():
        from xaibench.auditing import audit as run_audit
        from xaibench.data import open_images
        from xaibench.data.volume_folder import has_volumes
        from xaibench.models import open_network

        options: dict[str, Any] = {"masks": request.masks, "window": request.window, "slices": request.slices}
        options["negatives"] = request.negatives or ()
        weights: dict[str, Any] = {"classes": request.classes, "pretrained": not request.random_weights}
        if request.volumes or has_volumes(request.images):
            collection = open_images(request.images, size=request.size, volumes=True, **options)
            opened = open_network(request.network, size=collection.image_shape[1:], **weights)
        else:
            opened = open_network(request.network, size=request.size, **weights)
            channels, *sides = opened.in_shape
            if len(sides) == 2:  # a 3-D network takes the volumes of a data set as they are
                options |= {"size": tuple(sides), "channels": channels if channels in (1, 3) else None}
            collection = open_images(request.images, **options)
        found = run_audit(
            opened.module,
            collection,
            False if request.no_labels else None,
            classes=opened.classes,
            name=opened.name,
            description={
                "Network from": opened.reference,
                "Images from": collection.name,
                "Pixels": opened.preprocessing.pixels,
            },
            folder=request.out,
            show_plan=_print_and_stop if plan else None,
            **{name: getattr(request, name) for name in _ARGUMENTS},
        )
        echo(str(found))
        echo(f"\nEvidence sheet: {(request.out / 'audit.html').resolve()}")


#: Fields of a request that are arguments of :func:`xaibench.audit`.
_ARGUMENTS = ("explainers", "output", "samples", "budget", "minutes", "train", "seed", "device")


def _print_and_stop(plan: AuditPlan) -> None:
    echo(str(plan))
    raise typer.Exit
