"""Progress bars for slow loops, in terminals and notebooks. Nothing is written to log files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from xaibench.core.messages import warn_caller

if TYPE_CHECKING:
    from tqdm import tqdm

#: Seconds before a bar is shown; faster loops show none.
DELAY = 0.5
#: Seconds before a warning is given; earlier forecasts are inaccurate.
FORECAST_AFTER = 10.0
#: Estimated seconds beyond which a warning says how long a loop will take.
WARN_BEYOND = 300.0


def format_duration(seconds: float) -> str:
    """Format a duration with at most two units.

    Example:
        >>> [format_duration(seconds) for seconds in (0.2, 59, 61, 3605, 53000, 360000)]
        ['0 s', '59 s', '1 min 1 s', '1 h 0 min', '14 h 43 min', '4 d 4 h']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, left = divmod(hours, 24)
    if days:
        return f"{days} d {left} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_bytes(size: float) -> str:
    """Format a number of bytes.

    Example:
        >>> format_bytes(8.15e5), format_bytes(3.42e8), format_bytes(2.3e9)
        ('815 kB', '342 MB', '2.3 GB')
    """
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def shows_bars() -> bool:
    """Return whether progress bars are visible: in a terminal or a notebook, unless ``TQDM_DISABLE=1`` is set."""
    if os.environ.get("TQDM_DISABLE", "") not in ("", "0"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def announce(text: str, *, always: bool = False) -> None:
    """Print a line to stderr where no bar is visible (or always), unless ``TQDM_DISABLE=1`` is set."""
    if (always or not shows_bars()) and os.environ.get("TQDM_DISABLE", "") in ("", "0"):
        print(text, file=sys.stderr, flush=True)


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A tqdm bar that appears once a loop has taken half a second.

    tqdm itself is only imported when a bar appears. With ``advice``, a warning is issued once if the loop is going to
    take more than five minutes, also where no bar is visible. ``TQDM_DISABLE=1`` turns off bars and warnings.

    Args:
        description: Text before the bar.
        total: Number of steps, or a function that computes it when it is first needed; None = unknown.
        unit: Name of a step, in the singular.
        shown: False turns off bar and warning.
        advice: How to make the loop faster, for the warning; empty = no warning.
        keep: Whether the finished bar stays on the screen.
        options: Further arguments of tqdm.

    Example:
        >>> with ProgressBar("counting", 3, "sheep") as bar:
        ...     for _ in range(3):
        ...         bar.advance()
    """

    def __init__(
        self,
        description: str,
        total: int | Callable[[], int | None] | None,
        unit: str,
        *,
        shown: bool = True,
        advice: str = "",
        keep: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.done = 0
        self._description, self._total, self._advice = description, total, advice
        self._shown = shown and os.environ.get("TQDM_DISABLE", "") in ("", "0")
        self._options = {"desc": description, "unit": unit, "leave": keep, **(options or {})}
        self._start = time.monotonic()
        self._first = (0, 0.0)
        self._bar: tqdm[Any] | None = None

    @property
    def total(self) -> int | None:
        """Number of steps; None if unknown."""
        if callable(self._total):
            self._total = self._total()
        return self._total

    def advance(self, count: int = 1) -> None:
        """Count more steps as done."""
        self.done += count
        seconds = time.monotonic() - self._start
        if self.done == count:  # the first step, which includes imports and compilation
            self._first = (count, seconds)
        if not self._shown or seconds < DELAY:
            return
        if self._bar is None and shows_bars():
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self.total, **self._options)
            self._bar.start_t -= seconds
        if self._bar is not None:
            self._bar.update(self.done - self._bar.n)
        self._warn_if_slow(seconds)

    def _warn_if_slow(self, seconds: float) -> None:
        if not self._advice or seconds < FORECAST_AFTER or not self.total:
            return
        done, start = self._first
        if (
            self.done == done
            or (estimate := seconds + (self.total - self.done) * (seconds - start) / (self.done - done)) < WARN_BEYOND
        ):
            return
        advice, self._advice = self._advice, ""
        warn_caller(
            f"{self._description} takes about {format_duration(estimate)} at the present pace ({self.total} "
            f"{self._options['unit']}s). {advice}"
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown = False
        if self._bar is not None:
            self._bar.close()
