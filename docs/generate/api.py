"""Generate the API reference, with every public name, for mkdocstrings when the site is built."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import commands

import xaibench


@dataclass(frozen=True)
class Section:
    """One section of a page.

    Attributes:
        module: The module whose docstring opens the section.
        names: Names of the module that are shown; None = all public names.
        paths: Public names of other modules.
    """

    module: str
    names: tuple[str, ...] | None = None
    paths: tuple[str, ...] = ()

    def objects(self) -> list[str]:
        """Return the paths to show, in order."""
        names = public_names(self.module) if self.names is None else self.names
        return [*(f"{self.module}.{name}" for name in names), *self.paths]


def _explainers() -> tuple[str, ...]:
    from xaibench.explainers import EXPLAINERS

    return tuple(dict.fromkeys(EXPLAINERS.target(name).replace(":", ".") for name in EXPLAINERS))


def _written_by_hand() -> tuple[str, ...]:
    from xaibench.metrics import METRICS, torchmetrics

    generated = {torchmetrics.class_name(metric) for metric in METRICS}
    return tuple(name for name in torchmetrics.__all__ if name not in generated)


@functools.cache
def layout() -> dict[str, tuple[str, tuple[Section, ...]]]:
    """Return title and sections of each page, by file name."""
    folders = (
        "xaibench.data.photographs.image_folder.OwnFolder",
        "xaibench.data.photographs.saliency_bench_release.SaliencyBenchRelease",
    )
    networks = ("imagenet.Torchvision", "efficientnet_lite.EfficientNetLite", "timm_networks.Timm")
    pretrained = tuple(f"xaibench.models.networks.{path}" for path in networks)
    generated = (
        "xaibench.benchmarks.xai_tris.tetrominoes.Tetromino",
        "xaibench.benchmarks.certified.images.KnownImages",
        "xaibench.benchmarks.creatures.creature_images.Creatures",
        "xaibench.benchmarks.mosaics.photo_mosaics.PhotoMosaics",
    )
    annotated = Section("xaibench.data.annotated", paths=folders)
    published = "xaibench.runner.published_networks.published_network"
    return {
        "data": ("Data", (Section("xaibench.data"), annotated)),
        "models": ("Models", (Section("xaibench.models", paths=pretrained),)),
        "explainers": ("Explainers", (Section("xaibench.explainers", paths=_explainers()),)),
        "metrics": ("Metrics", (Section("xaibench.metrics"),)),
        "torchmetrics": ("TorchMetrics", (Section("xaibench.metrics.torchmetrics", _written_by_hand()),)),
        "benchmarks": ("Benchmarks", (Section("xaibench.benchmarks", paths=generated),)),
        "evaluation": (
            "Evaluation",
            (
                Section("xaibench.evaluation"),
                Section("xaibench.meta_evaluation"),
                Section("xaibench.scores"),
                Section("xaibench.compat.xaibenchmark", ("load_dataset", "evaluate_method")),
            ),
        ),
        "runner": ("Runner", (Section("xaibench.runner", paths=(published,)),)),
        "report": ("Report", (Section("xaibench.report"),)),
        "plots": ("Plots", (Section("xaibench.plots"),)),
        "auditing": ("Audits", (Section("xaibench.auditing"),)),
        "leaderboard": ("Leaderboard", (Section("xaibench.leaderboard"),)),
        "hub": ("Hub", (Section("xaibench.hub"),)),
        "types": (
            "Types and registry",
            (
                Section("xaibench.core.types", ("Reduction", "Output")),
                Section("xaibench.core.truth_kinds", ("Truth",)),
                Section("xaibench.registry.info"),
                Section("xaibench.registry.table"),
            ),
        ),
    }


def public_names(module: str) -> list[str]:
    """Return ``__all__``, or the functions and classes that the module defines if it has none."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    own = [(name, part) for name, part in vars(found).items() if getattr(part, "__module__", None) == module]
    known = [(name, part) for name, part in own if inspect.isfunction(part) or inspect.isclass(part)]
    return [name for name, part in sorted(known, key=_line) if not name.startswith("_")]


def _line(named: tuple[str, Any]) -> int:
    return inspect.getsourcelines(named[1])[1]


@functools.cache
def documented() -> dict[str, str]:
    """Return the file of the page of every documented name, by path."""
    pages = layout().items()
    return {path: file for file, (_, sections) in pages for section in sections for path in section.objects()}


@functools.cache
def with_own_page() -> frozenset[str]:
    """Return where the metrics and explainers are defined that have a page of their own."""
    from xaibench.metrics import METRICS

    return frozenset(map(_defined, [*_explainers(), *(f"xaibench.metrics.{name}" for name in METRICS)]))


@functools.cache
def _homes() -> dict[str, str]:
    """Return the documented path of each class or function, by the path of its definition."""
    return {_defined(path): path for path in documented()}


