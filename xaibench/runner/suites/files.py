"""The built-in suites, and reading a suite from a TOML file."""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from xaibench.benchmarks import benchmark_files
from xaibench.component.registry import Registry
from xaibench.core.files import check_regular
from xaibench.runner.suites.parsing import parse_suite
from xaibench.runner.suites.schema import Suite, SuiteError

#: The built-in suites, name -> file: all TOML files in the folders ``xaibench/benchmarks/*/suites``.
SUITES = Registry(
    "suite",
    {file.stem: str(file) for file in sorted(benchmark_files("suites/*.toml"), key=operator.attrgetter("name"))},
    own="A suite of your own is given as a path that ends in .toml.",
)


def load_suite(source: str | Path, *, quick: bool = False) -> tuple[Suite, str]:
    """Read a built-in suite by name, or a TOML file by path.

    Args:
        source: Name of a suite, or path of a ``.toml`` file.
        quick: Apply the suite's ``[quick]`` table, which makes it small.

    Returns:
        The suite, and its TOML: the source, or with ``quick`` the changed tables.

    Raises:
        UnknownNameError: If no suite has that name.
        SuiteError: If the file cannot be read, or an entry of it is unknown, missing or of the wrong type.

    Example:
        >>> suite, _ = load_suite("xai-tris-8x8")
        >>> suite.training.epochs, suite.explaining.samples
        (500, 100)
    """
    text, name = _read(source)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and thousands of brackets
        raise SuiteError(f"The file is not valid TOML: {error}.", suite=name) from error
    changes = tables.pop("quick", None)
    if quick:
        if not isinstance(changes, Mapping):
            raise SuiteError(
                "there is no quick form; add a table, or run it without --quick.", suite=name, table="[quick]"
            )
        tables = _merge(tables, changes)
        tables["name"] = f"{tables.get('name', '')}-quick"
        text = f"# The quick form of {name}, as run.\n" + tomli_w.dumps(tables)
    return parse_suite(tables, name), text


def suite_file(source: str | Path) -> Path | None:
    """Return the path of a suite; None if ``source`` is the name of a built-in suite."""
    path = Path(source).expanduser()
    return path if path.suffix == ".toml" or path.is_file() else None


def _read(source: str | Path) -> tuple[str, str]:
    name = str(source)
    if path := suite_file(source):
        try:
            check_regular(path)
            return path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise SuiteError(f"Cannot read the suite {path}: {reason}. Known suites: {', '.join(SUITES)}.") from error
    if ":" in name:
        raise SuiteError(
            f"{name!r} is not a suite; give the name of one ({', '.join(SUITES)}) or a path that ends in .toml."
        )
    return Path(SUITES.target(name)).read_text(encoding="utf-8"), SUITES.canonical(name)


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
