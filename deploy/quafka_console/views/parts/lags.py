"""What this process has seen of the lag of groups, for charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quafka_client.groups import GroupDetails, GroupSummary
from quafka_console.data.lag_history import LagHistory, LagPoint
from quafka_loop import clock

_LAGS = LagHistory(interval=4.0)


def note(found: Iterable[GroupSummary | GroupDetails]) -> None:
    """Keep the present lag of groups that a view has read."""
    _LAGS.add(clock.time(), ((each.group, each.lag, each.behind_seconds) for each in found))


def seen(group: str) -> Sequence[LagPoint]:
    """The lag of a group in the last hour, where any view has read it."""
    return _LAGS.of(group)