def _defined(path: str) -> str:
    module, _, name = path.rpartition(".")
    part = getattr(importlib.import_module(module), name)
    is_own = inspect.isclass(part) or inspect.isfunction(part)
    return f"{part.__module__}.{part.__qualname__}" if is_own else path


def linked(target: str, module: str = "") -> str | None:
    """Return the documented path for a reference in a docstring of ``module``; None if it is not documented."""
    for path in (target, f"{module}.{target}"):
        if path in documented():
            return reference(path)
        if path in _homes():
            return reference(_homes()[path])
    owner, _, name = target.rpartition(".")
    if owner == "xaibench" and name in xaibench.__all__ and (path := _homes().get(_defined(target))):
        return reference(path)
    same = [path for path in documented() if path.endswith(f".{target}")]
    return reference(same[0]) if len(same) == 1 and not owner else None


def reference(path: str) -> str:
    """Return ``path``, or the path of the definition if static analysis of the source does not find ``path``.

    That is so if a module has the same name, or if the package imports the name lazily from a table.
    """
    owner, _, name = path.rpartition(".")
    package = importlib.import_module(owner)
    hidden = hasattr(package, "__path__") and importlib.util.find_spec(path) is not None
    return _defined(path) if hidden or hasattr(package, "__getattr__") or name not in vars(package) else path


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by file name without ``.md``."""
    made = {name: _page(*content) for name, content in layout().items()}
    made["torchmetrics"] += _metric_classes()
    return {"index": _index(), "cli": commands.page()} | made


def _page(title: str, sections: tuple[Section, ...]) -> str:
    lines, level = [f"# {title}", ""], 2
    for section in sections:
        if len(sections) > 1:
            lines, level = [*lines, f"## `{section.module}`", ""], 3
        lines += reference_block(
            section.module, "members: false", "show_root_heading: false", "show_root_toc_entry: false"
        )
        shown = [path for path in section.objects() if _defined(path) not in with_own_page()]
        for heading, paths in grouped(shown).items():
            lines += [f"{'#' * level} {heading}", ""]
            for path in paths:
                lines += reference_block(reference(path), f"heading_level: {level + 1}")
    return "\n".join(lines)


#: Headings of a page, in this order.
_HEADINGS = ("Functions", "Classes", "Names and types", "Errors")


def grouped(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths below each heading, by type."""
    groups: dict[str, list[str]] = {heading: [] for heading in _HEADINGS}
    for path in paths:
        groups[_kind(path)].append(path)
    return {heading: found for heading, found in groups.items() if found}


def _kind(path: str) -> str:
    module, _, name = path.rpartition(".")
    part = getattr(importlib.import_module(module), name)
    if inspect.isclass(part):
        return "Errors" if issubclass(part, BaseException) else "Classes"
    return "Functions" if inspect.isroutine(part) else "Names and types"


_CLASSES = """
## A class for each metric

Each class is generated from a metric function and takes its parameters.

| class | of | parameters |
|---|---|---|
"""


def _metric_classes() -> str:
    """Return the table of the classes that are generated from the registered metrics."""
    from xaibench.metrics import METRICS, torchmetrics
    from xaibench.metrics.torchmetrics import class_name

    rows = []
    for metric in METRICS:
        name = class_name(metric)
        taken = inspect.signature(getattr(torchmetrics, name)).parameters.values()
        given = ", ".join(f"`{one.name}={one.default!r}`" for one in taken) or "none"
        rows.append(f"| `{name}` | [`xb.{metric}`][{linked(f'xaibench.{metric}')}] | {given} |")
    return _CLASSES + "\n".join(rows) + "\n"


def reference_block(path: str, *options: str) -> list[str]:
    return [f"::: {path}", "    options:", *(f"      {option}" for option in options), ""]


_INDEX = """# API

Look up a function, class or command. `import xaibench as xb` provides the names below; every
[metric](../metrics.md) and [explainer](../explainers.md) has a page of its own. Shapes are the same everywhere:
images `[N, C, H, W]` float32, masks `[N, H, W]` bool (`True` = important), targets `[N]` int64, maps `[N, H, W]`
signed, scores `[N]`, `nan` where undefined ([types](types.md)). See also: [evaluation and
significance](evaluation.md), [TorchMetrics](torchmetrics.md), and the [command line](cli.md).

| name | description |
|---|---|
"""


def _index() -> str:
    return _INDEX + "\n".join(_entry(name) for name in xaibench.__all__)


def _entry(name: str) -> str:
    if name == "__version__":
        return "| `xb.__version__` | The version, a string. |"
    part = getattr(xaibench, name)
    target = f"({name}.md)" if isinstance(part, ModuleType) else f"[{linked(f'xaibench.{name}')}]"
    line = (inspect.getdoc(part) or "").split("\n")[0].replace("``", "`")
    return f"| [`xb.{name}`]{target} | {line} |"
