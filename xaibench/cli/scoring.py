"""``xaibench score``: maps that were computed elsewhere, scored on a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.app import app
from xaibench.cli.terminal import Root, clear_errors, count_bar, names

if TYPE_CHECKING:
    from torch import nn

    from xaibench.data import Split
    from xaibench.evaluation import Evaluation


@app.command()
def score(
    maps: Annotated[Path, typer.Argument(help="Your maps: .npz, .npy or .safetensors. See --template.")],
    dataset: Annotated[str, typer.Option(help="The set they are of (see: xaibench list datasets), or folder:DIR.")],
    root: Root = None,
    split: Annotated[str, typer.Option(help="train, val, test or all: which samples the maps are of.")] = "test",
    classes: Annotated[str | None, typer.Option(help="Only these, such as dog,cat.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    model: Annotated[
        str | None,
        typer.Option(
            help="For metrics that ask the model: yours, as package.module:name, or a pretrained one.",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[str | None, typer.Option(help="Names, with commas between.", show_default=False)] = None,
    protocol: Annotated[str, typer.Option(help="How maps are cut: scaled or published.")] = "scaled",
    out: Annotated[Path | None, typer.Option(help="Write every score to this CSV file.", show_default=False)] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Write MAPS.npz with the samples' ids, to be filled in, and stop.")
    ] = False,
) -> None:
    """Score saliency maps that were computed elsewhere, beside controls that know no model."""
    with clear_errors():
        from xaibench import evaluation

        samples = _samples(dataset, root, split, classes, seed)
        if template:
            evaluation.write_template(maps, samples)
            typer.echo(f"{maps}: {len(samples)} samples; fill in 'maps', then run the same without --template.")
            return
        found = evaluation.read_maps(maps, evaluation.sample_ids(samples))
        with count_bar("scoring", unit="sample") as progress:
            result = _evaluated(
                found,
                samples,
                metrics=names(metrics),
                model=_model(model, dataset, samples),
                protocol=protocol,
                label=maps.stem,
                progress=progress,
            )
        typer.echo(str(result))
        if out is not None:
            result.scores.to_csv(out, index=False)
            typer.echo(f"\nScores: {out.resolve()}")


def _samples(dataset: str, root: Path | None, split: str, classes: str | None, seed: int) -> Split:
    from xaibench.data import DATASETS, load
    from xaibench.data.annotated import AnnotatedSet

    if split not in ("train", "val", "test", "all"):
        raise typer.BadParameter(f"--split {split}: expected train, val, test or all.")
    parameters: dict[str, Any] = {}
    if isinstance(DATASETS.resolve(dataset), AnnotatedSet):
        parameters = {"root": root, "classes": classes}
        if split == "all":
            parameters["splits"] = (0.0, 0.0, 1.0)
    elif split == "all":
        raise typer.BadParameter("--split all is for annotated sets; give train, val or test.")
    found: Split = getattr(load(dataset, seed=seed, **parameters), "test" if split == "all" else split)
    return found


def _model(target: str | None, dataset: str, samples: Split) -> nn.Module | None:
    """A user's own model, or a pretrained one whose classes are folded to those of the set, where that is known."""
    if target is None:
        return None
    from xaibench.data import DATASETS
    from xaibench.models import FOLDS, MODELS, build
    from xaibench.registry import import_target

    if MODELS.canonical(target) not in MODELS:
        found = import_target(target, "model")
        made: nn.Module = found() if isinstance(found, type) or not hasattr(found, "parameters") else found
        return made
    fold = DATASETS.canonical(dataset)
    if fold not in FOLDS:
        raise typer.BadParameter(
            f"--model {target}: a network of ImageNet knows no classes of {fold}. Train a head and give the trained "
            f"network as package.module:name; known without training: {', '.join(FOLDS)}."
        )
    channels, height, width = samples[0][0].shape
    return build(target, (channels, height, width), len(FOLDS[fold]), fold=fold)


def _evaluated(found: Any, samples: Split, *, label: str, **options: Any) -> Evaluation:
    from xaibench.evaluation import evaluate

    try:
        return evaluate({label: found}, samples, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
