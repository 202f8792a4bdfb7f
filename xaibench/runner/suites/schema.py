"""The contents of a suite: one TOML file, as frozen dataclasses.

A suite lists data sets, models, seeds, explainers and metrics with their parameters::

    name = "my-suite"
    title = "Two sets, one network"

    [data]                          # how the data sets are made
    seeds = [0]
    parameters = { n_samples = 10000 }      # passed to the data sets

    [training]
    seeds = [0, 1, 2]
    epochs = 500
    lr = 0.004

    [explaining]
    samples = 200                   # the first test samples; "all" for the whole test split
    trainings = "best"              # the one with the lowest validation loss, or "all"

    [[cells]]                       # every data set with every model; a cell can change the data and the training
    datasets = ["xai-tris/rigid-white-8x8"]
    models = ["mlp", "cnn"]
    data = { alpha = 0.7 }
    training = { lr = 0.0004 }

    [explainers]                    # name = parameters; `use` when the name is not the part's own
    integrated_gradients = {}
    lime-500 = { use = "lime", n_samples = 500 }

    [metrics]
    emd_perf = {}

    [[optional.cells]]              # run only if their models are given with --model
    datasets = ["xai-tris/rigid-white-8x8"]
    models = ["vit"]

    [optional.explainers]           # in addition to the others, in these cells only
    legrad = {}

    [quick]                         # what `--quick` changes: any of the tables above
    training = { epochs = 10 }
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from xaibench.core.types import Output, Precision
from xaibench.evaluation.protocol import DEFAULT, DEFAULT_SIGN, Protocol, Sign
from xaibench.registry.parameters import Frozen
from xaibench.registry.table import UnknownNameError
from xaibench.runner.parts import ExplainerPart, MetricPart

#: Placeholder in a suite for the models that are given with ``--model``.
MODEL = "$MODEL"


#: Largest number of characters of a message.
_LONGEST = 8000


class SuiteError(ValueError):
    """A suite cannot be run as it is written.

    Args:
        message: The value received, the values expected, and what to do.
        suite: Path of the file, or name of a built-in suite.
        table: Table of the wrong entry, such as ``"[explainers.rise]"`` or ``"[[cells]] 2"``; empty if there is none.
        parameter: Name of the wrong entry in the table; empty if the whole table is wrong.

    Attributes:
        table: As above.
        parameter: As above.
    """

    def __init__(self, message: str, *, suite: str = "", table: str = "", parameter: str = "") -> None:
        if len(message) > _LONGEST:  # a whole table as the value of an entry
            message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
        entry = ", ".join(filter(None, (suite, f"{table} {parameter}".strip())))
        super().__init__(f"{entry}: {message}" if entry else message)
        self.table, self.parameter = table, parameter


@contextlib.contextmanager
def errors_of(source: str, table: str, parameter: str = "") -> Iterator[None]:
    """Name the file and table of a suite, and the parameter that caused the error, in errors inside the block.

    Raises:
        UnknownNameError: For an unknown name.
        SuiteError: For any other error: parts of the user, and libraries given strange values, may raise any.
    """
    try:
        yield
    except UnknownNameError as error:
        raise UnknownNameError(f"{source}, {table} {parameter}".rstrip() + f": {error}") from error
    except (SuiteError, ImportError, OSError):  # they name a package or a file
        raise
    except Exception as error:
        cause = getattr(error, "parameter", "") or parameter
        message = str(error) if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: {error}"
        raise SuiteError(message, suite=source, table=table, parameter=cause) from error


@dataclass(frozen=True)
class Data:
    """How each data set is made: once per seed, and once per signal-to-noise ratio in ``alphas`` if there are any."""

    seeds: tuple[int, ...] = (0,)
    parameters: Frozen = field(default_factory=Frozen)
    alphas: tuple[float, ...] = ()

    @property
    def variations(self) -> tuple[Frozen, ...]:
        """The parameters in which the data sets of one seed differ."""
        return tuple(Frozen({"alpha": alpha}) for alpha in self.alphas) or (Frozen(),)


@dataclass(frozen=True)
class Training:
    """How each network is trained, once per seed; see :func:`xaibench.models.fit`.

    One job trains ``stack`` networks of one data set and architecture together. ``method`` is ``"fit"`` (from scratch),
    ``"head"`` (the last layer of a pretrained network), ``"all"`` (all layers of a pretrained network) or ``"none"``
    (no training). ``precision`` is that of matrix products in float32; networks are built in float32.
    """

    seeds: tuple[int, ...] = (0,)
    epochs: int = 500
    lr: float = 0.004
    batch_size: int = 512
    loss: Literal["logits", "probabilities"] = "logits"
    stack: int = 3
    method: Literal["fit", "head", "all", "none"] = "fit"
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class Explaining:
    """Which samples, networks and outputs are explained (see :func:`xaibench.explain`).

    Attributes:
        samples: Number of test samples from the first one, or ``"all"``.
        samples_per_job: Largest number of samples per job, to use many workers; 0 = one job. Random numbers are drawn
            per job, and ``pfi`` permutes samples within a job.
        trainings: Explain the network with the lowest validation loss (``"best"``), or ``"all"``.
        output: The explained output; ``"default"`` is that of each explainer. With ``"sigmoid"``, metrics that call the
            network score the sigmoid, too.
        seed: Seed of the explainers.
        scored: Which samples of a network count in the tables: ``"correct"`` for those that it classifies correctly,
            ``"correct-by-all"`` for those that every explained network of the data set classifies correctly, as in
            XAI-TRIS (adding a network then changes the scores of the others), or ``"all"``.
        protocol: How IoU, precision, recall and F1 binarize maps (:mod:`xaibench.evaluation.protocol`).
        sign: Whether metrics with masks compare maps by ``"magnitude"`` or ``"signed"``
            (:mod:`xaibench.evaluation.protocol`).
        precision: Precision of the maps, and of the model outputs in metrics; ``"own"`` is that of each network
            (float64 for our small ones), with exact matrix products in float32.
        pictures: Whether the page and its files may contain the images. False for photographs that must not be
            redistributed: then only numbers and maps are shown.
        min_accuracy: Test accuracy in percent from which a network on generated data counts as having learned its task
            (XAI-TRIS, section 4.1: 80). The samples of one that has not count in no score if another network of its
            cell has.
    """

    samples: int | Literal["all"] = 200
    samples_per_job: int = 0
    trainings: Literal["best", "all"] = "best"
    output: Literal["default"] | Output = "default"
    seed: int = 0
    scored: Literal["correct", "correct-by-all", "all"] = "correct"
    protocol: Protocol = DEFAULT
    sign: Sign = DEFAULT_SIGN
    precision: Literal["own"] | Precision = "own"
    pictures: bool = True
    min_accuracy: float = 80.0


@dataclass(frozen=True)
class Cell:
    """Data sets and models: every data set is combined with every model.

    Attributes:
        datasets: Names of data sets. They can contain environment variables: ``"photographs:$XAIBENCH_DATA"``.
        models: Names of models. They can be left open: ``"$MODEL"``, ``"disconnected:$MODEL"`` (:data:`MODEL`).
        data: Parameters of the data sets, in addition to the suite's. Strings can contain environment variables:
            ``images_dir = "$XAIBENCH_IMAGES"``.
        training: Fields of :class:`Training` that differ from the suite's.
        build: Parameters of the models, such as ``fold = "pet"``.
        label: Name of the data set in tables, if it is in two cells.
        explainers: Names of the suite's explainers that explain these networks; empty = all.
        metrics: Names of the suite's metrics that score these maps; empty = all.
        table: Its table in the suite, for errors.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    data: Frozen = field(default_factory=Frozen)
    training: Frozen = field(default_factory=Frozen)
    build: Frozen = field(default_factory=Frozen)
    label: str = ""
    explainers: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    table: str = field(default="[[cells]]", compare=False, repr=False)


