"""What a method imports beside the library: found when it is handed in, and there when it is run again.

Only wheels are installed, which run no code while they are unpacked, to a folder that the method's sandbox alone sees.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from xaibench.core.messages import listed, warn_caller
from xaibench.hub.results.result_manifest import ResultError

#: Where a package comes from that the index of packages need not have: a folder, a repository, a file.
_DIRECT = "direct_url.json"
_SELF = "xaibench"


@dataclass(frozen=True)
class Packages:
    """What the code of a method imports that is neither Python's, nor its own, nor the library's or what that needs.

    Attributes:
        pinned: As ``name==version``, of what the index of packages has.
        elsewhere: Names of what was installed from a folder, a repository or a file: others may not get it.
    """

    pinned: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()


def imported_packages(code: Path) -> Packages:
    """The packages that the code of a method imports, in the versions that are installed.

    What is imported but not installed is left out: the code does without.

    Args:
        code: The folder of the code.

    Returns:
        Those that must be there beside the library.
    """
    known = {path.stem for path in code.iterdir()} | set(sys.stdlib_module_names) | {_SELF}
    modules = {module for module in _imports(code) if module.partition(".")[0] not in known}
    found = {name: metadata.distribution(name) for name in sorted(_distributions(modules) - _brought_along())}
    direct = {name for name, one in found.items() if one.read_text(_DIRECT)}
    # What follows a plus is of one build, which the index need not have.
    pinned = (f"{name}=={one.version.partition('+')[0]}" for name, one in found.items() if name not in direct)
    return Packages(tuple(pinned), tuple(sorted(direct)))


def provide(pinned: Sequence[str], folder: Path, *, install: bool) -> str:
    """Put what a method needs where its sandbox finds it.

    Args:
        pinned: As ``name==version``.
        folder: Where packages go that are not here, or here in another version; made anew.
        install: Whether to; else one that is not here is an error, and one of another version a warning.

    Returns:
        The folder; empty where all is here.

    Raises:
        ResultError: If a package is not here, or cannot be installed as a wheel beside what the library needs.
    """
    lacking = [one for one in pinned if not _is_here(one)]
    if not lacking:
        return ""
    if install:
        return _installed(lacking, folder)
    absent = [one for one in lacking if _version(one.partition("==")[0]) is None]
    if absent:
        raise ResultError(
            f"{listed(absent)} is not installed here, and the method imports it. --install gets the wheels, for its "
            "sandbox alone."
        )
    here = [f"{name} {_version(name)}" for name in (one.partition("==")[0] for one in lacking)]
    warn_caller(f"The result was made with {listed(lacking)}; here is {listed(here)}. --install gets the stated ones.")
    return ""


def _imports(code: Path) -> Iterator[str]:
    """Names of modules, and of what may be one; what is no Python says so when it is run."""
    for file in code.rglob("*.py"):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _distributions(modules: Collection[str]) -> set[str]:
    """The distributions that modules come from; several may share a topmost package, such as ``google``."""
    of_package = {name: sorted(set(there)) for name, there in metadata.packages_distributions().items()}
    found: set[str] = set()
    for module in modules:
        there = of_package.get(module.partition(".")[0], [])
        found |= {_plain(name) for name in there if len(there) == 1 or _holds(name, module)}
    return found


def _holds(distribution: str, module: str) -> bool:
    """Whether a module, or the one that it is a name of, is a file or folder of the distribution."""
    folders = [module.replace(".", "/"), module.rpartition(".")[0].replace(".", "/")]
    starts = tuple(start for folder in folders if "/" in folder for start in (f"{folder}/", f"{folder}.py"))
    return any(file.as_posix().startswith(starts) for file in metadata.files(distribution) or ())


@cache
def _brought_along() -> frozenset[str]:
    """The library, and all that is installed with it, at any remove."""
    found: set[str] = set()
    left = [_SELF]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needed = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # of another system or Python; or the library as a bare folder
            continue
        left += [_plain(one) for one in needed if "extra ==" not in one.replace("'", '"')]
    return frozenset(found)


def _plain(requirement: str) -> str:
    """The name in a requirement, as the index writes it.

    Example:
        >>> _plain("Efficient.Net_Lite>=0.1; python_version<'3.13'")
        'efficient-net-lite'
    """
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_here(pin: str) -> bool:
    name, _, version = pin.partition("==")
    here = _version(name)
    # Of what the library needs, the version is this machine's, as everything else of the library is.
    return here is not None and (here.partition("+")[0] == version or name in _brought_along())


def _installed(pins: Sequence[str], folder: Path) -> str:
    names = {pin.partition("==")[0] for pin in pins}
    here = {_plain(one.name): one.version for one in metadata.distributions() if one.name}
    folder.mkdir(parents=True)
    # What is here stays as it is: torch in a second version would be gigabytes, and other scores.
    kept, plan = folder.with_suffix(".constraints"), folder.with_suffix(".json")
    kept.write_text("".join(f"{name}=={version}\n" for name, version in here.items() if name not in names))
    _pip(pins, "--dry-run", "--report", str(plan), "--constraint", str(kept))
    found = [one["metadata"] for one in json.loads(plan.read_text())["install"]]
    new = [f"{one['name']}=={one['version']}" for one in found]
    _pip(new, "--no-deps", "--target", str(folder))
    return str(folder)


def _pip(wanted: Sequence[str], *words: str) -> None:
    """``pip install`` of wheels alone: what is built from source runs code of its own, outside of the sandbox."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run(
        [*command, "--only-binary", ":all:", *words, *wanted], capture_output=True, text=True, timeout=1800, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line]
        clash = " ".join(done.stdout.partition("The conflict is caused by:")[2].partition("\n\n")[0].split())
        said = " ".join([*errors[:2], clash]).strip() or f"pip ended with {done.returncode}"
        raise ResultError(f"{listed(wanted)} cannot be installed beside what is here: {said}")
