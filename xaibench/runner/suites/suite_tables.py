"""A suite: what is run, as one TOML file read into frozen dataclasses.

A suite names data sets, models, seeds, explainers and metrics with their parameters, and states every default once::

    name = "my-suite"
    title = "Two sets, one network"

    [data]                          # how each set is made
    seeds = [0]
    parameters = { n_samples = 10000 }      # handed to the data sets' loaders

    [training]
    seeds = [0, 1, 2]
    epochs = 500
    lr = 0.004

    [explaining]
    samples = 200                   # the first test samples; "all" for the whole test split
    trainings = "best"              # the one of lowest validation loss, or "all"

    [[cells]]                       # every data set with every model; a cell may change how it is made and trained
    datasets = ["xai-tris/rigid-white-8x8"]
    models = ["mlp", "cnn"]
    data = { alpha = 0.7 }
    training = { lr = 0.0004 }

    [explainers]                    # name = parameters; `use` when the name is not the part's own
    integrated_gradients = {}
    lime-500 = { use = "lime", n_samples = 500 }

    [metrics]
    emd_perf = {}

    [[optional.cells]]              # run only when their models are asked for (--model)
    datasets = ["xai-tris/rigid-white-8x8"]
    models = ["vit"]

    [optional.explainers]           # beside the others, in these cells alone
    legrad = {}

    [quick]                         # what `--quick` changes: any of the tables above
    training = { epochs = 10 }
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from xaibench.core.frozen import Frozen
from xaibench.evaluation.protocol import SUITE_DEFAULT, Protocol
from xaibench.runner.suites.entry_places import Origin

#: What stands in a suite for the networks that are given with ``--model``.
MODEL = "$MODEL"

#: How a network comes to its weights.
METHODS = ("fit", "head", "all", "none")


class SuiteError(ValueError):
    """A suite that cannot be run as it is written; the message names the file and the entry."""


@dataclass(frozen=True)
class NamedPart:
    """A named part with its parameters, as a suite states it.

    Attributes:
        name: How it is called in the suite, the scores and the report.
        use: Registered name or ``"package.module:name"`` of the part itself.
        parameters: Keyword arguments.
    """

    name: str
    use: str
    parameters: Frozen = field(default_factory=Frozen)

    def as_json(self) -> list[object]:
        """What decides what it does, for the keys of jobs; its name in the suite decides nothing."""
        return [self.use, self.parameters.as_json()]


@dataclass(frozen=True)
class Data:
    """How each data set is made: once for each seed, with the same parameters."""

    seeds: tuple[int, ...] = (0,)
    parameters: Frozen = field(default_factory=Frozen)


@dataclass(frozen=True)
class Training:
    """How each network is trained, once for each seed; see :func:`xaibench.models.fit`.

    ``stack`` networks of one data set and architecture are trained in one go, as one job. ``method`` is ``"fit"``
    (from scratch), ``"head"`` (the last layer of a pretrained network), ``"all"`` (the whole of one) or ``"none"`` (as
    it is). ``precision`` is how float32 is multiplied: ``"float32"``, ``"tf32"`` or ``"bfloat16"``.
    """

    seeds: tuple[int, ...] = (0,)
    epochs: int = 500
    lr: float = 0.004
    batch_size: int = 512
    loss: str = "logits"
    stack: int = 3
    method: str = "fit"
    precision: str = "float32"


@dataclass(frozen=True)
class Explaining:
    """Which samples and networks are explained, and what of the network (see :func:`xaibench.explain`).

    ``output="default"`` leaves it to each explainer. ``scored="correct"`` restricts tables to the samples that every
    explained network classifies correctly; ``"all"`` takes all. ``protocol`` says how maps are cut by IoU, precision,
    recall and F1 (:mod:`xaibench.evaluation.protocol`). ``samples_per_job`` cuts the explaining of many samples into
    jobs for many workers (0 = one job); what an explainer draws, it draws anew in each, and ``pfi`` permutes within
    one. ``precision`` is in what maps are made, and in what metrics ask the model: ``"float32"``, ``"tf32"``,
    ``"bfloat16"`` or ``"float64"``; ``"own"`` is that of each network (ours: float64), with float32 multiplied exactly.
    ``pictures=False`` keeps the images themselves out of the page and of what it is made from: of photographs that must
    not be passed on it shows numbers and maps alone.
    """

    samples: int | Literal["all"] = 200
    samples_per_job: int = 0
    trainings: Literal["best", "all"] = "best"
    output: str = "default"
    seed: int = 0
    scored: Literal["correct", "all"] = "correct"
    protocol: Protocol = SUITE_DEFAULT
    precision: str = "own"
    pictures: bool = True


@dataclass(frozen=True)
class Cell:
    """Data sets and models that are combined, and what is different about their making and their training.

    The name of a data set may hold a variable of the environment, as ``"photographs:$XAIBENCH_DATA"`` does, and that of
    a model may be left open: ``"$MODEL"``, ``"disconnected:$MODEL"`` (:data:`MODEL`).
    A text in ``data`` may name variables of the environment, as ``images_dir = "$XAIBENCH_IMAGES"`` does. ``build``
    holds parameters of the models, such as ``fold = "pet"``; ``label`` names the cell's set in tables, where the same
    set stands in two cells; ``explainers`` are those of the suite's that explain its networks, ``metrics`` those that
    score them, where not all do; ``number`` counts the cells of the file from 0.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    data: Frozen = field(default_factory=Frozen)
    training: Frozen = field(default_factory=Frozen)
    build: Frozen = field(default_factory=Frozen)
    label: str = ""
    explainers: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    number: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class OptionalCells:
    """Cells that are run only when their models are asked for, and what explains in them beside the suite's explainers.

    A suite as published stays what it is, and can all the same have a column that its paper does not.
    """

    cells: tuple[Cell, ...] = ()
    explainers: tuple[NamedPart, ...] = ()


