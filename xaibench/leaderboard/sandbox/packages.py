"""Packages that a method imports: find them on submission, and provide them in the sandbox.

Only wheels are installed, because they run no code during installation. The target folder is visible to the method's
sandbox only.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, canonicalize_version

from xaibench.core.messages import listed, warn_caller
from xaibench.leaderboard.manifest import ResultError

#: Present if a package was installed from a folder, a repository or a file, and may not be on the package index. Conda
#: writes it for every package that it builds.
_DIRECT_URL = "direct_url.json"
_SELF = "xaibench"
#: Time limit of pip in seconds.
_PIP_TIMEOUT = 1800


@dataclass(frozen=True)
class ImportedPackages:
    """Packages that a method imports, without the standard library, its own modules, and the library's dependencies.

    Attributes:
        pinned: ``name==version`` of packages that are on the package index.
        elsewhere: Names of packages installed from a folder, a repository or a file, which others may not be able to
            get.
    """

    pinned: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()


def imported_packages(code: Path) -> ImportedPackages:
    """Find the packages that the code of a method imports, with the installed versions.

    Imports of packages that are not installed are ignored: the code works without them.

    Args:
        code: Folder of the code.

    Returns:
        The packages.
    """
    known = {path.stem for path in code.iterdir()} | set(sys.stdlib_module_names) | {_SELF}
    modules = {module for module in _imported_modules(code) if module.partition(".")[0] not in known}
    found = {
        name: metadata.distribution(name) for name in sorted(_find_distributions(modules) - _library_dependencies())
    }
    direct = {name for name, one in found.items() if one.read_text(_DIRECT_URL) and _installer(one) != "conda"}
    pinned = (f"{name}=={_normalize_version(one.version)}" for name, one in found.items() if name not in direct)
    return ImportedPackages(tuple(pinned), tuple(sorted(direct)))


def provide_packages(pinned: Sequence[str], folder: Path, *, install: bool) -> str:
    """Make the packages of a method available to its sandbox.

    Args:
        pinned: Packages as ``name==version``.
        folder: New folder for packages that are missing here or have another version.
        install: Whether to install these. Otherwise a missing package is an error, and another version a warning.

    Returns:
        The folder; empty if nothing was installed.

    Raises:
        ResultError: If a package is missing, or cannot be installed as a wheel next to the dependencies of the library.
    """
    lacking = [one for one in pinned if not _is_installed(one)]
    if not lacking:
        return ""
    if install:
        return _install_wheels(lacking, folder)
    absent = [one for one in lacking if _installed_version(one.partition("==")[0]) is None]
    if absent:
        raise ResultError(
            f"{listed(absent)} is required by the method and not installed. --install installs the wheels for its "
            "sandbox only."
        )
    here = [f"{name} {_installed_version(name)}" for name in (one.partition("==")[0] for one in lacking)]
    warn_caller(
        f"The result was made with {listed(lacking)}; installed is {listed(here)}. --install installs the stated ones."
    )
    return ""


def _imported_modules(code: Path) -> Iterator[str]:
    """Yield imported module names, and ``module.name`` for imported names, which may be modules."""
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


def _find_distributions(modules: Collection[str]) -> set[str]:
    """Return the distributions of modules; several distributions may share a namespace package such as ``google``."""
    of_package = _distributions_of({module.partition(".")[0] for module in modules})
    found: set[str] = set()
    for module in modules:
        there = of_package[module.partition(".")[0]]
        found |= {_normalize_name(name) for name in (_distributions_with(module, there) if len(there) > 1 else there)}
    return found


def _distributions_of(packages: Collection[str]) -> dict[str, list[str]]:
    """Return the distributions that have each top-level package or module.

    ``metadata.packages_distributions`` takes a second, because it parses all paths of all installed files.
    """
    found: dict[str, set[str]] = {name: set() for name in packages}
    if not found:
        return {}
    # Of a line of RECORD: `package/file,hash,size`, `module.py,...` or `module.suffixes.so,...`.
    first = re.compile(rf'^"?({"|".join(map(re.escape, found))})(?:/|\.py|\.[^/,]*so|\.pyd)', re.MULTILINE)
    for one in metadata.distributions():
        names = (one.read_text("top_level.txt") or "").split()
        if not names and (record := one.read_text("RECORD")) is not None:
            names = first.findall(record)
        for name in found.keys() & set(names):
            found[name].add(one.name)
    return {name: sorted(there) for name, there in found.items()}


def _distributions_with(module: str, distributions: Sequence[str]) -> list[str]:
    """Return the distributions that contain the module, else its parent, else its top-level package."""
    for name in (module, module.rpartition(".")[0], module.partition(".")[0]):
        place = name.replace(".", "/")
        if found := [one for one in distributions if name and _has_file(one, (f"{place}/", f"{place}."))]:
            return found
    return []


def _has_file(distribution: str, starts: tuple[str, str]) -> bool:
    return any(file.as_posix().startswith(starts) for file in metadata.files(distribution) or ())


@cache
def _library_dependencies() -> frozenset[str]:
    """Return the library and its transitive dependencies."""
    found: set[str] = set()
    left = [_SELF]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needed = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # for another platform, or the library is not installed
            continue
        wanted = [Requirement(one) for one in needed]
        left += [
            _normalize_name(one.name) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return frozenset(found)


def _normalize_name(name: str) -> str:
    """Normalize a package name as on the package index.

    Example:
        >>> _normalize_name("Efficient.Net_Lite")
        'efficient-net-lite'
    """
    return str(canonicalize_name(name))


def _normalize_version(version: str) -> str:
    """Normalize a version as on the package index, without the local part after ``+``, which the index may not have.

    Example:
        >>> _normalize_version("1.0-RC1+cu130")
        '1.0rc1'
    """
    return str(canonicalize_version(version.partition("+")[0], strip_trailing_zero=False))


def _installer(distribution: metadata.Distribution) -> str:
    return (distribution.read_text("INSTALLER") or "").strip()


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_installed(pin: str) -> bool:
    name, _, version = pin.partition("==")
    here = _installed_version(name)
    # Dependencies of the library keep the version of this machine.
    return here is not None and (_normalize_version(here) == version or name in _library_dependencies())


def _install_wheels(pins: Sequence[str], folder: Path) -> str:
    names = {pin.partition("==")[0] for pin in pins}
    here = {_normalize_name(one.name): one.version for one in metadata.distributions() if one.name}
    folder.mkdir(parents=True)
    # Installed packages are kept: a second torch would take gigabytes and change the scores.
    kept, plan = folder.with_suffix(".constraints"), folder.with_suffix(".json")
    kept.write_text("".join(f"{name}=={version}\n" for name, version in here.items() if name not in names))
    wheels = folder.with_suffix(".wheels")
    wheels.mkdir()
    _download_wheels(pins, wheels, kept, here.keys() - names)
    local = ("--no-index", "--find-links", str(wheels))
    _run_pip("install", pins, folder, *local, "--dry-run", "--report", str(plan), "--constraint", str(kept))
    found = [one["metadata"] for one in json.loads(plan.read_text())["install"]]
    new = [f"{one['name']}=={one['version']}" for one in found]
    _run_pip("install", new, folder, *local, "--no-deps", "--target", str(folder))
    return str(folder)


def _download_wheels(pins: Sequence[str], wheels: Path, kept: Path, there: Collection[str]) -> None:
    """Download wheels and their requirements, level by level, without running any code of them.

    pip can resolve requirements itself, but it builds a requirement that is given by an address, which runs its code.
    """
    asked, seen = {str(pin) for pin in pins}, set[str]()
    while asked:
        for wanted in sorted(asked):
            _run_pip("download", [wanted], wheels, "--no-deps", "--dest", str(wheels), "--constraint", str(kept))
        seen |= asked
        asked = set()
        for wheel in wheels.glob("*.whl"):
            for needed in _requirements(wheel):
                if needed.url:
                    raise ResultError(
                        f"{wheel.name} requires {needed.name} from an address ({needed.url}); only packages of the "
                        "index are installed."
                    )
                if _normalize_name(needed.name) not in there:
                    asked.add(f"{needed.name}{needed.specifier}")
        asked -= seen


def _requirements(wheel: Path) -> Iterator[Requirement]:
    """Yield the requirements of a wheel that apply to this machine; requirements of extras do not count."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (one for one in file.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
        lines = HeaderParser().parsestr(file.read(name).decode(errors="replace")).get_all("Requires-Dist") or ()
    for line in lines:
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed


def _run_pip(verb: str, wanted: Sequence[str], place: Path, *words: str) -> None:
    """Run pip for wheels only: building a source distribution would run its code outside the sandbox."""
    # -P: a file in the current folder, such as a results repository, must not be imported instead of pip.
    command = [sys.executable, "-P", "-m", "pip", verb, "--disable-pip-version-check", "--no-input"]
    failed = f"{listed(wanted, 5)} cannot be installed together with the library: "
    try:
        done = subprocess.run(
            [*command, "--only-binary", ":all:", *words, *wanted],
            capture_output=True,
            text=True,
            timeout=_PIP_TIMEOUT,
            check=False,
            cwd=place,
        )
    except subprocess.TimeoutExpired as error:
        raise ResultError(f"{failed}it took more than {_PIP_TIMEOUT} s.") from error
    if not done.returncode:
        return
    if "No module named pip" in done.stderr:
        raise ResultError(f"{failed}this Python has no pip; `python -m ensurepip` brings it.")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    clash = " ".join(done.stdout.partition("The conflict is caused by:")[2].partition("\n\n")[0].split())
    raise ResultError(f"{failed}{' '.join([*errors[:2], clash]).strip() or f'pip ended with {done.returncode}'}")
