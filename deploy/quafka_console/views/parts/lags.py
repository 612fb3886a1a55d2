"""The lag of groups: now, for several pages, and what this process has seen of it, for charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quafka_client.groups import GroupDetails, GroupSummary
from quafka_console.data.group_lags import AllLags, GroupLags
from quafka_console.data.lag_history import LagHistory, LagPoint
from quafka_console.data.recent import whose
from quafka_console.session import ConsoleSession
from quafka_loop import clock

_LAGS = LagHistory(interval=4.0)
_ALL = GroupLags()


async def all_lags(session: ConsoleSession) -> AllLags:
    """The lag of all groups, at most five seconds old. Raises ClientError."""
    found = await _ALL.read(session.cluster)
    note(session, (each.summary for each in found.lags or ()))
    return found


def note(session: ConsoleSession, found: Iterable[GroupSummary | GroupDetails]) -> None:
    """Keep the present lag of groups that a view has read."""
    lags = (((whose(session.cluster), each.group), each.lag, each.behind_seconds) for each in found)
    _LAGS.add(clock.time(), lags)


def seen(session: ConsoleSession, group: str) -> Sequence[LagPoint]:
    """The lag of a group in the last hour, where any view of this sign-in has read it."""
    return _LAGS.of((whose(session.cluster), group))
