"""The state of a broker's scheduled snapshots. Pure, except for the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quafka_loop import clock


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class SchedulerStatus:
    """Written by the scheduler; read by metrics, the status page and probes.

    Attributes:
        interval_ms: the time between two snapshots; 0: none are made.
        cut_ms: the time of the last good snapshot's cut, or None if unknown.
        made: snapshots since the start.
        failures: failed attempts since the start.
        problem: the reason why the last attempt failed; empty if it did not.
    """

    interval_ms: int
    now_ms: Callable[[], int] = _now_ms
    cut_ms: int | None = None
    made: int = 0
    failures: int = 0
    problem: str = ""
    _since_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._since_ms = self.now_ms()

    @property
    def age_ms(self) -> int:
        """Time since the cut of the last good snapshot or, if none is known, since the start."""
        since = self._since_ms if self.cut_ms is None else self.cut_ms
        return max(0, self.now_ms() - since)
