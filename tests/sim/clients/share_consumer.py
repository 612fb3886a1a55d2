"""A member of a share group (KIP-932): acquires records, and says what became of each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple, cast

from quafka_proto.errors import ErrorCode as E
from quafka_proto.record_codec import iter_records
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
    ShareForgottenTopic,
)
from quafka_proto.schema.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.answers import NO_MEMBER, UNKNOWN_TOPIC, refused
from tests.sim.clients.fetching import UNCOMMITTED, Found
from tests.sim.clients.ids import new_uuid
from tests.sim.clients.job import Job, Place
from tests.sim.clients.topics import Topics
from tests.sim.clients.wire import Link, LostError, Wire
from tests.support.isolated_reader import visible_batches

_WAIT_MS = 500
_BYTES = 1 << 18
_INITIAL, _FINAL = 0, -1
_JOINING, _LEAVING = 0, -1
_RETRY_S, _IDLE_S, _LEAVE_S = 1.0, 1.0, 5.0
_TYPES = {"accept": 1, "release": 2, "reject": 3, "renew": 4}
_LIKELY = ["accept"] * 16 + ["release"] * 2 + ["reject", "renew", "wait"]


class _Held(NamedTuple):
    """Records that this member has and has not decided on."""

    first: int
    last: int
    until: float
    """When the lock ends."""


class _Ack(NamedTuple):
    first: int
    last: int
    how: str


_Acks = dict[Place, list[_Ack]]


class ShareConsumer:
    """Heartbeats keep the membership; a share session on one connection has the records."""

    def __init__(
        self, job: Job, group: str, topics: list[str], isolation: str = UNCOMMITTED
    ) -> None:
        self._job = job
        self._group = group
        self._isolation = isolation
        self._subscription = sorted(topics)
        self._member = new_uuid(job.random)
        self._member_epoch = _JOINING
        self._link = Link(job)
        self._coordinator = Link(job)
        self._topics = Topics(self._link)
        self._calls = Calls(job, self._link)
        self._apart = job.random.random() < 0.5
        """Acknowledgements have requests of their own."""
        self._most = job.random.choice((1, 5, 100))
        self._assigned: list[Place] = []
        self._wire: Wire | None = None
        self._epoch = _INITIAL
        self._in_session: dict[Place, bytes] = {}
        """Topic ids by partition."""
        self._held: dict[Place, list[_Held]] = {}

    async def run(self) -> None:
        """Work until cancelled; then leave."""
        self._job.note("client", phase="start")
        beats = asyncio.create_task(self._beats())
        try:
            while True:
                if beats.done():
                    beats.result()
                try:
                    await self._step()
                except LostError:
                    self._end_session()
                    await self._link.back_off()
        except asyncio.CancelledError:
            with suppress(LostError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._leave()
            raise
        finally:
            beats.cancel()
            self._end_session()
            self._job.note("client", phase="stop")
            self._link.leave()
            self._coordinator.leave()

    # --- membership -------------------------------------------------------------------------

    async def _beats(self) -> None:
        while True:
            wait = _RETRY_S
            try:
                wait = await self._beat()
            except LostError:
                await self._coordinator.back_off()
            await asyncio.sleep(wait)

    async def _beat(self) -> float:
        """One heartbeat; the seconds until the next one."""
        joins = self._member_epoch == _JOINING
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member,
            member_epoch=self._member_epoch,
            subscribed_topic_names=self._subscription if joins else None,
        )
        answer = await self._coordinator.call(request, ShareGroupHeartbeatResponse)
        if answer.error_code:
            if answer.error_code in NO_MEMBER:
                self._member_epoch = _JOINING
                self._assigned = []
            return _RETRY_S
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            if any(part.topic_id not in self._topics.names for part in parts):
                self._topics.forget(*self._subscription)
                await self._topics.find(*self._subscription)
            self._assigned = sorted(
                (self._topics.names[part.topic_id], partition)
                for part in parts
                if part.topic_id in self._topics.names
                for partition in part.partitions
            )
        return answer.heartbeat_interval_ms / 1000

    async def _leave(self) -> None:
        if self._wire is not None and self._epoch != _INITIAL:
            wire = self._wire
            self._end_session()
            request = ShareFetchRequest(
                group_id=self._group, member_id=self._member, share_session_epoch=_FINAL,
                max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0, batch_size=0,
            )  # fmt: skip
            await wire.call(request, ShareFetchResponse)
        goodbye = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member, member_epoch=_LEAVING
        )
        await self._coordinator.call(goodbye, ShareGroupHeartbeatResponse)

    def _end_session(self) -> None:
        if self._wire is not None:
            self._job.note("share_end", group=self._group, member=self._member)
        self._wire = None
        self._epoch = _INITIAL
        self._in_session = {}
        self._held = {}

    # --- records ----------------------------------------------------------------------------

    async def _step(self) -> None:
        if not self._assigned:
            await self._calls.describe(self._subscription[0])
            await asyncio.sleep(_IDLE_S)
            return
        wire = await self._link.ready()
        if wire is not self._wire:
            self._end_session()
        acks = self._decide()
        renews = any(ack.how == "renew" for its in acks.values() for ack in its)
        if acks and (self._apart or renews):
            await self._acknowledge(wire, acks, renews=renews)
            acks = {}
        await self._fetch(wire, acks)
        await asyncio.sleep(self._job.pause())

    def _decide(self) -> _Acks:
        """What to say of the records that it has; it goes on holding some."""
        now, random = asyncio.get_running_loop().time(), self._job.random
        acks: _Acks = {}
        held, self._held = self._held, {}
        for place, its in held.items():
            for each in its:
                how = random.choice(_LIKELY)
                if how in ("wait", "renew") and now < each.until:
                    self._held.setdefault(place, []).append(each)
                if how != "wait" and place in self._in_session:
                    acks.setdefault(place, []).append(_Ack(each.first, each.last, how))
        return acks

    def _call_acks(self, wire: Wire, acks: _Acks) -> dict[Place, int]:
        return {
            place: self._call("share_ack", wire, place, ranges=[list(ack) for ack in its])
            for place, its in acks.items()
        }

    def _call(self, op: str, wire: Wire, place: Place, **fields: Any) -> int:
        return self._job.call(
            op, group=self._group, member=self._member,
            topic=place[0], partition=place[1], gateway=wire.gateway, **fields,
        )  # fmt: skip

    async def _acknowledge(self, wire: Wire, acks: _Acks, *, renews: bool) -> None:
        topics: dict[bytes, AcknowledgeTopic] = {}
        for place, its in acks.items():
            of_topic = topics.setdefault(
                self._in_session[place], AcknowledgeTopic(topic_id=self._in_session[place])
            )
            part = AcknowledgePartition(
                partition_index=place[1], acknowledgement_batches=_said(its)
            )
            of_topic.partitions.append(part)
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            is_renew_ack=renews,
            topics=list(topics.values()),
        )
        calls = self._call_acks(wire, acks)
        try:
            answer = await wire.call(request, ShareAcknowledgeResponse)
        except LostError as e:
            self._all_unknown(calls, e)
            raise
        if answer.error_code:
            self._session_refused(calls, answer.error_code)
            return
        self._epoch += 1
        parts = [(t.topic_id, p.partition_index, p.error_code)
                 for t in answer.responses for p in t.partitions]  # fmt: skip
        self._end_acks(calls, parts)

    async def _fetch(self, wire: Wire, acks: _Acks) -> None:
        topics = await self._topics.find(*self._subscription)
        session = {place: topics[place[0]].id for place in self._assigned if place[0] in topics}
        acks = {place: its for place, its in acks.items() if place in session}
        if not session and self._epoch == _INITIAL:
            return
        request = self._request(session, acks)
        self._wire = wire
        ack_calls = self._call_acks(wire, acks)
        calls = {
            place: self._call("share_read", wire, place, isolation=self._isolation)
            for place in session
        }
        try:
            answer = await wire.call(request, ShareFetchResponse)
        except LostError as e:
            self._all_unknown({**calls}, e)
            self._all_unknown(ack_calls, e)
            raise
        if answer.error_code:
            self._session_refused(calls, answer.error_code)
            self._session_refused(ack_calls, answer.error_code)
            return
        self._epoch += 1
        self._in_session = session
        parts = [(t.topic_id, p.partition_index, p.acknowledge_error_code)
                 for t in answer.responses for p in t.partitions]  # fmt: skip
        self._end_acks(ack_calls, parts)
        self._end_reads(calls, answer)

    def _request(self, session: dict[Place, bytes], acks: _Acks) -> ShareFetchRequest:
        topics: dict[bytes, ShareFetchTopic] = {}
        for place, topic_id in session.items():
            if self._in_session.get(place) != topic_id or place in acks:
                of_topic = topics.setdefault(topic_id, ShareFetchTopic(topic_id=topic_id))
                part = ShareFetchPartition(
                    partition_index=place[1], acknowledgement_batches=_said(acks.get(place, []))
                )
                of_topic.partitions.append(part)
        gone = [
            ShareForgottenTopic(topic_id=topic_id, partitions=[place[1]])
            for place, topic_id in self._in_session.items()
            if session.get(place) != topic_id
        ]
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_BYTES,
            max_records=self._most,
            batch_size=self._most,
            topics=list(topics.values()),
            forgotten_topics_data=gone,
        )

    # --- answers ----------------------------------------------------------------------------

    def _all_unknown(self, calls: dict[Place, int], error: LostError) -> None:
        for call in calls.values():
            self._job.history.unknown(call, str(error))

    def _session_refused(self, calls: dict[Place, int], code: int) -> None:
        """The session is gone, or the gateway cannot serve it now: begin a new one."""
        for call in calls.values():
            refused(self._job, call, code)
        self._end_session()

    def _end_acks(self, calls: dict[Place, int], parts: list[tuple[bytes, int, int]]) -> None:
        codes = {(self._topics.names[of], number): code for of, number, code in parts}
        for place, call in calls.items():
            code = codes.get(place)
            if code is None:
                self._job.history.unknown(call, "not answered")
            elif code:
                refused(self._job, call, code)
            else:
                self._job.history.ok(call)

    def _end_reads(self, calls: dict[Place, int], answer: ShareFetchResponse) -> None:
        lock_s = answer.acquisition_lock_timeout_ms / 1000
        until = asyncio.get_running_loop().time() + lock_s
        for topic in answer.responses:
            for part in topic.partitions:
                place = self._topics.names[topic.topic_id], part.partition_index
                if (call := calls.pop(place, None)) is None:
                    continue
                if part.error_code:
                    self._read_refused(call, place, part.error_code)
                    continue
                acquired = [
                    [each.first_offset, each.last_offset, each.delivery_count]
                    for each in part.acquired_records
                ]
                self._held.setdefault(place, []).extend(
                    _Held(first, last, until) for first, last, _ in acquired
                )
                self._ok(call, topic.topic_id, lock_s, _records(part), acquired)
        for place, call in calls.items():
            self._ok(call, self._in_session[place], lock_s, [], [])

    def _ok(
        self, call: int, topic_id: bytes, lock_s: float, records: Found, acquired: list[list[int]]
    ) -> None:
        self._job.history.ok(
            call, topic_id=topic_id.hex(), lock_s=lock_s, records=records, acquired=acquired
        )

    def _read_refused(self, call: int, place: Place, code: int) -> None:
        refused(self._job, call, code)
        if code in UNKNOWN_TOPIC or code == E.NOT_LEADER_OR_FOLLOWER:
            self._topics.forget(place[0])


def _said(acks: list[_Ack]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(
            first_offset=ack.first, last_offset=ack.last, acknowledge_types=[_TYPES[ack.how]]
        )
        for ack in sorted(acks)
    ]


def _records(part: ShareFetchPartitionData) -> Found:
    """Those that were acquired; the batches may have others."""
    mine = [(each.first_offset, each.last_offset) for each in part.acquired_records]
    return [
        (record.offset, (record.value or b"").decode())
        for _, batch in visible_batches(cast("Any", part), committed=False)
        if batch is not None
        for record in iter_records(batch)
        if any(first <= record.offset <= last for first, last in mine)
    ]
