"""Locate and copy the source of a method: a listed explainer, a module or a file.

The code is copied as a whole, so that the code that is run, hashed and published is the same.
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
from xaibench.runner.parts import find_part

#: Files that are not copied, and the largest size of a method's source in bytes.
_IGNORED = shutil.ignore_patterns("__pycache__", ".*", "*.pyc", "*.egg-info")
_MAX_SOURCE_BYTES = 20 << 20

#: Name of a method that follows the template of EXACT.
_EXACT_NAME = "XAI_Method"


@dataclass(frozen=True)
class MethodSource:
    """A method and its code.

    Attributes:
        entry: A listed explainer, or ``module:name`` below the folder.
        folder: A copy of the code; None for a listed explainer.
        name: Default name of the method.
        summary: First sentence of its docstring.
    """

    entry: str
    folder: Path | None
    name: str
    summary: str = ""


def stage_method(method: str, folder: Path) -> MethodSource:
    """Copy the code of a method and inspect it.

    Args:
        method: A listed explainer, ``package.module:name``, ``file.py`` or ``file.py:name``. The name is optional if
            the file has exactly one public function or class, or follows the template of EXACT.
        folder: Destination of the copy; replaced if it exists.

    Returns:
        The method and its code.

    Raises:
        ResultError: If the method does not exist, its code is too large to publish, or it cannot be called as
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
        attribute = attribute or _find_only_method(module, folder)
        part = _check_callable(f"{module}:{attribute}")
        return MethodSource(f"{module}:{attribute}", folder, _default_name(module, attribute), _first_sentence(part))


@contextlib.contextmanager
def on_import_path(folder: Path | None) -> Iterator[None]:
    """Put a folder first on ``sys.path``, and unload its modules at the end so that the code can change.

    Args:
        folder: Folder of a method's code; None for no change.

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
    except ValueError:  # a module without a spec, such as __main__
        found = None
    finally:
        sys.path.remove(here)
    if found is None or found.origin is None:
        raise ResultError(
            f"method is {method!r}: there is no module {top!r} to import; install it, or run the command in its folder."
        )
    origin = Path(found.origin)
    folder.mkdir(parents=True)
    if origin.name != "__init__.py":
        shutil.copyfile(origin, folder / origin.name)
        return
    size = sum(path.stat().st_size for path in origin.parent.rglob("*") if path.is_file())
    if size > _MAX_SOURCE_BYTES:
        raise ResultError(
            f"{origin.parent} holds {size >> 20} MiB, expected at most {_MAX_SOURCE_BYTES >> 20}: the code is "
            "part of the "
            "result. Move the method into a package of its own."
        )
    shutil.copytree(origin.parent, folder / top, ignore=_IGNORED)


def _find_only_method(module: str, folder: Path) -> str:
    found = vars(importlib.import_module(module))
    if _EXACT_NAME in found:
        return _EXACT_NAME
    own = [
        name
        for name, part in found.items()
        if not name.startswith("_") and callable(part) and getattr(part, "__module__", "") == module
    ]
    if len(own) != 1:
        raise ResultError(
            f"{folder / module}.py has {len(own)} public functions and classes ({listed(own, 5)}); say which one is "
            f"the method: {module}.py:NAME."
        )
    return own[0]


def _check_callable(entry: str) -> Any:
    """Resolve an entry and check that it can be called like an explainer."""
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


def _default_name(module: str, attribute: str) -> str:
    """Return the module's name for generic attributes such as ``explain``, and the attribute's name otherwise."""
    return module.rpartition(".")[2] if attribute in (_EXACT_NAME, "explain", "method", "Method") else attribute


def _first_sentence(part: Any) -> str:
    text = " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".") + "." * bool(text)


def is_library_control(entry: str) -> bool:
    """Return whether a method is a control of the library that is fitted to the training masks.

    Trial and sandbox hide these masks from every other method. A control of the library is not submitted code.
    """
    if entry not in EXPLAINERS:
        return False
    part = find_part("explainer", entry)
    return part.is_control and part.is_fitted
