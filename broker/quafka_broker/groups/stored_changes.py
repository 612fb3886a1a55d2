"""The changes of one consumer or share group on their way to the log."""

from __future__ import annotations

import asyncio

from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.group import Group, GroupChange
from quafka_broker.groups.group_costs import GroupCosts
from quafka_broker.groups.host import Host, now
from quafka_broker.groups.table import Key
from quafka_loop.slices import at_once

_STORE_AGAIN_SECONDS = 1.0
"""After this time a change that the log has refused is sent again; a heartbeat does so at once."""


class StoredChanges:
    """Sends the changes of a group's core to the log. For one event loop.

    Attributes:
        costs: the usage of the org by the group's members.
        has_own: whether the group itself is in the log, or on its way.
        again_at: when changes that the log has refused are sent again.
    """

    def __init__(self, host: Host, key: Key, group: Group, core: ConsumerGroup) -> None:
        self._host = host
        self._key = key
        self._group = group
        self._core = core
        self.costs = GroupCosts(host.usage(key[0]))
        self.has_own = False
        self.again_at = -NEVER
        self._pending: asyncio.Future[bool] | None = None

    def store(self) -> None:
        """Send the changes to the log."""
        if self._core.has_changes:
            self.append(self._core.take_change())

    def store_own(self) -> None:
        """Send the group itself to the log, unless that was done: it has no members yet."""
        self.store()
        if not self.has_own:
            self.append(GroupChange())

    def append(self, change: GroupChange, *, counts: bool = True) -> None:
        """Send a change to the log, and count its bytes unless the caller does."""
        if change.own is None and not self.has_own:
            at = {"epoch": self._core.epoch, "assignment_epoch": self._core.assignment_epoch}
            change.own = at
        if change.own is not None:
            self.has_own = True
            self._group.since_ms = self._host.now_ms()
        if counts:
            at_once(self.costs.count(self._core, change.members, change.gone))
        pending: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending = pending

        def then(stored: bool) -> None:
            if not stored:
                self._core.not_stored(change)
                self.again_at = now() + _STORE_AGAIN_SECONDS
            if not pending.done():
                pending.set_result(stored)

        self._host.store(self._key, self._group, change, then)

    async def all_stored(self) -> bool:
        """Wait until all changes so far are in the log; returns whether they are."""
        pending = self._pending
        if pending is None:
            return True
        stored = await asyncio.shield(pending)
        if self._pending is pending:
            self._pending = None
        return stored