@dataclass(frozen=True)
class OptionalCells:
    """Cells that are run only if their models are given, with additional explainers for these cells.

    They extend a published suite without changing it.
    """

    cells: tuple[Cell, ...] = ()
    explainers: tuple[ExplainerPart, ...] = ()


@dataclass(frozen=True)
class Suite:
    """The contents of a suite. Read one with :func:`~xaibench.runner.suites.parsing.load_suite`.

    Attributes:
        name: Short name, for files and folders.
        title: Title of the report.
        cells: Which data sets are combined with which models.
        explainers: The explainers; none, like ``metrics``, if the suite only trains networks.
        metrics: The metrics.
        data: How each data set is made.
        training: How each network is trained.
        explaining: Which samples and networks are explained.
        citation: What to cite in addition to the parts.
        optional: Cells that :func:`~xaibench.runner.suites.narrowing.narrowed` adds if their models are given.
        source: Path of the file, or name of the built-in suite, for errors.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    explainers: tuple[ExplainerPart, ...] = ()
    metrics: tuple[MetricPart, ...] = ()
    data: Data = field(default_factory=Data)
    training: Training = field(default_factory=Training)
    explaining: Explaining = field(default_factory=Explaining)
    citation: str = ""
    optional: OptionalCells = field(default_factory=OptionalCells)
    source: str = field(default="the suite", compare=False, repr=False)

    def training_of(self, cell: Cell) -> Training:
        """Return the training of the networks of a cell.

        Args:
            cell: A cell of the suite.

        Returns:
            The training of the suite with the changes of the cell.
        """
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in cell.training.items()
        }
        return replace(self.training, **own)

    def explainers_of(self, cell: Cell) -> tuple[ExplainerPart, ...]:
        """Return the explainers of a cell.

        Args:
            cell: A cell of the suite.

        Returns:
            The explainers that the cell names; if it names none, all explainers of the suite.
        """
        return tuple(part for part in self.explainers if part.name in (cell.explainers or (part.name,)))

    def metrics_of(self, cell: Cell) -> tuple[MetricPart, ...]:
        """Return the metrics of a cell.

        Args:
            cell: A cell of the suite.

        Returns:
            The metrics that the cell names; if it names none, all metrics of the suite.
        """
        return tuple(metric for metric in self.metrics if metric.name in (cell.metrics or (metric.name,)))
