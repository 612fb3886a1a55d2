"""Members of a consumer group (KIP-848) that come, go, die and stand still, and an exact checker.

The members are raw connections, which report when they begin and cease to own a partition. Broker
and gateway are killed and paused all the while, and topics come. Checked are:

- no partition has two owners at a time. A member owns what it was given until it gives it up, or
  until its session must have ended: `session.timeout.ms` after it sent the last heartbeat that was
  answered;
- a commit that was answered is never lost and never goes back: who owns the partition next finds
  it, or a later one that somebody has sent. A member that has lost its partition cannot commit;
- when it is calm, all members have one epoch and every partition has an owner, within bounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from uuid import uuid4

from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.soak.disturbed import Findings, Reconnecting, disturb, in_turns
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

Place = tuple[bytes, int]
_SESSION, _BEAT = 3.0, 0.2
BROKER = (
    "--group-consumer-min-session-timeout-ms", "1000",
    "--group-consumer-session-timeout-ms", str(int(_SESSION * 1000)),
    "--group-consumer-min-heartbeat-interval-ms", "100",
    "--group-consumer-heartbeat-interval-ms", str(int(_BEAT * 1000)),
)  # fmt: skip
_GROUP, _PARTITIONS, _MOST_TOPICS, _MOST_MEMBERS = "soaked", 6, 6, 8
_ROUGH, _BOUND = 15.0, 30.0
"""Seconds of disturbance, and until all is owned when they are over."""
_FENCED = {25, 82, 110, 113}  # UNKNOWN_MEMBER_ID, FENCED_*, STALE_MEMBER_EPOCH


class Ledger:
    """Who owns what, and what is committed."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.owners: dict[Place, set[Member]] = {}
        self.answered: dict[Place, int] = {}
        self.sent: dict[Place, int] = {}

    def begin(self, place: Place, member: Member) -> None:
        """A member has learned that it owns a partition."""
        now = time.monotonic()
        others = self.owners.setdefault(place, set())
        for other in others:
            if other is not member and other.sure_until > now:
                self.findings.wrong(
                    f"{place[1]} of {place[0].hex()} has the owners {member.id} (epoch "
                    f"{member.epoch}) and {other.id} (epoch {other.epoch})"
                )
        others.clear()
        others.add(member)
        self.findings.done["owned"] += 1

    def end(self, place: Place, member: Member) -> None:
        self.owners.get(place, set()).discard(member)

    def found(self, place: Place, offset: int, least: int) -> None:
        """A new owner reads what is committed."""
        most = self.sent.get(place, -1)
        if not least <= offset <= most:
            self.findings.wrong(f"{place} has {offset} committed, not {least} to {most}")
        self.findings.done["offsets found"] += 1


class Member:
    """A member for some seconds; then it leaves, or is not heard of again."""

    def __init__(self, address: tuple[str, int], ledger: Ledger, chance: random.Random) -> None:
        self.id = str(uuid4())
        self.epoch = 0
        self.owned: dict[Place, int] = {}
        self.sure_until = 0.0
        self._connection = Reconnecting(address)
        self._ledger = ledger
        self._chance = chance
        self.leaving = asyncio.Event()

    async def run(self) -> None:
        try:
            while not self.leaving.is_set():
                await self._beat()
                if self._chance.random() < 0.01 and not self.leaving.is_set():
                    self._ledger.findings.done["stood still"] += 1
                    await asyncio.sleep(self._chance.uniform(0.5, 2) * _SESSION)
                for place in list(self.owned):
                    if self._chance.random() < 0.3:
                        await self._commit(place)
                await asyncio.sleep(_BEAT)
            await self._leave()
        finally:
            self._connection.close()

    async def _beat(self) -> None:
        sent = time.monotonic()
        joins = self.epoch == 0
        follows = self._chance.random() < 0.5
        answer = await self._connection.call(
            ConsumerGroupHeartbeatRequest(
                group_id=_GROUP,
                member_id=self.id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=60_000 if joins else -1,
                subscribed_topic_names=[] if joins and follows else None if not joins else _names(),
                subscribed_topic_regex="soak-.*" if joins and follows else None,
                topic_partitions=_by_topic(self.owned),
            ),
            ConsumerGroupHeartbeatResponse,
            1,
        )
        if answer is None:
            return
        if answer.error_code in _FENCED:
            self._ledger.findings.done["fenced"] += 1
            self._lose(set(self.owned))
            self.epoch = 0
            return
        if answer.error_code:
            self._ledger.findings.done[f"heartbeat: error {answer.error_code}"] += 1
            return
        self.epoch = answer.member_epoch
        self.sure_until = sent + _SESSION
        if answer.assignment is not None:
            now = {
                (topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            }
            self._lose(set(self.owned) - now)
            new = now - set(self.owned)
            for place in new:
                self._ledger.begin(place, self)
                self.owned[place] = -1

    def _lose(self, places: set[Place]) -> None:
        for place in places:
            del self.owned[place]
            self._ledger.end(place, self)

    async def _commit(self, place: Place) -> None:
        """Read what is committed if the partition is new, and commit one more."""
        ledger = self._ledger
        if self.owned[place] < 0:
            least = ledger.answered.get(place, -1)
            topics = [OffsetFetchRequestTopics(topic_id=place[0], partition_indexes=[place[1]])]
            group = OffsetFetchRequestGroup(_GROUP, self.id, self.epoch, topics)
            found = await self._connection.call(
                OffsetFetchRequest(groups=[group], require_stable=True), OffsetFetchResponse, 10
            )
            if found is None or found.groups[0].error_code:
                return
            part = found.groups[0].topics[0].partitions[0]
            if part.error_code:
                return
            ledger.found(place, part.committed_offset, least)
            self.owned[place] = max(0, part.committed_offset)
        offset = self.owned[place] + 1
        ledger.sent[place] = max(ledger.sent.get(place, -1), offset)
        before = ledger.answered.get(place, -1)
        answer = await self._connection.call(
            OffsetCommitRequest(
                group_id=_GROUP,
                generation_id_or_member_epoch=self.epoch,
                member_id=self.id,
                topics=[
                    OffsetCommitRequestTopic(
                        topic_id=place[0],
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=place[1], committed_offset=offset
                            )
                        ],
                    )
                ],
            ),
            OffsetCommitResponse,
            10,
        )
        if answer is None:
            return
        error = answer.topics[0].partitions[0].error_code
        if error:
            ledger.findings.done[f"commit: error {error}"] += 1
            return
        if offset <= before:
            ledger.findings.wrong(f"{self.id} commits {offset} of {place}, which has {before}")
        ledger.answered[place] = max(offset, ledger.answered.get(place, -1))
        self.owned[place] = offset
        ledger.findings.done["commits"] += 1

    async def _leave(self) -> None:
        self._lose(set(self.owned))
        await self._connection.call(
            ConsumerGroupHeartbeatRequest(group_id=_GROUP, member_id=self.id, member_epoch=-1),
            ConsumerGroupHeartbeatResponse,
            1,
        )


