"""The table of transactional ids, built from the journal's events. Pure."""

from __future__ import annotations

from collections import defaultdict

from quafka_broker.groups.group import Place
from quafka_broker.groups.table import Commit
from quafka_broker.groups.table import Key as GroupKey
from quafka_broker.transactions.branch import Branch
from quafka_broker.transactions.events import (
    Added,
    BranchJoined,
    BranchOffsets,
    Ended,
    Event,
    Finished,
    Forgotten,
    GroupDropped,
    Initialized,
    Moved,
    OffsetsStored,
    Spread,
)
from quafka_broker.transactions.transaction import NO_ID, Transaction

Key = tuple[int, str]
"""A transactional id: its org and its name."""

WithOffsets = Transaction | Branch
"""Holders of offsets of this broker's groups."""


class TransactionTable:
    """Transactional ids by org and name, and by their present producer ids."""

    def __init__(self) -> None:
        self.entries: dict[Key, Transaction] = {}
        self.by_producer: dict[int, Transaction] = {}
        self.open: dict[Key, Transaction] = {}
        """The transactional ids with an open transaction."""
        self.unfinished: dict[Key, Transaction] = {}
        """The transactional ids whose last transaction has not ended at all brokers."""
        self.branches: dict[int, Branch] = {}
        """The transactions of other brokers with partitions here, by producer id."""
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._pending: defaultdict[GroupKey, dict[WithOffsets, None]] = defaultdict(dict)
        self._pending_places: defaultdict[GroupKey, dict[Place, int]] = defaultdict(dict)
        self._pending_cost: defaultdict[int, int] = defaultdict(int)

    def __len__(self) -> int:
        """The number of transactional ids of all orgs."""
        return len(self.entries)

    def count(self, org: int) -> int:
        """The number of transactional ids of an org."""
        return self._counts[org]

    def pending_cost(self, org: int) -> int:
        """The bytes of the org's offsets in open transactions (groups/org_usage.py)."""
        return self._pending_cost[org]

    def with_offsets_of(self, group: GroupKey) -> list[WithOffsets]:
        """The open transactions that have offsets of a group."""
        return list(self._pending[group]) if group in self._pending else []

    def is_pending(self, group: GroupKey, place: Place) -> bool:
        """Whether an open transaction has an offset of a group in this partition."""
        return group in self._pending_places and place in self._pending_places[group]

    # --- events -----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Apply an event that is in the log."""
        match event:
            case GroupDropped():
                self._drop_group((event.org, event.group))
            case BranchJoined():
                self._branch(event).join(event)
            case BranchOffsets():
                self._store_offsets(self._branch(event), event)
            case Ended(name=""):
                self._end_branch(event)
            case Forgotten():
                self._forget((event.org, event.name))
            case _:
                self._change(event)

    def _change(
        self, event: Initialized | Added | OffsetsStored | Ended | Moved | Spread | Finished
    ) -> None:
        """Apply an event of one transactional id."""
        key = (event.org, event.name)
        found = self.entries.get(key)
        if found is None:
            found = self.entries[key] = Transaction(*key)
            self._counts[event.org] += 1
        match event:
            case Added():
                found.add(event)
                self.open[key] = found
                for group in event.groups:
                    self._pending[key[0], group][found] = None
            case OffsetsStored():
                self._store_offsets(found, event)
            case Spread():
                found.spread(event)
                self.open[key] = found
            case Finished():
                found.finish(event.number)
                self._index(found)
            case Initialized():
                self._release(found)
                found.initialize(event)
                self._index(found)
            case Ended():
                self._release(found)
                found.end(event)
                self._index(found)
            case Moved():
                found.move(event)

    def _store_offsets(self, found: WithOffsets, event: OffsetsStored | BranchOffsets) -> None:
        if isinstance(event, OffsetsStored) and event.group not in found.groups:
            return  # the group was deleted after it had joined
        group = (found.org, event.group)
        commit = found.groups.setdefault(event.group, Commit())
        before = commit.cost
        placed = dict.fromkeys((row[0], row[2]) for row in event.rows)
        new = [place for place in placed if place not in commit.offsets]
        commit.add_rows(event.rows)
        self._pending_cost[found.org] += commit.cost - before
        self._pending[group][found] = None
        places = self._pending_places[group]
        for place in new:
            places[place] = places.get(place, 0) + 1

    def _index(self, found: Transaction) -> None:
        self.by_producer[found.producer_id] = found
        if found.unfinished is not None:
            self.unfinished[found.key] = found
        else:
            self.unfinished.pop(found.key, None)

    def _release(self, found: Transaction) -> None:
        """Drop the parts of an open transaction, and the producer id, which may change."""
        self.open.pop(found.key, None)
        if self.by_producer.get(found.producer_id) is found and found.producer_id != NO_ID:
            del self.by_producer[found.producer_id]
        self._release_groups(found)

    def _release_groups(self, found: WithOffsets) -> None:
        for group, commit in found.groups.items():
            self._unlink((found.org, group), found, commit)

    def _unlink(self, group: GroupKey, found: WithOffsets, commit: Commit) -> None:
        self._pending_cost[found.org] -= commit.cost
        linked, places = self._pending[group], self._pending_places[group]
        linked.pop(found, None)
        for place in commit.offsets:
            left = places[place] - 1
            if left:
                places[place] = left
            else:
                del places[place]
        if not linked:
            del self._pending[group]
        if not places:
            del self._pending_places[group]

    def _forget(self, key: Key) -> None:
        found = self.entries.pop(key, None)
        self.unfinished.pop(key, None)
        if found is not None:
            self._counts[key[0]] -= 1
            self._release(found)

    def _branch(self, event: BranchJoined | BranchOffsets) -> Branch:
        found = self.branches.get(event.producer_id)
        if found is None or found.number != event.number:
            found = self.branches[event.producer_id] = Branch(
                event.org, event.name, event.home, event.producer_id, event.epoch, event.number,
                event.at_ms,
            )  # fmt: skip
        return found

    def _end_branch(self, event: Ended) -> None:
        """Apply the end of a branch; without a number, of records of no known transaction."""
        found = self.branches.get(event.producer_id)
        if found is not None and found.number == event.number:
            del self.branches[event.producer_id]
            self._release_groups(found)

    def _drop_group(self, group: GroupKey) -> None:
        for found in self.with_offsets_of(group):
            self._unlink(group, found, found.groups.pop(group[1]))
