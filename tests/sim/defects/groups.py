"""Defects of consumer groups and share groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from quafka_broker.groups.classic import group as classic
from quafka_broker.groups.consumer import group as consumer
from quafka_broker.groups.consumer.reconciliation import advance
from quafka_broker.groups.offsets import GroupOffsets
from quafka_broker.groups.table import Commit
from quafka_broker.shares.shares import BrokerShares
from quafka_broker.shares.states import RangeChange
from quafka_broker.shares.table import SharePartition
from quafka_proto.errors import ErrorCode
from tests.sim.defects.defect import RESTARTS, Defect, change


def _commit_before_its_records() -> None:
    commit = GroupOffsets.commit

    def at_once(
        self: GroupOffsets, org: int, group: str, offsets: Commit
    ) -> asyncio.Future[list[int]]:
        commit(self, org, group, offsets)
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        done.set_result([0])
        return done

    change(GroupOffsets, "commit", at_once)


def _generations_not_checked() -> None:
    check = classic.ClassicGroup._check

    def any_generation(
        self: classic.ClassicGroup, member_id: str, instance_id: str, generation: int
    ) -> ErrorCode:
        return check(self, member_id, instance_id, self.generation)

    change(classic.ClassicGroup, "_check", any_generation)


def _commits_not_checked() -> None:
    change(classic.ClassicGroup, "may_commit", lambda *_: ErrorCode.NONE)
    change(consumer.ConsumerGroup, "may_commit", lambda *_: ErrorCode.NONE)


def _release_not_awaited() -> None:
    """A member counts as having given up what it was told to give up."""

    def at_once(member: Any, epoch: int, target: Any, _owned: Any, taken: Any) -> bool:
        return advance(member, epoch, target, {}, taken)

    change(consumer, "advance", at_once)


def _acknowledgement_not_durable() -> None:
    async def nothing() -> None:
        pass

    def settled(
        self: BrokerShares, found: SharePartition, changes: list[RangeChange]
    ) -> Awaitable[object]:
        found.window.settle(changes)
        self.table.recount(found)
        return nothing()

    change(BrokerShares, "_write", settled)


DEFECTS = {
    "a commit of offsets is answered before its records": Defect(
        _commit_before_its_records, programs=("consumer", "offsets")
    ),
    "generations are not checked": Defect(_generations_not_checked, programs=("consumer",)),
    "commits of former members are accepted": Defect(_commits_not_checked, programs=("consumer",)),
    "a partition is given away before its release": Defect(
        _release_not_awaited, programs=("consumer",)
    ),
    "share acknowledgements are not durable": Defect(
        _acknowledgement_not_durable, programs=("sharer",), faults=RESTARTS
    ),
}
