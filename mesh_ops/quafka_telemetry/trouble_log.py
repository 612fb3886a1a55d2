"""Log lines about trouble that may pass by itself: a warning only if it does not.

A broker that restarts, or a shard that moves, is away for a moment: nobody must act. The lines
about it are at `info`, until the trouble has lasted for `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import logging

PATIENCE_SECONDS = 5.0


class TroubleLog:
    """The trouble with one thing, such as a connection."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._since: float | None = None
        self._last = ""
        self._warned = False

    def note(self, line: str, now: float, *, passing: bool) -> None:
        """Log a line, unless it was the last one at this level.

        Args:
            now: seconds on any clock.
            passing: whether the trouble may pass by itself; else the line is a warning at once.
        """
        if self._since is None:
            self._since = now
        warns = not passing or now - self._since >= PATIENCE_SECONDS
        if line == self._last and self._warned >= warns:
            return
        self._logger.log(logging.WARNING if warns else logging.INFO, "%s", line)
        self._last, self._warned = line, warns

    def over(self) -> None:
        """The trouble has ended: the next one is another."""
        self._since, self._last, self._warned = None, "", False
