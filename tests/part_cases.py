"""Facts about a part for the tests that run over all parts, kept in the part's own test file as ``CASES``.

``CASES = {"adversarial": MetricCase(quick={"steps": 2})}`` in tests/metrics/faithfulness/test_adversarial.py is the
case of the metric in xaibench/metrics/faithfulness/adversarial.py. Without a case, defaults and info record apply.
"""

import functools
import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class MetricCase:
    """A metric.

    Attributes:
        quick: Parameters that keep it fast.
        drawn: Hypothesis strategies for its parameters, used by tests/metrics/test_fuzz.py.
        constant: Score of a constant map on 30 pixels, 6 of which are in the mask; None = whatever its range has.
        largest: Its largest score on maps of so many pixels, for a metric of the map alone.
        takes_magnitude: Whether a map and its negative score the same; None = to the digits that rounding leaves.
        undefined: Where it has no score, beside what map and mask show: ``undefined(trial) -> [N] bools``.
    """

    quick: dict[str, Any] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    constant: float | None = None
    largest: Callable[[int], float] = lambda pixels: math.inf
    takes_magnitude: bool | None = False
    undefined: Callable[[Any], list[bool]] | None = None


@dataclass(frozen=True)
class ExplainerCase:
    """An explainer.

    Attributes:
        parameters: Parameters under which it is fast and an untrained network has a map.
        few: Parameters for tests that need only some map; None = ``parameters``.
        waits: Synchronizations with the device per call of ``explain``, in addition to the usual four.
        network: What it explains: ``"cnn"``, ``"pooled"`` (global average pooling), or ``"module:name"`` where it takes
            none of the small ones and its own tests hold it to what all promise.
        sample_by_sample: Parameters under which the first three maps do not depend on the samples that follow.
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    few: dict[str, Any] | None = None
    waits: int = 0
    network: str = "cnn"
    sample_by_sample: dict[str, Any] = field(default_factory=dict)

    @property
    def quick(self) -> dict[str, Any]:
        """Parameters for tests that need only some map."""
        return self.parameters if self.few is None else self.few


@dataclass(frozen=True)
class ModelCase:
    """A model.

    Attributes:
        shapes: The images it is tried on.
        big: Too many weights to be made again for every test; what it shares with others is tested on them.
        needs: The package that it is of.
    """

    shapes: tuple[tuple[int, int, int], ...] = ((3, 32, 32),)
    big: bool = False
    needs: str | None = None


@dataclass(frozen=True)
class DatasetCase:
    """A data set.

    Attributes:
        write: Of a set on disk: writes a tiny tree in its official layout, returns the samples that are in it.
        small: Of a generated set: ``small(photographs, cache) -> parameters`` that make it small, given a folder of
            photographs and one to keep things in.
    """

    write: Callable[[Path], Any] | None = None
    small: Callable[[Path, Path], dict[str, Any]] | None = None


#: Cases of parts without a test file of their own.
CASES = {
    name: ExplainerCase(network="generators.networks:Attending")
    for name in ("conservative_input_x_gradient", "gradient_rollout", "libragrad")
}


def case(registry: Any, name: str, default: Any) -> Any:
    """The case of a registered part, or ``default``."""
    return _cases(registry.target(name).partition(":")[0]).get(name) or CASES.get(name, default)


@functools.cache
def _cases(module: str) -> dict[str, Any]:
    _, *rooms, last = module.split(".")
    path = TESTS.joinpath(*rooms, f"test_{last}.py")
    if not path.exists():
        return {}
    spec = importlib.util.spec_from_file_location(f"part_cases_of_{last}", path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return getattr(found, "CASES", {})
