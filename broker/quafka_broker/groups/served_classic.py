"""One group of the classic protocol, between the coordinator and its pure core (groups/classic)."""

from __future__ import annotations

from functools import partial
from typing import Any

from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.classic.rebalance import RebalancingGroup, Saved
from quafka_broker.groups.group import GroupType
from quafka_broker.groups.host import GroupKind, Host, now
from quafka_broker.groups.table import Key


def _new_group(host: Host, key: Key) -> ClassicGroup:
    """An empty group."""
    return ClassicGroup(key[1], host.limits, partial(_save, host, key), usage=host.usage(key[0]))


def _save(
    host: Host, key: Key, group: RebalancingGroup, stored: dict[str, Any], saved: Saved
) -> None:
    """Make a group's state durable, then call `saved`."""
    group.since_ms = host.now_ms()
    event = {
        "event": "group", "org": key[0], "group": key[1], "since_ms": group.since_ms, **stored
    }  # fmt: skip
    host.append(key, group, event, lambda stored: saved(stored, now()))


CLASSIC_GROUPS = GroupKind(GroupType.CLASSIC, _new_group)
