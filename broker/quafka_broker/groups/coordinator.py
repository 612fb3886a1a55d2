"""The coordinator: all groups of all orgs, and their timers.

One timer of the event loop serves all deadlines. Only a group's own methods change it, on the event
loop. Durable changes go through the log and are applied in its order, even if the caller no longer
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from quafka_broker.groups import migration
from quafka_broker.groups.answer_queue import AnswerQueue
from quafka_broker.groups.classic_requests import ClassicRequests
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.consumer_requests import ConsumerRequests
from quafka_broker.groups.deadlines import NEVER, DeadlineHeap
from quafka_broker.groups.figures import GroupFigures
from quafka_broker.groups.group import AnyCommit, Group, GroupChange, GroupType, Then, Waking
from quafka_broker.groups.host import G, GroupKind, now
from quafka_broker.groups.journal import GroupJournal
from quafka_broker.groups.kinds import KINDS
from quafka_broker.groups.known_topics import KnownTopics
from quafka_broker.groups.lag import Lags
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.offsets import GroupOffsets
from quafka_broker.groups.org_usage import OrgUsage
from quafka_broker.groups.served_consumer import CONSUMER_GROUPS
from quafka_broker.groups.served_share import SHARE_GROUPS
from quafka_broker.groups.table import Event, GroupEntry, GroupTable, Key
from quafka_broker.groups.topic_news import TopicNews
from quafka_broker.sources.sources import Sources
from quafka_broker.topics.registry import Registry
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.group_offsets import CommitOffsets
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.broker.groups")

_PER_SLICE = 100  # groups examined without yielding


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


class Coordinator:
    """Runs the groups. All methods are for one event loop."""

    def __init__(
        self,
        wal: Log,
        limits: GroupLimits,
        registry: Registry,
        sources: Sources,
        begin_at: Callable[[int], Awaitable[None]],
        most_groups: Callable[[int], int],
        settings: Callable[[ConsumerGroupSettings, GroupType, int, str], ConsumerGroupSettings],
        *,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        """`begin_at` moves the start of the journal, durably; `most_groups` returns the maximum
        number of groups of an org; `settings`: see `GroupConfigStore`."""
        self.limits = limits
        self.now_ms = now_ms
        """The wall clock that dates commits."""
        self._most_groups = most_groups
        self._settings = settings
        self.registry = registry
        self._news = TopicNews(self.every_group, self._tell_topics)
        self._table = GroupTable(self._new_group, registry.is_live, now)
        self.journal = GroupJournal(wal, self._table, begin_at)
        self.lags = Lags(sources, registry.by_name)
        self.offsets = GroupOffsets(
            self._table, self.journal, self.lags, limits, self.drop_if_empty
        )
        self.classic = ClassicRequests(self)
        self.consumer = ConsumerRequests(self, CONSUMER_GROUPS)
        self.share = ConsumerRequests(self, SHARE_GROUPS)
        self.topics = KnownTopics(registry)
        self._due: DeadlineHeap[Key] = DeadlineHeap()
        self._only_pending: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._limited = LimitedLog(log)
        self.answers = AnswerQueue()
        self.figures = GroupFigures()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the groups from the log. Members have a whole session to send a request.

        Raises:
            StorageError: the log cannot be read.
            ValueError, KeyError, TypeError: an event cannot be decoded.
        """
        await self.journal.replay()
        self.journal.restate_damaged()
        self._running = True
        for key, entry in list(self._table.entries.items()):
            self.changed(key, entry.group)
            self.drop_if_empty(key)
        self.registry.watcher = self._news.topic_changed

    def drain(self) -> None:
        """Answer the parked requests, and park no more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        for entry in self._table.entries.values():
            entry.group.drain()

    async def close(self) -> None:
        """Write the queued events and stop."""
        await self._news.close()
        await self.journal.close()

    # --- groups -----------------------------------------------------------------------------

    def find(self, org: int, name: str) -> GroupEntry | None:
        """A group; None where it is unknown."""
        return self._table.entries.get((org, name))

    def usage(self, org: int) -> OrgUsage:
        """The usage of an org's groups."""
        return self._table.usage(org)

    def every_group(self) -> list[tuple[Key, GroupEntry]]:
        """All groups of all orgs."""
        return list(self._table.entries.items())

    def groups(self, org: int) -> list[GroupEntry]:
        """An org's groups, by name."""
        return [entry for key, entry in sorted(self._table.entries.items()) if key[0] == org]

    def consumer_settings(self, org: int, group: str, /) -> ConsumerGroupSettings:
        """The settings of a group of the consumer group protocol."""
        return self._settings(self.limits.consumer, GroupType.CONSUMER, org, group)

    def share_settings(self, org: int, group: str, /) -> ConsumerGroupSettings:
        """The settings of a share group."""
        return self._settings(self.limits.share, GroupType.SHARE, org, group)

    def find_or_make(self, key: Key) -> GroupEntry:
        """A group, created as an empty classic one if it is unknown."""
        return self._table.find_or_make(key)

    def become(self, key: Key, kind: GroupKind[G]) -> G:
        """Replace a group by an empty one of this kind; its next event records this."""
        before = self._table.find_or_make(key)
        born_ms = max(self.now_ms(), before.born_ms + 1, before.group.born_ms + 1)
        self._due.cancel(key)
        return self._table.replace_group(key, partial(kind.make, self, key), born_ms)

    def downgrade(self, key: Key) -> None:
        """Convert a group whose members all use the classic protocol to a classic one."""
        group = CONSUMER_GROUPS.of(self._table.entries[key])
        if group is not None:
            migration.downgrade(self, key, group)

    @property
    def is_running(self) -> bool:
        """Whether requests may be parked."""
        return self._running

    def only_has_pending(self, key: Key) -> None:
        """Let a group make room for others of its org while it has only pending member ids."""
        self._only_pending[key[0]][key[1]] = None

    def _new_group(self, key: Key, kind: GroupType) -> Group:
        group: Group = KINDS[kind].make(self, key)
        return group

    def may_make(self, org: int) -> bool:
        """Whether an org may have another group.

        If not, drops the oldest group that has only pending member ids: a client with such an id
        gets UNKNOWN_MEMBER_ID and joins again.
        """
        most = self._most_groups(org)
        if self._table.usage(org).groups < most:
            return True
        only_pending = self._only_pending[org]
        while only_pending:
            key = (org, only_pending.popitem(last=False)[0])
            entry = self._table.entries.get(key)
            if (
                entry is not None
                and entry.has_only_pending_members
                and not self.journal.is_queued(key)
            ):
                self._drop(key)
                return True
        self._limited.warning(
            f"groups {org}", "org %d has %d groups (group.max.groups): it can have no new one",
            org, most,
        )  # fmt: skip
        return False

    def drop_if_empty(self, key: Key) -> None:
        entry = self._table.entries.get(key)
        if entry is not None and entry.is_empty and not self.journal.is_queued(key):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Drop a group that has nothing in the log."""
        self._table.drop(key)
        self._due.cancel(key)
        self._only_pending[key[0]].pop(key[1], None)

    def may_commit(self, org: int, op: AnyCommit) -> ErrorCode:
        """The error of a commit by a member, or by a client outside the group."""
        entry = self._table.entries.get((org, op.group))
        if entry is None:
            if not op.group:
                return ErrorCode.INVALID_GROUP_ID
            if op.generation >= 0:
                knows = isinstance(op, CommitOffsets) and op.knows_member_epochs
                return ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.NONE if self.may_make(org) else ErrorCode.POLICY_VIOLATION
        return entry.group.may_commit(op, now())

    def expel(self, org: int, name: str) -> None:
        """Remove all members of a group, so that it can be deleted."""
        entry = self._table.entries.get((org, name))
        if entry is not None:
            entry.group.expel(now())
            self.changed((org, name), entry.group)
            self.drop_if_empty((org, name))

    async def delete_group(self, org: int, name: str) -> ErrorCode:
        """Delete a group that has no members, and its offsets; durable on return.

        Raises:
            StorageError: it still exists.
        """
        key = (org, name)
        entry = self._table.entries.get(key)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = entry.group
        error = group.begin_deletion()
        if error:
            return error
        self._only_pending[org].pop(name, None)

        def then(stored: bool) -> None:
            if not stored:
                group.undo_deletion()

        await self.journal.append({"event": "group_deleted", "org": org, "group": name}, then)
        return ErrorCode.NONE

    async def expire(self, retention_ms: int) -> int:
        """Delete expired offsets, and groups left empty; returns the number of offsets.

        Raises:
            StorageError: the next call deletes the rest.
        """
        before_ms = self.now_ms() - retention_ms
        count = 0
        slices = Slices(_PER_SLICE)
        for key in list(self._table.entries):
            await slices.done()
            entry = self._table.entries.get(key)
            if entry is None or self.journal.is_queued(key):
                continue
            places = self._table.expired(entry, before_ms)
            count += len(places)
            if len(places) < len(entry.offsets) or not entry.group.is_empty:
                if places:
                    await self.offsets.delete(*key, places)
            elif entry.group.kind is GroupType.SHARE:
                continue  # its state in partitions does not expire
            elif entry.stored is not None or places:
                await self.delete_group(*key)
            elif not entry.group.has_pending_members():
                self._drop(key)
        return count

    def _tell_topics(self, key: Key, group: Group, names: Collection[str]) -> None:
        if self._running:
            group.topics_changed(names, now())
            self.changed(key, group)

    # --- the log ----------------------------------------------------------------------------

    def store(self, key: Key, group: Group, change: GroupChange, then: Then) -> None:
        """Make a step of a group durable, then call `then`. For all kinds but the classic one."""
        if change.own is not None:
            change.own["since_ms"] = group.since_ms
        event = {
            "event": "group_members", "org": key[0], "group": key[1], "kind": str(group.kind),
            "born_ms": group.born_ms, "own": change.own,
            "members": [[member_id, data] for member_id, data in change.members.items()],
            "gone": change.gone,
        }  # fmt: skip
        self.append(key, group, event, then)

    def append(self, key: Key, group: Waking, event: Event, then: Then) -> None:
        """Make an event of a group durable, then call `then`."""
        self._only_pending[key[0]].pop(key[1], None)
        entry = self._table.entries.get(key)
        if entry is not None:
            self.figures.stored(entry, event)

        def settled(stored: bool) -> None:
            then(stored)
            self.changed(key, group)

        self.journal.append(event, settled)

    # --- timers -----------------------------------------------------------------------------

    def changed(self, key: Key, group: Waking) -> None:
        """Set the timer for the group's next deadline."""
        if self._running and self._due.schedule(key, group.wake_at):
            self._arm()

    def _arm(self) -> None:
        when = self._due.earliest
        if when == NEVER:
            return
        if self._timer is not None:
            if self._timer.when() <= when and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        at = now()
        while (key := self._due.pop(at)) is not None:
            entry = self._table.entries.get(key)
            if entry is None:
                continue
            try:
                entry.group.tick(at)
            except Exception:  # a bug in one group must not stop the timers of the others
                log.exception("the timers of group %r failed", key[1])
            self.changed(key, entry.group)
            self.drop_if_empty(key)
        if self._running:
            self._arm()
