"""The heartbeat intervals that the coordinator has given to groups of KIP-848. Pure.

The answer to a heartbeat has the group's interval. A heartbeat that changes nothing is answered
with the last one, so that the coordinator need not send it again to each member.
"""

from __future__ import annotations

from collections import OrderedDict

from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat

_SECONDS = 60.0
"""How long an interval is kept; it is a setting, which may change."""
_MOST = 10_000


class HeartbeatIntervals:
    """Intervals in ms by group, each kept for a while; the oldest ones are evicted."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def get(self, group: str, now: float) -> int:
        """The group's interval; 0 if the coordinator must be asked."""
        interval_ms, until = self._known.get(group, (0, 0.0))
        return interval_ms if now < until else 0

    def put(self, group: str, interval_ms: int, now: float) -> None:
        """Remember an interval."""
        self._known[group] = interval_ms, now + _SECONDS
        self._known.move_to_end(group)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)


def is_unchanged(op: ConsumerHeartbeat) -> bool:
    """Whether a heartbeat reports only that its member is alive."""
    return (
        op.member_epoch > 0
        and op.topics is None
        and op.pattern is None
        and op.owned is None
        and op.assignor is None
        and op.rack_id is None
        and op.rebalance_timeout_ms == -1
    )
