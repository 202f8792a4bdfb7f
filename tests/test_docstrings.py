"""Every public name says what it takes, what it returns and what it raises."""

import ast
import importlib
import inspect
import re
import textwrap

import pytest

from xaibench.data import DATASETS
from xaibench.explainers import EXPLAINERS, Explainer
from xaibench.metrics import METRICS
from xaibench.models import MODELS

#: The packages whose names users are told of; without ``__all__``, all that a module defines is public.
PACKAGES = [
    "xaibench",
    "xaibench.data",
    "xaibench.data.annotated",
    "xaibench.models",
    "xaibench.explainers",
    "xaibench.metrics",
    "xaibench.metrics.torchmetrics",
    "xaibench.evaluation",
    "xaibench.runner",
    "xaibench.report",
    "xaibench.hub",
    "xaibench.auditing",
    "xaibench.leaderboard",
    "xaibench.registry.table",
    "xaibench.scores",
    "xaibench.types",
]
#: Public names that live deeper: what the registries' schemes and the tutorials name.
DEEPER = {
    "xaibench.benchmarks.xai_tris.tetrominoes": ["Tetromino"],
    "xaibench.data.photographs.image_folder": ["OwnFolder"],
    "xaibench.data.photographs.saliency_bench_release": ["SaliencyBenchRelease"],
    "xaibench.models.networks.efficientnet_lite": ["EfficientNetLite"],
    "xaibench.models.networks.imagenet": ["Torchvision"],
    "xaibench.models.networks.timm_networks": ["Timm"],
}
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?:[ ]+.*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^\*{0,2}(\w+)(?: \(.*?\))?:", re.MULTILINE)


def sections(documented):
    doc = inspect.cleandoc(documented.__doc__ or "") + "\n"
    return {name: textwrap.dedent(text) for name, text in SECTION.findall(doc)}


def entries(documented, *names):
    found = sections(documented)
    return {entry for name in names for entry in ENTRY.findall(found.get(name, ""))}


def raised(function):
    """Names of the exceptions that the function itself raises; those of functions inside it are theirs."""

    def walk(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
                continue
            if isinstance(child, ast.Raise) and child.exc is not None:
                what = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
                yield ast.unparse(what).rpartition(".")[2]
            yield from walk(child)

    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {name for name in walk(tree.body[0]) if name[0].isupper()}


def missing_in_function(function, contracts=()):
    """What is missing in its docstring, and in those of the methods whose contract it takes over."""
    where = [function, *contracts]
    told = set().union(*(entries(one, "Args") for one in where))
    parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    found = [f"parameter {name}" for name in parameters if name not in told]
    found += [f"no parameter {name}" for name in entries(function, "Args") if name not in parameters]
    returns = inspect.signature(function).return_annotation
    if returns not in ("None", "NoReturn", None) and not any(
        {"Returns", "Yields"} & set(sections(one)) for one in where
    ):
        found.append("Returns")
    if function.__name__ != "__post_init__":
        listed = set().union(*(entries(one, "Raises") for one in where))
        found += [f"Raises {name}" for name in raised(function) if name not in listed]
    return found if function.__doc__ else ["a docstring"]


def contracts_of(owner, name):
    """The methods of the bases that this one stands for; an explainer's call is what the protocol says of it."""
    bases = [vars(base)[name] for base in owner.__mro__[1:] if name in vars(base) and base.__module__ != "typing"]
    bases = [base for base in bases if inspect.isfunction(base)]
    if name == "__call__" and owner.__module__.startswith("xaibench.explainers."):
        bases.append(Explainer.__call__)
    return bases


def missing_in_class(part):
    ours = [base for base in part.__mro__ if base.__module__.startswith("xaibench")]
    told = set().union(*(entries(base, "Args", "Attributes") for base in ours))
    # A class for training loops names the function that it stands for, and "the parameters are its".
    functions = re.findall(r":func:`xaibench\.metrics\.(\w+)`; the parameters are its", part.__doc__ or "")
    told |= {name for function in functions for name in entries(METRICS.resolve(function), "Args")}
    # A protocol has no parameters of its own, an exception a message; a data set's class shows those of its calls.
    plain = not (getattr(part, "_is_protocol", False) or issubclass(part, BaseException))
    made_by = part.__new__ if part.__init__ is object.__init__ else part.__init__
    parameters = inspect.signature(made_by).parameters if plain and made_by is not object.__new__ else {}
    yield from (
        (part.__name__, f"parameter {name}")
        for name, one in parameters.items()
        if name not in told and name not in ("self", "cls") and name[0] != "_" and one.kind is not one.VAR_POSITIONAL
    )
    if not part.__doc__:
        yield part.__name__, "a docstring"
    for name, member in vars(part).items():
        member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, property) and not member.__doc__:
            yield f"{part.__name__}.{name}", "a docstring"
        elif inspect.isfunction(member) and member.__qualname__ == f"{part.__name__}.{name}":
            for what in missing_in_function(member, contracts_of(part, name)):
                yield f"{part.__name__}.{name}", what


def public_names(package):
    module = importlib.import_module(package)
    names = DEEPER.get(package, getattr(module, "__all__", None))
    if names is None:
        names = [name for name, part in vars(module).items() if getattr(part, "__module__", None) == package]
    listed = [*names, *getattr(module, "_CLASSES", ())]
    return {name: getattr(module, name) for name in listed if not name.startswith("_")}


def missing(package):
    for name, part in public_names(package).items():
        if inspect.isclass(part) and part.__module__.startswith("xaibench"):
            yield from missing_in_class(part)
        elif inspect.isfunction(part):
            yield from ((name, what) for what in missing_in_function(part))


@pytest.mark.parametrize("package", [*PACKAGES, *DEEPER])
def test_every_public_name_is_documented(package):
    if package == "xaibench.metrics.torchmetrics":
        pytest.importorskip("torchmetrics")
    assert public_names(package)
    assert [f"{name}: {what} is missing" for name, what in missing(package)] == []


@pytest.mark.parametrize("registry", [DATASETS, MODELS, EXPLAINERS, METRICS], ids=lambda registry: registry.kind)
def test_every_registered_part_is_documented(registry):
    parts = [registry.resolve(name) for name in registry]
    kinds = {part if inspect.isclass(part) or inspect.isfunction(part) else type(part) for part in parts}
    found = []
    for kind in kinds:
        found += (
            missing_in_class(kind) if inspect.isclass(kind) else [(kind.__name__, x) for x in missing_in_function(kind)]
        )
    assert sorted(found) == []


def test_the_checks_find_what_is_missing():
    def undocumented(first, *, second=0) -> int:
        """Nothing but a line.

        Args:
            third: There is none.
        """
        if second:
            raise KeyError(first)
        return second

    assert missing_in_function(undocumented) == [
        "parameter first",
        "parameter second",
        "no parameter third",
        "Returns",
        "Raises KeyError",
    ]


def test_there_is_much_to_check():
    names = {
        (package, name) for package in PACKAGES[1:] if "torchmetrics" not in package for name in public_names(package)
    }
    assert len(names) > 140
