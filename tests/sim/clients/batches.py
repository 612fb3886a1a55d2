"""Record batches of simulated producers, and produce requests with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quafka_loop import clock
from quafka_proto.compression import Codec
from quafka_proto.message import Buffer
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.sim.clients.job import Job, Place, TopicPlan
from tests.sim.clients.topics import Topic

BY_NAME = 12
"""The last version of Produce in which topics have names; later ones have their ids."""
_SERVER_MS = 8_000
_MOST_VALUES = 5
_KEYS = 12


class Author(NamedTuple):
    """A producer id and epoch; no id: the producer is not idempotent."""

    id: int = -1
    epoch: int = -1


class Values(NamedTuple):
    """What a batch has."""

    values: list[str]
    keys: list[str] | None

    @property
    def fields(self) -> dict[str, list[str]]:
        """As the history has them."""
        if self.keys is None:
            return {"values": self.values}
        return {"values": self.values, "keys": self.keys}


def some_values(job: Job, topic: TopicPlan, count: int | None = None) -> Values:
    """New values, with keys if the topic is compacted."""
    count = count or job.random.randint(1, _MOST_VALUES)
    values = [job.plan.value() for _ in range(count)]
    if not topic.is_compacted:
        return Values(values, None)
    return Values(values, [f"k{job.random.randrange(_KEYS)}" for _ in values])


def some_codec(job: Job) -> Codec:
    """How a producer compresses: mostly not."""
    return job.random.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP])


def batch_of(
    values: Values,
    author: Author = Author(),  # noqa: B008 - immutable
    sequence: int = -1,
    *,
    codec: int = Codec.NONE,
    transactional: bool = False,
) -> bytearray:
    """The batch's bytes."""
    now_ms = int(clock.time() * 1000)
    keys: Sequence[str | None] = values.keys or [None] * len(values.values)
    return build_batch(
        [
            Record(0, now_ms, None if key is None else key.encode(), value.encode(), [])
            for key, value in zip(keys, values.values, strict=True)
        ],
        codec=codec,
        transactional=transactional,
        producer_id=author.id,
        producer_epoch=author.epoch,
        base_sequence=sequence,
    )


def produce_request(
    batches: Iterable[tuple[Place, Topic, Buffer]], *, acks: int = -1, txn_id: str | None = None
) -> ProduceRequest:
    """A request with one batch for each partition."""
    topics: dict[str, TopicProduceData] = {}
    for (name, partition), topic, data in batches:
        of_topic = topics.get(name)
        if of_topic is None:
            of_topic = topics[name] = TopicProduceData(name=name, topic_id=topic.id)
        of_topic.partition_data.append(PartitionProduceData(index=partition, records=data))
    return ProduceRequest(
        transactional_id=txn_id,
        acks=acks,
        timeout_ms=_SERVER_MS,
        topic_data=list(topics.values()),
    )


def produce_answers(
    answer: ProduceResponse, names: dict[bytes, str]
) -> dict[Place, PartitionProduceResponse]:
    """What was answered for each partition; `names`: those of topics that have ids only."""
    return {
        (topic.name or names[topic.topic_id], part.index): part
        for topic in answer.responses
        for part in topic.partition_responses
    }
