"""Shell completion of part and suite names, without loading torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path

import xaibench

_ROOT = Path(xaibench.__file__).parent
#: Kind of part -> the module with its table, and the table's name. The modules are light; their packages load torch.
_TABLES = {
    "datasets": ("data/registered.py", "DATASETS"),
    "models": ("models/registered.py", "MODELS"),
    "explainers": ("explainers/registered.py", "EXPLAINERS"),
    "metrics": ("metrics/registered.py", "METRICS"),
}


def completer(kind: str, *, several: bool = False) -> Callable[[str], list[str]]:
    """Return a completion function for names.

    Args:
        kind: ``"datasets"``, ``"models"``, ``"explainers"``, ``"metrics"`` or ``"suites"``.
        several: Whether the option takes comma-separated names; the last one is completed.

    Returns:
        A function from the typed text to its possible completions.

    Example:
        >>> completer("explainers", several=True)("mine:f,guided_")
        ['mine:f,guided_backprop', 'mine:f,guided_gradcam', 'mine:f,guided_ig']
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        return [before + comma + name for name in _names(kind) if name.startswith(last)]

    return complete


def _names(kind: str) -> Iterable[str]:
    if kind == "suites":
        return sorted(file.stem for file in (_ROOT / "benchmarks").glob("*/suites/*.toml"))
    place, table = _TABLES[kind]
    spec = importlib.util.spec_from_file_location("xaibench_table", _ROOT / place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names: Iterable[str] = getattr(module, table)
    return names
