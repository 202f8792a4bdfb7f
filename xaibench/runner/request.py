"""The request for a run: everything that decides its jobs, their results and their cost.

The options of the command line are made from it, so this module loads neither torch nor the rest of the runner.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xaibench.core.checks import check_names
from xaibench.core.files import data_root
from xaibench.core.messages import listed
from xaibench.core.progress import announce
from xaibench.registry.component import registry

if TYPE_CHECKING:
    from xaibench.runner.plan.plan import Plan
    from xaibench.runner.published_scores import Published
    from xaibench.runner.store import Store
    from xaibench.runner.suites.schema import Suite

#: Fields of a request that change the suite.
CHOICES = (
    *("datasets", "models", "explainers", "metrics", "samples", "finetune"),
    *("protocol", "sign", "negatives", "window", "size"),
)


@dataclass(frozen=True)
class RunRequest:
    """A request for :func:`~xaibench.runner.run` or :func:`~xaibench.runner.estimate`.

    Attributes:
        suite: Name of a built-in suite (``xaibench list suites``), or path of a TOML file.
        out: The run folder; default ``runs/SUITE``. Results that it has are not computed again.
        quick: Run the suite's small form, which takes a minute or two.
        store: Where the results of the jobs are kept: a folder, or a URL that fsspec supports (``"s3://bucket/run"``);
            default ``store`` in the run folder. With the engine ``"ray"`` all machines must reach it under this name.
        workers: Largest number of jobs that run at the same time on CPUs; default one per CPU (with ``"ray"``, of the
            cluster).
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...
        device_workers: Number of processes that share the GPUs; default up to four per GPU, as memory and CPUs allow.
            With ``"ray"``, the number of jobs that share one GPU.
        root: The folder that contains the annotated sets; default the environment variable ``XAIBENCH_DATA`` or, if
            that is not set, ``~/.cache/xaibench/data``.
        images: The folder of photographs for the variants of IMAGENET sets; default the environment variable
            ``XAIBENCH_IMAGES``. If there are fewer than a set needs, they are repeated, and the page says how often.
        datasets: Run only these data sets of the suite, by name or by the label of their cell.
        models: Run these models instead of the suite's, or where it leaves the model open, as ``mosaic`` and
            ``photographs`` do.
        explainers: Run these explainers instead of the suite's, and its controls. Your own are given as
            ``module:name``. Explainers of the suite keep their parameters.
        metrics: Run these metrics instead of the suite's, in the same way.
        samples: Number of test samples per data set, from the first one; or ``"all"``.
        finetune: ``"head"`` or ``"all"``: which layers are trained, in suites with pretrained networks.
        protocol: How IoU, precision, recall and F1 binarize maps: ``"area"``, ``"scaled"`` or ``"published"``
            (:mod:`xaibench.evaluation.protocol`).
        sign: Whether metrics with masks compare maps by ``"magnitude"`` or ``"signed"``.
        negatives: Classes of ``folder:DIR`` and ``volumes:DIR`` without masks in which there is nothing to mark, such
            as ``"normal"``.
        window: Center and width of the gray values that are shown, such as ``"40,400"``, for ``folder:DIR``,
            ``volumes:DIR`` and ``photographs:DIR``; default as stated in the file.
        size: Side of the images in pixels, for data sets that are resized; of mosaics, of each photograph in them.
            Default is that of the suite or data set.
        against: ``"published"`` ranks the methods together with other methods, whose scores of this suite come with the
            library and are not run again. A path does so with a file of scores
            (:func:`xaibench.runner.published_scores.write_published`).
        train: Train every network, also those whose trained weights come with the library
            (:mod:`xaibench.runner.published_networks`).
        download: Download the annotated sets that are missing and whose license allows that; not for an estimate.
    """

    suite: str | Path
    out: str | Path | None = None
    quick: bool = False
    store: str | Path | None = None
    workers: int | None = None
    device: str = "auto"
    device_workers: int | None = None
    root: str | Path | None = None
    images: str | Path | None = None
    datasets: Sequence[str] | None = None
    models: Sequence[str] | None = None
    explainers: Sequence[str] | None = None
    metrics: Sequence[str] | None = None
    samples: int | Literal["all"] | None = None
    finetune: str | None = None
    protocol: str | None = None
    sign: str | None = None
    negatives: str | Sequence[str] | None = None
    window: str | Sequence[float] | None = None
    size: int | None = None
    against: str | Path | None = None
    train: bool = False
    download: bool = False

    @classmethod
    def of(cls, suite: str | Path | RunRequest, out: str | Path | None = None, **settings: Any) -> RunRequest:
        """Return the request for the arguments of a function that takes either a request or its fields.

        Args:
            suite: A suite, or a request.
            out: The run folder.
            **settings: The other fields.

        Returns:
            The request.

        Raises:
            TypeError: If there are both a request and other settings.
            UnknownParameterError: If a setting is unknown; names the nearest.
        """
        check_names("RunRequest", settings, [one.name for one in fields(cls)])
        if not isinstance(suite, RunRequest):
            return cls(suite, out, **settings)
        stated = {"out": out, **settings}
        if changed := [one.name for one in fields(cls) if stated.get(one.name, one.default) != one.default]:
            raise TypeError(
                f"suite: got a request together with {', '.join(changed)}, expected the request alone; state these in "
                "the request."
            )
        return suite

    @property
    def choices(self) -> dict[str, Any]:
        """The fields that change the suite and are not None."""
        return {name: value for name in CHOICES if (value := getattr(self, name)) is not None}

    @contextlib.contextmanager
    def opened(self, *, download: bool = False) -> Iterator[OpenRequest]:
        """Read, change and plan the suite. Inside the block ``root`` and ``images`` are set in the environment.

        The user's own parts are also imported from the folder of the suite's file.

        Args:
            download: Download the missing annotated sets whose license allows that.

        Returns:
            A context manager that gives the :class:`OpenRequest`.

        Raises:
            UnknownNameError: If the suite or a part is unknown; names the nearest.
            SuiteError: If the suite cannot be run as written, or the published scores are not of this suite.
        """
        from xaibench.runner.plan.plan import make_plan
        from xaibench.runner.published_scores import find_published
        from xaibench.runner.store import Store
        from xaibench.runner.suites.narrowing import IMAGES, narrowed, without_missing, write_suite
        from xaibench.runner.suites.parsing import load_suite, suite_file

        file = suite_file(self.suite)
        loaded, text = load_suite(self.suite, quick=self.quick)
        if file and (code := _own_code(loaded)):
            announce(f"{self.suite} runs code of its author, with your rights: {listed(map(repr, code))}.", always=True)
        # Suites name the folder of the annotated sets as a variable, so that their results do not depend on it.
        root = data_root(self.root) if loaded.data.parameters.get("root") == "$XAIBENCH_DATA" else self.root
        folders = {"XAIBENCH_DATA": root, IMAGES: self.images}
        with _set_variables(folders), _import_from(file):
            suite = narrowed(loaded, **self.choices)
            if self.choices:
                text = f"# As run, with the changes of the command line.\n{write_suite(suite)}"
            suite, missing = without_missing(suite, download=download)
            folder = Path(self.out) if self.out is not None else Path("runs") / suite.name
            store = Store(self.store if self.store is not None else folder / "store")
            plan = make_plan(suite, train=self.train)
            published = None if self.against is None else find_published(self.against, suite)
            beside = published.differences(plan) if published else []
            yield OpenRequest(suite, text, missing, plan, folder, store, published, beside)


@dataclass(frozen=True)
class OpenRequest:
    """A request whose suite has been read and planned.

    Attributes:
        suite: The suite as it will be run.
        text: The suite as TOML.
        missing: ``{data set: how to get it}`` of the sets that are not there and are left out.
        plan: The jobs.
        folder: The run folder.
        store: The store of the results.
        published: Published scores to rank the run's methods with.
        beside: Notes about the published scores.
    """

    suite: Suite
    text: str
    missing: Mapping[str, str]
    plan: Plan
    folder: Path
    store: Store
    published: Published | None = None
    beside: Sequence[str] = ()


def _own_code(suite: Suite) -> list[str]:
    """Return the parts of a suite that are imported from modules outside of the library."""
    cells = suite.cells + suite.optional.cells
    named = {
        "explainer": [part.use for part in suite.explainers + suite.optional.explainers],
        "metric": [part.use for part in suite.metrics],
        "dataset": [name for cell in cells for name in cell.datasets],
        "model": [name for cell in cells for name in cell.models],
    }
    pairs = [(registry(kind), name) for kind, names in named.items() for name in names if ":" in name]
    return list(dict.fromkeys(name for known, name in pairs if known.target(name) == name))


@contextlib.contextmanager
def _set_variables(folders: Mapping[str, str | Path | None]) -> Iterator[None]:
    """Set environment variables inside the block; worker processes inherit them."""
    given = {name: str(Path(folder).expanduser()) for name, folder in folders.items() if folder is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _import_from(file: Path | None) -> Iterator[None]:
    """Append the folder of a file to ``sys.path`` inside the block; worker processes inherit it."""
    folder = None if file is None else str(file.resolve().parent)
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
