"""Members of one share group (KIP-932) that come, go and stand still, and an exact checker.

The members are raw connections. They accept most records, now and then after a renewal, release
some, and forget others until the lock ends. Records of some offsets are always released (poison),
others always rejected. Broker and gateway are killed and paused all the while. Checked are:

- no record is delivered again once the response to its acceptance or rejection has arrived;
- no record is with two members at a time, between disturbances;
- no record is delivered more often than `share.delivery.count.limit`;
- the bytes of every acquired record are in the response;
- when it is calm, the group comes to the end of every partition within bounds, and every record
  was accepted or rejected, or delivered as often as the limit allows.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import uuid4

from quafka_proto.schema.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from quafka_proto.schema.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from quafka_proto.schema.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.soak.disturbed import Findings, Reconnecting, disturb, in_turns
from tests.support.cluster import Cluster
from tests.support.kafka_calls import VERSION, create_topic, produce_request
from tests.support.raw_client import RawClient
from tests.support.share_calls import ACCEPT, REJECT, RELEASE, RENEW

_LOCK, _LIMIT = 3.0, 10
BROKER = (
    "--group-share-min-record-lock-duration-ms", "1000",
    "--group-share-record-lock-duration-ms", str(int(_LOCK * 1000)),
    "--group-share-delivery-count-limit", str(_LIMIT),
    "--group-share-min-session-timeout-ms", "1000",
    "--group-share-session-timeout-ms", "6000",
)  # fmt: skip
_GROUP, _TOPIC, _PARTITIONS, _MOST_MEMBERS = "soaked-shares", "soak", 4, 6
_EVERY, _POISON, _REJECTED = 50, 7, 8
"""Of so many offsets, one is poison and one is rejected."""
_FEW = _LIMIT - 5
"""A record that was delivered more often than this is neither released nor forgotten."""
_BOUND = 90.0
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Ledger:
    """What became of every record."""

    findings: Findings
    settled: dict[Place, float] = field(default_factory=dict[Place, float])
    """When the answer to the acceptance or rejection arrived."""
    unsure: set[Place] = field(default_factory=set[Place])
    """Accepted or rejected by a request whose answer is not known."""
    counts: dict[Place, int] = field(default_factory=dict[Place, int])
    held: dict[Place, tuple[Member, float, int]] = field(
        default_factory=dict[Place, "tuple[Member, float, int]"]
    )
    """By whom, until when for sure, and the number of disturbances before."""

    def acquired(self, place: Place, count: int, member: Member, sent: float, turns: int) -> None:
        """A member has a record, by a request that was sent at `sent`."""
        findings = self.findings
        if self.settled.get(place, sent) < sent:
            findings.wrong(f"{place} is delivered again after its acknowledgement was answered")
        if count > _LIMIT:
            findings.wrong(f"{place} is delivered {count} times")
        before = self.held.get(place)
        calm = findings.turns == turns and turns % 2 == 0
        taken = before is not None and before[0] is not member and before[1] > time.monotonic()
        if before is not None and taken and calm and before[2] == turns:
            findings.wrong(f"{place} is with {member.id} and {before[0].id}")
        self.held[place] = (member, sent + _LOCK, turns)
        self.counts[place] = max(count, self.counts.get(place, 0))
        findings.done["deliveries"] += 1

    def free(self, places: Iterable[Place], member: Member) -> None:
        """A member has no claim to these records any more."""
        for place in places:
            if place in self.held and self.held[place][0] is member:
                del self.held[place]


class Member:
    """A member for some seconds; then it closes its session, or its connection only."""

    def __init__(
        self, address: tuple[str, int], topic: bytes, ledger: Ledger, chance: random.Random
    ) -> None:
        self.id = str(uuid4())
        self.leaving = asyncio.Event()
        self.is_careful = False
        self._topic = topic
        self._ledger = ledger
        self._chance = chance
        self._calls = Reconnecting(address)
        self._epoch, self._session = 0, 0
        self._next_beat = 0.0
        self._assigned: set[int] = set()
        self._mine: set[Place] = set()

    async def run(self) -> None:
        try:
            while not self.leaving.is_set():
                if time.monotonic() >= self._next_beat:
                    await self._beat()
                if self._assigned:
                    await self._fetch()
                else:
                    await asyncio.sleep(0.1)
            self._forget()
            await self._acknowledge({}, final=True)
            await self._calls.call(
                ShareGroupHeartbeatRequest(_GROUP, self.id, -1), ShareGroupHeartbeatResponse, 1
            )
        finally:
            self._forget()
            self._calls.close()

    async def _beat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=_GROUP,
            member_id=self.id,
            member_epoch=self._epoch,
            subscribed_topic_names=[_TOPIC] if self._epoch == 0 else None,
        )
        answer = await self._calls.call(request, ShareGroupHeartbeatResponse, 1)
        if answer is None:
            self._lose_session()
        elif answer.error_code:
            self._ledger.findings.done[f"heartbeat: error {answer.error_code}"] += 1
            self._epoch = 0
            await asyncio.sleep(0.2)
        else:
            self._epoch = answer.member_epoch
            self._next_beat = time.monotonic() + 1
            if answer.assignment is not None:
                self._assigned = {
                    partition
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                }
                self._lose_session()

    def _forget(self) -> None:
        self._ledger.free(self._mine, self)
        self._mine.clear()

    def _lose_session(self) -> None:
        """A new connection begins a new session, and has nothing."""
        self._forget()
        self._calls.close()
        self._session = 0

    async def _fetch(self) -> None:
        most = self._chance.choice([1, 20, 200])
        parts = [ShareFetchPartition(partition) for partition in self._assigned]
        request = ShareFetchRequest(
            group_id=_GROUP,
            member_id=self.id,
            share_session_epoch=self._session,
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=most,
            batch_size=most,
            topics=[ShareFetchTopic(self._topic, parts)] if self._session == 0 else [],
        )
        sent, turns = time.monotonic(), self._ledger.findings.turns
        answer = await self._calls.call(request, ShareFetchResponse, 2)
        if answer is None or answer.error_code:
            if answer is not None:
                self._ledger.findings.done[f"fetch: error {answer.error_code}"] += 1
                await asyncio.sleep(0.1)
            self._lose_session()
            return
        self._session += 1
        todo: dict[int, list[tuple[int, int]]] = {}
        for part in (part for topic in answer.responses for part in topic.partitions):
            there = _offsets(part)
            for some in part.acquired_records:
                for offset in range(some.first_offset, some.last_offset + 1):
                    place = (part.partition_index, offset)
                    self._ledger.acquired(place, some.delivery_count, self, sent, turns)
                    self._mine.add(place)
                    if offset not in there:
                        self._ledger.findings.wrong(f"{place} is acquired without its bytes")
                    todo.setdefault(part.partition_index, []).append((offset, some.delivery_count))
        if todo:
            await self._process(todo)

    async def _process(self, todo: dict[int, list[tuple[int, int]]]) -> None:
        """Decide about each record."""
        chance, done = self._chance, self._ledger.findings.done
        if not self.is_careful and chance.random() < 0.03:
            done["stood still"] += 1
            await asyncio.sleep(chance.uniform(0.5, 1.5) * _LOCK)
        if chance.random() < 0.1:
            every = {p: [(o, RENEW) for o, _ in its] for p, its in todo.items()}
            if not await self._acknowledge(every):
                return
            done["renewed"] += 1
        decided: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for partition, its in todo.items():
            for offset, count in its:
                if offset % _EVERY == _POISON:
                    decided[partition].append((offset, RELEASE))
                elif offset % _EVERY == _REJECTED:
                    decided[partition].append((offset, REJECT))
                elif count > _FEW or self.is_careful or (luck := chance.random()) > 0.1:
                    decided[partition].append((offset, ACCEPT))
                elif luck > 0.02:
                    decided[partition].append((offset, RELEASE))
        await self._acknowledge(decided)
        self._forget()

    async def _acknowledge(
        self, decided: dict[int, list[tuple[int, int]]], *, final: bool = False
    ) -> bool:
        """Whether the session goes on."""
        ledger = self._ledger
        renews = any(kind == RENEW for its in decided.values() for _, kind in its)
        request = ShareAcknowledgeRequest(
            group_id=_GROUP,
            member_id=self.id,
            share_session_epoch=-1 if final else self._session,
            is_renew_ack=renews,
            topics=[
                AcknowledgeTopic(
                    self._topic,
                    [
                        AcknowledgePartition(
                            partition,
                            [AcknowledgementBatch(offset, offset, [kind]) for offset, kind in its],
                        )
                        for partition, its in decided.items()
                    ],
                )
            ],
        )
        ends = {
            (partition, offset)
            for partition, its in decided.items()
            for offset, kind in its
            if kind in (ACCEPT, REJECT)
        }
        ledger.unsure |= ends
        if not renews:  # a record is anybody's once its release has been sent
            self._forget()
        answer = await self._calls.call(request, ShareAcknowledgeResponse, 2)
        if answer is None or answer.error_code:
            if answer is not None:
                ledger.findings.done[f"acknowledge: error {answer.error_code}"] += 1
            self._lose_session()
            return False
        self._session += 1
        now = time.monotonic()
        for part in (part for topic in answer.responses for part in topic.partitions):
            if part.error_code:
                ledger.findings.done[f"acknowledge: partition error {part.error_code}"] += 1
                continue
            for place in [place for place in ends if place[0] == part.partition_index]:
                ledger.settled.setdefault(place, now)
                ledger.findings.done["settled"] += 1
        return True


def _offsets(part: ShareFetchPartitionData) -> set[int]:
    """The offsets that the batches of a response span."""
    data = part.records
    raw = b"".join(map(bytes, data)) if isinstance(data, list) else bytes(data or b"")
    found: set[int] = set()
    at = 0
    while at + 27 <= len(raw):
        base = int.from_bytes(raw[at : at + 8], "big")
        found.update(range(base, base + int.from_bytes(raw[at + 23 : at + 27], "big") + 1))
        at += 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
    return found


class Soaked:
    """One group on one cluster."""

    def __init__(self, cluster: Cluster, chance: random.Random, findings: Findings) -> None:
        self._cluster = cluster
        self._chance = chance
        self._findings = findings
        self._ledger = Ledger(findings)
        self._members: dict[asyncio.Task[None], Member] = {}
        self._topic = b""
        self._calls = Reconnecting(cluster.address)

    async def run(self, seconds: float) -> None:
        await asyncio.to_thread(self._prepare)
        await self._find_topic()
        source = asyncio.create_task(self._produce())
        rough = asyncio.create_task(disturb(self._cluster, seconds, self._chance, self._findings))
        try:
            while not rough.done():
                self._come_and_go()
                await asyncio.sleep(self._chance.uniform(0.5, 2))
            await rough
            source.cancel()
            await asyncio.gather(source, return_exceptions=True)
            await self._calm()
        finally:
            for task in (*self._members, source, rough):
                task.cancel()
            await asyncio.gather(*self._members, source, rough, return_exceptions=True)
            self._calls.close()

    def _prepare(self) -> None:
        with RawClient(self._cluster.address) as client:
            create_topic(client, _TOPIC, _PARTITIONS)
            config = IncrementalAlterableConfig("share.auto.offset.reset", 0, "earliest")
            resource = IncrementalAlterConfigsResource(32, _GROUP, [config])
            request = IncrementalAlterConfigsRequest([resource])
            answer = client.call(request, IncrementalAlterConfigsResponse, 1)
            assert answer.responses[0].error_code == 0, answer

    async def _find_topic(self) -> None:
        """The topic's id, as a member is told it."""
        while not self._topic:
            request = ShareGroupHeartbeatRequest(_GROUP, "first", 0, None, [_TOPIC])
            answer = await self._calls.call(request, ShareGroupHeartbeatResponse, 1)
            if answer is not None and answer.assignment and answer.assignment.topic_partitions:
                self._topic = answer.assignment.topic_partitions[0].topic_id
        leave = ShareGroupHeartbeatRequest(_GROUP, "first", -1)
        await self._calls.call(leave, ShareGroupHeartbeatResponse, 1)

    async def _produce(self) -> None:
        calls = Reconnecting(self._cluster.address)
        try:
            while True:
                for partition in range(_PARTITIONS):
                    await self._batch(calls, partition, self._chance.randrange(1, 20))
                await asyncio.sleep(0.1)
        finally:
            calls.close()

    async def _batch(self, calls: Reconnecting, partition: int, count: int) -> int:
        """The base offset; -1 where that is not known."""
        request = produce_request(_TOPIC, *[b"x" * 50] * count, partition=partition)
        answer = await calls.call(request, ProduceResponse, VERSION["produce"])
        if answer is None or answer.responses[0].partition_responses[0].error_code:
            return -1
        return answer.responses[0].partition_responses[0].base_offset

    def _come_and_go(self) -> None:
        for task in [task for task in self._members if task.done()]:
            del self._members[task]
            task.result()
        if len(self._members) < 2 or (
            len(self._members) < _MOST_MEMBERS and self._chance.random() < 0.5
        ):
            self._start()
            return
        task, member = self._chance.choice(list(self._members.items()))
        if self._chance.random() < 0.5:
            member.leaving.set()
        else:
            task.cancel()
            del self._members[task]
        self._findings.done["gone"] += 1

    def _start(self) -> None:
        member = Member(self._cluster.address, self._topic, self._ledger, self._chance)
        self._members[asyncio.create_task(member.run())] = member
        self._findings.done["came"] += 1

    async def _calm(self) -> None:
        """The group must come to the end; then every record has its fate."""
        self._start()
        for member in self._members.values():
            member.is_careful = True
        ends: list[int] = []
        for partition in range(_PARTITIONS):
            while (base := await self._batch(self._calls, partition, 1)) < 0:
                pass
            ends.append(base + 1)
        give_up = time.monotonic() + _BOUND
        while (starts := await self._starts()) != ends:
            if self._findings.problems:
                return
            if time.monotonic() > give_up:
                self._findings.wrong(f"at {starts} of {ends} after {_BOUND} s")
                return
            for task in [task for task in self._members if task.done()]:
                task.result()
            await asyncio.sleep(0.2)
        self._findings.done["records"] += sum(ends)
        self._judge(ends)

    def _judge(self, ends: list[int]) -> None:
        ledger, done = self._ledger, self._findings.done
        for place in ((p, offset) for p, end in enumerate(ends) for offset in range(end)):
            count = ledger.counts.get(place, 0)
            if place[1] % _EVERY == _POISON:
                done["poison"] += 1
                done["poison, last delivery seen"] += count == _LIMIT
            if place in ledger.settled or count == _LIMIT:
                continue
            if place in ledger.unsure:
                done["acknowledgements without an answer"] += 1
            elif count <= _FEW or place[1] % _EVERY != _POISON:
                self._findings.wrong(f"{place} was lost: delivered {count} times, never accepted")

    async def _starts(self) -> list[int]:
        """The group's start offsets, by partition."""
        request = DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(_GROUP, None)]
        )
        answer = await self._calls.call(request, DescribeShareGroupOffsetsResponse, 0)
        if answer is None or answer.groups[0].error_code:
            return []
        return [
            part.start_offset
            for topic in answer.groups[0].topics
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ]


async def _turn(
    cluster: Cluster, seconds: float, chance: random.Random, findings: Findings
) -> None:
    await Soaked(cluster, chance, findings).run(seconds)


def soak(seconds: float, seed: int) -> bool:
    """For so many seconds; whether nothing was wrong."""
    return in_turns("share group", seconds, seed, BROKER, _turn)