class Soaked:
    """One group on one cluster."""

    def __init__(self, cluster: Cluster, chance: random.Random, findings: Findings) -> None:
        self._cluster = cluster
        self._chance = chance
        self._findings = findings
        self._ledger = Ledger(findings)
        self._members: dict[asyncio.Task[None], Member] = {}
        self._topics = 0

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        await self._topic()
        try:
            while time.monotonic() < end and not self._findings.problems:
                rough = asyncio.create_task(
                    disturb(self._cluster, _ROUGH, self._chance, self._findings)
                )
                while not rough.done():
                    self._come_and_go()
                    await asyncio.sleep(self._chance.uniform(0.2, 1))
                await rough
                if self._topics < _MOST_TOPICS:
                    await self._topic()
                await self._calm()
        finally:
            for task in self._members:
                task.cancel()
            await asyncio.gather(*self._members, return_exceptions=True)

    async def _topic(self) -> None:
        def create() -> None:
            with RawClient(self._cluster.address) as client:
                create_topic(client, f"soak-{self._topics}", _PARTITIONS)

        await asyncio.to_thread(create)
        self._topics += 1

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
            self._findings.done["left"] += 1
        else:
            task.cancel()
            del self._members[task]
            self._findings.done["died"] += 1

    def _start(self) -> None:
        member = Member(self._cluster.address, self._ledger, self._chance)
        self._members[asyncio.create_task(member.run())] = member
        self._findings.done["came"] += 1

    def _staying(self) -> list[Member]:
        return [m for t, m in self._members.items() if not t.done() and not m.leaving.is_set()]

    async def _calm(self) -> None:
        """Everything must be owned by somebody within bounds."""
        if not self._staying():
            self._start()
        give_up = time.monotonic() + _BOUND
        while not self._is_stable():
            if time.monotonic() > give_up:
                each = {m.id: (m.epoch, len(m.owned)) for m in self._members.values()}
                self._findings.wrong(f"not stable after {_BOUND} s: {each}")
                return
            await asyncio.sleep(0.1)
        self._findings.done["stable"] += 1

    def _is_stable(self) -> bool:
        members = self._staying()
        owned = [place for member in members for place in member.owned]
        everything = self._topics * _PARTITIONS
        return len({m.epoch for m in members}) == 1 and len(owned) == len(set(owned)) == everything


def _names() -> list[str]:
    return [f"soak-{number}" for number in range(_MOST_TOPICS)]


def _by_topic(places: dict[Place, int]) -> list[ConsumerGroupTopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return [
        ConsumerGroupTopicPartitions(topic_id=topic, partitions=its) for topic, its in found.items()
    ]


async def _turn(
    cluster: Cluster, seconds: float, chance: random.Random, findings: Findings
) -> None:
    await Soaked(cluster, chance, findings).run(seconds)


def soak(seconds: float, seed: int) -> bool:
    """For so many seconds; whether nothing was wrong."""
    return in_turns("consumer group", seconds, seed, BROKER, _turn)
