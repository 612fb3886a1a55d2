"""A transactional producer without a client library: each method is one request and its answer.

It speaks as clients before KIP-890 do (TV1: AddPartitionsToTxn, one epoch for many transactions),
or as those after it (TV2: Produce adds partitions, each EndTxn raises the epoch).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.support.raw_client import RawClient

TRANSACTION = 1
"""FindCoordinator's key type."""


class Style(NamedTuple):
    """Versions of the requests. A TV2 producer sends no AddPartitionsToTxn, no AddOffsetsToTxn."""

    name: str
    init: int
    produce: int
    offsets: int
    end: int
    adds: bool


TV1 = Style("TV1", 4, 9, 3, 3, adds=True)
TV2 = Style("TV2", 5, 12, 5, 5, adds=False)
ADD_PARTITIONS, ADD_OFFSETS = 3, 3


class Produced(NamedTuple):
    """The answer for one partition."""

    error: int
    offset: int


@dataclass
class RawProducer:
    """One producer. `client` may be replaced: the next request uses the new connection."""

    client: RawClient
    transactional_id: str
    style: Style
    timeout_ms: int = 60_000
    id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def find_coordinator(self) -> int:
        """Ask for the coordinator; the error. Apache Kafka makes a topic first."""
        request = FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION)
        return self.client.call(request, FindCoordinatorResponse, 3).error_code

    def initialise(self, *, anew: bool = True) -> int:
        """InitProducerId, as a new producer or as this one (KIP-360); the error."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=-1 if anew else self.id,
            producer_epoch=-1 if anew else self.epoch,
        )
        answer = self.client.call(request, InitProducerIdResponse, self.style.init)
        if not answer.error_code:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def add_partitions_request(
        self, topic: str, partitions: Sequence[int]
    ) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

    def add_partitions(self, topic: str, partitions: Sequence[int]) -> int:
        """AddPartitionsToTxn; the first error."""
        request = self.add_partitions_request(topic, partitions)
        answer = self.client.call(request, AddPartitionsToTxnResponse, ADD_PARTITIONS)
        return _first(
            part.partition_error_code
            for found in answer.results_by_topic_v3_and_below
            for part in found.results_by_partition
        )

    def produce_request(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> ProduceRequest:
        """A batch for each partition, with the next sequences. Send it again to retry."""
        data: list[PartitionProduceData] = []
        for partition, some in values.items():
            sequence = self.sequences.get((topic, partition), 0)
            self.sequences[topic, partition] = sequence + len(some)
            batch = build_batch(
                [Record(0, 1_000, None, value, []) for value in some],
                transactional=True,
                producer_id=self.id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
            )
            data.append(PartitionProduceData(index=partition, records=batch))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )

    def send(self, request: ProduceRequest) -> dict[int, Produced]:
        """Produce; the answer for each partition."""
        answer = self.client.call(request, ProduceResponse, self.style.produce)
        return {
            part.index: Produced(part.error_code, part.base_offset)
            for part in answer.responses[0].partition_responses
        }

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> int:
        """Produce once; the first error."""
        answers = self.send(self.produce_request(topic, values))
        return _first(answer.error for answer in answers.values())

    def add_offsets(self, group: str) -> int:
        """AddOffsetsToTxn; the error."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return self.client.call(request, AddOffsetsToTxnResponse, ADD_OFFSETS).error_code

    def commit_offset_request(
        self, group: str, topic: str, partition: int, offset: int
    ) -> TxnOffsetCommitRequest:
        part = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> int:
        """TxnOffsetCommit as nobody's member; the error."""
        request = self.commit_offset_request(group, topic, partition, offset)
        answer = self.client.call(request, TxnOffsetCommitResponse, self.style.offsets)
        return answer.topics[0].partitions[0].error_code

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> int:
        """EndTxn; the error. TV2's answer brings the epoch of the next transaction."""
        request = self.end_request(commit=commit)
        answer = self.client.call(request, EndTxnResponse, self.style.end)
        if not answer.error_code and not self.style.adds:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self.sequences.clear()
        self.id, self.epoch = producer_id, epoch


def _first(errors: Iterable[int]) -> int:
    return next((error for error in errors if error), ErrorCode.NONE)
