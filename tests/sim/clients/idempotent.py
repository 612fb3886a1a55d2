"""An idempotent producer: sends a batch until it is known what became of it (KIP-98, KIP-360).

Batches of a partition have consecutive sequence numbers, and several requests are under way. After
a lost connection or an error that allows it, they are sent again with the same numbers, through
another gateway if need be. A batch that is given up leaves a gap: the producer then raises its
epoch and begins with sequence 0, as Kafka's Java client does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from quafka_proto.errors import ErrorCode as E
from quafka_proto.schema.produce import PartitionProduceResponse, ProduceResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.sim.clients import batches
from tests.sim.clients.answers import MOVED, UNKNOWN_TOPIC, is_certain, name_of
from tests.sim.clients.batches import Author
from tests.sim.clients.job import Job, Place, TopicPlan
from tests.sim.clients.topics import Topic, Topics
from tests.sim.clients.wire import Link, LostError, Wire

_DELIVERY_S = (30.0, 120.0)
_RETRY_S = 0.1
_MOST_UNRESOLVED = 20
_NO_SESSION = frozenset({E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED})


@dataclass(slots=True, eq=False)
class _Batch:
    call: int
    place: Place
    topic: Topic
    data: bytearray
    deadline: float
    in_flight: bool = False
    is_doubtful: bool = False
    """An attempt has ended without an answer: it may have been written."""


@dataclass(slots=True, eq=False)
class _Lane:
    """The batches of one partition that are not resolved, in the order of their sequences."""

    sequence: int = 0
    queue: deque[_Batch] = field(default_factory=deque[_Batch])
    in_flight: int = 0
    failed: bool = False
    """One has to be sent again: nothing more is sent until all answers of the others are there."""
    not_before: float = 0.0

    def next(self, now: float) -> _Batch | None:
        """What to send now."""
        if self.failed:
            if self.in_flight or now < self.not_before:
                return None
            self.failed = False
        return next((batch for batch in self.queue if not batch.in_flight), None)

    def retry(self, now: float) -> None:
        """Send everything again, a little later."""
        self.failed = True
        self.not_before = now + _RETRY_S


class IdempotentProducer:
    """Writes batches to all partitions of some topics."""

    def __init__(self, job: Job, topics: list[TopicPlan], *, most_in_flight: int = 5) -> None:
        self._job = job
        self._plans = topics
        self._most = most_in_flight
        self._delivery_s = job.random.choice(_DELIVERY_S)
        self._codec = batches.some_codec(job)
        by_name = all(topic.lasts for topic in topics) and job.random.random() < 0.5
        self._newest = batches.BY_NAME if by_name else 13
        self._link = Link(job)
        self._topics = Topics(self._link)
        self._author: Author | None = None
        self._sessions = 0
        self._lanes: dict[Place, _Lane] = {}
        self._flights = 0
        self._must_restart = False
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        self._job.note("client", phase="start")
        sender = asyncio.create_task(self._send_all())
        try:
            while True:
                await asyncio.sleep(self._job.pause())
                if sender.done():
                    sender.result()
                await self._write()
        finally:
            sender.cancel()
            self._job.note("client", phase="stop")
            self._link.leave()

    async def _write(self) -> None:
        """Add a batch to the queue of a partition."""
        self._wanted.set()
        unresolved = sum(len(lane.queue) for lane in self._lanes.values())
        if self._author is None or self._must_restart or unresolved >= _MOST_UNRESOLVED:
            return
        plan = self._job.random.choice(self._plans)
        try:
            topic = (await self._topics.find(plan.name)).get(plan.name)
        except LostError:
            return
        author = self._author
        if topic is None or author is None or self._must_restart:
            return
        place = plan.name, self._job.random.randrange(topic.partitions)
        lane = self._lanes.setdefault(place, _Lane())
        some = batches.some_values(self._job, plan)
        call = self._job.call(
            "produce",
            topic=plan.name,
            partition=place[1],
            producer=f"{self._job.name}#{self._sessions}",
            idempotent=True,
            epoch=author.epoch,
            **some.fields,
        )
        data = batches.batch_of(some, author, lane.sequence, codec=self._codec)
        lane.sequence += len(some.values)
        deadline = asyncio.get_running_loop().time() + self._delivery_s
        lane.queue.append(_Batch(call, place, topic, data, deadline))

    # --- sending ----------------------------------------------------------------------------

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._expire(loop.time())
            if self._must_restart:
                if self._flights:
                    continue
                self._raise_epoch()
            if self._author is None:
                await self._begin_session()
            wire = await self._link.ready()
            while self._flights < self._most and (some := self._next(loop.time())):
                self._send(wire, some)

    def _next(self, now: float) -> list[_Batch]:
        """The batches of one request: one of each of a few partitions."""
        found: list[_Batch] = []
        for lane in self._lanes.values():
            batch = lane.next(now)
            if batch is not None:
                found.append(batch)
                if len(found) == self._job.random.choice((1, 1, 3)):
                    break
        return found

    def _send(self, wire: Wire, some: list[_Batch]) -> None:
        for batch in some:
            batch.in_flight = True
            self._lanes[batch.place].in_flight += 1
        self._flights += 1
        request = batches.produce_request((b.place, b.topic, b.data) for b in some)
        future = wire.send(request, ProduceResponse, newest=self._newest)
        future.add_done_callback(lambda done: self._landed(wire, some, done))

    def _landed(
        self, wire: Wire, some: list[_Batch], done: asyncio.Future[ProduceResponse]
    ) -> None:
        self._flights -= 1
        self._wanted.set()
        for batch in some:
            batch.in_flight = False
            self._lanes[batch.place].in_flight -= 1
        now = done.get_loop().time()
        if done.cancelled() or done.exception() is not None:
            for batch in some:
                batch.is_doubtful = True
                self._lanes[batch.place].retry(now)
            return
        parts = batches.produce_answers(done.result(), self._topics.names)
        for batch in some:
            self._answered(wire, batch, parts[batch.place], now)

    def _answered(
        self, wire: Wire, batch: _Batch, part: PartitionProduceResponse, now: float
    ) -> None:
        lane, code = self._lanes[batch.place], part.error_code
        if code in (E.NONE, E.DUPLICATE_SEQUENCE_NUMBER):
            lane.queue.remove(batch)
            offset = part.base_offset if part.base_offset >= 0 else None
            self._job.history.ok(
                batch.call, offset=offset, topic_id=batch.topic.text, gateway=wire.gateway
            )
        elif code == E.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.queue[0] is not batch:
            lane.retry(now)  # the one before it was not written, and comes first
        elif code in MOVED or code == E.CORRUPT_MESSAGE:
            batch.is_doubtful |= not is_certain(code)
            lane.retry(now)
        elif code in UNKNOWN_TOPIC and self._job.plan.topic(batch.place[0]).lasts:
            lane.retry(now)
        else:
            self._topics.forget(batch.place[0])
            lane.queue.remove(batch)
            self._give_up(batch, name_of(code))
            self._must_restart = True
            if code in _NO_SESSION:
                self._author = None

    # --- giving up --------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        """Give up batches that wait for too long."""
        for lane in self._lanes.values():
            while lane.queue and lane.queue[0].deadline < now and not lane.queue[0].in_flight:
                self._give_up(lane.queue.popleft(), "delivery timed out")
                self._must_restart = True

    def _give_up(self, batch: _Batch, why: str) -> None:
        history = self._job.history
        end = history.unknown if batch.is_doubtful else history.fail
        end(batch.call, why, topic_id=batch.topic.text)

    def _raise_epoch(self) -> None:
        """Begin with sequence 0 in a new epoch, without the batches that are not resolved."""
        for lane in self._lanes.values():
            for batch in lane.queue:
                self._give_up(batch, "after a gap")
        self._lanes.clear()
        self._must_restart = False
        if self._author is not None:
            self._author = Author(self._author.id, self._author.epoch + 1)

    async def _begin_session(self) -> None:
        """Get a producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
        while self._author is None:
            try:
                answer = await self._link.call(request, InitProducerIdResponse)
            except LostError:
                continue
            if answer.error_code:
                await self._link.back_off()
                continue
            self._link.works()
            self._sessions += 1
            self._author = Author(answer.producer_id, answer.producer_epoch)
