"""``xaibench score``: score maps that were computed elsewhere."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from xaibench.cli.application import app
from xaibench.cli.completion import completer
from xaibench.cli.options import described, names, option
from xaibench.cli.terminal import clear_errors, echo, given, made_folder_of
from xaibench.core.files import name_file_in_errors
from xaibench.core.messages import listed

if TYPE_CHECKING:
    from torch import nn

    from xaibench.data import Split
    from xaibench.evaluation import Evaluation

#: Number of samples whose maps are on the page.
_N_SHOWN = 8


@app.command()
def score(
    maps: Annotated[
        Path, typer.Argument(help="Your maps: .npz, .npy or .safetensors, or a folder of them. See --template.")
    ],
    dataset: Annotated[
        str,
        typer.Option(
            help="Data set of the maps (see: xaibench list datasets), folder:DIR or volumes:DIR.",
            autocompletion=completer("datasets"),
        ),
    ],
    root: Annotated[Path | None, option("root")] = None,
    size: Annotated[int | None, option("size")] = None,
    split: Annotated[str, typer.Option(help="Split of the maps: train, val, test or all.")] = "test",
    classes: Annotated[
        str | None,
        described("Only these classes, such as dog,cat; with --model, in the order of its outputs."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    model: Annotated[
        str | None,
        described("For metrics that call the model: your own, as package.module:name, or a pretrained one."),
    ] = None,
    metrics: Annotated[
        str | None,
        described("Comma-separated names.", autocompletion=completer("metrics", several=True)),
    ] = None,
    protocol: Annotated[
        str | None,
        described("How maps are binarized: area (the default), scaled or published."),
    ] = None,
    sign: Annotated[str, typer.Option(help="How metrics with masks read maps: by magnitude, or signed.")] = "magnitude",
    scored: Annotated[
        str, typer.Option(help="With --model: score only correctly classified samples (correct), or all.")
    ] = "correct",
    out: Annotated[Path | None, described("Write all scores to this CSV file.")] = None,
    html: Annotated[Path | None, described("Write a page with the table and some of the maps.")] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Write MAPS.npz with the sample ids, to be filled in, and stop.")
    ] = False,
    negatives: Annotated[str | None, option("negatives")] = None,
    window: Annotated[str | None, option("window")] = None,
) -> None:
    """Score saliency maps that were computed elsewhere, together with controls that do not use the model."""
    with clear_errors():
        from xaibench import evaluation
        from xaibench.evaluation.protocol import DEFAULT

        for file in (maps,) if template else (out, html):
            made_folder_of(file)
        options = given(size=size, negatives=negatives, window=window)
        samples = _load_samples(dataset, root, split, classes, seed, options)
        if template:
            evaluation.write_template(maps, samples)
            echo(f"{maps}: {len(samples)} samples; fill in 'maps', then run the same without --template.")
            return
        values = evaluation.read_maps(maps, samples.ids)
        result = evaluation.evaluate(
            {maps.stem: values},
            samples,
            metrics=names(metrics),
            model=_load_model(model, dataset, classes, samples),
            protocol=cast(Any, protocol or DEFAULT),
            sign=cast(Any, sign),
            scored=cast(Any, scored),
        )
        head, *lines = str(result).splitlines()
        dimmed = [typer.style(line, dim=line.partition(" ")[0] in result.controls or None) for line in lines]
        echo("\n".join([typer.style(head, bold=True), *dimmed]))
        if html is not None:
            page = _render_page(result, maps.stem, values, samples)
            with name_file_in_errors(html):
                html.write_text(page, encoding="utf-8")
            echo(f"\nPage: {html.resolve()}")
        if out is not None:
            from xaibench.runfolder.sanitize import quote_formula

            with name_file_in_errors(out):
                result.scores.map(quote_formula).to_csv(out, index=False)
            echo(f"\nScores: {out.resolve()}")


def _render_page(result: Evaluation, name: str, maps: Any, samples: Split) -> str:
    """Render a self-contained page with the table and the maps of the first scored samples."""
    import torch

    from xaibench.core.markup import html_page
    from xaibench.plots import show
    from xaibench.plots.figures import encode
    from xaibench.plots.maps import VolumeFigure

    numbers = {identity: number for number, identity in enumerate(samples.ids)}
    chosen = [numbers[identity] for identity in result.scores["sample"].drop_duplicates()[:_N_SHOWN]]
    images, masks, _ = samples[chosen]
    spacing = samples.metric_inputs(torch.tensor(chosen)).get("spacing")
    labels = [samples.ids[number] for number in chosen]
    figure = show(images, {name: maps[chosen]}, masks, labels=labels, spacing=spacing)
    if isinstance(figure, VolumeFigure):
        return html_page(f"{name}: scores", f"{result._repr_html_()}<h2>Maps</h2>{figure._repr_html_()}")
    return html_page(f"{name}: scores", result._repr_html_(), pictures={"Maps": encode(figure, "png")})


def _load_samples(
    dataset: str, root: Path | None, split: str, classes: str | None, seed: int, options: dict[str, Any]
) -> Split:
    from xaibench.data import DATASETS, load
    from xaibench.data.annotated import AnnotatedSet

    if split not in ("train", "val", "test", "all"):
        raise typer.BadParameter(f"--split {split}: expected train, val, test or all.")
    parameters: dict[str, Any] = {}
    if isinstance(DATASETS.resolve(dataset), AnnotatedSet):
        parameters = {"root": root, "classes": classes} | options
        if split == "all":
            parameters["splits"] = (0.0, 0.0, 1.0)
    elif "size" in options:
        raise typer.BadParameter(f"--size is for annotated data sets, and {dataset} has a fixed size; leave it out.")
    elif options:
        raise typer.BadParameter(f"--{next(iter(options))} is for folders of your own, which {dataset} is not.")
    elif split == "all":
        raise typer.BadParameter(
            f"--split all is for annotated data sets, which {dataset} is not; give train, val or test."
        )
    samples: Split = getattr(load(dataset, seed=seed, **parameters), "test" if split == "all" else split)
    return samples


def _load_model(target: str | None, dataset: str, classes: str | None, samples: Split) -> nn.Module | None:
    """Return the user's model, or a pretrained one with its classes mapped to the classes of the data set."""
    if target is None:
        return None
    from xaibench.data import DATASETS
    from xaibench.data.disk.annotated_set import DirectorySet
    from xaibench.data.photographs.image_folder import imagenet_synsets
    from xaibench.models import FOLDS, MODELS, build

    if ":" in target:
        folder = DATASETS.resolve(dataset)
        if classes is None and isinstance(folder, DirectorySet) and folder.info.classes != imagenet_synsets():
            raise typer.BadParameter(
                f"--model {target}: which output of the network is which class of {dataset} is not known. Give its "
                f"classes, {listed(folder.info.classes, most=20)}, in the order of the outputs as --classes."
            )
        return _import_model(target)
    MODELS.target(target)
    fold = DATASETS.canonical(dataset)
    if fold not in FOLDS:
        raise typer.BadParameter(
            f"--model {target}: its classes can be mapped to those of {', '.join(FOLDS)} only, not to those of {fold}. "
            "Train it, and give the trained network as package.module:name."
        )
    channels, height, width = samples[0][0].shape
    return build(target, (channels, height, width), len(FOLDS[fold]), fold=fold)


def _import_model(target: str) -> nn.Module:
    from torch import nn

    from xaibench.registry.table import import_target

    network = import_target(target, "model")
    if not isinstance(network, nn.Module) and callable(network):
        try:
            inspect.signature(network).bind()
        except TypeError as error:
            raise typer.BadParameter(
                f"--model {target}: {error}, expected a network, or a function without arguments that returns one."
            ) from error
        network = network()
    if not isinstance(network, nn.Module):
        raise typer.BadParameter(
            f"--model {target}: got {type(network).__name__}, expected a torch.nn.Module, or a function that "
            "returns one."
        )
    return network
