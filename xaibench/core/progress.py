"""How far something has come, said on stderr: a bar on a terminal or in a notebook, elsewhere a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from xaibench.core.messages import warn_caller

if TYPE_CHECKING:
    from tqdm import tqdm

#: Seconds after which something is said at all, and between two lines where there is no terminal.
SOON, FIRST_LINE, LINES = 0.5, 15.0, 60.0
#: Of many steps, so many must be done before it is said how long the others take: the first ones wait for much.
FEWEST = 5
#: Seconds beyond which it is said beforehand how long it will take.
LONG = 300.0


def duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> [duration(seconds) for seconds in (0.2, 59, 61, 3605, 53000, 360000)]
        ['0 s', '59 s', '1 min 1 s', '1 h 0 min', '14 h 43 min', '4 d 4 h']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, left = divmod(hours, 24)
    if days:
        return f"{days} d {left} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Progress:
    """Says how far something has come, as a context manager; nothing of what ends within half a second.

    When at the present pace it takes more than five minutes, a warning says so once, with the ``advice``. The
    environment variable ``TQDM_DISABLE=1`` turns all of it off.

    Args:
        what: What is done, to be shown.
        total: How many there are; a function is asked when it is first needed; None = nobody knows.
        unit: Of what, in the singular.
        shown: False: nothing is said.
        advice: What to do when it takes long; empty: no warning.
        since: When it began, by ``time.monotonic()``; None = now.
        line: Of the terminal, where there are several bars.
        stays: Whether the bar stays when it is done.
        options: Of tqdm.

    Example:
        >>> with Progress("counting", 3, "sheep") as progress:
        ...     for _ in range(3):
        ...         progress.advance()
    """

    def __init__(
        self,
        what: str,
        total: int | Callable[[], int | None] | None,
        unit: str,
        *,
        shown: bool = True,
        advice: str = "",
        since: float | None = None,
        line: int | None = None,
        stays: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.what, self.unit, self.done = what, unit, 0
        self._share: float | None = None
        self._first: tuple[float, int, float] | None = None
        self._total, self._advice = total, advice
        self._shown = shown and os.environ.get("TQDM_DISABLE", "") in ("", "0")
        self._bar: tqdm[Any] | None = None
        self._options = {"unit": unit, "position": line, "leave": stays, **(options or {})}
        self._start = time.monotonic() if since is None else since
        self._next_line, self._said, self._warned = self._start + FIRST_LINE, False, False
        self._lock, self._timer = threading.RLock(), threading.Timer(SOON, self.advance, (0,))
        self._timer.daemon = True

    def advance(self, count: int = 1, share: float | None = None) -> None:
        """So many more are done.

        Args:
            count: How many.
            share: Of the work, where steps are not alike: what is done of it by now, 0 to 1. Of a share of 0 nothing
                is said of the time left.
        """
        self.done += count
        self._share = self._share if share is None else share
        now = time.monotonic()
        if count and self._first is None:
            self._first = now - self._start, self.done, self._share or 0.0
        if not self._shown or now - self._start < SOON:
            return
        with self._lock:
            if not self._shown:  # closed meanwhile
                return
            if count:
                self._warn(now - self._start, self.total)
            if _on_screen():
                self._draw(now)
            elif now >= self._next_line and self.done:
                self._next_line = now + LINES
                if self.done == self.total:
                    self._said = True  # closing will say it
                else:
                    self._line(now - self._start, self.total)

    @property
    def total(self) -> int | None:
        """How many there are."""
        if callable(self._total):
            self._total = self._total()
        return self._total

    def _draw(self, now: float) -> None:
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self.total, desc=self.what, **self._options)
            self._bar.start_t -= now - self._start
        if self._share is not None:  # tqdm reckons by count
            left = self._left(now - self._start, self.total)
            said = "?" if left is None else self._bar.format_interval(left)
            self._bar.bar_format = f"{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} [{{elapsed}}<{said}]"
        self._bar.update(self.done - self._bar.n)

    def _line(self, seconds: float, total: int | None) -> None:
        self._said = True
        if (left := self._left(seconds, total)) is not None:
            said = f"{self.done} of {total} {self.unit}s, about {duration(left)} left"
        else:
            of = f" of {total}" if total and self.done < total else ""
            said = f"{self.done}{of} {self.unit}s in {duration(seconds)}"
        print(f"{self.what.strip()}: {said}", file=sys.stderr, flush=True)

    def _left(self, seconds: float, total: int | None) -> float | None:
        """Seconds that the others will take; None where there is no saying, or nothing left."""
        if not total or not max(1, min(total // 20, FEWEST)) <= self.done < total:
            return None
        share = self.done / total if self._share is None else self._share
        if self._share is not None and self._first is not None:
            waited, steps, had = self._first  # for what came before: the pace is that of the steps since then
            if share > had and self.done >= steps + FEWEST:
                return (seconds - waited) * (1 - share) / (share - had)
        return seconds * (1 - share) / share if share else None

    def _warn(self, seconds: float, total: int | None) -> None:
        if self._warned or not self._advice or not total or seconds < 2 * SOON or seconds / self.done * total < LONG:
            return
        self._warned = True
        warn_caller(
            f"{self.what.strip()} takes about {duration(seconds / self.done * total)} at the present pace ({total} "
            f"{self.unit}s). {self._advice}".rstrip()
        )

    def close(self) -> None:
        """Nothing more comes."""
        self._timer.cancel()
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        self._shown = False
        if self._bar is not None:
            self._bar.close()
        elif self._said:
            self._line(time.monotonic() - self._start, None)
        self._bar, self._said = None, False

    def __enter__(self) -> Progress:
        if self._shown and _on_screen():  # a first step may take longer than anyone waits without a word
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _on_screen() -> bool:
    """Whether somebody sees a bar: a terminal or a notebook; cursor codes in a file are no bar."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
