"""``xaibench audit``: which explanations of a network can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.completion import completer
from xaibench.cli.options import described, names, option
from xaibench.cli.terminal import clear_errors, echo

if TYPE_CHECKING:
    from xaibench.auditing.plan import AuditPlan


@app.command()
def audit(
    network: Annotated[
        str,
        typer.Argument(
            help="package.module:name, FILE.py:name, a TorchScript file (a program: opening it runs it) or an ONNX "
            "file, all of which get pixels in [0, 1] as they are; or torchvision:NAME, timm:NAME, hf:OWNER/NAME, or a "
            "folder with config.json, which normalize inside."
        ),
    ],
    images: Annotated[
        str,
        typer.Option(
            help="Folder of images or volumes (with class folders or without), Parquet file, or name of a data set."
        ),
    ],
    masks: Annotated[Path | None, described("Folder of masks with the names of their images.")] = None,
    classes: Annotated[
        str | None,
        described(
            "Names of the network's classes in the order of its outputs, such as cat,dog; class folders must have "
            "these names. [default: the names that the network carries]"
        ),
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Do not use the names of class folders as labels.")
    ] = False,
    size: Annotated[
        int | None,
        described("Side of the images in pixels. [default: the network's]", min=8),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the evidence sheet and audit.json.")] = Path("audit"),
    samples: Annotated[int, typer.Option(min=8, help="Number of images, drawn at random.")] = 30,
    explainers: Annotated[
        str | None,
        described(
            "Comma-separated names, or all. [default: some of each family]",
            autocompletion=completer("explainers", several=True),
        ),
    ] = None,
    output: Annotated[
        str | None,
        described("What is explained: probability, sigmoid (networks with independent labels), logit or margin."),
    ] = None,
    budget: Annotated[
        int | None,
        described("Passes per image for each explainer. [default: what --minutes allow]", min=2),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time that the audit may take on two cores.")] = 15.0,
    plan: Annotated[bool, typer.Option("--plan", help="Only print what would be done and how long it takes.")] = False,
    train: Annotated[
        bool, typer.Option("--train", help="Also fine-tune a copy of the network to react to a pattern.")
    ] = False,
    negatives: Annotated[str | None, option("negatives")] = None,
    window: Annotated[str | None, option("window")] = None,
    slices: Annotated[
        str | None,
        described("Slices of NIfTI volumes that are images, such as 40,60. [default: all]"),
    ] = None,
    volumes: Annotated[
        bool,
        typer.Option("--volumes", help="Read NIfTI files whole, as volumes; .npy and .npz arrays always are."),
    ] = False,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Do not load pretrained weights, as a test.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
) -> None:
    """Find out which explanations of a network can be trusted on your images, and write an evidence sheet."""
    with clear_errors():
        from xaibench.auditing import audit as run_audit
        from xaibench.data import open_images
        from xaibench.data.volume_folder import has_volumes
        from xaibench.models import open_network

        known = names(classes)
        options: dict[str, Any] = {"slices": slices, "negatives": names(negatives) or ()}
        if volumes or has_volumes(images):
            collection = open_images(images, masks=masks, window=window, size=size, volumes=True, **options)
            shape = collection.image_shape[1:]
            opened = open_network(network, classes=known, size=shape, pretrained=not random_weights)
        else:
            opened = open_network(network, classes=known, size=size, pretrained=not random_weights)
            channels, *sides = opened.in_shape
            if len(sides) == 2:  # a 3-D network takes the volumes of a data set as they are
                options |= {"size": (sides[0], sides[1]), "channels": channels if channels in (1, 3) else None}
            collection = open_images(images, masks=masks, window=window, **options)
        description: dict[str, Any] = {"Network from": opened.reference, "Images from": collection.name}
        description["Pixels"] = opened.preprocessing.pixels
        found = run_audit(
            opened.module,
            collection,
            False if no_labels else None,
            classes=opened.classes,
            explainers=explainers if explainers == "all" else names(explainers),
            output=output,
            samples=samples,
            budget=budget,
            minutes=minutes,
            train=train,
            name=opened.name,
            description=description,
            seed=seed,
            device=device,
            folder=out,
            show_plan=_print_and_stop if plan else None,
        )
        echo(str(found))
        echo(f"\nEvidence sheet: {(out / 'audit.html').resolve()}")


def _print_and_stop(plan: AuditPlan) -> None:
    echo(str(plan))
    raise typer.Exit
