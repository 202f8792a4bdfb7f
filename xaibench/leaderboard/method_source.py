"""A method as its author gives it: a listed name, a module on the path, or a file.

Its code is copied whole, so that what is run, hashed and published is one and the same.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xaibench.core.messages import listed
from xaibench.explainers import EXPLAINERS, build
from xaibench.leaderboard.manifest import ResultError

#: What no source holds, and how large it may be in bytes.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "*.pyc", "*.egg-info")
_MOST_SOURCE = 20 << 20

#: What a method to EXACT's template is called.
_EXACT = "XAI_Method"


@dataclass(frozen=True)
class MethodSource:
    """A method and its code.

    Attributes:
        entry: A listed explainer, or ``module:name`` below the folder.
        folder: A copy of the code; None for a listed explainer.
        name: What it is called, in a word.
        summary: The first sentence of its docstring.
        parameters: Its own, as the run states them.
    """

    entry: str
    folder: Path | None
    name: str
    summary: str = ""


def stage_method(method: str, folder: Path) -> MethodSource:
    """Copy a method's code, and look at it.

    Args:
        method: A listed explainer; ``package.module:name``; ``file.py`` or ``file.py:name``. A file whose one public
            function or class is the method needs no name; nor does one to EXACT's template.
        folder: Where the copy goes; made anew.

    Returns:
        What was found.

    Raises:
        ResultError: If there is no such method, its code is too large to publish, or it cannot be called as
            ``(model, images, targets)``.
    """
    if EXPLAINERS.canonical(method) in EXPLAINERS:
        name = EXPLAINERS.canonical(method)
        return MethodSource(name, None, name, _first_sentence(EXPLAINERS.resolve(name)))
    shutil.rmtree(folder, ignore_errors=True)
    file, _, attribute = (method, "", "") if method.endswith(".py") else method.partition(":")
    if file.endswith(".py"):
        path = Path(file).expanduser()
        if not path.is_file():
            raise ResultError(f"method is {method!r}: there is no file {path}. Give module:name or file.py:name.")
        folder.mkdir(parents=True)
        shutil.copyfile(path, folder / path.name)
        module = path.stem
    elif attribute:
        module = file
        _copy_package(method, module, folder)
    else:
        raise ResultError(
            f"method is {method!r}; expected a listed explainer ({listed(sorted(EXPLAINERS), 3)}), module:name, or "
            "file.py:name."
        )
    with on_import_path(folder):
        attribute = attribute or _only_method(module, folder)
        part = _checked(f"{module}:{attribute}")
        return MethodSource(f"{module}:{attribute}", folder, _plain_name(module, attribute), _first_sentence(part))


@contextlib.contextmanager
def on_import_path(folder: Path | None) -> Iterator[None]:
    """The folder in front of the path; what was imported from it is forgotten at the end, so that it can change.

    Args:
        folder: Of a method's code; None changes nothing.

    Yields:
        Nothing.
    """
    if folder is None:
        yield
        return
    place = str(folder.resolve())
    own = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in own}
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(place)
        for name in [name for name in sys.modules if name.partition(".")[0] in own]:
            del sys.modules[name]
        sys.modules.update(hidden)


def _copy_package(method: str, module: str, folder: Path) -> None:
    top = module.partition(".")[0]
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(top)
    except ValueError:  # a module without a spec, as __main__ is
        found = None
    finally:
        sys.path.remove(here)
    if found is None or found.origin is None:
        raise ResultError(f"method is {method!r}: there is no module {top!r} to import; install it, or run beside it.")
    origin = Path(found.origin)
    folder.mkdir(parents=True)
    if origin.name != "__init__.py":
        shutil.copyfile(origin, folder / origin.name)
        return
    size = sum(path.stat().st_size for path in origin.parent.rglob("*") if path.is_file())
    if size > _MOST_SOURCE:
        raise ResultError(
            f"{origin.parent} holds {size >> 20} MiB, expected at most {_MOST_SOURCE >> 20}: a result has its method's "
            "code in it. Move the method into a package of its own."
        )
    shutil.copytree(origin.parent, folder / top, ignore=_LEFT_OUT)


def _only_method(module: str, folder: Path) -> str:
    found = vars(importlib.import_module(module))
    if _EXACT in found:
        return _EXACT
    own = [
        name
        for name, part in found.items()
        if not name.startswith("_") and callable(part) and getattr(part, "__module__", "") == module
    ]
    if len(own) != 1:
        raise ResultError(
            f"{folder / module}.py has {len(own)} public functions and classes ({listed(own, 5)}); say which is the "
            f"method: {module}.py:NAME."
        )
    return own[0]


def _checked(entry: str) -> Any:
    """What the entry names, if it can be called as an explainer is."""
    part = EXPLAINERS.resolve(entry)
    built = build(part)
    call = built if inspect.isroutine(built) else getattr(built, "method", built)
    try:
        inspect.signature(call).bind(None, None, None)
    except TypeError as error:
        raise ResultError(
            f"{entry} is called as {inspect.signature(call)}; expected (model, images, targets), or EXACT's "
            "(data, target, model)."
        ) from error
    return part


def _plain_name(module: str, attribute: str) -> str:
    """``lime`` of ``lime:explain`` and ``lime:XAI_Method``; else what the function or class is called."""
    return module.rpartition(".")[2] if attribute in (_EXACT, "explain", "method", "Method") else attribute


def _first_sentence(part: Any) -> str:
    text = " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".") + "." * bool(text)