@dataclass(frozen=True)
class Suite:
    """Everything a run is made of. Read one with :func:`~xaibench.runner.suites.suite_files.load_suite`.

    Attributes:
        name: Short, for files and folders.
        title: For people.
        cells: Which data sets are combined with which models.
        explainers: What explains every network.
        metrics: What scores every map.
        data: How each data set is made.
        training: How each network is trained.
        explaining: Which samples and networks are explained.
        citation: What to cite beside the parts.
        optional: What :func:`~xaibench.runner.suites.narrowing.narrowed` adds for models that are asked for.
        origin: The file that it was read from.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    explainers: tuple[NamedPart, ...]
    metrics: tuple[NamedPart, ...]
    data: Data = field(default_factory=Data)
    training: Training = field(default_factory=Training)
    explaining: Explaining = field(default_factory=Explaining)
    citation: str = ""
    optional: OptionalCells = field(default_factory=OptionalCells)
    origin: Origin = field(default_factory=Origin, compare=False, repr=False)

    def training_of(self, cell: Cell) -> Training:
        """How the networks of a cell are trained.

        Args:
            cell: One of its cells.

        Returns:
            The suite's training with what the cell changes.
        """
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in cell.training.items()
        }
        return replace(self.training, **own)

    def explainers_of(self, cell: Cell) -> tuple[NamedPart, ...]:
        """What explains the networks of a cell.

        Args:
            cell: One of its cells.

        Returns:
            Those that the cell names, of the suite's; all of them where it names none.
        """
        return tuple(part for part in self.explainers if part.name in (cell.explainers or (part.name,)))

    def metrics_of(self, cell: Cell) -> tuple[NamedPart, ...]:
        """What scores the maps of a cell.

        Args:
            cell: One of its cells.

        Returns:
            Those that the cell names, of the suite's; all of them where it names none.
        """
        return tuple(metric for metric in self.metrics if metric.name in (cell.metrics or (metric.name,)))


def check_variables(suite: Suite) -> None:
    """Look whether the variables of the environment that the suite's data name are set.

    Raises:
        SuiteError: If one is not; names it and where it stands.
    """
    places = [("[data] parameters", suite.data.parameters)]
    places += [(f"the cell of {', '.join(cell.datasets)}", cell.data) for cell in suite.cells]
    for place, parameters in places:
        for name, value in parameters.items():
            for variable in re.findall(r"\$\{?(\w+)", value) if isinstance(value, str) else ():
                if variable not in os.environ:
                    raise SuiteError(
                        f"{suite.name}, {place}: {name} is {value!r}, but the environment has no {variable}. Set it "
                        f"({variable}=... xaibench run ...), or run a copy of the suite without these data sets."
                    )


def with_folders(suite: Suite) -> Suite:
    """The suite with the variables of the environment in the names of its data sets replaced.

    Raises:
        SuiteError: If one is not set; says how to give it.
    """
    cells = []
    for cell in suite.cells:
        for variable in re.findall(r"\$\{?(\w+)", " ".join(cell.datasets)):
            if variable not in os.environ:
                option = "--root DIR (root= in Python), or " if variable == "XAIBENCH_DATA" else ""
                raise SuiteError(
                    f"{suite.name} is about a folder of yours, {', '.join(cell.datasets)}, but the environment has no "
                    f"{variable}. Give {option}{variable}=... xaibench run {suite.name}."
                )
        cells.append(replace(cell, datasets=tuple(map(os.path.expandvars, cell.datasets))))
    return replace(suite, cells=tuple(cells))


def with_variables(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with ``$NAME`` replaced by that variable of the environment: a folder lies elsewhere on each machine.

    Example:
        >>> import os
        >>> os.environ["MY_IMAGES"] = "/data/images"
        >>> with_variables({"images_dir": "$MY_IMAGES", "alpha": 0.1})
        {'images_dir': '/data/images', 'alpha': 0.1}
    """
    return {name: os.path.expandvars(value) if isinstance(value, str) else value for name, value in parameters.items()}
