"""The records of share groups: ops that go to the brokers of the partitions (KIP-932).

A fetch over several brokers acquires only where records are ready: while none are, the brokers are
asked to wait without acquiring. A broker whose answer came too late would otherwise hold records
for a client that has its answer already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.cluster import Cluster, OfTopic, RouteBy, Send
from quafka_gateway.cluster.parked_time import add_parked
from quafka_loop.slices import listed, turn
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.group_configs import ShareGroupConfigs
from quafka_mesh_ops.ops.share_groups import ShareGroupTopics
from quafka_mesh_ops.ops.shares import (
    AcknowledgeRecords,
    AcquiredPartition,
    AcquireRecords,
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareOffsets,
    ReleaseRecords,
    ShareConfigs,
    ShareGroupPlaces,
    ShareOffset,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

log = logging.getLogger("quafka.gateway.shares")

_ACQUIRE_GRACE_SECONDS = 10.0
_RELEASE_SECONDS = 5.0
_MOST_RELEASES = 10_000
"""Members whose records are given back at a time; the locks of any others expire."""
_UNKNOWN_LOCK = -1
CONFIGS_SECONDS = 1.0
"""How long the configs of a group are used before they are requested again."""
_MOST_CONFIGS = 10_000

Change = TypeVar("Change", AlterShareOffsets, DeleteShareOffsets)


class PartitionAcquisition(NamedTuple):
    """What was acquired of a partition, and for how long; -1 ms: unknown."""

    partition: AcquiredPartition
    lock_ms: int = _UNKNOWN_LOCK


class Acknowledged(NamedTuple):
    """The error code of a partition's acknowledgements."""

    error_code: int
    lock_ms: int = _UNKNOWN_LOCK


