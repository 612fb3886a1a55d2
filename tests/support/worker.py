"""A member of a group in a process of its own: `python -m tests.support.worker JOB`, a JSON object.

It says "partition offset" of each record that it has processed, and commits behind that; what it
may not commit it says, too: "refused ERROR". At SIGTERM it leaves. `act` is what it does in the
middle of a batch, once it has processed `after` records: "die" (kill -9), "stop" (until somebody
lets it go on) or "sleep" (`seconds`, longer than a member may).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, cast

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from kafka.coordinator.assignors.range import RangePartitionAssignor

SESSION_MS, HEARTBEAT_MS = 2_000, 200
_BATCH = 20
_POLL_SECONDS = 0.2

Places = list[tuple[int, int]]
"""Partition and offset."""
Job = Mapping[str, Any]


class Member(Protocol):
    """What the loop does with each library."""

    def poll(self) -> Places: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, job: Job) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": job["bootstrap"],
                "group.id": job["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "max.poll.interval.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": job.get("strategy", "range"),
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe([job["topic"]])

    def poll(self) -> Places:
        found = self._consumer.consume(_BATCH, timeout=_POLL_SECONDS)
        return [(m.partition() or 0, m.offset() or 0) for m in found if m.error() is None]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, job: Job) -> None:
        self._consumer = kafka.KafkaConsumer(
            job["topic"],
            bootstrap_servers=job["bootstrap"],
            group_id=job["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=_BATCH,
            partition_assignment_strategy=[RangePartitionAssignor],
        )

    def poll(self) -> Places:
        batches = cast("dict[Any, list[Any]]", self._consumer.poll(int(_POLL_SECONDS * 1000)))
        return [(r.partition, r.offset) for batch in batches.values() for r in batch]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    def __init__(self, job: Job) -> None:
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start(job))

    async def _start(self, job: Job) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            job["topic"],
            bootstrap_servers=job["bootstrap"],
            group_id=job["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=_BATCH,
            partition_assignment_strategy=(AioRange,),
        )
        await consumer.start()
        return consumer

    def poll(self) -> Places:
        getting = self._consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
        batches = self._loop.run_until_complete(getting)
        return [(r.partition, r.offset) for batch in batches.values() for r in batch]

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


MEMBERS: dict[str, type[Confluent] | type[KafkaPython] | type[AioKafka]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
ERRORS = (
    confluent_kafka.KafkaException,
    kafka.errors.KafkaError,
    aiokafka.errors.KafkaError,
)


def _act(job: Job) -> None:
    if job["act"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif job["act"] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        time.sleep(job["seconds"])


def run(job: Job) -> None:
    """Process records until SIGTERM."""
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    member: Member = MEMBERS[job["kind"]](job)
    done = 0
    while not leaving:
        places = member.poll()
        for partition, offset in places:
            print(partition, offset, flush=True)
            done += 1
            if done == job.get("after"):
                _act(job)
        if places:
            try:
                member.commit()
            except ERRORS as e:
                print("refused", repr(e), flush=True)
    member.close()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
