"""A line with bar, rate and remaining time on stderr for long work; on a terminal only."""

from __future__ import annotations

import os
import shutil
import sys

from quafka.commands.output import size_text, span
from quafka_loop import clock

_FIRST_SECONDS = 1.0
_EVERY_SECONDS = 0.25
_BAR = 20
BYTES, RECORDS = "bytes", "records"
"""What is counted."""


class ProgressLine:
    """A progress line that overwrites itself. Work of less than a second has none."""

    def __init__(self, what: str, unit: str = BYTES) -> None:
        """`what`: the work, in a word or two."""
        self._what = what
        self._unit = unit
        self._wanted = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began = clock.monotonic()
        self._next = self._began + _FIRST_SECONDS
        self._shown = False

    def show(self, done: int, of: int) -> None:
        """Report that `done` of `of` are done, as far as that is known."""
        now = clock.monotonic()
        if self._wanted and now >= self._next:
            self._next = now + _EVERY_SECONDS
            self._shown = True
            columns = shutil.get_terminal_size().columns
            text = line(self._what, self._unit, done, of, now - self._began, columns - 1)
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the line: the result comes next."""
        if self._shown:
            self._shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def line(what: str, unit: str, done: int, of: int, seconds: float, columns: int) -> str:
    """The progress after some seconds, in so many columns: without the bar if it does not fit."""
    share = min(1.0, done / max(of, 1))
    full = round(share * _BAR)
    bar = f"[{'#' * full}{'.' * (_BAR - full)}]"
    rate = done / max(seconds, 1e-9)
    if unit == BYTES:
        counts = f"{size_text(done)} of {size_text(of)}  {size_text(round(rate))}/s"
    else:
        counts = f"{done:,} of {of:,} {unit}  {rate:,.0f}/s"
    left = f"  {span(max(0, of - done) / rate)} left" if done else ""
    rest = f"{100 * share:3.0f}%  {counts}{left}"
    whole = f"{what} {bar} {rest}"
    return whole if len(whole) <= columns else f"{what} {rest}"[:columns]
