"""A producer without idempotence: it does not send again, so a lost answer leaves it unknown."""

from __future__ import annotations

import asyncio

from quafka_proto.schema.produce import ProduceResponse
from tests.sim.clients import batches
from tests.sim.clients.answers import UNKNOWN_TOPIC, refused
from tests.sim.clients.job import Job, TopicPlan
from tests.sim.clients.topics import Topics
from tests.sim.clients.wire import Link, LostError, Wire


class PlainProducer:
    """Writes one batch after the other."""

    def __init__(self, job: Job, topics: list[TopicPlan]) -> None:
        self._job = job
        self._plans = topics
        self._acks = job.random.choice((1, -1))
        self._link = Link(job)
        self._topics = Topics(self._link)
        self._wire: Wire | None = None
        self._connections = 0

    async def run(self) -> None:
        """Work until cancelled."""
        job = self._job
        job.note("client", phase="start")
        try:
            while True:
                await asyncio.sleep(job.pause())
                try:
                    await self._write()
                except LostError:
                    self._link.leave()
        finally:
            job.note("client", phase="stop")
            self._link.leave()

    async def _write(self) -> None:
        job, plan = self._job, self._job.random.choice(self._plans)
        wire = await self._link.ready()
        topic = (await self._topics.find(plan.name)).get(plan.name)
        if topic is None:
            return
        if wire is not self._wire:
            self._wire = wire
            self._connections += 1
        partition = job.random.randrange(topic.partitions)
        some = batches.some_values(job, plan)
        call = job.call(
            "produce",
            topic=plan.name,
            partition=partition,
            producer=f"{job.name}#{self._connections}",
            gateway=wire.gateway,
            **some.fields,
        )
        request = batches.produce_request(
            [((plan.name, partition), topic, batches.batch_of(some))], acks=self._acks
        )
        try:
            answer = await wire.call(request, ProduceResponse)
        except LostError as e:
            job.history.unknown(call, str(e), topic_id=topic.text)
            raise
        (part,) = answer.responses[0].partition_responses
        if not part.error_code:
            job.history.ok(call, offset=part.base_offset, topic_id=topic.text)
            return
        refused(job, call, part.error_code, topic_id=topic.text)
        if part.error_code in UNKNOWN_TOPIC:
            self._topics.forget(plan.name)
        await self._link.back_off()