class ClusterShares:
    """One method per op. Answers about partitions are in the order of the op's partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lost: deque[ReleaseRecords] = deque()
        self._releases: set[asyncio.Task[None]] = set()
        self._too_many = False
        self._configs: OrderedDict[str, tuple[ShareConfigs, float]] = OrderedDict()
        self._forgotten = 0  # how often configs were forgotten: earlier answers are not kept

    # --- records ----------------------------------------------------------------------------

    async def configs(self, group: str, trace: TraceContext | None) -> ShareConfigs:
        """The configs of a share group, as they were at most CONFIGS_SECONDS ago.

        Changes through this gateway are in them: see `forget_configs`.

        Raises:
            BrokerUnavailableError: the group's broker does not answer, and they are not known.
        """
        known, until = self._configs.get(group, (None, 0.0))
        now = asyncio.get_running_loop().time()
        if known is not None and now < until:
            return known
        forgotten = self._forgotten
        try:
            known = await self._cluster.link_of_group(group).call(ShareGroupConfigs(group), trace)
        except BrokerUnavailableError as e:
            if known is None:
                raise BrokerUnavailableError(str(e), ErrorCode.COORDINATOR_NOT_AVAILABLE) from e
        if self._forgotten != forgotten:
            return known
        self._configs[group] = known, now + CONFIGS_SECONDS
        self._configs.move_to_end(group)
        if len(self._configs) > _MOST_CONFIGS:
            self._configs.popitem(last=False)
        return known

    def forget_configs(self, group: str) -> None:
        """Forget a group's configs after a change, before its answer."""
        self._configs.pop(group, None)
        self._forgotten += 1

    async def new_to(
        self, group: str, places: Sequence[tuple[bytes, int]], trace: TraceContext | None
    ) -> set[tuple[bytes, int]]:
        """Those of the partitions that have joined their topics since a group learnt these.

        Both by topic id and number.

        Raises:
            BrokerUnavailableError: the group's broker does not answer.
        """
        topic_ids = await listed(dict.fromkeys(topic_id for topic_id, _ in places))
        if not topic_ids:
            return set()
        try:
            op = ShareGroupTopics(group, topic_ids)
            answer = await self._cluster.link_of_group(group).call(op, trace)
        except BrokerUnavailableError as e:
            if e.code == ErrorCode.UNSUPPORTED_VERSION:  # an earlier broker notes no partitions
                return set()
            raise BrokerUnavailableError(str(e), ErrorCode.COORDINATOR_NOT_AVAILABLE) from e
        first = dict(await listed(zip(topic_ids, answer.first_partitions, strict=True)))
        return set(await listed(each for each in places if 0 <= first[each[0]] <= each[1]))

    async def acquire(
        self, op: AcquireRecords, trace: TraceContext | None
    ) -> list[PartitionAcquisition]:
        """Acquire records at once if there are some, otherwise after a wait for them."""
        if self._cluster.only is not None:
            return await self._acquire(self._cluster.only, op, trace)
        loop = asyncio.get_running_loop()
        until = loop.time() + op.max_wait_ms / 1000
        while True:
            now = replace(op, max_wait_ms=0, min_bytes=0)
            answers = await self._spread(now, trace)
            found = any(each.partition.acquired or each.partition.error_code for each in answers)
            left = until - loop.time()
            if found or left <= 0:
                return answers
            if not await self._wait(replace(op, max_wait_ms=round(left * 1000)), trace):
                return answers

    async def _wait(self, op: AcquireRecords, trace: TraceContext | None) -> bool:
        """Wait until a broker has records; False: the wait is over."""
        places = await self._cluster.places(op, trace)
        waits = [
            asyncio.ensure_future(
                self._acquire(
                    self._cluster.links[broker],
                    replace(op, look_only=True, partitions=[op.partitions[at] for at in its]),
                    trace,
                )
            )
            for broker, its in places.items()
            if self._cluster.is_connected(broker)
        ]
        if not waits:
            await asyncio.sleep(op.max_wait_ms / 1000)
            return False
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return asyncio.get_running_loop().time() - began < op.max_wait_ms / 1000

    async def _spread(
        self, op: AcquireRecords, trace: TraceContext | None
    ) -> list[PartitionAcquisition]:
        def call(link: BrokerLink, part: AcquireRecords) -> Awaitable[list[PartitionAcquisition]]:
            return self._acquire(link, part, trace)

        return await self._cluster.spread_partitions(op, call, _not_acquired, trace)

    async def _acquire(
        self, link: BrokerLink, op: AcquireRecords, trace: TraceContext | None
    ) -> list[PartitionAcquisition]:
        try:
            answer = await link.call(op, trace, op.max_wait_ms / 1000 + _ACQUIRE_GRACE_SECONDS)
        except BrokerUnavailableError as e:
            code = e.code_or(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return [_not_acquired(code)] * len(op.partitions)
        add_parked(answer.parked_us / 1e6)
        return [PartitionAcquisition(each, answer.lock_ms) for each in answer.partitions]

    async def acknowledge(
        self, op: AcknowledgeRecords, trace: TraceContext | None
    ) -> list[Acknowledged]:
        """Acknowledge records, durably."""

        async def call(link: BrokerLink, part: AcknowledgeRecords) -> list[Acknowledged]:
            try:
                answer = await link.call(part, trace)
            except BrokerUnavailableError as e:
                code = e.code_or(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return [Acknowledged(code)] * len(part.partitions)
            return [Acknowledged(code, answer.lock_ms) for code in answer.partitions]

        if self._cluster.only is not None:
            return await call(self._cluster.only, op)
        return await self._cluster.spread_partitions(op, call, Acknowledged, trace)

    # --- giving back ------------------------------------------------------------------------

    async def release(self, op: ReleaseRecords, trace: TraceContext | None) -> None:
        """Give back a member's records. If a broker does not answer, the locks expire."""

        async def release(link: BrokerLink) -> None:
            with suppress(BrokerUnavailableError):
                await link.call(op, trace, link.wait_among_others(_RELEASE_SECONDS))

        await asyncio.gather(*map(release, self._cluster.links))

    def release_later(self, op: ReleaseRecords) -> None:
        """Give back records of a member whose connection is lost, or that gets no answer."""
        if len(self._lost) + len(self._releases) >= _MOST_RELEASES:
            if not self._too_many:
                log.warning("too many members of share groups were lost at once")
            self._too_many = True
            return
        self._too_many = False
        self._lost.append(op)
        if len(self._lost) == 1:
            self._begin(self._give_back())

    async def _give_back(self) -> None:
        """Send the releases of lost members: a connection may have had a thousand of them."""
        while self._lost:
            self._begin(self.release(self._lost[0], None))
            await turn()
            self._lost.popleft()  # only now: while there is one, this task gives them back

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Report the lost members to the brokers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                while self._releases:
                    await asyncio.wait(self._releases)

    # --- offsets ----------------------------------------------------------------------------

    async def describe(
        self, groups: list[str], trace: TraceContext | None
    ) -> list[list[ShareOffset]]:
        """The groups' offsets in all partitions of all brokers.

        Raises:
            BrokerUnavailableError: a broker does not answer, so the lists would be incomplete.
        """
        its = await listed(map(ShareGroupPlaces, groups))

        def of(link: BrokerLink) -> Awaitable[list[list[ShareOffset]]]:
            def send(op: Op[R], /) -> Awaitable[R]:
                return link.call(op, trace)

            return share_offsets(send, its)

        answers = await asyncio.gather(*map(of, self._cluster.links))
        return await listed(list(chain.from_iterable(each)) for each in zip(*answers, strict=True))

    async def change(self, op: Change, trace: TraceContext | None) -> list[int]:
        """Alter or delete offsets of a group: one error code per partition.

        A deletion without partitions goes to all brokers.

        Raises:
            BrokerUnavailableError: a broker does not answer a deletion without partitions.
        """
        if not op.partitions:
            await asyncio.gather(*(link.call(op, trace) for link in self._cluster.links))
            return []

        async def call(send: Send, its: list[Any]) -> list[int]:
            return (await send(replace(op, partitions=its))).partitions

        def failed(_part: OfTopic, code: int, _text: str) -> int:
            return code

        parts = cast("list[Any]", op.partitions)
        return await self._cluster.ask(RouteBy.SHARE, parts, call, failed, trace)


def _not_acquired(code: int) -> PartitionAcquisition:
    return PartitionAcquisition(AcquiredPartition([], [], code))


async def share_offsets(send: Send, groups: list[ShareGroupPlaces]) -> list[list[ShareOffset]]:
    """The offsets of groups at one broker.

    Raises:
        BrokerUnavailableError: the broker does not answer.
    """
    if not groups:
        return []
    first, *others = groups
    answer = await send(DescribeShareOffsets(first.group, first.partitions, others or None))
    if answer.others is None and others:  # an earlier broker: one group at a time
        return [
            (await send(DescribeShareOffsets(each.group, each.partitions))).partitions
            for each in groups
        ]
    return [answer.partitions, *(each.partitions for each in answer.others or ())]
