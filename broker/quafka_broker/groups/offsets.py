"""Committed offsets: checks, commits and deletions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Mapping
from functools import partial
from weakref import WeakValueDictionary

from quafka_broker.groups.group import Place
from quafka_broker.groups.journal import GroupJournal
from quafka_broker.groups.lag import Lags
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import offset_cost
from quafka_broker.groups.table import Commit, Committed, GroupEntry, GroupTable, Key
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_loop.slices import in_slices
from quafka_mesh_ops.transport.log_limit import LimitedLog

log = logging.getLogger("quafka.broker.groups")


class GroupOffsets:
    """The offsets of all groups of all orgs. For one event loop."""

    def __init__(
        self,
        table: GroupTable,
        journal: GroupJournal,
        lags: Lags,
        limits: GroupLimits,
        drop_if_empty: Callable[[Key], None],
    ) -> None:
        """`drop_if_empty` is called with a group after a commit of its own."""
        self._table = table
        self._journal = journal
        self._lags = lags
        self._limits = limits
        self._drop_if_empty = drop_if_empty
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._limited = LimitedLog(log)

    def of(self, key: Key) -> Mapping[Place, Committed]:
        """The committed offsets of a group; empty for an unknown group."""
        entry = self._table.entries.get(key)
        return entry.offsets if entry is not None else {}

    def of_every_group(self) -> list[tuple[Key, list[tuple[Place, Committed]]]]:
        """The committed offsets of all groups of all orgs."""
        entries = self._table.entries.items()
        return [(key, list(entry.offsets.items())) for key, entry in entries if entry.offsets]

    # --- commit -----------------------------------------------------------------------------

    def commit_turn(self, org: int, group: str) -> asyncio.Lock:
        """A lock that a commit holds until it is queued, which keeps a group's commits in order."""
        return self._turns.setdefault((org, group), asyncio.Lock())

    def has_turns(self, org: int, group: str) -> bool:
        """Whether a commit of the group holds or awaits `commit_turn`."""
        return bool(self._turns) and (org, group) in self._turns

    def surely_has_room(self, org: int, commit: Commit) -> bool:
        """Whether the org's limit allows a commit, even if it replaces no offset."""
        return self._table.usage(org).offset_bytes + commit.cost <= self._limits.org_offset_bytes

    async def has_room(self, org: int, group: str, commit: Commit) -> bool:
        """Whether the org's limit allows a commit."""
        if self.surely_has_room(org, commit):
            return True
        limit, usage = self._limits.org_offset_bytes, self._table.usage(org)
        await self._journal.bookkeeping_done()  # until then, replaced offsets count
        more = await in_slices(_growth(commit, self.of((org, group))))
        used = usage.offset_bytes
        if more <= 0 or used + more <= limit:
            return True
        self._limited.warning(
            f"offsets {org}",
            "the offsets of org %d use %d bytes: it can commit no more (offsets.max.bytes)",
            org, used,
        )  # fmt: skip
        return False

    def commit(self, org: int, group: str, commit: Commit) -> asyncio.Future[list[int]]:
        """Queue a commit, in the order of the calls. A reader sees all of it or nothing.

        The future is done when the commit is durable. It raises:
            StorageError: the offsets are not committed.
        """
        event = {"event": "offsets", "org": org, "group": group, "offsets": commit}
        return self._journal.append(event, partial(self._committed, (org, group), commit))

    async def commit_as_members(
        self, org: int, group: str, commit: Commit
    ) -> tuple[list[GroupedBatch], Callable[[int | None], None]]:
        """Encode a commit as part of a group of entries; see `GroupJournal.as_members`."""
        event = {"event": "offsets", "org": org, "group": group, "offsets": commit}
        then = partial(self._committed, (org, group), commit)
        return await self._journal.as_members(event, then)

    def _committed(self, key: Key, commit: Commit, stored: bool) -> None:
        """Do the bookkeeping of a commit that is applied, or failed."""
        if stored:
            entry = self._table.entries.get(key)
            steps = self._lags.observe_commit(
                key, entry.group if entry is not None else None, commit.offsets
            )
            self._journal.run_bookkeeping(steps, len(commit.offsets))
            self._drop_if_empty(key)  # its topics may have been deleted meanwhile

    # --- delete -----------------------------------------------------------------------------

    async def delete(self, org: int, group: str, places: list[Place]) -> None:
        """Delete offsets, durably.

        Raises:
            StorageError: they still exist.
        """
        rows = [list(place) for place in places]
        event = {"event": "offsets_deleted", "org": org, "group": group, "partitions": rows}
        await self._journal.append(event)

    def drop_topics(self, topics: Collection[Topic]) -> None:
        """Drop the offsets in topics of this broker that were deleted."""
        self._journal.drop_facts(self._table.drop_topics(topics))

    async def delete_topic_elsewhere(
        self, org: int, entries: Collection[GroupEntry], name: str, topic_id: bytes
    ) -> None:
        """Delete these groups' offsets in a deleted topic of another broker, durably.

        Raises:
            StorageError: retention deletes the rest later.
        """
        for entry in entries:
            places = entry.places_in(name, topic_id.hex())
            if places:
                await self.delete(org, entry.group.name, places)


def _growth(commit: Commit, known: Mapping[Place, Committed]) -> Generator[None, None, int]:
    """The number of bytes by which a commit grows a group's offsets."""
    more = commit.cost
    for place in commit.offsets:
        if (before := known.get(place)) is not None:
            more -= offset_cost(place[0], before.metadata)
        yield
    return more
