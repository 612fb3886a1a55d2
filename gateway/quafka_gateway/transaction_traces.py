"""Which trace began the session of a transactional producer, so that its later spans can link it.

Each request is a trace of its own. The spans of a transaction (init, sends, offsets, end) carry its
transactional id and producer id, and link the span of the InitProducerId that the producer began
with: from any of them, a tracing UI finds all others. Requests that are not sampled never come
here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from quafka_proto.message import Message
from quafka_proto.records import BATCH_HEADER_SIZE, read_header
from quafka_proto.schema.produce import ProduceRequest
from quafka_proto.schema.transactions import AddPartitionsToTxnRequest
from quafka_telemetry.tracing import TraceContext

_KEPT = 4_096


class TransactionTraces:
    """The sampled InitProducerId requests of the newest few thousand producers."""

    def __init__(self, limit: int = _KEPT) -> None:
        self._limit = limit
        self._begun: OrderedDict[int, TraceContext] = OrderedDict()

    def begin(self, producer_id: int, trace: TraceContext) -> None:
        """Record the span that a producer began its session with."""
        self._begun[producer_id] = trace
        self._begun.move_to_end(producer_id)
        if len(self._begun) > self._limit:
            self._begun.popitem(last=False)

    def continue_as(self, producer_id: int, new_producer_id: int) -> None:
        """Record that a producer goes on under a new id."""
        trace = self._begun.pop(producer_id, None)
        if trace is not None:
            self.begin(new_producer_id, trace)

    def find(self, producer_id: int) -> TraceContext | None:
        """The span that the producer began its session with, if it is known."""
        return self._begun.get(producer_id)


class TransactionOfRequest(NamedTuple):
    """The producer that a request names; its id is -1 if it has none yet."""

    transactional_id: str
    producer_id: int


def transaction_of(request: Message) -> TransactionOfRequest | None:
    """The transactional producer that sent a request; None for all other requests."""
    if isinstance(request, AddPartitionsToTxnRequest):
        transactional_id = request.v3_and_below_transactional_id
        producer_id = request.v3_and_below_producer_id
    else:
        transactional_id = getattr(request, "transactional_id", None) or ""
        producer_id = getattr(request, "producer_id", -1)
    if not transactional_id:
        return None
    if isinstance(request, ProduceRequest):
        producer_id = _producer_of(request)
    return TransactionOfRequest(transactional_id, producer_id)


def _producer_of(request: ProduceRequest) -> int:
    """The producer id of the first batch."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is None or len(partition.records) < BATCH_HEADER_SIZE:
                return -1
            return read_header(partition.records).producer_id
    return -1
