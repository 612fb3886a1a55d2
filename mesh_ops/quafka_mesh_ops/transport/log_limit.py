"""Limits log lines that a peer can cause at will: one per second and reason."""

from __future__ import annotations

import logging
from collections.abc import Callable

from quafka_loop import clock

_MAX_REASONS = 64


class LimitedLog:
    """Warns at most once per `interval` seconds and reason, with the number of omitted lines."""

    def __init__(
        self,
        logger: logging.Logger,
        interval: float = 1.0,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._logger = logger
        self._interval = interval
        self._now = now or clock.monotonic
        self._last: dict[str, tuple[float, int]] = {}

    def warning(self, reason: str, message: str, *args: object) -> None:
        """Log `message` unless a line with the same `reason` was logged just now."""
        now = self._now()
        last, left_out = self._last.get(reason, (-self._interval, 0))
        if now - last < self._interval:
            self._last[reason] = (last, left_out + 1)
            return
        if len(self._last) >= _MAX_REASONS:
            self._last.clear()
        self._last[reason] = (now, 0)
        if left_out:
            message = f"{message} ({left_out} more like this since the last line)"
        self._logger.warning(message, *args)
