"""What type checkers and editors read of the registered metrics, which Python itself finds in the table.

python docs/generate/typing_stubs.py      # writes two files xaibench/metrics/**/registered_*.pyi
"""

from __future__ import annotations

import inspect
from pathlib import Path

import xaibench
from xaibench.metrics import METRICS

ROOT = Path(xaibench.__file__).parents[1]
HEAD = "# Written by docs/generate/typing_stubs.py from the table of metrics.\n"


def functions() -> str:
    """The metrics, each from where it lives."""
    targets = [METRICS.target(name).split(":") for name in METRICS]
    lines = [f"from {module} import {name} as {name}" for module, name in sorted(targets)]
    return HEAD + "\n".join(lines) + "\n"


def classes() -> str:
    """Their classes for training loops; a parameter is typed where its type is built in."""
    from xaibench.metrics import torchmetrics as ours
    from xaibench.metrics.torchmetrics.class_factory import class_name

    made = {name: getattr(ours, name) for name in sorted(class_name(metric) for metric in METRICS)}
    bases = sorted({base.__name__ for base in (made_one.__mro__[1] for made_one in made.values())})
    lines = ["from typing import Any", "", f"from {ours.MeanScore.__module__} import {', '.join(bases)}"]
    for name, one in made.items():
        own = [f"        {parameter(each)}," for each in inspect.signature(one).parameters.values()]
        head = ["    def __init__(", "        self,", "        *,", *own, "    ) -> None: ..."]
        lines += ["", f"class {name}({one.__mro__[1].__name__}):"]
        lines += head if own else ["    def __init__(self) -> None: ..."]
    return HEAD + "\n".join(lines) + "\n"


def parameter(one: inspect.Parameter) -> str:
    plain = set(one.annotation.replace(" | ", "|").split("|")) <= {"bool", "float", "int", "None", "str"}
    return f"{one.name}: {one.annotation if plain else 'Any'} = ..."


def stubs() -> dict[Path, str]:
    """Path to content."""
    metrics = ROOT / "xaibench" / "metrics"
    return {
        metrics / "registered_functions.pyi": functions(),
        metrics / "torchmetrics" / "registered_classes.pyi": classes(),
    }


def main() -> None:
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
