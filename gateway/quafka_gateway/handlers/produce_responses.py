"""The responses to Produce, from the broker's answers."""

from __future__ import annotations

from quafka_gateway.handlers.transaction_errors import NEVER, NewErrors
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, RecordError
from quafka_proto.schema.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_ERRORS = NewErrors(fenced=NEVER, abortable=11)


def response_of(
    version: int, topic: TopicProduceData, op: ProduceOp, answer: ProduceOpResp
) -> ProduceResponse:
    """The response to a request of one batch."""
    partitions = [partition_response(version, op, answer)]
    return ProduceResponse(responses=[TopicProduceResponse(topic.name, topic.topic_id, partitions)])


def partition_response(
    version: int, op: ProduceOp, answer: ProduceOpResp
) -> PartitionProduceResponse:
    """A partition's part of the response."""
    return PartitionProduceResponse(
        index=op.partition,
        error_code=answer.error_code and _ERRORS.code(answer.error_code, version),
        base_offset=answer.base_offset,
        log_append_time_ms=answer.log_append_time,
        log_start_offset=answer.log_start_offset,
        record_errors=_record_errors(answer.record_errors) if answer.record_errors else [],
        error_message=answer.error_message or None,
    )


def _record_errors(errors: list[RecordError]) -> list[BatchIndexAndErrorMessage]:
    return [BatchIndexAndErrorMessage(each.index, each.message) for each in errors]
