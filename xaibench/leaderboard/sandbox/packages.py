"""What a method imports beside the library: found when it is handed in, and there when it is run again.

Only wheels are installed, which run no code while they are unpacked, to a folder that the method's sandbox alone sees.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, canonicalize_version

from xaibench.core.messages import listed, warn_caller
from xaibench.leaderboard.manifest import ResultError

#: Where a package comes from that the index of packages need not have: a folder, a repository, a file. Conda leaves it
#: in every package that it has built.
_DIRECT = "direct_url.json"
_SELF = "xaibench"
#: How long pip may look for packages, and load them.
_MOST_SECONDS = 1800


@dataclass(frozen=True)
class ImportedPackages:
    """What the code of a method imports that is neither Python's, nor its own, nor the library's or what that needs.

    Attributes:
        pinned: As ``name==version``, of what the index of packages has.
        elsewhere: Names of what was installed from a folder, a repository or a file: others may not get it.
    """

    pinned: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()


def imported_packages(code: Path) -> ImportedPackages:
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
    direct = {name for name, one in found.items() if one.read_text(_DIRECT) and _installer(one) != "conda"}
    pinned = (f"{name}=={_published(one.version)}" for name, one in found.items() if name not in direct)
    return ImportedPackages(tuple(pinned), tuple(sorted(direct)))


def provide_packages(pinned: Sequence[str], folder: Path, *, install: bool) -> str:
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
        found |= {_plain(name) for name in (_holders(module, there) if len(there) > 1 else there)}
    return found


def _holders(module: str, distributions: Sequence[str]) -> list[str]:
    """Those with the module, or else with what it is a name of, or else with its topmost package."""
    for name in (module, module.rpartition(".")[0], module.partition(".")[0]):
        place = name.replace(".", "/")
        if found := [one for one in distributions if name and _has(one, (f"{place}/", f"{place}."))]:
            return found
    return []


def _has(distribution: str, starts: tuple[str, str]) -> bool:
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
        wanted = [Requirement(one) for one in needed]
        left += [_plain(one.name) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return frozenset(found)


def _plain(name: str) -> str:
    """A name as the index writes it.

    Example:
        >>> _plain("Efficient.Net_Lite")
        'efficient-net-lite'
    """
    return str(canonicalize_name(name))


def _published(version: str) -> str:
    """A version as the index writes it; what follows a plus is of one build, which the index need not have.

    Example:
        >>> _published("1.0-RC1+cu130")
        '1.0rc1'
    """
    return str(canonicalize_version(version.partition("+")[0], strip_trailing_zero=False))


def _installer(distribution: metadata.Distribution) -> str:
    return (distribution.read_text("INSTALLER") or "").strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_here(pin: str) -> bool:
    name, _, version = pin.partition("==")
    here = _version(name)
    # Of what the library needs, the version is this machine's, as everything else of the library is.
    return here is not None and (_published(here) == version or name in _brought_along())


def _installed(pins: Sequence[str], folder: Path) -> str:
    names = {pin.partition("==")[0] for pin in pins}
    here = {_plain(one.name): one.version for one in metadata.distributions() if one.name}
    folder.mkdir(parents=True)
    # What is here stays as it is: torch in a second version would be gigabytes, and other scores.
    kept, plan = folder.with_suffix(".constraints"), folder.with_suffix(".json")
    kept.write_text("".join(f"{name}=={version}\n" for name, version in here.items() if name not in names))
    _pip(pins, folder, "--dry-run", "--report", str(plan), "--constraint", str(kept))
    found = [one["metadata"] for one in json.loads(plan.read_text())["install"]]
    new = [f"{one['name']}=={one['version']}" for one in found]
    _pip(new, folder, "--no-deps", "--target", str(folder))
    return str(folder)


def _pip(wanted: Sequence[str], place: Path, *words: str) -> None:
    """``pip install`` of wheels alone: what is built from source runs code of its own, outside of the sandbox."""
    # With -P, as what lies in the present folder, of a results repository say, is not to be imported in pip's place.
    command = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    failed = f"{listed(wanted, 5)} cannot be installed beside what is here: "
    try:
        done = subprocess.run(
            [*command, "--only-binary", ":all:", *words, *wanted],
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
            cwd=place,
        )
    except subprocess.TimeoutExpired as error:
        raise ResultError(f"{failed}it took more than {_MOST_SECONDS} s.") from error
    if not done.returncode:
        return
    if "No module named pip" in done.stderr:
        raise ResultError(f"{failed}this Python has no pip; `python -m ensurepip` brings it.")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    clash = " ".join(done.stdout.partition("The conflict is caused by:")[2].partition("\n\n")[0].split())
    raise ResultError(f"{failed}{' '.join([*errors[:2], clash]).strip() or f'pip ended with {done.returncode}'}")
