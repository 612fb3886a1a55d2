"""Recognises a Produce that differs from the client's last one only in its batch.

Producers that send single batches repeat every byte in front of the partition's number, except for
the correlation id: API, version, client id, acks, timeout, topic. Of a good answer, only five
numbers are new. Requests that need more are served by the handler: those of clients with quotas,
sampled ones, and those for topics that the client may not write to.
See docs/adr/0059-produces-that-repeat.md.
"""

from __future__ import annotations

import struct
from functools import cached_property

from quafka_gateway.handlers.authorized import WRITE_TOPIC
from quafka_gateway.handlers.prediction import (
    CORRELATION_ENDS,
    Caller,
    PredictedAnswer,
    Prediction,
)
from quafka_gateway.handlers.produce_responses import response_of
from quafka_loop.eager_task import DirectFuture
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_proto.errors import Malformed
from quafka_proto.headers import RequestHeader, encode_response
from quafka_proto.message import Buffer
from quafka_proto.primitives import read_uvarint
from quafka_proto.records import BATCH_HEADER_SIZE, is_transactional
from quafka_proto.schema.produce import ProduceRequest, TopicProduceData

_FIRST = 7
"""The first version in which batches may have any codec (KIP-110)."""
_LONGEST = 1 << 10
"""Bytes of a front that is kept."""
_NUMBER, _NUMBERS = struct.Struct(">i"), struct.Struct(">ii")
_NO_TAGS = bytes(3)
"""Of the partition, the topic and the request."""
_NEWS = "ihqqq"
"""What is new in a response: partition, error, base offset, append time, log start."""
_MARK = (0x51554146, 0, 0x4B41514B41515546, 0x5546414B51414B51, 0x414B5155464B4151)


class RepeatedProduce(Prediction[ProduceOps]):
    """What a connection's next Produce is expected to begin with.

    Attributes:
        acks: -1 or 1.
        timeout: the client's own, in seconds.
    """

    def __init__(self, header: RequestHeader, request: ProduceRequest, front: bytes) -> None:
        """`front`: the request's frame up to the number of its only partition."""
        super().__init__(header)
        self.acks = request.acks
        self.timeout = request.timeout_ms / 1000
        topic = request.topic_data[0]
        self._topic = TopicProduceData(topic.name, topic.topic_id)  # its batch must not be kept
        self._id = self._topic.topic_id if any(self._topic.topic_id) else b""
        self._front = front[CORRELATION_ENDS:]
        self._batch_at = len(front)
        self._flexible = header.api_version in ProduceRequest.flexible

    @classmethod
    def after(
        cls, header: RequestHeader, request: ProduceRequest, frame: bytes, end: int
    ) -> RepeatedProduce | None:
        """What may follow a request, whose body ends at `end`; None: it will be decoded."""
        if header.api_version < _FIRST or request.transactional_id is not None:
            return None
        if request.acks not in (-1, 1) or not end:
            return None
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return None
        (part,) = request.topic_data[0].partition_data
        size, flexible = len(part.records or b""), header.api_version in ProduceRequest.flexible
        length = -(-(size + 1).bit_length() // 7) if flexible else _NUMBER.size
        tags = len(_NO_TAGS) if flexible else 0
        before = end - tags - size - length - _NUMBER.size
        if not 0 < before <= _LONGEST:
            return None
        front = frame[:before]
        repeated = cls(header, request, front)
        op = repeated.batch(frame)
        # False for extra bytes, and for tagged fields, which no client sends.
        same = op is not None and op.partition == part.index and op.records == part.records
        return repeated if same else None

    def read(self, frame: bytes, caller: Caller) -> ProduceOps | None:
        """See Prediction. The news is an op with the batch."""
        op = self.batch(frame)
        if op is None or caller.has_quotas():
            return None
        access = caller.access()
        if access is not None:
            name = self._topic.name or caller.session.tenant.names.known(self._id)
            if name is None or not access.allows(WRITE_TOPIC, name):
                return None
        return ProduceOps([op], self.acks)

    def records(self, news: ProduceOps) -> Buffer:
        """See Prediction."""
        return news.partitions[0].records

    def begin(self, news: ProduceOps, caller: Caller) -> DirectFuture[list[ProduceOpResp]]:
        """See Prediction. Appends the batch."""
        return caller.session.tenant.topics.begin_produce(news, caller.lane, self.timeout)

    def answer(
        self,
        correlation_id: int,
        news: ProduceOps,
        begun: DirectFuture[list[ProduceOpResp]],
        caller: Caller,
    ) -> PredictedAnswer:
        """See Prediction."""
        answers = begun.result()
        caller.session.tenant.reader.produce_acknowledged(news, answers)
        return self.response(correlation_id, news.partitions[0], answers[0])

    def batch(self, frame: bytes) -> ProduceOp | None:
        """The batch of a request that repeats the last one; None: it does not."""
        at = self._batch_at
        if not frame.startswith(self._front, CORRELATION_ENDS):
            return None
        try:
            if self._flexible:
                (partition,) = _NUMBER.unpack_from(frame, at)
                size, at = read_uvarint(frame, at + _NUMBER.size)
                size -= 1
                ends = frame[at + size :] == _NO_TAGS
            else:
                partition, size = _NUMBERS.unpack_from(frame, at)
                at += _NUMBERS.size
                ends = at + size == len(frame)
        except (struct.error, IndexError, Malformed):
            return None
        if size < BATCH_HEADER_SIZE or not ends:
            return None
        records = memoryview(frame)[at : at + size]
        if is_transactional(records):
            return None
        return ProduceOp(self._topic.name, partition, records, self._id)

    def response(
        self, correlation_id: int, op: ProduceOp, answer: ProduceOpResp
    ) -> PredictedAnswer:
        """The response to a request whose batch has this answer."""
        if answer.error_code or answer.error_message or answer.record_errors:
            version = self._header.api_version
            response = response_of(version, self._topic, op, answer)
            code = response.responses[0].partition_responses[0].error_code
            return encode_response(correlation_id, response, version), code
        pattern, size, before, after = self._good
        good = pattern.pack(
            size,
            correlation_id,
            before,
            op.partition,
            0,
            answer.base_offset,
            answer.log_append_time,
            answer.log_start_offset,
            after,
        )
        return [good], 0

    @cached_property
    def _good(self) -> tuple[struct.Struct, int, bytes, bytes]:
        """A good response: its layout, its length, and what is before and after its news."""
        number, error, offset, append_time, log_start = _MARK
        op = ProduceOp(self._topic.name, number, b"")
        answer = ProduceOpResp(offset, error, append_time, log_start)
        version = self._header.api_version
        whole = b"".join(encode_response(0, response_of(version, self._topic, op, answer), version))
        # The last one: what follows the news does not depend on the client.
        before, _, after = whole.rpartition(struct.pack(f">{_NEWS}", *_MARK))
        before = before[_NUMBERS.size :]  # without length and correlation id
        pattern = struct.Struct(f">ii{len(before)}s{_NEWS}{len(after)}s")
        return pattern, len(whole) - _NUMBER.size, before, after
