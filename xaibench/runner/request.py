"""What is asked of the runner: one request, by which a run is made and by which it is priced beforehand."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from xaibench.runner.plan.planning import Plan, make_plan
from xaibench.runner.published_scores import Published, find_published
from xaibench.runner.store.result_store import Store
from xaibench.runner.suites.narrowing import IMAGES, narrowed, narrowed_text, without_missing
from xaibench.runner.suites.suite_files import load_suite, suite_file
from xaibench.runner.suites.suite_tables import Suite, check_variables, with_folders


@dataclass(frozen=True)
class RunRequest:
    """Everything that decides which jobs there are, where their results lie, and on what they run.

    Attributes:
        suite: Name of a built-in suite, or path of a TOML file.
        out: The run folder; default ``runs/<name of the suite>``.
        quick: The suite's small form.
        store: Where the results of the jobs lie; default ``store`` in the run folder.
        workers: The most jobs to run at a time on CPUs; default one a CPU.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...
        device_workers: Processes that share the GPUs; default up to four each.
        root: The folder below which annotated sets lie; default the environment variable ``XAIBENCH_DATA``.
        images: The folder of photographs that IMAGENET sets lie on; default the environment variable
            ``XAIBENCH_IMAGES``.
        datasets: Only these of the suite's data sets, by name or by their cell's label.
        models: These instead of the suite's, or in the place that it leaves open for them.
        explainers: These instead of the suite's, whose controls stay; ``"mine:squared"`` is one of your own. Those that
            the suite has too keep the parameters it states.
        metrics: These instead of the suite's, likewise.
        samples: The first so many test samples of each data set, or ``"all"``.
        finetune: ``"head"`` or ``"all"``, of suites that train pretrained networks.
        protocol: How maps are cut, ``"scaled"`` or ``"published"``.
        against: ``"published"``: rank the run's methods among those whose scores of this suite come with the library;
            or a file of such scores. It decides no job.
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
    against: str | Path | None = None

    @classmethod
    def of(cls, suite: str | Path | RunRequest, **settings: Any) -> RunRequest:
        """The request that arguments make, or the one that is given.

        Args:
            suite: A suite, or a request.
            **settings: The other fields.

        Returns:
            The request.

        Raises:
            TypeError: If there is a request and settings beside it, one of which would be lost.
        """
        if not isinstance(suite, RunRequest):
            return cls(suite, **settings)
        stated = {one.name: one.default for one in fields(cls)}
        beside = [name for name, value in settings.items() if value != stated[name]]
        if beside:
            raise TypeError(
                f"suite: got a request and {', '.join(beside)} beside it, expected the request alone; state it there."
            )
        return suite

    @property
    def choices(self) -> dict[str, Any]:
        """What is chosen of the suite, where something is."""
        names = ("datasets", "models", "explainers", "metrics", "samples", "finetune", "protocol")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @contextlib.contextmanager
    def opened(self) -> Iterator[OpenRequest]:
        """The suite made to fit and planned; inside the block ``root`` and ``images`` are where data are looked for.

        Parts of one's own are imported from the folder of the suite's file too.

        Returns:
            A context manager that gives the :class:`OpenRequest`.

        Raises:
            UnknownNameError: If the suite, or a part that it names, is not known.
            SuiteError: If the suite cannot be run as written, or no published score can stand beside it.
        """
        loaded, text = load_suite(self.suite, quick=self.quick)
        folders = {"XAIBENCH_DATA": self.root, IMAGES: self.images}
        with _variables(folders), _beside(suite_file(self.suite)):
            suite = narrowed(loaded, **self.choices)
            text = narrowed_text(text, suite, changed=bool(self.choices))
            suite, missing = without_missing(with_folders(suite))
            check_variables(suite)
            folder = Path(self.out) if self.out is not None else Path("runs") / suite.name
            store = Store(self.store if self.store is not None else folder / "store")
            plan = make_plan(suite)
            published = None if self.against is None else find_published(self.against, suite)
            beside = published.differences(plan) if published else []
            yield OpenRequest(suite, text, missing, plan, folder, store, published, beside)


@dataclass(frozen=True)
class OpenRequest:
    """A request whose suite has been read.

    Attributes:
        suite: As it will be run.
        text: The same as TOML.
        missing: ``{data set: how to get it}`` of the annotated sets that are not there and are left out.
        plan: Its jobs.
        folder: The run folder.
        store: Where the results of the jobs lie.
        published: Scores that were made before, to stand beside the run's.
        beside: What is to be known of them, in words.
    """

    suite: Suite
    text: str
    missing: Mapping[str, str]
    plan: Plan
    folder: Path
    store: Store
    published: Published | None = None
    beside: Sequence[str] = ()


@contextlib.contextmanager
def _variables(folders: Mapping[str, str | Path | None]) -> Iterator[None]:
    """The folders that are given as variables of the environment, which suites name and worker processes inherit."""
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
def _beside(file: Path | None) -> Iterator[None]:
    """The folder of ``file`` as the last place to import parts from, which worker processes inherit."""
    folder = None if file is None else str(file.resolve().parent)
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
